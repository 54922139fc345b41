"""The thresholds of a search, for any bound, arity and rows."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.errors import InputError
from veilring.protocols.ranksearch.algorithm.search import (
    ARITY_MAX,
    ARITY_MIN,
    OCTAVES,
    End,
    TotalsSearch,
    clipped_counts,
    cuts_between,
    first_cuts,
    pattern_of,
    run_search,
    steps_at_most,
)

_ARITIES = st.integers(ARITY_MIN, ARITY_MAX)
_BOUNDS = st.floats(min_value=5e-324, max_value=1.7e308)


@given(_BOUNDS, _ARITIES)
def test_the_first_step_ends_at_the_bound(upper: float, arity: int) -> None:
    """Its thresholds ascend to the bound, at most one per part, and none is too far below."""
    asked = first_cuts(upper, arity).view(np.float64)
    assert 1 <= len(asked) <= arity
    assert asked[-1] == upper
    assert (np.diff(asked) > 0).all()
    assert asked[0] >= upper * 2.0**-OCTAVES


@given(st.integers(2, ARITY_MAX))
def test_the_first_step_divides_octaves_evenly(arity: int) -> None:
    """From one threshold to the next distances grow by equal numbers of bit patterns."""
    widths = np.diff(first_cuts(1.0, arity))
    assert np.ptp(widths) <= 1
    assert widths.max() == -(-OCTAVES * 2**52 // arity)


@given(_BOUNDS, _ARITIES)
def test_no_search_is_longer_than_its_closed_form(upper: float, arity: int) -> None:
    """After the first step at most 2^63 patterns remain, and each step divides them by m."""
    assert len(steps_at_most(upper, arity)) <= 1 + math.ceil(63 / math.log2(arity))


@given(_BOUNDS, _ARITIES, st.integers(1, 4), st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_any_distance_is_found_exactly(
    upper: float, arity: int, k: int, shares: list[float]
) -> None:
    """A radius contains the k nearest rows, and more only if they tie with the k-th."""
    distances = np.sort(upper * np.array(shares))
    smallest = np.full((1, k + 1), np.inf)
    kept = distances[: k + 1]
    smallest[0, : len(kept)] = kept
    search = TotalsSearch(1, k=k, upper=upper, arity=arity, parties=3)
    found = run_search(search, lambda asked: clipped_counts(smallest, asked))
    within = int((distances <= found.radii[0]).sum())
    assert len(found.steps) <= len(steps_at_most(upper, arity))
    if len(distances) < k:
        assert found.ends[0] == End.FEW
        assert found.radii[0] == upper
    elif found.ends[0] == End.EXACT:
        assert within == k
    else:
        assert found.ends[0] == End.TIED
        assert found.radii[0] == distances[k - 1] == distances[k]


_LOWEST, _HIGHEST = -1, int(pattern_of(1.7e308))


@given(
    st.lists(
        st.tuples(
            st.integers(_LOWEST, _HIGHEST - 2),
            st.integers(2, 300) | st.integers(2, _HIGHEST - _LOWEST),
        ),
        min_size=1,
        max_size=5,
    ),
    _ARITIES,
)
def test_cuts_equal_those_of_exact_integers(ends: list[tuple[int, int]], arity: int) -> None:
    """No product overflows: cuts ascend between the ends, and no piece is wider than necessary."""
    lows = [low for low, _ in ends]
    highs = [min(low + width, _HIGHEST) for low, width in ends]
    owner, patterns = cuts_between(np.array(lows), np.array(highs), arity)
    assert (np.diff(owner) >= 0).all()
    for number, (low, high) in enumerate(zip(lows, highs, strict=True)):
        width, cuts = high - low, patterns[owner == number].tolist()
        pieces = min(width, arity)
        assert cuts == [
            low + width // pieces * j + width % pieces * j // pieces for j in range(1, pieces)
        ]
        edges = [low, *cuts, high]
        widths = [above - below for below, above in pairwise(edges)]
        assert min(widths) >= 1
        assert max(widths) <= -(-width // pieces)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_subnormal_distances_are_distinguished(k: int) -> None:
    """The smallest floats above 0 are handled like any others, even with the largest bound."""
    distances = np.array([[0.0, 5e-324, 1e-323, 2.3e-308, 1.0]])
    search = TotalsSearch(1, k=k, upper=1.7e308, arity=16, parties=3)
    found = run_search(search, lambda asked: clipped_counts(distances[:, : k + 1], asked))
    assert found.ends[0] == End.EXACT
    assert distances[0, k - 1] <= found.radii[0] < distances[0, k]


@pytest.mark.parametrize("upper", [0.0, -0.0, -1.0, math.nan, math.inf])
def test_an_invalid_bound_is_refused(upper: float) -> None:
    """A bound is a finite number above 0."""
    with pytest.raises(InputError, match=r"upper is .*; allowed: a positive, finite number"):
        TotalsSearch(1, k=1, upper=upper, arity=16, parties=3)


@pytest.mark.parametrize("arity", [ARITY_MIN - 1, ARITY_MAX + 1])
def test_arities_out_of_range_are_refused(arity: int) -> None:
    """An interval is divided into at least two parts."""
    with pytest.raises(InputError, match=f"arity is {arity}"):
        TotalsSearch(1, k=1, upper=1.0, arity=arity, parties=3)
