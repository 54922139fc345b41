"""Features as whole numbers, so that each inner product is exact however it is computed.

A unit vector is scaled to a length of at most 4096 and rounded. By Cauchy and Schwarz each partial
sum of an inner product of two of them is a whole number of at most 2**24, which single precision
holds exactly. So a block of queries, a single one, another library and a GPU give the same bits,
and so does the same table without some of its rows.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.checks import floats

LENGTH_MAX: Final = 4096
"""Its square is 2**24, the last whole number up to which single precision has all."""
LENGTH: Final = 4090
"""What vectors are scaled to: rounding hardly ever makes one longer than `LENGTH_MAX`."""
BLOCK: Final = 256
"""Queries of one matrix product: more gain no speed."""
PRODUCTS_BYTES_MAX: Final = 1 << 28
"""Of one matrix product: with more rows than fit, blocks have fewer queries."""
_ROWS: Final = 4096  # at once, so that a table is not copied in double precision


def quantise(
    features: NDArray[np.floating], origin: NDArray[np.floating] | None = None
) -> NDArray[np.float32]:
    """Return vectors of length 1, whatever theirs was, as whole numbers in steps of 1 / 4090.

    Args:
        features: Shape (rows, features), finite, none of them zero.
        origin: If given, directions are taken from there: each row is first scaled to length 1,
            `origin` is subtracted, and the difference is scaled. The mean of private rows gives
            them away: take one that is public, or that `private_mean` released.

    Raises:
        InputError: If the shapes are others, or a row is zero (or the origin) or not finite.
    """
    if features.ndim != 2 or features.shape[1] == 0:  # noqa: PLR2004 (a table has two axes)
        raise InputError("features", f"of shape {features.shape}", "shape (rows, features)")
    if origin is not None and not (
        origin.shape == features.shape[1:] and np.isfinite(origin).all()
    ):
        raise InputError("origin", f"of shape {origin.shape}", "finite, one for each feature")
    quantised = np.empty(features.shape, np.float32)
    for first in range(0, len(features), _ROWS):
        block = slice(first, first + _ROWS)
        quantised[block] = _rounded(floats("features", features[block]), origin)
    return quantised


def inner_products(queries: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the exact inner products of quantised vectors, shape (queries, rows)."""
    return queries @ rows.T


def blocks(queries: int, rows: int) -> Iterator[slice]:
    """Cut so many queries into blocks, each of one matrix product with so many rows."""
    step = max(1, min(BLOCK, PRODUCTS_BYTES_MAX // (4 * max(1, rows))))
    return (slice(first, first + step) for first in range(0, queries, step))


def products_by_query(
    queries: NDArray[np.float32], rows: NDArray[np.float32]
) -> Iterator[NDArray[np.float32]]:
    """Yield each query's exact inner products, shape (rows,); memory holds those of a block."""
    for block in blocks(len(queries), len(rows)):
        yield from inner_products(queries[block], rows)


def lengths(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the length of each quantised vector, about `LENGTH`, shape (rows,)."""
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    return np.asarray(np.sqrt(squares))


def _rounded(rows: NDArray[np.float64], origin: NDArray[np.floating] | None) -> NDArray[np.float64]:
    if origin is not None:
        rows = _scaled(rows, 1) - origin
    scaled = _scaled(rows, LENGTH)
    whole = np.rint(scaled)
    too_long = np.einsum("ij,ij->i", whole, whole) > LENGTH_MAX**2
    whole[too_long] = np.trunc(scaled[too_long])
    return whole


def _scaled(rows: NDArray[np.float64], length: float) -> NDArray[np.float64]:
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    if not np.all(np.isfinite(norms) & (norms > 0)):
        raise InputError("features", "with a row that is zero or not finite", "finite directions")
    return np.asarray(rows * (length / norms)[:, None])
