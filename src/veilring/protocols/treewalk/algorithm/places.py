"""What the server holds: its tree, and the true neighbours of what a walk finds (Algorithm 18)."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm.tree import Splits, Tree, build_tree
from veilring.protocols.treewalk.algorithm.walks import check_queries

if TYPE_CHECKING:
    from scipy.spatial import cKDTree


@dataclass(slots=True, eq=False)
class Places:
    """A server's points, ready to be walked to.

    Attributes:
        tree: Over them.
    """

    tree: Tree
    _index: "cKDTree | None" = field(default=None, repr=False)

    @classmethod
    def of(cls, points: NDArray[np.float64], splits: Splits | None = None) -> "Places":
        """Build the tree of some points: see `build_tree`."""
        return cls(build_tree(points, splits))

    def check_neighbours(self, neighbours: int) -> None:
        """Refuse a neighbourhood that is larger than all other points.

        Raises:
            InputError: If so.
        """
        if not 0 <= neighbours < len(self.tree):
            allowed = f"0 to {len(self.tree) - 1}, all other points"
            raise InputError("neighbours", neighbours, allowed)

    def with_neighbours(self, found: NDArray[np.int32], neighbours: int) -> NDArray[np.int32]:
        """Add the B true neighbours of each point that was found: free, since it is no new step.

        Args:
            found: Positions in the tree, shape (walks, found).
            neighbours: B.

        Returns:
            Positions, shape (walks, found · (1 + B)); each point is followed by its neighbours.
        """
        self.check_neighbours(neighbours)
        if not neighbours:
            return found
        points = self.tree.points[found.ravel()]
        _, near = self._searched().query(points, k=neighbours + 1)
        near = near.reshape(found.size, neighbours + 1)
        # Among points at one place the search may prefer others to the one that was found.
        itself = near == found.ravel()[:, None]
        itself[~itself.any(axis=1), -1] = True
        others = near[~itself].reshape(found.size, neighbours)
        return np.hstack([found.reshape(-1, 1), others]).astype(np.int32).reshape(len(found), -1)

    def nearest(self, points: NDArray[np.float64], count: int) -> NDArray[np.int32]:
        """Return the positions of the nearest places to some points, shape (points, count).

        Raises:
            InputError: If the points have other dimensions, or there are fewer places.
        """
        check_queries(self.tree, points)
        if not 1 <= count <= len(self.tree):
            raise InputError("nearest", count, f"1 to {len(self.tree)}, all places")
        _, near = self._searched().query(points, k=count)
        return near.reshape(len(points), count).astype(np.int32)

    def _searched(self) -> "cKDTree":
        if self._index is None:
            from scipy.spatial import cKDTree  # noqa: PLC0415  (0.2 s, and most walks need none)

            self._index = cKDTree(self.tree.points)
        return self._index


def nearest_found(
    queries: NDArray[np.float64], points: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return which of the points found for each query is nearest, and how far it is.

    Args:
        queries: Shape (walks, dimensions).
        points: Shape (walks, found, dimensions).
    """
    with np.errstate(over="ignore"):  # a server may send points that are infinitely far
        apart = np.sqrt(np.square(points - queries[:, None]).sum(axis=2))
    nearest = apart.argmin(axis=1)
    return nearest, apart[np.arange(len(queries)), nearest]
