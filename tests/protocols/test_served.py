"""All systems: runs that are equal everywhere at their forecast cost, and refused parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import veilring as vr
from veilring.nodes.cluster import RUNTIMES
from veilring.protocols.system import SERVER

WAYS: dict[str, vr.System] = {
    "ring": vr.PrivateKNN(k=3),
    "search": vr.RankSearch(k=3),
    "search by one that adds up": vr.RankSearch(k=3, sum="star", batch=20),
    "search by shares": vr.RankSearch(k=3, reveal="votes"),
    "search for labels": vr.RankSearch(k=3, reveal="label"),
    "release": vr.Release(epsilon=1.0),
    "release with losses": vr.Release(epsilon=1.0, statistic="lda", tolerated=1, lost=1),
    "release by one that adds up": vr.Release(statistic="means", sum="star", tolerated=1, lost=1),
    "votes": vr.NoisyVotes(epsilon=1.0),
    "votes of nearest rows": vr.NoisyVotes(epsilon=100.0, k=5),
    "votes under masks": vr.NoisyVotes(epsilon=1.0, radius=0.5, sum="masks", batch=20),
    "verified sums": vr.Prio(epsilon=1.0),
    "verified counts": vr.Prio(epsilon=1.0, statistic="counts"),
    "reports": vr.LDPBayes(epsilon=1.0),
    "owner": vr.DataOwner(batch=20),
    "owner-grid": vr.DataOwner(batch=20, k=5, epsilon=4.0),
    "owner-candidates": vr.DataOwner(batch=20, k=5, conversion="candidates"),
    "predictions": vr.IndKNN(queries=20, block_max=7, epsilon=2.0),
    "buckets": vr.TreeWalk(batch=20),
    "neighbours": vr.TreeWalk(batch=20, splits=2, neighbours=2),
    "walk": vr.TreeWalk(batch=20, by="walk"),
    "short-walk": vr.TreeWalk(batch=20, by="walk", splits=3),
}


def test_every_system_is_tried() -> None:
    """The systems of this module are those of the registry."""
    assert {system.name for system in WAYS.values()} == set(vr.system_names())


@pytest.mark.parametrize("way", WAYS)
def test_a_system_runs_equally_on_every_runtime(way: str) -> None:
    """Labels, cost and transcript are equal on all runtimes, and the cost is the forecast.

    Its estimator has the same parameters.
    """
    train, test = vr.load("wine").split(test_share=0.25, seed=1)
    parts, system = train.partition(4, seed=1), WAYS[way]
    first, *others = (vr.run(system, parts, test, runtime=each, seed=1) for each in RUNTIMES)
    for run in others:
        assert (run.labels, run.transcript) == (first.labels, first.transcript)
        assert run.cost == first.cost
    assert first.cost == first.forecast
    forecast = system.forecast(
        parties=4, queries=len(test), features=test.features, rows=len(train)
    )
    cost, most = first.cost, forecast.most or forecast
    assert forecast.rounds <= cost.rounds <= most.rounds
    assert forecast.traffic.messages <= cost.messages <= most.traffic.messages
    assert forecast.traffic.bytes <= cost.bytes <= most.traffic.bytes
    assert (cost.setup_messages, cost.setup_bytes) == forecast.setup
    assert first.accuracy is not None
    assert first.accuracy > 0.3
    assert set(first.labels) <= set(test.features.classes)
    ranges = (train.features.ranges.lows, train.features.ranges.highs)
    estimator = vr.as_classifier(system, ranges=ranges).fit(train.X, train.y)
    assert estimator.system_ == system
    assert len(estimator.predict(test.X[:9])) == 9


def handed(system: vr.System, features: int = 2, rows: int | None = 64) -> Any:
    """Return a setup of 64 random rows of three classes, handed over by two parties."""
    rng = np.random.default_rng(1)
    places, labels = rng.random((64, features)), rng.integers(3, size=64)
    parts = {"ann": vr.Rows(places[:32], labels[:32]), "bob": vr.Rows(places[32:], labels[32:])}
    return system.setup(parts, vr.Facts(2, features, 3, rows))


async def played(
    setup: vr.Setup,
    queries: Any,
    resident: tuple[object, ...] | None = None,
    runtime: Any = "memory",
    seed: int = 3,
    **given: Any,
) -> vr.Run[Any]:
    """Return a run of one batch, by default in memory and with seed 3."""
    play, own = setup.play(queries), setup.resident if resident is None else resident
    async with vr.Cluster(setup.parties, runtime=runtime, own=own, seed=seed) as cluster:
        return await cluster.run(setup.role, only=play.only, **given, **play.public)


async def test_only_a_client_learns_labels_and_needs_the_server() -> None:
    """The server returns nothing, and a run can do without neither of them."""
    setup = handed(vr.DataOwner())
    run = await played(setup, np.full((4, 2), 0.6))
    assert run.results[SERVER] is None
    assert setup.parties == (SERVER, "ann")
    assert setup.can_do_with(["ann", SERVER])
    assert not setup.can_do_with(["ann"])


@pytest.mark.parametrize("system", [vr.TreeWalk(), vr.IndKNN()], ids=lambda system: system.name)
async def test_a_party_that_lost_its_rows_ends_the_run_by_name(system: vr.System) -> None:
    """After a restart, a party without rows reports that and nothing else."""
    setup = handed(system)
    own = (setup.places, None) if isinstance(system, vr.TreeWalk) else (None, None)
    with pytest.raises(vr.RunFailed, match=r"lost in a restart|restarted without its records"):
        await played(setup, np.full((4, 2), 0.6), own)


INVALID: Mapping[type[vr.System], Mapping[str, Sequence[object]]] = {
    vr.DataOwner: {
        "epsilon": [0.0, 11.0, 100.0],
        "k": [-1],
        "conversion": ["paper"],
        "count_share": [0.999],
        "conversion_share": [1e-300],
        "batch": [0, 5000],
    },
    vr.TreeWalk: {
        "epsilon": [0.0, 41.0],
        "by": ["taste"],
        "splits": [6, 17],
        "neighbours": [64],
        "k": [0],
    },
    vr.IndKNN: {
        "epsilon": [0.0, 1e12],
        "delta": [1.0],
        "queries": [3, 10_000_000],
        "tau": [1.1],
        "sigma2": [0.0, 1e-316, 1e300, float("nan")],
        "kernel": ["box"],
        "accountant": ["none"],
        "clients": ["all"],
        "block_max": [0],
        "centre": [0.5],
    },
}


@pytest.mark.parametrize(
    ("system", "wrong", "field"),
    [
        *(
            (system, {field: value}, field)
            for system, fields in INVALID.items()
            for field, values in fields.items()
            for value in values
        ),
        (vr.DataOwner, {"radius": 2.0}, "radii"),
        (vr.TreeWalk, {"epsilon": 1e4, "by": "walk"}, "epsilon"),
        (vr.TreeWalk, {"by": "walk", "splits": 7}, "splits"),
    ],
    ids=str,
)
def test_an_invalid_parameter_is_named_before_the_first_batch(
    system: type[vr.System], wrong: dict[str, Any], field: str
) -> None:
    """A parameter out of range, or that the rows do not allow, is refused with its name."""
    with pytest.raises(vr.InputError) as refused:
        handed(system(**wrong))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("system", "facts", "field"),
    [
        (vr.DataOwner(conversion="grid"), vr.Facts(1, 7, 2), "features"),
        (vr.DataOwner(), vr.Facts(1, 200_000, 2), "features"),
        (vr.DataOwner(), vr.Facts(1, 2, 1 << 11), "classes"),
        (vr.DataOwner(), vr.Facts(1, 2, 2, rows=10**400), "rows"),
        (vr.IndKNN(), vr.Facts(1, 0, 3), "features"),
        (vr.IndKNN(), vr.Facts(1, 1_000_000, 3), "features"),
        (vr.IndKNN(), vr.Facts(1, 2, 0), "classes"),
        (vr.IndKNN(), vr.Facts(1, 2, 1 << 17), "classes"),
        (vr.IndKNN(epsilon=1e9), vr.Facts(1, 2, 2), "epsilon"),
        (vr.TreeWalk(), vr.Facts(1, 2, 3, rows=1), "rows"),
        (vr.TreeWalk(), vr.Facts(1, 17, 3, rows=64), "features"),
        (vr.TreeWalk(), vr.Facts(1, 2, 3), "rows"),
    ],
    ids=str,
)
def test_facts_that_a_server_cannot_serve_are_refused(
    system: vr.DataOwner | vr.IndKNN | vr.TreeWalk, facts: vr.Facts, field: str
) -> None:
    """Facts with which a server could fail only after rows were read are refused by name."""
    with pytest.raises(vr.InputError) as refused:
        system.bind(facts)
    assert refused.value.field == field
