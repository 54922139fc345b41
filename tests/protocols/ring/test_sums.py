"""Secure sums: fixed point, masks, shares, cycles, and what coalitions recover in real runs."""

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy import stats
from tests.protocols.ring.worlds import FALSE_ALARM, NAMES, ask, bound, play, rng

from veilring.arrays import Floats
from veilring.data.table import Rows, pairwise_distances
from veilring.errors import InputError
from veilring.nodes.journal import View
from veilring.nodes.ring import Ring, deal_ring
from veilring.protocols.ring.algorithm.classify import local_votes
from veilring.protocols.ring.algorithm.sums import (
    FixedPoint,
    SumMethod,
    draw_masks,
    exposure_probability,
    leaked_groups,
    split_shares,
    walecki_cycles,
)
from veilring.protocols.ring.attacks import CoalitionView, recover_groups, recover_input
from veilring.protocols.ring.roles import secure_sum

_T = TypeVar("_T")

SHAPES = hnp.array_shapes(min_dims=0, max_dims=2)
WORDS = hnp.arrays(np.uint64, SHAPES)
CODES = st.builds(FixedPoint, st.integers(0, 62), st.integers(1, 5000))


def neighbours(cycles: Sequence[Sequence[_T]], victim: _T) -> list[_T]:
    """Return the two neighbours of the victim in every cycle."""
    places = [(cycle, cycle.index(victim)) for cycle in cycles]
    return [cycle[(place + way) % len(cycle)] for cycle, place in places for way in (-1, 1)]


def exposed(cycles: Sequence[Sequence[int]], coalition: Collection[int], victim: int) -> bool:
    """Return whether all neighbours of the victim belong to a coalition."""
    return set(neighbours(cycles, victim)) <= set(coalition)


def check_uniform(words: NDArray[np.uint64]) -> None:
    """Check that 64-bit words are uniform as a whole, and in each byte (false alarm 1e-6)."""
    assert stats.kstest(words.ravel() / 2**64, "uniform").pvalue > FALSE_ALARM / 9
    for byte in words.reshape(-1, 1).view(np.uint8).T:
        assert stats.chisquare(np.bincount(byte, minlength=256)).pvalue > FALSE_ALARM / 9


@given(code=CODES, data=st.data())
def test_a_value_survives_the_round_trip(code: FixedPoint, data: st.DataObject) -> None:
    """Decoding returns a value of any shape to half a step, or to the 53 bits of a double.

    All parties at the limit do not overflow, and the next double is refused.
    """
    values = data.draw(hnp.arrays(np.float64, SHAPES, elements=st.floats(-code.limit, code.limit)))
    back = code.decode(code.encode(values))
    assert (np.abs(back - values) <= 0.5 * 2.0**-code.scale_bits).all()
    encoded = int(code.encode(np.array([code.limit]))[0])
    assert encoded * code.parties <= 2**63 - 1
    assert int(code.encode(np.array([-code.limit]))[0]) == 2**64 - encoded
    beyond = math.nextafter(code.limit, math.inf)
    above = max(beyond, code.limit + 2.0**-code.scale_bits)
    assert int(math.ldexp(above, code.scale_bits)) * code.parties > 2**63 - 1
    for refused in (beyond, -beyond):
        with pytest.raises(InputError):
            code.encode(np.array([0.0, refused]))


@given(scale_bits=st.integers(0, 40), data=st.data())
def test_masked_sums_are_correct(scale_bits: int, data: st.DataObject) -> None:
    """A masked sum round the ring, unmasked and decoded, is the sum of the rounded values."""
    code = FixedPoint(scale_bits, parties=4)
    bound = min(code.limit, 2.0**10)
    values = data.draw(hnp.arrays(np.float64, (4, 3), elements=st.floats(-bound, bound)))
    secret = draw_masks(3, rng(0))
    total = secret
    for value in values:
        total = total + code.encode(value)
    step = 2.0**-scale_bits
    expected = (np.rint(values / step) * step).sum(axis=0)
    assert code.decode(total - secret).tolist() == expected.tolist()


@given(values=WORDS, shares=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_shares_add_up(values: NDArray[np.uint64], shares: int, seed: int) -> None:
    """The shares of a value add up to it modulo 2^64."""
    parts = split_shares(values, shares, rng(seed))
    assert parts.shape == (shares, *values.shape)
    assert (parts.sum(axis=0, dtype=np.uint64) == values).all()


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_masks_and_all_shares_but_one_are_uniform_and_independent(left_out: int) -> None:
    """Masks and any two of three shares are uniform, and so are the shares' sum and difference.

    The false-alarm rate is 1e-6 for each.
    """
    parts = split_shares(np.full(60_000, 12345, dtype=np.uint64), 3, rng(left_out))
    first, second = np.delete(parts, left_out, axis=0)
    for words in (first, second, first + second, first - second, draw_masks((200, 500), rng(11))):
        check_uniform(words)


@pytest.mark.parametrize("n", range(3, 61))
def test_waleckis_cycles_are_hamiltonian_and_edge_disjoint(n: int) -> None:
    """There are (n-1)//2 normalised cycles through all vertices that share no edge."""
    cycles = walecki_cycles(n)
    complete = nx.complete_graph(n)
    assert len(cycles) == (n - 1) // 2
    for cycle in cycles:
        assert cycle[0] == 0
        assert cycle[1] < cycle[-1]
        assert sorted(cycle) == list(range(n))
        ring = nx.cycle_graph(cycle)
        assert ring.number_of_edges() == n
        assert all(complete.has_edge(*edge) for edge in ring.edges)
        complete.remove_edges_from(ring.edges)
    assert complete.number_of_edges() == (0 if n % 2 else n // 2)
    assert nx.is_perfect_matching(complete, set(complete.edges)) or n % 2


def message_forms(cycles: Sequence[Sequence[int]], coalition: Collection[int], n: int) -> Floats:
    """Return a coalition's knowledge as linear forms in the shares and the masks.

    Coordinates: share j of party i is `j * n + i`; the mask of cycle j is `s * n + j`.
    """
    s = len(cycles)
    unit = np.eye(s * n + s)
    known = [unit[j * n + i] for j in range(s) for i in coalition]
    total = unit[: s * n].sum(axis=0)
    known.append(total)
    for j, cycle in enumerate(cycles):
        if cycle[0] in coalition:
            known.append(unit[s * n + j])
        message = unit[s * n + j]
        for place, party in enumerate(cycle):
            message = message + unit[j * n + party]
            if party in coalition or cycle[(place + 1) % n] in coalition:
                known.append(message)
    return np.array(known)


@pytest.mark.parametrize(("n", "s"), [(n, s) for n in range(3, 8) for s in range(1, (n + 1) // 2)])
def test_a_coalition_learns_exactly_the_sums_of_the_leaked_groups(n: int, s: int) -> None:
    """For every coalition, with or without the starter, linear algebra finds exactly these sums."""
    cycles = walecki_cycles(n)[:s]
    unit = np.eye(s * n + s)
    inputs = np.array([unit[i : s * n : n].sum(axis=0) for i in range(n)])
    for c in range(1, n):
        for coalition in itertools.combinations(range(n), c):
            known = message_forms(cycles, coalition, n)
            groups = leaked_groups(cycles, coalition)
            sums = np.array([inputs[list(group)].sum(axis=0) for group in groups])
            rank = np.linalg.matrix_rank(known)
            assert np.linalg.matrix_rank(np.vstack([known, sums])) == rank
            both = np.linalg.matrix_rank(np.vstack([known, inputs]))
            assert rank + n - both == c + len(groups)
            alone = {party for group in groups if len(group) == 1 for party in group}
            honest = set(range(n)) - set(coalition)
            assert alone == {party for party in honest if exposed(cycles, coalition, party)}


@pytest.mark.parametrize("n", [3, 4, 5, 8, 9])
def test_exposure_probability_counts_every_coalition(n: int) -> None:
    """Over all coalitions of c others the exposed fraction is the closed form, starter or not."""
    for s in range(1, (n + 1) // 2):
        cycles = walecki_cycles(n)[:s]
        for c, victim in itertools.product(range(n), (0, n - 1)):
            others = [party for party in range(n) if party != victim]
            hits = [
                exposed(cycles, corrupt, victim) for corrupt in itertools.combinations(others, c)
            ]
            assert sum(hits) / len(hits) == pytest.approx(exposure_probability(n, c, s))
    assert exposure_probability(1001, 1000, 500) == 1  # beyond the range of a float's factorials
    expected = math.comb(14, 2) / math.comb(20, 8)
    assert exposure_probability(21, 8, 3) == pytest.approx(expected, rel=1e-14)


Inputs = dict[str, Floats]


async def watched_sum(
    n: int, method: SumMethod, seed: int
) -> tuple[Ring, dict[str, View], Inputs, FixedPoint]:
    """Sum the vectors of n parties along a random ring; return all views and inputs."""
    names = [f"party-{number}" for number in range(n)]
    draws = rng(seed)
    own = [np.round(draws.normal(size=(2, 3)), 3) for _ in names]
    ring, fixed = deal_ring(names, draws), FixedPoint(20, n)
    public: dict[str, Any] = {"ring": ring, "fixed": fixed, "method": method}
    run = await play(secure_sum, own, names=names, seed=seed, watch=names, **public)
    return ring, run.views, dict(zip(names, own, strict=True)), fixed


def cycles_of(ring: Ring, method: SumMethod) -> list[list[str]]:
    """Return the parties along each cycle."""
    cycles = walecki_cycles(len(ring))[: method.cycles]
    if method.cycles == 1:
        cycles = (tuple(range(len(ring))),)
    return [[ring.order[place] for place in cycle] for cycle in cycles]


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


@pytest.mark.parametrize(
    ("n", "method"),
    [
        *((n, method) for n in (5, 8, 13) for method in methods(n)),
        (6, SumMethod("shares")),
        (6, SumMethod("masks")),
    ],
)
async def test_exactly_the_sums_of_honest_groups_are_recovered(n: int, method: SumMethod) -> None:
    """A random coalition of any size recovers the sum of each group that its view leaks.

    With shares or masks there is one group, of all honest parties.
    """
    ring, views, own, fixed = await watched_sum(n, method, seed=100 + n)
    cycles = [[ring.position(party) for party in cycle] for cycle in cycles_of(ring, method)]
    for c in range(1, n + 1):
        places = set(rng(n, c).permutation(n)[:c].tolist())
        groups = leaked_groups(cycles, places) if method.goes_round else [{*range(n)} - places]
        members = [ring.order[place] for place in places]
        seen = {name: views[name] for name in members}
        view = CoalitionView(ring, seen, {name: own[name] for name in members})
        sums = recover_groups(view, method=method, fixed=fixed)
        expected = {frozenset(ring.order[place] for place in group) for group in groups if group}
        assert sums.keys() == expected
        for group, found in sums.items():
            truth = sum(fixed.encode(own[party]) for party in group)
            assert (found == fixed.decode(np.asarray(truth))).all()


async def test_the_votes_of_a_party_in_a_knn_are_recovered() -> None:
    """In PP-kNN, both neighbours of a party recover its votes for each query."""
    draws, parameters = rng(8), bound(2, 3, k=6)
    own = [Rows(draws.random((12, 2)), draws.integers(0, 3, 12)) for _ in NAMES]
    queries, ring = draws.random((4, 2)), deal_ring(NAMES, draws)
    victim = ring.order[2]
    members = [ring.predecessor(victim), ring.successor(victim)]
    run = await ask(own, queries, parameters, ring=ring, watch=members)
    view = CoalitionView(ring, run.views)
    taken = recover_input(view, victim, method=parameters.sum, fixed=FixedPoint(24, 5))
    rows = own[NAMES.index(victim)]
    to_rows = pairwise_distances(queries, rows.features)
    votes = local_votes(to_rows, rows.labels, run.result.nearest, classes=3)
    assert taken is not None
    assert (taken == votes).all()
    assert votes.any()
