"""Exposure in a secure sum: attacks on views of real runs, compared with the truth."""

import itertools
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest
from tests.protocols.ring.worlds import NAMES, bound, play

from veilring.arrays import Floats
from veilring.data.table import Rows, pairwise_distances
from veilring.errors import InputError
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import View
from veilring.nodes.ring import Ring, deal_ring
from veilring.protocols.ring import FixedPoint, SumMethod, private_knn, secure_sum
from veilring.protocols.ring.algorithm.classify import local_votes
from veilring.protocols.ring.algorithm.sums import (
    exposure_probability,
    leaked_groups,
    walecki_cycles,
)
from veilring.protocols.ring.attacks import CoalitionView, recover_groups, recover_input

Inputs = dict[str, Floats]


async def watched_sum(
    n: int, method: SumMethod, seed: int
) -> tuple[Ring, dict[str, View], Inputs, FixedPoint]:
    """Sum the vectors of n parties along a random ring; return all views and inputs."""
    names = [f"party-{number}" for number in range(n)]
    rng = np.random.default_rng(seed)
    own = [np.round(rng.normal(size=(2, 3)), 3) for _ in names]
    ring, fixed = deal_ring(names, rng), FixedPoint(20, n)
    public: dict[str, Any] = {"ring": ring, "fixed": fixed, "method": method}
    run = await play(secure_sum, own, names=names, seed=seed, watch=names, **public)
    return ring, run.views, dict(zip(names, own, strict=True)), fixed


def cycles_of(ring: Ring, method: SumMethod) -> list[list[str]]:
    """Return the parties along each cycle."""
    cycles = walecki_cycles(len(ring))[: method.cycles]
    if method.cycles == 1:
        cycles = (tuple(range(len(ring))),)
    return [[ring.order[place] for place in cycle] for cycle in cycles]


def neighbours(cycles: list[list[str]], victim: str) -> list[str]:
    """Return the neighbours of the victim."""
    places = [(cycle, cycle.index(victim)) for cycle in cycles]
    return [c[(p + step) % len(c)] for c, p in places for step in (-1, 1)]


def methods(n: int) -> list[SumMethod]:
    """Return the plain ring, and every number of cycles from two up for n parties."""
    return [SumMethod(), *(SumMethod("cycles", s) for s in range(2, (n - 1) // 2 + 1))]


@pytest.mark.parametrize("n", range(5, 22))
async def test_exactly_the_coalitions_of_all_neighbours_recover_an_input(n: int) -> None:
    """Among 5 to 21 parties, a coalition recovers an input exactly if it has all of its neighbours.

    All 2s neighbours of a party in s cycles recover its input to the bit, even the starter's. If
    one of them is honest, no coalition recovers it, not even all other parties together.
    """
    for method in methods(n):
        ring, views, own, fixed = await watched_sum(n, method, seed=n)
        cycles = cycles_of(ring, method)
        for victim in (ring.starter, ring.order[1], ring.order[-1], ring.order[n // 2]):
            around = neighbours(cycles, victim)
            assert len(set(around)) == 2 * method.cycles
            view = CoalitionView(ring, {name: views[name] for name in around})
            taken = recover_input(view, victim, method=method, fixed=fixed)
            assert taken is not None
            assert (taken == fixed.decode(fixed.encode(own[victim]))).all()
            for missing in around:
                rest = {name: views[name] for name in views if name not in {victim, missing}}
                view = CoalitionView(ring, rest)
                assert recover_input(view, victim, method=method, fixed=fixed) is None


@pytest.mark.parametrize("n", [5, 8, 13])
async def test_the_sums_of_honest_groups_are_recovered(n: int) -> None:
    """A random coalition of any size recovers exactly the sum of each group that its view leaks."""
    rng = np.random.default_rng(n)
    for method in methods(n):
        ring, views, own, fixed = await watched_sum(n, method, seed=100 + n)
        cycles = [[ring.position(party) for party in cycle] for cycle in cycles_of(ring, method)]
        for c in range(1, n + 1):
            places = set(rng.permutation(n)[:c].tolist())
            members = {ring.order[place] for place in places}
            view = CoalitionView(ring, {name: views[name] for name in members})
            sums = recover_groups(view, method=method, fixed=fixed)
            expected = {
                frozenset(ring.order[place] for place in group)
                for group in leaked_groups(cycles, places)
            }
            assert sums.keys() == expected
            for group, found in sums.items():
                truth = sum(fixed.encode(own[party]) for party in group)
                assert (found == fixed.decode(np.asarray(truth))).all()


@pytest.mark.parametrize("name", ["shares", "masks"])
async def test_shares_and_masks_leak_only_the_sum_of_all_honest_parties(
    name: Literal["shares", "masks"],
) -> None:
    """With shares or masks, a coalition recovers only the sum of all honest parties."""
    method = SumMethod(name)
    ring, views, own, fixed = await watched_sum(6, method, seed=7)
    for c in range(1, 7):
        members = ring.order[:c]
        view = CoalitionView(
            ring, {name: views[name] for name in members}, {name: own[name] for name in members}
        )
        sums = recover_groups(view, method=method, fixed=fixed)
        honest = frozenset(ring.order[c:])
        assert sums.keys() == ({honest} if honest else set())
        for found in sums.values():
            truth = sum(fixed.encode(own[party]) for party in honest)
            assert (found == fixed.decode(np.asarray(truth))).all()


async def test_the_votes_of_a_party_in_a_knn_are_recovered() -> None:
    """In PP-kNN, both neighbours of a party recover its votes for each query."""
    rng = np.random.default_rng(8)
    own = [Rows(rng.random((12, 2)), rng.integers(0, 3, 12)) for _ in NAMES]
    queries, ring = rng.random((4, 2)), deal_ring(NAMES, rng)
    parameters = bound(2, 3, k=6)
    victim = ring.order[2]
    members = [ring.predecessor(victim), ring.successor(victim)]
    run = await play(
        private_knn,
        own,
        only={"party-0": {"queries": queries}},
        client="party-0",
        parameters=parameters,
        ring=ring,
        watch=members,
    )
    view = CoalitionView(ring, run.views)
    taken = recover_input(view, victim, method=parameters.sum, fixed=FixedPoint(24, 5))
    rows = own[NAMES.index(victim)]
    to_rows = pairwise_distances(queries, rows.features)
    votes = local_votes(to_rows, rows.labels, run.result.nearest, classes=3)
    assert taken is not None
    assert (taken == votes).all()
    assert votes.any()


@pytest.mark.parametrize(
    ("n", "c", "method"),
    [
        (4, 2, SumMethod()),
        (5, 2, SumMethod()),
        (5, 3, SumMethod()),
        (6, 4, SumMethod()),
        (5, 4, SumMethod("cycles", 2)),
        (6, 4, SumMethod("cycles", 2)),
        (7, 5, SumMethod("cycles", 2)),
    ],
)
async def test_exposure_is_as_derived(n: int, c: int, method: SumMethod) -> None:
    """The fraction of positions that expose a party to a coalition equals the derived one."""
    own = [np.array([[float(2**party)]]) for party in range(n)]
    victim, *others = (f"party-{party}" for party in range(n))
    corrupt, fixed, found = others[:c], FixedPoint(0, n), []
    async with Cluster(n, own=own, seed=100 * n + c) as cluster:
        for order in _placements(victim, corrupt, others[c:]):
            ring = Ring(order)
            run = await cluster.run(
                secure_sum, ring=ring, fixed=fixed, method=method, watch=corrupt
            )
            assert run.result.tolist() == [[2**n - 1]]  # every party counted, and once
            view = CoalitionView(ring, run.views)
            taken = recover_input(view, victim, method=method, fixed=fixed)
            assert taken is None or taken.tolist() == [[1]]
            found.append(taken is not None)
    assert sum(found) / len(found) == pytest.approx(exposure_probability(n, c, method.cycles))


def _placements(victim: str, corrupt: list[str], honest: list[str]) -> Iterator[list[str]]:
    """Yield an order of the ring for each position of the victim and of the coalition."""
    others = range(len(corrupt) + len(honest))
    for place in range(len(others) + 1):
        for taken in itertools.combinations(others, len(corrupt)):
            bad, good = iter(corrupt), iter(honest)
            order = [next(bad if at in taken else good) for at in others]
            yield [*order[:place], victim, *order[place:]]


async def test_impossible_attacks_are_refused() -> None:
    """A victim in the coalition, a view without a total, and missing inputs are refused."""
    shares, ring_sum = SumMethod("shares"), SumMethod()
    ring, views, own, fixed = await watched_sum(5, shares, seed=1)
    view = CoalitionView(ring, {"party-1": views["party-1"]})
    empty = CoalitionView(ring, {"party-1": View("party-1")}, {"party-1": own["party-1"]})
    for said, seen, method in (
        ("input of party-1 is missing", view, shares),
        ("views lack the total", view, ring_sum),
        ("views lack some of the values that parties published", empty, shares),
    ):
        with pytest.raises(InputError, match=said):
            recover_groups(seen, method=method, fixed=fixed)
    with pytest.raises(InputError, match="victim is 'party-1'"):
        recover_input(view, "party-1", method=ring_sum, fixed=fixed)
