"""Directions, and the neighbours of a query: kernels, hashing, and reuse of released answers.

A `Kernel` computes the exact similarity of two directions. The other two parts are options of a
`Predictor`:

- `Hashing` by random hyperplanes: only rows that share a code with the query are candidates. The
  planes do not depend on the rows, so a row's codes depend on that row alone. It can be added or
  forgotten without touching another row, and the individual accounting remains valid; an index
  trained on the rows would break it. A row that hashing misses is merely not a neighbour: the
  filter runs on the candidates as on all rows. (Algorithm 4 of the paper is not used: it confuses a
  charge with a bound in line 12 and sums unclipped votes in line 15, which turns an epsilon of 0.5
  into 1.38.)
- `ReleasedAnswers`, the paper's prediction reuse: an answered query and its label are public, and
  vote on later queries without payment or noise.

Directions are integer vectors, whose inner products are exact however they are computed. A unit
vector is scaled to a length of at most 4096 and rounded. By the Cauchy-Schwarz inequality,
each partial sum of an inner product of two such vectors is an integer of at most 2**24, which
single precision represents exactly. Blocks of queries, single queries, other libraries, GPUs and
tables without some of the rows therefore give identical bits.

Directions are relative to a public origin. Embeddings often form a narrow cone with similar cosines
between all of them; relative to their mean, they point in all directions. The mean of private rows
is private: `private_mean` releases it once, with noise, and each record pays for it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Floats
from veilring.data.table import is_table
from veilring.errors import InputError
from veilring.privacy.budgets import from_units, to_units
from veilring.privacy.checks import floats, require
from veilring.protocols.nearness import NEAR_QUERIES_MIN, near_share, smallest_among

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


def require_quantised(field: str, rows: NDArray[np.float32], features: int) -> Floats:
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


def lengths(rows: NDArray[np.float32]) -> Floats:
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

    mean: Floats
    units: int

    @property
    def price(self) -> float:
        """The price in the unit of zCDP: `paid` of `ServerRules`, `origin_price` of terms."""
        return float(from_units(self.units))


def private_mean(rows: NDArray[np.floating], sigma: float, rng: Generator) -> Origin:
    """Release the mean direction of rows by a Gaussian mechanism on their sum and number.

    Args:
        sigma: The standard deviation of the noise of each sum. The noise of the mean is smaller by
            a factor of the number of rows. The price is `1 / sigma**2` in the unit of zCDP.
    """
    require(0 < sigma < math.inf, "sigma", sigma, "a finite number above 0")
    whole = quantise(rows)
    sums = np.append(whole.sum(axis=0, dtype=np.float64), LENGTH * len(rows))
    # A quantised row may be a little longer than `LENGTH`; the noise is scaled to the longest.
    # The noise is drawn in double precision: it is Gaussian, as the accounting assumes, up to the
    # rounding of floats. The sums are whole numbers, and noisy sums are rounded to whole numbers,
    # so that the low bits of the noise, which could reveal the sums, are not released.
    steps = np.rint(sums + sigma * LENGTH_MAX * rng.standard_normal(len(sums)))
    mean = steps[:-1] / max(LENGTH, float(steps[-1]))
    return Origin(mean, int(to_units(MEAN_SENSITIVITY**2 / (2 * sigma**2))))


def _rounded(rows: Floats, origin: NDArray[np.floating] | None) -> Floats:
    if origin is not None:
        rows = _scaled(rows, 1) - origin
    scaled = _scaled(rows, LENGTH)
    whole = np.rint(scaled)
    too_long = np.einsum("ij,ij->i", whole, whole) > LENGTH_MAX**2
    whole[too_long] = np.trunc(scaled[too_long])
    return whole


def _scaled(rows: Floats, length: float) -> Floats:
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    if not np.all(np.isfinite(norms) & (norms > 0)):
        raise InputError.because(
            "each row of features must be finite and other than 0, to have a direction",
            field="features",
        )
    return np.asarray(rows * (length / norms)[:, None])


KernelName = Literal["cosine", "rbf"]

TAU: Final = 0.8
"""τ if nothing is known about rows or queries, for cosines around the middle of public ranges: the
best on average over ten tables. `public_tau` is better, and so is the result of `tuning`."""
TAU_RULE: Final = "0.8 · n^(-4 / (min(f, 8) + 4)) · ε^(-0.15)"
"""The share of all pairs of queries whose cosine is at least `public_tau`, in symbols."""
PAPER_WIDTH: Final = math.exp(1.5)
"""ν² of the paper's figures, which give its logarithm."""
WIDTH_MAX: Final = 1e6
"""The largest ν². With width 1e13, values of all cosines differ by so few floats that a row could
be a neighbour or not depending on other rows. With 1e6, floats are 1e-10 apart in the cosine."""
HASH_TABLES: Final = 30
"""L in the paper's experiments."""
HASH_BITS: Final = 8
"""b in the paper's experiments."""
BITS_MAX: Final = 8  # a code is one byte
REUSED_MAX: Final = 100_000
"""The maximum number of reused answers: memory is bounded, and this many outvote any noise."""

# The margin of the cosine in the first filter of rows, so that rounding excludes no neighbour.
_MARGIN: Final = 1e-6
_ROOM_MIN: Final = 256  # released answers
# Kernels are summed in whole steps, so that order does not matter; a double can sum 2**29 kernels.
_STEPS: Final = 2.0**24


# The factor of the share of rows that vote, at ε = 1.
_NEAR_FACTOR: Final = 0.8
_NEAR_EXPONENT: Final = 0.15
# A record at a right angle to the query is not similar to it; at cosine 1 it is the query itself.
_COSINE_MIN, _COSINE_MAX = 0.2, 0.99


def tau_share(features: int, rows: int, epsilon: float) -> float:
    """Return the share of all rows that should be neighbours of a query.

    It is 0.8 n^(-4 / (min(f, 8) + 4)) ε^(-0.15). The numbers were fitted on wine, digits, glass,
    banana, australian and mushroom, at ε = 0.5 to 4 and in streams of 20 and 100 queries.
    `python -m benchmarks defaults` shows their accuracy on these tables and on others.
    """
    return near_share(rows, features, _NEAR_FACTOR * epsilon**-_NEAR_EXPONENT)


def public_tau(queries: NDArray[np.float32], kernel: "Kernel", share: float) -> float:
    """Return τ from the queries of a stream: the value that a share of their pairs reaches.

    Its cosine is from 0.2 to 0.99. Fewer than `NEAR_QUERIES_MIN` different queries are too small a
    sample of the records; then τ is `TAU`.
    """
    different = np.unique(queries, axis=0).astype(np.float64)
    if len(different) < NEAR_QUERIES_MIN:
        return TAU
    units = different / np.linalg.norm(different, axis=1, keepdims=True)
    cosine = 1.0 - smallest_among(1.0 - units @ units.T, share)
    return kernel.at(float(np.clip(cosine, _COSINE_MIN, _COSINE_MAX)))


@dataclass(frozen=True, slots=True)
class Kernel:
    """The similarity of two unit vectors: the cosine, or `exp(-|x - q|² / ν²)`.

    Attributes:
        tau: τ, the minimum value of a neighbour; above 0 and up to 1.
        width: ν², for `rbf`; above 0 and up to `WIDTH_MAX`.
    """

    name: KernelName = "cosine"
    tau: float = TAU
    width: float = PAPER_WIDTH

    def __post_init__(self) -> None:
        require(self.name in {"cosine", "rbf"}, "kernel", self.name, "cosine or rbf")
        require(0 < self.tau <= 1, "tau", self.tau, "a number above 0 and up to 1")
        if not 0 < self.width <= WIDTH_MAX:
            raise InputError("width", self.width, f"a number above 0 and up to {WIDTH_MAX:g}")

    @property
    def least_cosine(self) -> float:
        """The cosine at which a row begins to be a neighbour."""
        return self.tau if self.name == "cosine" else 1 + self.width * math.log(self.tau) / 2

    def at(self, cosine: float) -> float:
        """Return the kernel of two directions with this cosine."""
        return cosine if self.name == "cosine" else math.exp(2 * (cosine - 1) / self.width)

    def neighbours(
        self, products: NDArray[np.float32], row_lengths: Floats, query_length: float
    ) -> tuple[NDArray[np.intp], Floats]:
        """Return the ascending positions of the rows with κ ≥ τ, and the κ of each."""
        # One cheap comparison excludes nearly all rows; the kernel is computed for the rest only.
        least = (self.least_cosine - _MARGIN) * query_length
        extreme = row_lengths.min(initial=LENGTH_MAX) if least > 0 else LENGTH_MAX
        near = np.flatnonzero(products >= np.float32(least * extreme))
        cosines = products[near] / (row_lengths[near] * query_length)
        values = self._values(np.minimum(cosines, 1.0))  # rounding can make cosines exceed 1
        kept = values >= self.tau
        return near[kept], values[kept]

    def _values(self, cosines: Floats) -> Floats:
        if self.name == "cosine":
            return cosines
        # The last bit of a vectorised exponential may depend on the position in the array.
        return np.array([math.exp(2 * (cosine - 1) / self.width) for cosine in cosines.tolist()])


@dataclass(frozen=True, slots=True, eq=False)
class Hashing:
    """L tables of b random hyperplanes through the origin. Create it with `draw`.

    Attributes:
        planes: The quantised normals, shape (tables * bits, features), so that signs are exact.
    """

    planes: NDArray[np.float32]
    tables: int

    @classmethod
    def draw(
        cls, features: int, rng: Generator, tables: int = HASH_TABLES, bits: int = HASH_BITS
    ) -> Self:
        """Draw hyperplanes, uniformly among all directions.

        Args:
            tables: L, at least 1: more tables find more of the neighbours.
            bits: b, from 1 to 8: more bits give fewer candidates.
        """
        require(tables >= 1, "tables", tables, "a whole number of at least 1")
        require(1 <= bits <= BITS_MAX, "bits", bits, f"1 to {BITS_MAX}")
        return cls(quantise(rng.standard_normal((tables * bits, features))), tables)

    def codes(self, rows: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the code of each row in each table, shape (tables, rows)."""
        above = inner_products(self.planes, rows) >= 0
        bits = len(self.planes) // self.tables
        packed = np.packbits(above.reshape(self.tables, bits, len(rows)), axis=1)
        return np.ascontiguousarray(packed[:, 0])

    def candidates(self, rows: NDArray[np.uint8], query: NDArray[np.uint8]) -> NDArray[np.intp]:
        """Return the ascending positions of rows that share a code with the query in any table."""
        found = np.zeros(rows.shape[1], np.bool_)
        for table, code in zip(rows, query, strict=True):
            found |= table == code
        return np.flatnonzero(found)


class ReleasedAnswers:
    """Queries and their released labels, in the order of the answers."""

    def __init__(self, features: int, classes: int) -> None:
        self._count, self._classes = 0, classes
        self._queries = np.zeros((_ROOM_MIN, features), np.float32)
        self._lengths = np.zeros(_ROOM_MIN)
        self._labels = np.zeros(_ROOM_MIN, np.int64)

    def __len__(self) -> int:
        return self._count

    def products(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the exact inner products with all answered queries, then with each other."""
        earlier = inner_products(queries, self._queries[: self._count])
        return np.hstack([earlier, inner_products(queries, queries)])

    def votes(self, kernel: Kernel, products: NDArray[np.float32], length: float) -> Floats:
        """Return the kernels of neighbours, summed by class, and the number of neighbours.

        Args:
            products: The inner products of this query with all answered ones; more are ignored.

        Returns:
            The sums and the number, shape (classes + 1,).
        """
        near, kappa = kernel.neighbours(
            products[: self._count], self._lengths[: self._count], length
        )
        steps = np.floor(kappa * _STEPS)
        sums = np.bincount(self._labels[near], weights=steps, minlength=self._classes)
        return np.append(sums / _STEPS, len(near))

    def join(self, query: NDArray[np.float32], length: float, label: int) -> None:
        """Add an answer to the votes, unless there are `REUSED_MAX` already."""
        if self._count == REUSED_MAX:
            return
        if self._count == len(self._labels):
            more = self._count
            self._queries = np.pad(self._queries, ((0, more), (0, 0)))
            self._lengths = np.pad(self._lengths, (0, more))
            self._labels = np.pad(self._labels, (0, more))
        self._queries[self._count] = query
        self._lengths[self._count], self._labels[self._count] = length, label
        self._count += 1
