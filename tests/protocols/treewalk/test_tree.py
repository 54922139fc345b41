"""The balanced k-d tree with every point in a leaf."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm.tree import Splits, build_tree

Points = Floats

# Few values, so that duplicates and ties are the rule.
_COORDINATES = st.integers(0, 6).map(float)
_POINTS = st.tuples(st.integers(1, 40), st.integers(1, 3)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=_COORDINATES)
)


def _recursive(
    points: Points, rows: list[int], level: int, found: dict[int, Points], node: int
) -> None:
    """Build Algorithm 10 literally: sort, cut at the median, go down, and record the points."""
    if len(rows) == 1:
        found[node] = points[rows[0]]
        return
    rows = sorted(rows, key=lambda row: (points[row, level % points.shape[1]], row))
    median = len(rows) // 2
    found[node] = points[rows[median]]
    _recursive(points, rows[:median], level + 1, found, 2 * node)
    _recursive(points, rows[median:], level + 1, found, 2 * node + 1)


@given(_POINTS)
def test_the_tree_is_the_tree_of_the_recursion(points: Points) -> None:
    """Each node has the same point as in the plain recursive form of Algorithm 10."""
    tree, found = build_tree(points, "least-right"), dict[int, Points]()
    _recursive(points, list(range(len(points))), 0, found, 1)
    for node, point in found.items():
        np.testing.assert_array_equal(tree.points[tree.pivots[node]], point)


@given(_POINTS)
def test_every_point_is_in_one_leaf(points: Points) -> None:
    """The leaves in order are the given points, each once."""
    tree = build_tree(points)
    assert sorted(tree.order.tolist()) == list(range(len(points)))
    np.testing.assert_array_equal(tree.points, points[tree.order])
    below = tree.starts[1 << tree.depth :]
    assert sorted(set(below.tolist())) == list(range(len(points)))


@given(_POINTS, st.sampled_from(["least-right", "midpoint"]))
def test_a_split_separates_its_halves(points: Points, splits: Splits) -> None:
    """At each inner node no point on the left is above the split, and none on the right below."""
    tree = build_tree(points, splits)
    for node in range(1, 1 << tree.depth):
        column = tree.points[:, (node.bit_length() - 1) % tree.dimensions]
        level = tree.starts[1 << node.bit_length() : 2 << node.bit_length()]
        first, middle = tree.starts[2 * node : 2 * node + 2]
        last = min(level[level > middle], default=len(tree))
        if first == middle:  # a leaf
            continue
        left, right = slice(first, middle), slice(middle, last)
        assert (column[left] <= tree.splits[node]).all()
        assert (column[right] >= tree.splits[node]).all()


def test_a_split_of_neighbouring_floats_is_the_upper_one() -> None:
    """If no number lies between two coordinates, the greater one separates them."""
    low = 1.0
    high = np.nextafter(low, 2.0)
    assert build_tree(np.array([[low], [high]]), "midpoint").splits[1] == high


@pytest.mark.parametrize(
    "points",
    [np.zeros((0, 2)), np.zeros((3, 0)), np.zeros((3, 17)), np.zeros(3), np.full((2, 1), np.nan)],
    ids=["no-point", "no-coordinate", "too-many-coordinates", "one-axis", "not-finite"],
)
def test_an_invalid_table_of_points_is_refused(points: Points) -> None:
    """Only finite points of 1 to 16 coordinates are accepted; the error names the argument."""
    with pytest.raises(InputError, match=r"points (has|must be)|are .* points"):
        build_tree(points)
