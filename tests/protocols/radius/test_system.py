"""The data owner as a system: its guarantee, cost and answers, on every runtime."""

import asyncio
from functools import cache
from typing import Any

import numpy as np
import pytest

from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.nodes.cluster import Cluster
from veilring.protocols.promise import Facts
from veilring.protocols.radius.algorithm.conversion import ByCandidates, ByGrid
from veilring.protocols.radius.algorithm.nearest import LabelledBatch
from veilring.protocols.radius.system import DataOwner, OwnerSetup
from veilring.protocols.registry import find_system
from veilring.protocols.system import SERVER
from veilring.randomness import Streams
from veilring.scenarios import Report, run_scenario
from veilring.scenarios.schema import make_scenario

WAYS: dict[str, dict[str, Any]] = {
    "radius": {},
    "nearest": {"k": 5, "epsilon": 4.0},
    "candidates": {"k": 5, "conversion": "candidates"},
}


@cache
def wine_report(way: str, runtime: str) -> Report:
    """Return the report of a run in three batches with seed 5."""
    return run_scenario(
        make_scenario(
            {
                "data": {"source": "wine"},
                "protocol": {"name": "data-owner", "batch": 20, **WAYS[way]},
                "run": {"seed": 5},
                "network": {"runtime": runtime},
            }
        )
    )


def handed(system: DataOwner, features: int = 2) -> OwnerSetup:
    """Return a setup of 64 random rows of three classes, given to the owner by two parties."""
    rng = np.random.default_rng(1)
    features_of, labels = rng.random((64, features)), rng.integers(3, size=64)
    parts = {"ann": Rows(features_of[:32], labels[:32]), "bob": Rows(features_of[32:], labels[32:])}
    return system.setup(parts, Facts(2, features, 3, 64))


@pytest.mark.parametrize("runtime", ["simulated", "tls", "processes"])
@pytest.mark.parametrize("way", ["radius", "nearest"])
def test_every_runtime_is_equal(way: str, runtime: str) -> None:
    """Labels, transcript and cost equal those of a run in memory."""
    one, other = wine_report(way, runtime), wine_report(way, "memory")
    assert (one.labels, one.transcript, one.cost) == (other.labels, other.transcript, other.cost)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_costs_its_forecast(way: str) -> None:
    """The forecast equals the cost of each run and of all batches."""
    report = wine_report(way, "memory")
    forecast = report.scenario.protocol.forecast(queries=report.queries, features=13, classes=3)
    assert report.cost == report.forecast
    assert (report.cost.batches, report.cost.rounds) == (3, forecast.rounds)
    assert (report.cost.messages, report.cost.bytes) == forecast.traffic
    epsilon = report.scenario.protocol.promise().epsilon
    assert epsilon is not None
    assert report.spent.epsilon == pytest.approx(3 * epsilon)


@pytest.mark.parametrize("way", WAYS)
def test_labels_equal_those_of_one_process(way: str) -> None:
    """With the owner's randomness, `label` returns the client's result."""
    setup = handed(DataOwner(**WAYS[way]))
    queries = np.random.default_rng(2).random((12, 2))

    async def main() -> None:
        async with Cluster(setup.parties, own=setup.resident, seed=3) as cluster:
            play = setup.play(queries)
            run = await cluster.run(setup.role, only=play.only, **play.public)
        session = Streams(3).token("session", 0).hex()
        rng = Streams(3).generator("party", SERVER, "session", session)
        answer = run.results["ann"]
        assert isinstance(answer, LabelledBatch)
        np.testing.assert_array_equal(answer.labels, setup.label(queries, rng))
        assert run.results[SERVER] is None

    asyncio.run(main())


def test_the_promise() -> None:
    """Each batch spends ε, and batches add up; a public number of rows is stated as public."""
    assert find_system("data-owner") is DataOwner
    promise = DataOwner(epsilon=0.5, radius=0.2).promise()
    assert (promise.epsilon, promise.delta, promise.unit) == (0.5, 0.0, "batch")
    assert (promise.adjacency, promise.note) == ("one row added or removed", "")
    assert "public" in DataOwner().promise().note
    assert "public" in DataOwner(k=5, public_rows=True).promise().note
    spent = handed(DataOwner(epsilon=0.5)).spent(3)
    assert spent.epsilon == pytest.approx(1.5, rel=1e-12)
    assert spent.times == 3


def test_the_meaning_of_parameters() -> None:
    """The owner's rules follow from the parameters and public numbers."""
    setup = handed(DataOwner())
    assert setup.rules.facts.rows is None
    assert handed(DataOwner(k=5)).rules.nearest(5, 1.0).conversion == ByGrid()
    wide = handed(DataOwner(k=5), features=7).rules
    assert wide.nearest(5, 1.0).conversion == ByCandidates()
    assert handed(DataOwner(k=5, public_rows=True)).rules.facts.rows == 64
    assert not setup.can_do_with(["ann"])


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 11.0}, "epsilon"),
        ({"radius": 2.0}, "radii"),
        ({"k": -1}, "k"),
        ({"conversion": "paper"}, "conversion"),
        ({"count_share": 1.0}, "count_share"),
        ({"batch": 0}, "batch"),
    ],
    ids=str,
)
def test_invalid_parameters_are_refused(wrong: dict[str, Any], field: str) -> None:
    """The error names the parameter and the allowed values."""
    with pytest.raises(InputError) as refused:
        handed(DataOwner(**wrong))
    assert refused.value.field == field
