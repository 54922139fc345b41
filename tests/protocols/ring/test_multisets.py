"""Multisets as sorted rows, against collections.Counter."""

import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm.multisets import difference, overlap, size

Bags = list[tuple[list[int], list[int]]]
BAGS: st.SearchStrategy[Bags] = st.lists(
    st.tuples(st.lists(st.integers(-3, 3), max_size=6), st.lists(st.integers(-3, 3), max_size=4)),
    min_size=1,
    max_size=6,
)


def rows(bags: list[list[int]], width: int) -> NDArray[np.float64]:
    """Return sorted rows filled up with +inf."""
    return np.array([sorted(map(float, bag)) + [math.inf] * (width - len(bag)) for bag in bags])


@given(bags=BAGS, width=st.sampled_from([6, 9]))
def test_difference_and_overlap_are_those_of_multisets(bags: Bags, width: int) -> None:
    """Difference, intersection and size count copies, row by row, and never the padding."""
    A, B = rows([a for a, _ in bags], 6), rows([b for _, b in bags], width)
    expected = [sorted((Counter(a) - Counter(b)).elements()) for a, b in bags]
    assert (difference(A, B) == rows(expected, 6)).all()
    assert overlap(A, B).tolist() == [(Counter(a) & Counter(b)).total() for a, b in bags]
    assert size(A).tolist() == [len(a) for a, _ in bags]
