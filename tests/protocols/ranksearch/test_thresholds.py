"""The thresholds that a search asks, whatever its bound, its arity and its rows."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from veilring.protocols.ranksearch.algorithm.search import (
    ARITY_MAX,
    ARITY_MIN,
    OCTAVES,
    End,
    TotalsSearch,
    clipped_counts,
    first_cuts,
    run_search,
    steps_at_most,
)

_ARITIES = st.integers(ARITY_MIN, ARITY_MAX)
_BOUNDS = st.floats(min_value=5e-324, max_value=1.7e308)


@given(_BOUNDS, _ARITIES)
def test_the_first_step_ends_at_the_bound(upper: float, arity: int) -> None:
    """Its thresholds ascend to the bound, at most one for each part, and none is further below."""
    asked = first_cuts(upper, arity).view(np.float64)
    assert 1 <= len(asked) <= arity
    assert asked[-1] == upper
    assert (np.diff(asked) > 0).all()
    assert asked[0] >= upper * 2.0**-OCTAVES


@given(st.integers(2, ARITY_MAX))
def test_the_first_step_divides_octaves_alike(arity: int) -> None:
    """From one threshold to the next distances grow by the same number of bit patterns."""
    widths = np.diff(first_cuts(1.0, arity))
    assert np.ptp(widths) <= 1
    assert widths.max() == -(-OCTAVES * 2**52 // arity)


@given(_BOUNDS, _ARITIES)
def test_no_search_is_longer_than_its_closed_form(upper: float, arity: int) -> None:
    """After the first step at most 2^63 patterns are left, and each step divides them by m."""
    assert len(steps_at_most(upper, arity)) <= 1 + math.ceil(63 / math.log2(arity))


@given(
    _BOUNDS,
    _ARITIES,
    st.integers(1, 4),
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
)
def test_any_distance_is_found_to_the_bit(
    upper: float, arity: int, k: int, shares: list[float]
) -> None:
    """A radius holds the k nearest rows, and a row more only if it ties with the k-th."""
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
