"""Directions as integer vectors, whose inner products are exact however they are computed.

A unit vector is scaled to a length of at most 4096 and rounded. By the Cauchy-Schwarz inequality,
each partial sum of an inner product of two such vectors is an integer of at most 2**24, which
single precision represents exactly. Blocks of queries, single queries, other libraries, GPUs and
tables without some of the rows therefore give identical bits.

Directions are relative to a public origin. Embeddings often form a narrow cone with similar cosines
between all of them; relative to their mean, they point in all directions. The mean of private rows
is private: `private_mean` releases it once, with noise, and each record pays for it.
"""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.table import is_table
from veilring.errors import InputError
from veilring.privacy.budgets import from_units, to_units
from veilring.privacy.checks import floats

LENGTH_MAX: Final = 4096
"""The maximum length of a quantised vector. Its square is 2**24, the limit of exact whole numbers
in single precision."""
LENGTH: Final = 4090
"""The length to which vectors are scaled: rounding hardly ever makes one longer than
`LENGTH_MAX`."""
BLOCK: Final = 256
"""The number of queries of one matrix product; more do not make it faster."""
PRODUCTS_BYTES_MAX: Final = 1 << 28
"""The size of one matrix product; for large tables, blocks have fewer queries."""
MEAN_SENSITIVITY: Final = math.sqrt(2)
"""The L2 sensitivity of the sum of unit vectors and their number, released together."""
_ROWS: Final = 4096  # per step, so that a table is never copied whole in double precision


def quantise(
    features: NDArray[np.floating], origin: NDArray[np.floating] | None = None
) -> NDArray[np.float32]:
    """Return rows normalised to length 1, as whole numbers in steps of 1 / 4090.

    Args:
        features: The rows, shape (rows, features), finite and other than zero.
        origin: The origin of directions, by default 0. Each row is first scaled to length 1, then
            the origin is subtracted, and the difference is scaled. The exact mean of private rows
            reveals them: use a public point, or the result of `private_mean`.
    """
    if not is_table(features) or features.shape[1] == 0:
        raise InputError.because(
            f"features has the shape {features.shape}; it must be (rows, features)",
            field="features",
        )
    if origin is not None and not (
        origin.shape == features.shape[1:] and np.isfinite(origin).all()
    ):
        raise InputError.because(
            "origin must be finite, with one number for each feature", field="origin"
        )
    quantised = np.empty(features.shape, np.float32)
    for first in range(0, len(features), _ROWS):
        block = slice(first, first + _ROWS)
        quantised[block] = _rounded(floats("features", features[block]), origin)
    return quantised


def require_quantised(field: str, rows: NDArray[np.float32], features: int) -> NDArray[np.float64]:
    """Return the length of each row."""
    if rows.shape[1:] != (features,) or rows.dtype != np.float32:
        raise InputError.because(
            f"{field} are {rows.dtype} of the shape {rows.shape}; they must be float32 of "
            f"the shape (rows, {features}), as `quantise` returns them",
            field=field,
        )
    long = lengths(rows)
    if not (np.all((long > 0) & (long <= LENGTH_MAX)) and np.array_equal(rows, np.rint(rows))):
        raise InputError.because(f"{field} must be quantised; use `quantise` first", field=field)
    return long


def lengths(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the length of each quantised vector, about `LENGTH`, shape (rows,)."""
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    return np.asarray(np.sqrt(squares))


def inner_products(queries: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the exact inner products of quantised vectors, shape (queries, rows)."""
    return queries @ rows.T


def product_blocks(queries: int, rows: int) -> Iterator[slice]:
    """Yield slices of the queries, each sized for one matrix product with the rows."""
    step = max(1, min(BLOCK, PRODUCTS_BYTES_MAX // (4 * max(1, rows))))
    return (slice(first, first + step) for first in range(0, queries, step))


def products_by_query(
    queries: NDArray[np.float32], rows: NDArray[np.float32]
) -> Iterator[NDArray[np.float32]]:
    """Yield each query's exact inner products, shape (rows,), computed block by block."""
    for block in product_blocks(len(queries), len(rows)):
        yield from inner_products(queries[block], rows)


class Origin(NamedTuple):
    """The mean of private directions, released with noise, and its price.

    Attributes:
        mean: The origin for `quantise`, shape (features,).
        units: The price that each record must pay before the mean is used, in units of the ledger.
    """

    mean: NDArray[np.float64]
    units: int

    @property
    def price(self) -> float:
        """The price in the unit of zCDP: `paid` of `ServerRules`, `origin_price` of terms."""
        return float(from_units(self.units))


def private_mean(rows: NDArray[np.floating], sigma: float, rng: Generator) -> Origin:
    """Release the mean direction of rows by a Gaussian mechanism on their sum and number.

    Args:
        rows: The secret rows, shape (rows, features), finite and other than zero.
        sigma: The standard deviation of the noise of each sum. The noise of the mean is smaller by
            a factor of the number of rows. The price is `1 / sigma**2` in the unit of zCDP.
        rng: The secret source of randomness.
    """
    if not 0 < sigma < math.inf:
        raise InputError("sigma", sigma, "a finite number above 0")
    whole = quantise(rows)
    sums = np.append(whole.sum(axis=0, dtype=np.float64), LENGTH * len(rows))
    # A quantised row may be a little longer than `LENGTH`; the noise is scaled to the longest.
    # The noise is drawn in double precision: it is Gaussian, as the accounting assumes, up to the
    # rounding of floats. The sums are whole numbers, and noisy sums are rounded to whole numbers,
    # so that the low bits of the noise, which could reveal the sums, are not released.
    steps = np.rint(sums + sigma * LENGTH_MAX * rng.standard_normal(len(sums)))
    mean = steps[:-1] / max(LENGTH, float(steps[-1]))
    return Origin(mean, int(to_units(MEAN_SENSITIVITY**2 / (2 * sigma**2))))


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
        raise InputError.because(
            "each row of features must be finite and other than 0, to have a direction",
            field="features",
        )
    return np.asarray(rows * (length / norms)[:, None])
