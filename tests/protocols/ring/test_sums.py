"""Fixed point, masks, shares and cycles of the secure sum, and a coalition's exact knowledge."""

import itertools
import math
from collections.abc import Callable, Collection, Sequence

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy import stats
from tests.protocols.ring.worlds import FALSE_ALARM, rng

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.protocols.ring.algorithm.sums import (
    FixedPoint,
    SumMethod,
    draw_masks,
    exposure_probability,
    leaked_groups,
    split_shares,
    walecki_cycles,
)

WORDS = hnp.arrays(np.uint64, hnp.array_shapes(min_dims=0, max_dims=2))
CODES = st.builds(FixedPoint, st.integers(0, 62), st.integers(1, 5000))


def exposed(cycles: Sequence[Sequence[int]], coalition: Collection[int], victim: int) -> bool:
    """Return whether the victim's two neighbours in every cycle belong to a coalition."""
    places = [(cycle, cycle.index(victim)) for cycle in cycles]
    beside = {cycle[(place + way) % len(cycle)] for cycle, place in places for way in (-1, 1)}
    return beside <= set(coalition)


def check_uniform(words: NDArray[np.uint64]) -> None:
    """Check that 64-bit words are uniform as a whole, and in each byte (false alarm 1e-6)."""
    assert stats.kstest(words.ravel() / 2**64, "uniform").pvalue > FALSE_ALARM / 9
    for byte in words.reshape(-1, 1).view(np.uint8).T:
        assert stats.chisquare(np.bincount(byte, minlength=256)).pvalue > FALSE_ALARM / 9


@given(code=CODES, data=st.data())
def test_a_value_survives_the_round_trip(code: FixedPoint, data: st.DataObject) -> None:
    """Decoding returns the value to half a step, or to the 53 bits of a double."""
    limit = code.limit
    values = data.draw(hnp.arrays(np.float64, 5, elements=st.floats(-limit, limit)))
    back = code.decode(code.encode(values))
    assert (np.abs(back - values) <= 0.5 * 2.0**-code.scale_bits).all()


@given(code=CODES)
def test_the_largest_sum_just_fits(code: FixedPoint) -> None:
    """All parties at the limit do not overflow, and the next double is refused."""
    encoded = int(code.encode(np.array([code.limit]))[0])
    assert encoded * code.parties <= 2**63 - 1
    assert int(code.encode(np.array([-code.limit]))[0]) == 2**64 - encoded
    unit = 2.0**-code.scale_bits
    above = max(math.nextafter(code.limit, math.inf), code.limit + unit)
    assert (int(math.ldexp(above, code.scale_bits))) * code.parties > 2**63 - 1
    for refused in (math.nextafter(code.limit, math.inf), -math.nextafter(code.limit, math.inf)):
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


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1234567.0])
def test_a_value_that_could_overflow_is_refused_without_being_shown(bad: float) -> None:
    """A value too large, or not finite, is refused by field and limit; no value is shown."""
    code = FixedPoint(scale_bits=44, parties=3)
    with pytest.raises(InputError) as caught:
        code.encode(np.array([0.5, bad]), "votes")
    assert caught.value.field == "votes"
    assert repr(code.limit) in str(caught.value)
    assert "1234567" not in str(caught.value)


def test_scalars_are_supported() -> None:
    """A value without any axis is encoded, split, added and decoded."""
    code = FixedPoint(32, 3)
    parts = split_shares(code.encode(np.array(-1.5)), 3, rng(0))
    assert parts.shape == (3,)
    assert code.decode(parts.sum(axis=0, dtype=np.uint64)) == -1.5


def test_a_mask_is_uniform() -> None:
    """Masks are uniform over all 2^64 words (false alarm 1e-6)."""
    check_uniform(draw_masks((200, 500), rng(11)))
    assert draw_masks(3, rng(1)).shape == (3,)


@given(values=WORDS, shares=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_shares_add_up(values: NDArray[np.uint64], shares: int, seed: int) -> None:
    """The shares of a value add up to it modulo 2^64."""
    parts = split_shares(values, shares, rng(seed))
    assert parts.shape == (shares, *values.shape)
    assert (parts.sum(axis=0, dtype=np.uint64) == values).all()


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_all_shares_but_one_are_uniform_and_independent(left_out: int) -> None:
    """Any two of three shares are uniform, and so is their sum."""
    parts = split_shares(np.full(60_000, 12345, dtype=np.uint64), 3, rng(left_out))
    first, second = np.delete(parts, left_out, axis=0)
    for words in (first, second, first + second, first - second):
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


def test_exposure_has_its_closed_forms() -> None:
    """One cycle gives c(c-1)/((n-1)(n-2)); if all others are corrupt, exposure is certain."""
    assert exposure_probability(10, 4) == pytest.approx(4 * 3 / (9 * 8), rel=1e-15)
    assert exposure_probability(10, 1) == 0
    expected = math.comb(14, 2) / math.comb(20, 8)
    assert exposure_probability(21, 8, 3) == pytest.approx(expected, rel=1e-14)
    assert exposure_probability(1001, 1000, 500) == 1


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("scale_bits is -1", lambda: FixedPoint(-1, 3)),
        ("scale_bits is 63", lambda: FixedPoint(63, 3)),
        ("parties is 0", lambda: FixedPoint(32, 0)),
        (f"parties is {2**63}", lambda: FixedPoint(32, 2**63)),
        ("shares is 0", lambda: split_shares(np.zeros(1, np.uint64), 0, rng())),
        ("n is 2", lambda: walecki_cycles(2)),
        ("n is 2", lambda: exposure_probability(2, 0, 1)),
        ("c is -1", lambda: exposure_probability(5, -1, 1)),
        ("c is 5", lambda: exposure_probability(5, 5, 1)),
        ("s is 0", lambda: exposure_probability(5, 2, 0)),
        ("s is 3", lambda: exposure_probability(6, 2, 3)),
        ("sum is 'square'", lambda: SumMethod("square")),  # type: ignore[arg-type]  # a mistake
        ("cycles is 1; allowed: 2 or more", lambda: SumMethod("cycles", 1)),
        ("otherwise 1", lambda: SumMethod("ring", 2)),
        ("at most 2 for 5 parties", lambda: SumMethod("cycles", 3).check(5)),
    ],
)
def test_an_impossible_argument_is_refused(said: str, call: Callable[[], object]) -> None:
    """Encodings, rings, cycles, coalitions and methods out of range are refused by name."""
    with pytest.raises(InputError, match=said):
        call()
