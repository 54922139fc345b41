"""Neighbours of a query: kernels, hashing to find candidates, and reuse of released answers.

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
"""

import math
from dataclasses import dataclass
from typing import Final, Literal, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.nearness import NEAR_QUERIES_MIN, near_share, smallest_among
from veilring.protocols.prediction.algorithm.features import (
    LENGTH_MAX,
    inner_products,
    lengths,
    products_by_query,
    quantise,
)

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

    Args:
        features: f, the number of features, at least 1.
        rows: n, the number of records, at least 1.
        epsilon: The ε of the stream, above 0.
    """
    return near_share(rows, features, _NEAR_FACTOR * epsilon**-_NEAR_EXPONENT)


def public_tau(queries: NDArray[np.float32], kernel: "Kernel", share: float) -> float:
    """Return τ from the queries of a stream: the value that a share of their pairs reaches.

    Its cosine is from 0.2 to 0.99. Fewer than `NEAR_QUERIES_MIN` different queries are too small a
    sample of the records; then τ is `TAU`.

    Args:
        queries: The quantised queries, shape (queries, features).
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
        if self.name not in {"cosine", "rbf"}:
            raise InputError("kernel", self.name, "cosine or rbf")
        if not 0 < self.tau <= 1:
            raise InputError("tau", self.tau, "a number above 0 and up to 1")
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
        self,
        products: NDArray[np.float32],
        row_lengths: NDArray[np.float64],
        query_length: float,
    ) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Find the neighbours of a query: the rows with κ ≥ τ.

        Args:
            products: The exact inner products of the rows with the query, shape (rows,).
            row_lengths: The lengths of the rows, shape (rows,).

        Returns:
            The positions of the neighbours in ascending order, and the κ of each.
        """
        # One cheap comparison excludes nearly all rows; the kernel is computed for the rest only.
        least = (self.least_cosine - _MARGIN) * query_length
        extreme = row_lengths.min(initial=LENGTH_MAX) if least > 0 else LENGTH_MAX
        near = np.flatnonzero(products >= np.float32(least * extreme))
        cosines = products[near] / (row_lengths[near] * query_length)
        values = self._values(np.minimum(cosines, 1.0))  # rounding can make cosines exceed 1
        kept = values >= self.tau
        return near[kept], values[kept]

    def _values(self, cosines: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.name == "cosine":
            return cosines
        # The last bit of a vectorised exponential may depend on the position in the array.
        return np.array([math.exp(2 * (cosine - 1) / self.width) for cosine in cosines.tolist()])


def kernel_vote(
    rows: NDArray[np.float32],
    labels: NDArray[np.int64],
    queries: NDArray[np.float32],
    kernel: Kernel,
    classes: int,
) -> NDArray[np.int64]:
    """Return the class with the greatest sum of κ over rows with κ ≥ τ, without privacy.

    A query without a neighbour gets the label of the nearest row.

    Args:
        rows: The quantised rows, shape (rows, features), at least one.
        labels: The label of each row, shape (rows,).
        queries: The quantised queries, shape (queries, features).
    """
    row_lengths, found = lengths(rows), np.empty(len(queries), np.int64)
    products = zip(products_by_query(queries, rows), lengths(queries).tolist(), strict=True)
    for place, (each, length) in enumerate(products):
        near, kappa = kernel.neighbours(each, row_lengths, length)
        if len(near):
            found[place] = np.bincount(labels[near], kappa, classes).argmax()
        else:
            found[place] = labels[(each / row_lengths).argmax()]
    return found


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
        if tables < 1:
            raise InputError("tables", tables, "a whole number of at least 1")
        if not 1 <= bits <= BITS_MAX:
            raise InputError("bits", bits, f"1 to {BITS_MAX}")
        return cls(quantise(rng.standard_normal((tables * bits, features))), tables)

    def codes(self, rows: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the code of each row in each table, shape (tables, rows)."""
        above = inner_products(self.planes, rows) >= 0
        bits = len(self.planes) // self.tables
        packed = np.packbits(above.reshape(self.tables, bits, len(rows)), axis=1)
        return np.ascontiguousarray(packed[:, 0])

    def candidates(self, rows: NDArray[np.uint8], query: NDArray[np.uint8]) -> NDArray[np.intp]:
        """Return the rows that share a code with the query in at least one table.

        Args:
            rows: The codes of the rows, shape (tables, rows).
            query: The codes of the query, shape (tables,).

        Returns:
            The positions of these rows in ascending order.
        """
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

    def votes(
        self, kernel: Kernel, products: NDArray[np.float32], length: float
    ) -> NDArray[np.float64]:
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
