"""Systems of a server and a client: their cost and their labels."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from veilring.data.table import Rows
from veilring.errors import InputError, RunFailed
from veilring.nodes.cluster import Cluster
from veilring.nodes.run import Run
from veilring.protocols.prediction.system import IndKNN
from veilring.protocols.promise import Facts
from veilring.protocols.radius.system import DataOwner
from veilring.protocols.registry import find_system
from veilring.protocols.system import SERVER, ServerSetup, System
from veilring.protocols.treewalk.system import TreeWalk
from veilring.randomness import Streams
from veilring.scenarios import Report, run_scenario
from veilring.scenarios.schema import make_scenario

WAYS: dict[str, System] = {
    "owner": DataOwner(batch=20),
    "owner-grid": DataOwner(batch=20, k=5, epsilon=4.0),
    "owner-candidates": DataOwner(batch=20, k=5, conversion="candidates"),
    "predictions": IndKNN(queries=20, block_max=7, epsilon=2.0),
    "buckets": TreeWalk(batch=20),
    "neighbours": TreeWalk(batch=20, splits=2, neighbours=2),
    "walk": TreeWalk(batch=20, by="walk"),
    "short-walk": TreeWalk(batch=20, by="walk", splits=3),
}


@cache
def wine_report(way: str) -> Report:
    """Return the report of a run in three batches with seed 5."""
    protocol = WAYS[way].model_dump(exclude_unset=True) | {"name": WAYS[way].name}
    run = {"seed": 5, "leakage_trials": 0}
    settings = {"data": {"source": "wine"}, "protocol": protocol, "run": run}
    return run_scenario(make_scenario(settings | {"network": {"runtime": "memory"}}))


def handed(system: System, features: int = 2, rows: int | None = 64) -> Any:
    """Return a setup of 64 random rows of three classes, handed over by two parties."""
    rng = np.random.default_rng(1)
    places, labels = rng.random((64, features)), rng.integers(3, size=64)
    parts = {"ann": Rows(places[:32], labels[:32]), "bob": Rows(places[32:], labels[32:])}
    return system.setup(parts, Facts(2, features, 3, rows))


async def played(
    setup: ServerSetup, queries: Any, resident: tuple[object, ...] | None = None
) -> Run[Any]:
    """Return a run of one batch in memory, with seed 3."""
    own = setup.resident if resident is None else resident
    async with Cluster(setup.parties, own=own, seed=3) as cluster:
        play = setup.play(queries)
        return await cluster.run(setup.role, only=play.only, **play.public)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_costs_its_forecast(way: str) -> None:
    """Rounds, messages, bytes and set-up of three batches are forecast, as is their ε."""
    report = wine_report(way)
    cost, system = report.cost, report.scenario.protocol
    forecast = system.forecast(queries=report.queries, features=13, classes=3, rows=report.rows)
    assert cost == report.forecast
    assert (cost.batches, cost.rounds) == (3, forecast.rounds)
    assert (cost.messages, cost.bytes) == forecast.traffic
    assert (cost.setup_messages, cost.setup_bytes) == forecast.setup
    if system.has_owner and isinstance(system, DataOwner):
        assert report.spent.epsilon == pytest.approx(3 * system.epsilon)


@pytest.mark.parametrize("way", WAYS)
async def test_labels_equal_those_of_one_process(way: str) -> None:
    """With the randomness of the party that adds noise, `label` returns the client's result."""
    setup, queries = handed(WAYS[way]), np.random.default_rng(2).random((12, 2))
    run = await played(setup, queries)
    noisy = "ann" if isinstance(WAYS[way], TreeWalk) else SERVER
    rng = Streams(3).generator("party", noisy, "session", Streams(3).token("session", 0).hex())
    np.testing.assert_array_equal(
        setup.play(queries).labels(run.results["ann"]), setup.label(queries, rng)
    )
    assert run.results[SERVER] is None
    assert setup.parties == (SERVER, "ann")
    assert find_system(WAYS[way].name) is type(WAYS[way])
    assert setup.can_do_with(["ann", SERVER])
    assert not setup.can_do_with(["ann"])


@pytest.mark.parametrize("system", [TreeWalk(), IndKNN()], ids=lambda system: system.name)
async def test_a_party_that_lost_its_rows_ends_the_run_by_name(system: System) -> None:
    """After a restart, a party without rows reports that and nothing else."""
    setup = handed(system)
    own = (setup.places, None) if isinstance(system, TreeWalk) else (None, None)
    with pytest.raises(RunFailed, match=r"lost in a restart|restarted without its records"):
        await played(setup, np.full((4, 2), 0.6), own)


@pytest.mark.parametrize(
    ("system", "wrong", "field"),
    [
        (DataOwner, {"epsilon": 0.0}, "epsilon"),
        (DataOwner, {"epsilon": 11.0}, "epsilon"),
        (DataOwner, {"epsilon": 100.0}, "epsilon"),
        (DataOwner, {"radius": 2.0}, "radii"),
        (DataOwner, {"k": -1}, "k"),
        (DataOwner, {"conversion": "paper"}, "conversion"),
        (DataOwner, {"count_share": 0.999}, "count_share"),
        (DataOwner, {"conversion_share": 1e-300}, "conversion_share"),
        (DataOwner, {"batch": 0}, "batch"),
        (DataOwner, {"batch": 5000}, "batch"),
        (TreeWalk, {"epsilon": 0.0}, "epsilon"),
        (TreeWalk, {"epsilon": 41.0}, "epsilon"),
        (TreeWalk, {"epsilon": 1e4, "by": "walk"}, "epsilon"),
        (TreeWalk, {"by": "taste"}, "by"),
        (TreeWalk, {"by": "walk", "splits": 7}, "splits"),
        (TreeWalk, {"splits": 6}, "splits"),
        (TreeWalk, {"splits": 17}, "splits"),
        (TreeWalk, {"neighbours": 64}, "neighbours"),
        (TreeWalk, {"k": 0}, "k"),
        (IndKNN, {"epsilon": 0.0}, "epsilon"),
        (IndKNN, {"epsilon": 1e12}, "epsilon"),
        (IndKNN, {"delta": 1.0}, "delta"),
        (IndKNN, {"queries": 3}, "queries"),
        (IndKNN, {"queries": 10_000_000}, "queries"),
        (IndKNN, {"tau": 1.1}, "tau"),
        (IndKNN, {"sigma2": 0.0}, "sigma2"),
        (IndKNN, {"sigma2": 1e-316}, "sigma2"),
        (IndKNN, {"sigma2": 1e300}, "sigma2"),
        (IndKNN, {"sigma2": float("nan")}, "sigma2"),
        (IndKNN, {"kernel": "box"}, "kernel"),
        (IndKNN, {"accountant": "none"}, "accountant"),
        (IndKNN, {"clients": "all"}, "clients"),
        (IndKNN, {"block_max": 0}, "block_max"),
        (IndKNN, {"centre": 0.5}, "centre"),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else str(each),
)
def test_an_invalid_parameter_is_named_before_the_first_batch(
    system: type[System], wrong: dict[str, Any], field: str
) -> None:
    """A parameter out of range, or that the rows do not allow, is refused with its name."""
    with pytest.raises(InputError) as refused:
        handed(system(**wrong))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("system", "facts", "field"),
    [
        (DataOwner(conversion="grid"), Facts(1, 7, 2), "features"),
        (DataOwner(), Facts(1, 200_000, 2), "features"),
        (DataOwner(), Facts(1, 2, 1 << 11), "classes"),
        (DataOwner(), Facts(1, 2, 2, rows=10**400), "rows"),
        (IndKNN(), Facts(1, 0, 3), "features"),
        (IndKNN(), Facts(1, 1_000_000, 3), "features"),
        (IndKNN(), Facts(1, 2, 0), "classes"),
        (IndKNN(), Facts(1, 2, 1 << 17), "classes"),
        (IndKNN(epsilon=1e9), Facts(1, 2, 2), "epsilon"),
        (TreeWalk(), Facts(1, 2, 3, rows=1), "rows"),
        (TreeWalk(), Facts(1, 17, 3, rows=64), "features"),
        (TreeWalk(), Facts(1, 2, 3), "rows"),
    ],
    ids=str,
)
def test_facts_that_a_server_cannot_serve_are_refused(
    system: DataOwner | IndKNN | TreeWalk, facts: Facts, field: str
) -> None:
    """Facts with which a server could fail only after rows were read are refused by name."""
    with pytest.raises(InputError) as refused:
        system.bind(facts)
    assert refused.value.field == field
