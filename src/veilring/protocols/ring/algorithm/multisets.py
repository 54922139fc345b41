"""Multisets of finite numbers as sorted rows filled up with `+inf`; one multiset a run.

The vectors of PP-TopK are multisets. What a party added, what its successor has not seen and which
entries are its own are differences and intersections of such rows, in which a value counts as
often as it occurs.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ("difference", "overlap", "size")


def size(A: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how many numbers each multiset holds, shape (T,)."""
    return np.asarray(np.isfinite(A).sum(axis=1), dtype=np.int64)


def difference(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the multiset difference `A - B` of each run.

    The j-th copy of a number in a row of `A` stays exactly if that row of `B` holds fewer than j
    copies. Copies are counted by binary search over all rows at once, so the cost grows as
    `T k log(T k)` and not as `T k^2`.

    Args:
        A: Shape (T, a), rows ascending.
        B: Shape (T, b), rows ascending.

    Returns:
        Shape (T, a), rows ascending and filled up with `+inf`.
    """
    a, b = _keys(A), _keys(B)
    copy = np.arange(a.size) - np.searchsorted(a, a, side="left")
    copies = np.searchsorted(b, a, side="right") - np.searchsorted(b, a, side="left")
    rest = np.where((copy >= copies).reshape(A.shape), A, np.inf)
    rest.sort(axis=1)
    return rest


def overlap(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the size of the multiset intersection of each run, shape (T,)."""
    return size(A) - size(difference(A, B))


def _keys(A: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Return (run, number) pairs as complex numbers, which NumPy orders lexicographically."""
    keys = np.empty(A.shape, dtype=np.complex128)
    keys.real = np.arange(len(A))[:, None]
    keys.imag = A
    return keys.ravel()
