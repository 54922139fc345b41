"""The tree walk as a system: its guarantee, cost and labels on every runtime."""

import asyncio
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import InputError, ProtocolViolation, RunFailed
from veilring.nodes.cluster import Cluster
from veilring.nodes.run import Run
from veilring.protocols.promise import Facts
from veilring.protocols.registry import find_system
from veilring.protocols.system import SERVER
from veilring.protocols.treewalk.algorithm.tree import Places
from veilring.protocols.treewalk.system import TreeWalk, TreeWalkSetup, play_lookup
from veilring.randomness import Streams
from veilring.scenarios import Report, run_scenario
from veilring.scenarios.schema import make_scenario

WAYS: dict[str, dict[str, Any]] = {
    "response": {},
    "neighbours": {"splits": 2, "neighbours": 2},
    "walk": {"by": "walk"},
    "buckets": {"by": "walk", "splits": 3},
}


@cache
def wine_report(way: str, runtime: str) -> Report:
    """Return the report of a run in three batches with seed 5."""
    return run_scenario(
        make_scenario(
            {
                "data": {"source": "wine"},
                "protocol": {"name": "tree-walk", "batch": 20, **WAYS[way]},
                "run": {"seed": 5},
                "network": {"runtime": runtime},
            }
        )
    )


def handed(system: TreeWalk, rows: int = 64, features: int = 2) -> TreeWalkSetup:
    """Return a setup of random rows of three classes, published by two parties."""
    rng = np.random.default_rng(1)
    table = Rows(rng.random((rows, features)), rng.integers(3, size=rows))
    half = rows // 2
    parts = {
        "ann": Rows(table.features[:half], table.labels[:half]),
        "bob": Rows(table.features[half:], table.labels[half:]),
    }
    return system.setup(parts, Facts(2, features, 3, rows))


def played(
    setup: TreeWalkSetup, queries: Floats, resident: tuple[object, ...] | None = None
) -> Run[Any]:
    """Return a run of one batch in memory, with seed 3."""

    async def main() -> Run[Any]:
        own = setup.resident if resident is None else resident
        async with Cluster(setup.parties, own=own, seed=3) as cluster:
            play = setup.play(queries)
            return await cluster.run(setup.role, only=play.only, **play.public)

    return asyncio.run(main())


@pytest.mark.parametrize("runtime", ["simulated", "tls", "processes"])
@pytest.mark.parametrize("way", ["response", "walk"])
def test_every_runtime_is_equal(way: str, runtime: str) -> None:
    """Every runtime gives the labels, transcript and cost of a run in memory."""
    one, other = wine_report(way, runtime), wine_report(way, "memory")
    assert (one.labels, one.transcript, one.cost) == (other.labels, other.transcript, other.cost)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_costs_its_forecast(way: str) -> None:
    """The forecast equals the cost of all batches and of each run."""
    report = wine_report(way, "memory")
    system = report.scenario.protocol
    forecast = system.forecast(queries=report.queries, features=13, classes=3, rows=report.rows)
    assert report.cost == report.forecast
    assert report.cost.batches == 3
    assert report.cost.rounds == forecast.rounds
    assert (report.cost.messages, report.cost.bytes) == forecast.traffic
    assert (report.cost.setup_messages, report.cost.setup_bytes) == forecast.setup


@pytest.mark.parametrize("way", WAYS)
def test_labels_equal_those_of_one_process(way: str) -> None:
    """With the client's randomness, `label` returns the labels of a networked run."""
    setup = handed(TreeWalk(**WAYS[way]))
    queries = np.random.default_rng(2).random((12, 2))
    run = played(setup, queries)
    session = Streams(3).token("session", 0).hex()
    rng = Streams(3).generator("party", "ann", "session", session)
    np.testing.assert_array_equal(run.results["ann"], setup.label(queries, rng))
    assert run.results[SERVER] is None
    assert setup.parties == (SERVER, "ann")


@pytest.mark.parametrize("way", WAYS)
def test_a_query_spends_at_most_epsilon(way: str) -> None:
    """The drawn distribution is slightly noisier than requested, for any number of batches."""
    setup = handed(TreeWalk(epsilon=6.0, **WAYS[way]))
    spent = setup.spent(3)
    assert spent == setup.spent(1)
    assert spent.epsilon is not None
    assert 0.999999 * 6.0 < spent.epsilon <= 6.0
    assert (spent.delta, spent.times, spent.unit) == (0.0, 1, "query")
    assert setup.promise.epsilon == spent.epsilon


def test_the_promise() -> None:
    """The guarantee covers any two queries."""
    assert find_system("tree-walk") is TreeWalk
    promise = TreeWalk().promise()
    assert (promise.epsilon, promise.delta, promise.unit) == (8.0, 0.0, "query")
    assert (promise.measure, promise.adjacency) == ("ε-LDP", "any two queries")


def test_equal_queries_of_a_batch_are_asked_once() -> None:
    """Equal queries of a batch have one answer, are paid for once and keep their positions."""
    setup = handed(TreeWalk(epsilon=1e-3, k=1))
    queries = np.random.default_rng(2).random((10, 2))
    twice = np.vstack([queries[::-1], queries, queries])
    run, play = played(setup, twice), setup.play(twice)
    cost = play.forecast(run)
    assert cost == setup.lookup.cost(10)
    assert (run.cost.rounds, run.cost.bytes) == (cost.rounds, cost.traffic.bytes)
    labels = run.results["ann"]
    np.testing.assert_array_equal(labels[10:20], labels[:10][::-1])
    np.testing.assert_array_equal(labels[20:], labels[10:20])


def test_the_reference_is_the_classifier_without_privacy() -> None:
    """The reference equals scikit-learn over all rows, and a look-up of all rows."""
    setup = handed(TreeWalk(k=3, by="walk", splits=6))
    queries = np.random.default_rng(2).random((30, 2))
    rows = np.vstack([part.features for part in setup.parts.values()])
    labels = np.concatenate([part.labels for part in setup.parts.values()])
    expected = KNeighborsClassifier(3).fit(rows, labels).predict(queries)
    np.testing.assert_array_equal(setup.reference(queries), expected)
    np.testing.assert_array_equal(setup.label(queries, np.random.default_rng(0)), expected)


def test_a_server_that_names_an_unknown_place_is_named() -> None:
    """A client refuses a place number beyond the published rows."""
    setup = handed(TreeWalk(k=1))
    places = Places.of(np.random.default_rng(1).random((64, 2)))
    with pytest.raises(RunFailed) as failed:
        played(setup, np.full((1, 2), 0.5), (places, np.zeros(1, dtype=np.int64)))
    assert any(isinstance(error, ProtocolViolation) for error in failed.value.errors.values())


def test_a_party_without_its_rows_refuses() -> None:
    """After a restart, a party without rows raises that error and no other."""
    setup = handed(TreeWalk())
    with pytest.raises(RunFailed) as failed:
        played(setup, np.full((1, 2), 0.5), (setup.places, None))
    assert any(isinstance(error, InputError) for error in failed.value.errors.values())
    assert setup.role is play_lookup
    assert not setup.can_do_with(["ann"])


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 41.0}, "epsilon"),
        ({"epsilon": 1e4, "by": "walk"}, "epsilon"),
        ({"by": "taste"}, "by"),
        ({"by": "walk", "splits": 7}, "splits"),
        ({"splits": 6}, "splits"),
        ({"splits": 17}, "splits"),
        ({"neighbours": 64}, "neighbours"),
        ({"k": 0}, "k"),
    ],
    ids=str,
)
def test_invalid_parameters_are_refused(wrong: dict[str, Any], field: str) -> None:
    """An impossible parameter is refused with its name and the allowed values."""
    with pytest.raises(InputError) as refused:
        handed(TreeWalk(**wrong))
    assert refused.value.field == field


def test_invalid_rows_are_refused() -> None:
    """A single row, more than sixteen features or an unknown number of rows is refused."""
    with pytest.raises(InputError, match="at least 2"):
        TreeWalk().bind(Facts(2, 2, 3, rows=1))
    with pytest.raises(InputError, match="1 to 16"):
        handed(TreeWalk(), features=17)
    with pytest.raises(InputError, match="public rows"):
        TreeWalk().forecast(queries=1, features=2)
