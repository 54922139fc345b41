"""Multisets as sorted rows, compared with collections.Counter."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.arrays import Floats
from veilring.protocols.ring.algorithm import consistency
from veilring.protocols.ring.algorithm.consistency import (
    copy_numbers,
    difference,
    multiplicities,
    multiset_size,
    overlap,
)

Bags = list[tuple[list[int], list[int]]]
BAGS: st.SearchStrategy[Bags] = st.lists(
    st.tuples(st.lists(st.integers(-3, 3), max_size=6), st.lists(st.integers(-3, 3), max_size=4)),
    min_size=1,
    max_size=6,
)


def rows(bags: list[list[int]], width: int) -> Floats:
    """Return sorted rows padded with +inf."""
    return np.array([sorted(map(float, bag)) + [math.inf] * (width - len(bag)) for bag in bags])


@given(bags=BAGS, width=st.sampled_from([6, 9]))
def test_difference_and_overlap_equal_those_of_multisets(bags: Bags, width: int) -> None:
    """Difference, intersection and size count copies, row by row, without the padding."""
    A, B = rows([a for a, _ in bags], 6), rows([b for _, b in bags], width)
    expected = [sorted((Counter(a) - Counter(b)).elements()) for a, b in bags]
    assert (difference(A, B) == rows(expected, 6)).all()
    assert overlap(A, B).tolist() == [(Counter(a) & Counter(b)).total() for a, b in bags]
    assert multiset_size(A).tolist() == [len(a) for a, _ in bags]


@pytest.mark.parametrize("compared", [0, 48])
@given(bags=BAGS)
def test_each_number_is_counted_in_the_other_multiset(compared: int, bags: Bags) -> None:
    """By comparing pairs or by searching, each number has its copies in B counted."""
    A, B = rows([a for a, _ in bags], 6), rows([b for _, b in bags], 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consistency, "COMPARED_WIDTH_MAX", compared)
        counts = multiplicities(A, B)
    expected = [[Counter(b)[v] for v in a] for a, b in zip(A.tolist(), B.tolist(), strict=True)]
    assert counts.tolist() == expected


@given(bags=BAGS)
def test_copies_are_numbered_from_zero(bags: Bags) -> None:
    """A number's copy number is the number of equal ones before it in its row."""
    A = rows([a for a, _ in bags], 6)
    expected = [[row[:place].count(v) for place, v in enumerate(row)] for row in A.tolist()]
    assert copy_numbers(A).tolist() == expected
