"""Multisets of finite numbers as sorted rows filled up with `+inf`; one multiset a run.

The vectors of PP-TopK are multisets. What a party added, what its successor has not seen and which
entries are its own are differences and intersections of such rows, in which a value counts as
often as it occurs.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

# Comparing all pairs costs less than searching, up to rows about this wide: it has no branches.
COMPARED_WIDTH_MAX: Final = 48


def multiset_size(A: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how many numbers each multiset holds, shape (T,)."""
    return np.asarray(np.isfinite(A).sum(axis=1), dtype=np.int64)


def copy_numbers(A: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return how many numbers equal to it stand before each number in its row, shape (T, a)."""
    columns = np.ascontiguousarray(A.T)
    copies = np.zeros(columns.shape, dtype=np.int32)
    for place in range(1, len(columns)):
        again = columns[place] == columns[place - 1]
        np.multiply(copies[place - 1] + 1, again, out=copies[place])
    return copies.T


def multiplicities(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return how often each number in a row of `A` occurs in that row of `B`, shape (T, a).

    Wide rows are searched by bisection over all rows at once, so that the cost grows as
    `T k log(T k)` and not as `T k^2`.

    Args:
        A: Shape (T, a), rows ascending.
        B: Shape (T, b), rows ascending.
    """
    if B.shape[1] <= COMPARED_WIDTH_MAX:
        # With the runs side by side in memory a comparison takes a fraction of a nanosecond.
        columns = np.ascontiguousarray(A.T)
        counts = np.zeros(columns.shape, dtype=np.int32)
        for column in np.ascontiguousarray(B.T):
            counts += columns == column
        return counts.T
    a, b = _keys(A), _keys(B)
    first = np.minimum(np.searchsorted(b, a, side="left"), b.size - 1)
    # From its first occurrence on, as many copies follow as precede it when read backwards.
    copies = 1 + copy_numbers(B[:, ::-1])[:, ::-1].ravel()
    return np.where(b[first] == a, copies[first], 0).reshape(A.shape)


def difference(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the multiset difference `A - B` of each run.

    The j-th copy of a number in a row of `A` stays exactly if that row of `B` holds fewer than j
    copies.

    Args:
        A: Shape (T, a), rows ascending.
        B: Shape (T, b), rows ascending.

    Returns:
        Shape (T, a), rows ascending and filled up with `+inf`.
    """
    rest = np.where(copy_numbers(A) >= multiplicities(A, B), A, np.inf)
    rest.sort(axis=1)
    return rest


def overlap(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the size of the multiset intersection of each run, shape (T,)."""
    return multiset_size(A) - multiset_size(difference(A, B))


def _keys(A: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Return (run, number) pairs as complex numbers, which NumPy orders lexicographically."""
    keys = np.empty(A.shape, dtype=np.complex128)
    keys.real = np.arange(len(A))[:, None]
    keys.imag = A
    return keys.ravel()
