"""The individual filter: the payment and the vote of each record for a query (Algorithm 3).

`answer_query` is the mechanism. `StoredRows` stores its records: it can grow, and a forgotten row
is overwritten. Budgets are whole units, so spending is exact and rounding never overcharges a
record. Votes are whole numbers too, so their sum does not depend on their order.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.errors import InputError
from veilring.privacy.budgets import AMOUNT_MAX, UNITS, to_units
from veilring.protocols.prediction.algorithm.directions import Hashing, require_quantised

LEAST_NEIGHBOURS: Final = 30
"""The least K; with a smaller one, the noise of the count would determine the noise of votes."""
SIGMA2_RULE: Final = "(T / 20)^0.15 / √ε"
"""The rule of `public_sigma2`, in symbols."""
STREAM_QUERIES_MIN: Final = 4
"""The shortest stream: being counted costs 3 B / T of B, and votes need a part of B as well."""

# Outside these bounds floats overflow or underflow for some numbers of neighbours.
SIGMA_MIN: Final = 1e-9
SIGMA_MAX: Final = 1e12

_STREAM: Final = 20.0  # the length of a stream for which σ2 is 1 / √ε
_STREAM_EXPONENT: Final = 0.15

# A vote is at most 1. Steps this fine are far below the noise, and 2**28 votes add up exactly.
_VOTE_STEPS: Final = 2.0**24
# Reduces a contribution by more than the rounding of its payment.
_SHORT_OF: Final = 1 - 2.0**-40
# The initial capacity, which doubles when it is exhausted.
_ROOM_MIN: Final = 16


def public_sigma2(epsilon: float, queries: int) -> float:
    """Return σ2 from public numbers: (T / 20)^0.15 / √ε.

    A vote is clipped at σ2 √(2 K z), where z is the record's remaining budget. A greater ε needs
    less noise, and in a long stream each query gets so little that fewer but larger votes are more
    informative. The numbers were fitted like those of `tau_share`.
    """
    found = math.pow(queries / _STREAM, _STREAM_EXPONENT) / math.sqrt(epsilon)
    return min(SIGMA_MAX, max(SIGMA_MIN, found))


@dataclass(frozen=True, slots=True)
class FilterParameters:
    """The public parameters of Ind-KNN's filter.

    Attributes:
        queries: T, at least 4, the number of queries that determines the noise of counts; more may
            be asked. Being counted costs 3 B / T, so fewer would leave nothing for a vote.
        budget: B, the budget of each record, in the unit of zCDP, up to `AMOUNT_MAX`: see
            `individual_budget`.
        sigma2: σ2, the noise of a vote per square root of the neighbours, from `SIGMA_MIN` to
            `SIGMA_MAX`; σ1, which follows from `queries` and `budget`, has the same range.
    """

    classes: int
    queries: int
    budget: float
    sigma2: float

    def __post_init__(self) -> None:
        for name, least in (("classes", 1), ("queries", STREAM_QUERIES_MIN)):
            if getattr(self, name) < least:
                raise InputError(name, getattr(self, name), f"a whole number of at least {least}")
        if not 0 < self.budget <= AMOUNT_MAX:
            raise InputError("budget", self.budget, f"a number above 0 and up to {AMOUNT_MAX:,}")
        allowed = f"a number from {SIGMA_MIN:g} to {SIGMA_MAX:g}"
        for name in ("sigma2", "sigma1"):
            if not SIGMA_MIN <= getattr(self, name) <= SIGMA_MAX:
                raise InputError(name, getattr(self, name), allowed)

    @property
    def sigma1(self) -> float:
        """σ1 = sqrt(T / (6 B))."""
        return math.sqrt(self.queries / (6 * self.budget))

    @property
    def entry_units(self) -> int:
        """The price that a neighbour pays for being counted, 1 / (2 σ1²), in units."""
        return int(to_units(1 / (2 * self.sigma1**2)))


class Neighbours(NamedTuple):
    """The records within the threshold of a query, whatever their remaining budgets.

    Attributes:
        kernels: The κ of each record, at least τ.
    """

    records: NDArray[np.intp]
    kernels: Floats
    labels: Ints


@dataclass(frozen=True, slots=True, eq=False)
class PricedLabel:
    """A label with its price. Everything except the label is secret.

    Attributes:
        payers: The records that pay, each once: positions from `answer_query`, ids from a
            `Predictor`.
        noisy: The noisy number of neighbours and the noisy votes, shape (1 + classes,). The price
            pays for all of them, although only the class with the most votes leaves.
    """

    label: int
    payers: Ints = field(repr=False)
    units: Ints = field(repr=False)
    noisy: Floats = field(repr=False)


def answer_query(
    parameters: FilterParameters,
    near: Neighbours,
    remaining: Ints,
    rng: Generator,
    *,
    released: Floats | None = None,
) -> PricedLabel:
    """Answer one query, given its neighbours (Algorithm 3, lines 4 to 11).

    The noise is drawn in double precision: it is Gaussian, as the accounting assumes, up to the
    rounding of floats. Only the label may be released. The low bits of the noisy sums, which could
    reveal the votes, are lost in the choice of the greatest.

    Args:
        near: The records with κ ≥ τ.
        remaining: The units that each record has left, shape (records,); charged in place.
        rng: The server's secret randomness. The number of draws does not depend on the records.
        released: The kernels of earlier answers that are neighbours, summed by class, and their
            number, shape (classes + 1,). They are public and vote without payment or noise.

    Returns:
        The label and its price. Store the price durably before you release the label.
    """
    noise, entry = rng.standard_normal(1 + parameters.classes), parameters.entry_units
    # A record that cannot pay for being counted takes no part at all.
    able = remaining[near.records] >= entry
    active, kappa, classes = near.records[able], near.kernels[able], near.labels[able]
    reused = np.zeros(parameters.classes + 1) if released is None else released
    count = len(active) + reused[-1] + parameters.sigma1 * noise[0]
    K = max(count, float(LEAST_NEIGHBOURS))
    left = remaining[active] - entry
    spread = parameters.sigma2 * math.sqrt(K)
    affordable = np.sqrt(left * (2.0 / UNITS)) * (spread * _SHORT_OF)
    votes = np.floor(np.minimum(kappa, affordable) * _VOTE_STEPS)
    price = to_units(np.square(votes * (1 / (_VOTE_STEPS * spread))) / 2)
    units = entry + price
    remaining[active] -= units
    totals = np.bincount(classes, weights=votes, minlength=parameters.classes)
    noisy = totals / _VOTE_STEPS + reused[:-1] + spread * noise[1:]
    paid_for = np.concatenate([[count], noisy])
    return PricedLabel(int(noisy.argmax()), active.astype(np.int64), units, paid_for)


class RowColumns(NamedTuple):
    """Rows and what is known of them, in no particular order, along the first axis of each column.

    Attributes:
        features: The quantised features.
        remaining: The units that each row has left; the filter charges them in place.
        codes: The hash codes, shape (tables, rows): those of a table are contiguous, for comparison
            in one operation.
    """

    features: NDArray[np.float32]
    lengths: Floats
    labels: Ints
    ids: Ints
    remaining: Ints
    codes: NDArray[np.uint8]

    @classmethod
    def of(cls, room: int, features: int, tables: int) -> Self:
        """Return columns of zeros."""
        labels, ids, remaining = np.zeros((3, room), np.int64)
        codes = np.zeros((tables, room), np.uint8)
        rows = np.zeros((room, features), np.float32)
        return cls(rows, np.zeros(room), labels, ids, remaining, codes)

    def first(self, count: int) -> "RowColumns":
        """Return a view of the first rows."""
        *columns, codes = (column[:count] for column in self.by_row)
        return RowColumns._make((*columns, codes.T))

    @property
    def by_row(self) -> tuple[NDArray[Any], ...]:
        """All columns, with rows along the first axis."""
        return (*self[:-1], self.codes.T)


class StoredRows:
    """Features, labels and budgets of live records.

    Positions are below the number of records; forgetting a record moves others. Capacity grows by
    doubling. Abandoned buffers and forgotten rows are overwritten.
    """

    def __init__(self, features: int, hashing: Hashing | None = None) -> None:
        self._count, self._hashing = 0, hashing
        self._buffers = RowColumns.of(_ROOM_MIN, features, hashing.tables if hashing else 0)

    def __len__(self) -> int:
        return self._count

    @property
    def live(self) -> RowColumns:
        """A view of the live rows."""
        return self._buffers.first(self._count)

    def add(self, ids: Ints, features: NDArray[np.float32], labels: Ints, remaining: Ints) -> None:
        """Append rows that `Predictor.add` has checked, except for the features."""
        buffers = self._buffers
        long = require_quantised("features", features, buffers.features.shape[1])
        codes = self._hashing.codes(features) if self._hashing else np.zeros((0, len(ids)))
        first, self._count = self._count, self._count + len(ids)
        self._make_room(first)
        given = (features, long, labels, ids, remaining, codes.T)
        for column, values in zip(self._buffers.by_row, given, strict=True):
            column[first : self._count] = values

    def forget(self, positions: NDArray[np.intp]) -> None:
        """Overwrite rows with the last rows, and the places of those with zeros."""
        left = self._count - len(positions)
        holes = positions[positions < left]
        moving = np.setdiff1d(np.arange(left, self._count), positions, assume_unique=True)
        for column in self._buffers.by_row:
            column[holes] = column[moving]
            column[left : self._count] = 0
        self._count = left

    def _make_room(self, used: int) -> None:
        """Move to larger buffers if necessary."""
        old = self._buffers
        room, features = old.features.shape
        if self._count <= room:
            return
        tables = len(old.codes)
        self._buffers = RowColumns.of(max(self._count, 2 * room), features, tables)
        for column, before in zip(self._buffers.by_row, old.by_row, strict=True):
            column[:used] = before[:used]
            before[:used] = 0
