"""The server's tree over its points (Algorithm 10), and true neighbours of points (Algorithm 18).

The tree is a balanced k-d tree in arrays, with every point in a leaf. All levels are full: a leaf
that the recursion reaches one level early is repeated below. Every walk from the root therefore
takes the same number of steps, and its length reveals nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.data.table import is_table
from veilring.errors import InputError
from veilring.privacy.checks import require, require_that

# With more dimensions, the few levels of a tree cannot separate near points from far ones.
DIMENSIONS_MAX: Final = 16
# Positions are 32-bit numbers, and nodes are numbered up to four times the points.
POINTS_MAX: Final = 1 << 29

Splits = Literal["least-right", "midpoint"]
"""The split of a node: the least coordinate of its right half, as in the paper, or the midpoint
between that and the greatest coordinate of its left half."""


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A tree over N points. Node 1 is the root, and the children of node i are 2i and 2i + 1.

    Attributes:
        points: The points in the order of the leaves, shape (N, dimensions).
        order: The index of each of them among the points given, shape (N,).
        splits: The coordinate that each inner node compares with, in the dimension of its level,
            shape (2**depth,).
        pivots: The position of the point that represents each node: for an inner node the least
            point of its right half, for a leaf its own point; shape (2**(depth + 1),).
        starts: The position of the first point below each node, shape (2**(depth + 1),).
    """

    points: Floats
    order: Ints
    splits: Floats
    pivots: NDArray[np.int32]
    starts: NDArray[np.int32]
    depth: int

    def __len__(self) -> int:
        return len(self.points)

    @property
    def dimensions(self) -> int:
        """The number of coordinates of a point."""
        return int(self.points.shape[1])


def depth_of(points: int) -> int:
    """Return L = ⌈log2 N⌉, the depth of the tree over the given number of points, at least 1."""
    return (points - 1).bit_length()


def build_tree(points: Floats, splits: Splits | None = None) -> Tree:
    """Return the balanced tree of some points, in O(dimensions · N log N).

    Points with equal coordinates keep their order, so the tree is deterministic.

    Args:
        splits: The kind of splits. By default the midpoint in one dimension, where it leads to the
            nearest point instead of the next lower one, and otherwise `least-right`.
    """
    _check(points)
    dimensions = points.shape[1]
    splits = splits or ("midpoint" if dimensions == 1 else "least-right")
    depth = depth_of(len(points))
    by = [np.argsort(column, kind="stable") for column in points.T]
    starts, ends = np.zeros(1, dtype=np.int64), np.full(1, len(points))
    firsts = [starts]
    values, chosen = [np.zeros(1)], []
    for level in range(depth):
        column, order = points[:, level % dimensions], by[level % dimensions]
        middles = starts + (ends - starts) // 2
        chosen.append(order[middles])
        values.append(_values(column, order, starts, middles, splits))
        _partition(by, order, starts, middles, level % dimensions)
        starts, ends = _children(starts, middles, ends)
        firsts.append(starts)
    leaves = by[0]
    positions = np.empty(len(points), dtype=np.int32)
    positions[leaves] = np.arange(len(points), dtype=np.int32)
    chosen.append(leaves[starts])
    return Tree(
        points=np.ascontiguousarray(points[leaves]),
        order=leaves,
        splits=np.concatenate(values),
        pivots=_from_one(positions[each] for each in chosen),
        starts=_from_one(firsts),
        depth=depth,
    )


def check_queries(tree: Tree, queries: Floats) -> None:
    """Check that queries are finite and have the dimensions of the tree's points."""
    if queries.shape[1:] != (tree.dimensions,):
        allowed = f"(queries, {tree.dimensions})"
        raise InputError.because(
            f"queries has the shape {queries.shape}; it must be {allowed}", field="queries"
        )
    require_that(bool(np.isfinite(queries).all()), "queries", "queries must be finite")


def _check(points: Floats) -> None:
    if not is_table(points) or not 1 <= points.shape[1] <= DIMENSIONS_MAX:
        allowed = f"(N, dimensions), with 1 to {DIMENSIONS_MAX} dimensions"
        raise InputError.because(
            f"points has the shape {points.shape}; it must be {allowed}", field="points"
        )
    if not 1 <= len(points) <= POINTS_MAX:
        raise InputError.because(
            f"there are {len(points)} points; 1 to {POINTS_MAX} are allowed", field="points"
        )
    require_that(bool(np.isfinite(points).all()), "points", "points must be finite")


def _values(column: Floats, order: Ints, starts: Ints, middles: Ints, splits: Splits) -> Floats:
    least_right = column[order[middles]]
    if splits == "least-right":
        return least_right
    greatest_left = column[order[np.maximum(middles - 1, starts)]]
    between = greatest_left + (least_right - greatest_left) / 2
    # The midpoint of two adjacent floats may round to the lower one, which belongs to the left.
    return np.where(between > greatest_left, between, least_right)


def _partition(by: list[Ints], order: Ints, starts: Ints, middles: Ints, dimension: int) -> None:
    """Move the left half of each node before its right half, in the order of each coordinate."""
    node = np.zeros(len(order), dtype=np.int64)
    node[starts[1:]] = 1
    node = np.cumsum(node)
    goes_left = np.empty(len(order), dtype=np.bool_)
    goes_left[order] = np.arange(len(order)) < middles[node]
    for other, sorted_points in enumerate(by):
        if other == dimension:
            continue
        left = goes_left[sorted_points]
        before: Ints = np.cumsum(left) - left
        lefts: Ints = before - before[starts][node]
        rights = np.arange(len(order)) - starts[node] - lefts
        place = np.where(left, starts[node] + lefts, middles[node] + rights)
        moved = np.empty_like(sorted_points)
        moved[place] = sorted_points
        by[other] = moved


def _children(starts: Ints, middles: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return the bounds of all children in order. Both children of a leaf are the leaf itself."""
    is_leaf = middles == starts
    firsts = np.stack([starts, middles], axis=1)
    lasts = np.stack([np.where(is_leaf, ends, middles), ends], axis=1)
    return firsts.ravel(), lasts.ravel()


def _from_one(levels: Iterable[NDArray[np.integer]]) -> NDArray[np.int32]:
    """Join the levels of a tree into one array in which the root has index 1."""
    return np.concatenate([np.zeros(1, dtype=np.int32), *levels]).astype(np.int32)


if TYPE_CHECKING:
    from scipy.spatial import cKDTree


@dataclass(slots=True, eq=False)
class Places:
    """A server's points with their tree and, once needed, a search index."""

    tree: Tree
    _index: "cKDTree | None" = field(default=None, repr=False)

    @classmethod
    def of(cls, points: Floats, splits: Splits | None = None) -> "Places":
        """Build the tree of some points: see `build_tree`."""
        return cls(build_tree(points, splits))

    def check_neighbours(self, neighbours: int) -> None:
        """Check that a point has at least the given number of neighbours."""
        allowed = f"0 to {len(self.tree) - 1}, all other points"
        require(0 <= neighbours < len(self.tree), "neighbours", neighbours, allowed)

    def with_neighbours(self, found: NDArray[np.int32], neighbours: int) -> NDArray[np.int32]:
        """Add the B true neighbours of each point found, which is free post-processing.

        Returns:
            The positions, shape (walks, found · (1 + B)); each point is followed by its neighbours.
        """
        self.check_neighbours(neighbours)
        if not neighbours:
            return found
        points = self.tree.points[found.ravel()]
        _, near = self._searched().query(points, k=neighbours + 1)
        near = near.reshape(found.size, neighbours + 1)
        # Among points with equal coordinates, the search may return others than the point itself.
        itself = near == found.ravel()[:, None]
        itself[~itself.any(axis=1), -1] = True
        others = near[~itself].reshape(found.size, neighbours)
        return np.hstack([found.reshape(-1, 1), others]).astype(np.int32).reshape(len(found), -1)

    def nearest(self, points: Floats, count: int) -> NDArray[np.int32]:
        """Return the positions of the places nearest to each point, shape (points, count)."""
        check_queries(self.tree, points)
        if not 1 <= count <= len(self.tree):
            raise InputError("nearest", count, f"1 to {len(self.tree)}, all places")
        _, near = self._searched().query(points, k=count)
        return near.reshape(len(points), count).astype(np.int32)

    def _searched(self) -> "cKDTree":
        if self._index is None:
            from scipy.spatial import cKDTree

            self._index = cKDTree(self.tree.points)
        return self._index


def nearest_found(queries: Floats, points: Floats) -> tuple[Ints, Floats]:
    """Return the index and distance of the nearest point found for each query."""
    with np.errstate(over="ignore"):  # a malicious server may send points whose distance overflows
        apart = np.sqrt(np.square(points - queries[:, None]).sum(axis=2))
    nearest = apart.argmin(axis=1)
    return nearest, apart[np.arange(len(queries)), nearest]
