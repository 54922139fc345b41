"""The individual filter: the payment and the vote of each record for a query (Algorithm 3).

`answer_query` is the mechanism. `StoredRows` contains its records: it can grow, and a forgotten row
is overwritten. Budgets are whole units, so charges are exact and rounding can never overcharge a
record. Votes are whole numbers too, so their sum does not depend on the order.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.budgets import AMOUNT_MAX, UNITS, to_units
from veilring.protocols.prediction.algorithm.features import require_quantised
from veilring.protocols.prediction.algorithm.kernels import Hashing

LEAST_NEIGHBOURS: Final = 30
"""The minimum K: below it the noise of the count would determine the noise of the votes."""
SIGMA2_RULE: Final = "(T / 20)^0.15 / √ε"
"""The rule of `public_sigma2`, in symbols."""
STREAM_QUERIES_MIN: Final = 4
"""The shortest stream: counting takes 3 B / T of B, and a vote needs some of it, too."""

# Beyond these bounds floats overflow or vanish, for some numbers of neighbours and not for others.
SIGMA_MIN: Final = 1e-9
SIGMA_MAX: Final = 1e12

_STREAM: Final = 20.0  # the length of a stream for which σ2 is 1 / √ε
_STREAM_EXPONENT: Final = 0.15

# A vote is at most 1. Steps this fine are lost in any noise, and 2**28 votes add up exactly.
_VOTE_STEPS: Final = 2.0**24
# Cuts a contribution by more than its payment can be rounded up.
_SHORT_OF: Final = 1 - 2.0**-40
# room for a few rows from the start, as a base for doubling
_ROOM_MIN: Final = 16


def public_sigma2(epsilon: float, queries: int) -> float:
    """Return σ2 by public numbers: (T / 20)^0.15 / √ε.

    A vote is clipped at σ2 √(2 K z), where z is the record's remaining budget: with a larger ε less
    noise suffices, and in a long stream each query gets so little that fewer and larger votes are
    better. The numbers were found like those of `public_tau`.

    Args:
        epsilon: ε of the stream, above 0.
        queries: T, at least 1.
    """
    found = math.pow(queries / _STREAM, _STREAM_EXPONENT) / math.sqrt(epsilon)
    return min(SIGMA_MAX, max(SIGMA_MIN, found))


@dataclass(frozen=True, slots=True)
class FilterParameters:
    """The public parameters of Ind-KNN's filter.

    Attributes:
        classes: The number of classes.
        queries: T, at least 4, for which the noise of counts is made; more may be asked. To be
            counted costs 3 B / T, so that with fewer nothing would be left for a vote.
        budget: B of each record, in the unit of zCDP, up to `AMOUNT_MAX`: see `individual_budget`.
        sigma2: σ2, the noise of a vote per square root of the neighbours, from `SIGMA_MIN` to
            `SIGMA_MAX`; σ1, which follows from `queries` and `budget`, has the same range.

    Raises:
        InputError: If a parameter is not allowed.
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
    """The records that are near enough to a query, whatever they have left.

    Attributes:
        records: Their positions, shape (m,), each once.
        kernels: κ of each, at least τ.
        labels: The class of each.
    """

    records: NDArray[np.intp]
    kernels: NDArray[np.float64]
    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PricedLabel:
    """A label with its price. Everything except the label is secret.

    Attributes:
        label: The class.
        payers: The records that pay, each once: positions from `answer_query`, ids from a
            `Predictor`.
        units: The price that each of them pays.
    """

    label: int
    payers: NDArray[np.int64] = field(repr=False)
    units: NDArray[np.int64] = field(repr=False)


def answer_query(
    parameters: FilterParameters,
    near: Neighbours,
    remaining: NDArray[np.int64],
    rng: Generator,
    *,
    released: NDArray[np.float64] | None = None,
) -> PricedLabel:
    """Answer one query, given its neighbours (Algorithm 3, lines 4 to 11).

    The noise is drawn in double precision: it is Gaussian, as the accounting assumes, up to the
    rounding of floats. Only the label may be released. The low bits of the noisy sums, which could
    reveal the votes, are lost in the choice of the maximum.

    Args:
        parameters: The public parameters.
        near: The records with κ ≥ τ.
        remaining: The units that each record has left, shape (records,); is charged here.
        rng: The server's secret randomness; as many draws whatever the records are.
        released: Kernels of earlier answers that are neighbours, summed by class, with their number
            as the last entry, shape (classes + 1,): public, so they vote without pay or noise.

    Returns:
        The label and its price, which must be durable before the label is sent.
    """
    noise = rng.standard_normal(1 + parameters.classes)
    # A record that cannot pay for the count is not counted, and takes no part at all.
    able = remaining[near.records] >= parameters.entry_units
    active, kappa, classes = near.records[able], near.kernels[able], near.labels[able]
    reused = np.zeros(parameters.classes + 1) if released is None else released
    count = len(active) + reused[-1] + parameters.sigma1 * noise[0]
    K = max(count, float(LEAST_NEIGHBOURS))
    left = remaining[active] - parameters.entry_units
    spread = parameters.sigma2 * math.sqrt(K)
    affordable = np.sqrt(left * (2.0 / UNITS)) * (spread * _SHORT_OF)
    votes = np.floor(np.minimum(kappa, affordable) * _VOTE_STEPS)
    price = to_units(np.square(votes * (1 / (_VOTE_STEPS * spread))) / 2)
    units = parameters.entry_units + price
    remaining[active] -= units
    totals = np.bincount(classes, weights=votes, minlength=parameters.classes)
    noisy = totals / _VOTE_STEPS + reused[:-1] + spread * noise[1:]
    return PricedLabel(int(noisy.argmax()), active.astype(np.int64), units)


class _Buffers(NamedTuple):
    """Room for rows. The codes of one table are contiguous, so that they are compared at once."""

    features: NDArray[np.float32]
    lengths: NDArray[np.float64]
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    remaining: NDArray[np.int64]
    codes: NDArray[np.uint8]

    @classmethod
    def of(cls, room: int, features: int, tables: int) -> Self:
        labels, ids, remaining = np.zeros((3, room), np.int64)
        codes = np.zeros((tables, room), np.uint8)
        rows = np.zeros((room, features), np.float32)
        return cls(rows, np.zeros(room), labels, ids, remaining, codes)

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All buffers, rows along the first axis."""
        return (*self[:-1], self.codes.T)


class StoredRows:
    """Features, labels and budgets of live records, in no particular order.

    Positions range from 0 to the number of records; forgetting one moves others. Room grows by
    doubling. An abandoned buffer is overwritten first, and so is a forgotten row.

    Args:
        features: The number of features of a row.
        hashing: The hashing that gives rows their codes, if there is one.
    """

    def __init__(self, features: int, hashing: Hashing | None = None) -> None:
        self._count, self._hashing = 0, hashing
        self._buffers = _Buffers.of(_ROOM_MIN, features, hashing.tables if hashing else 0)

    def __len__(self) -> int:
        return self._count

    @property
    def features(self) -> NDArray[np.float32]:
        """Quantised, shape (rows, features)."""
        return self._buffers.features[: self._count]

    @property
    def lengths(self) -> NDArray[np.float64]:
        """Shape (rows,)."""
        return self._buffers.lengths[: self._count]

    @property
    def labels(self) -> NDArray[np.int64]:
        """Shape (rows,)."""
        return self._buffers.labels[: self._count]

    @property
    def ids(self) -> NDArray[np.int64]:
        """Shape (rows,)."""
        return self._buffers.ids[: self._count]

    @property
    def remaining(self) -> NDArray[np.int64]:
        """The units each row has left, shape (rows,): a view, which the filter charges."""
        return self._buffers.remaining[: self._count]

    @property
    def codes(self) -> NDArray[np.uint8]:
        """Shape (tables, rows)."""
        return self._buffers.codes[:, : self._count]

    def add(
        self,
        ids: NDArray[np.int64],
        features: NDArray[np.float32],
        labels: NDArray[np.int64],
        remaining: NDArray[np.int64],
    ) -> None:
        """Append rows, which `Predictor.add` has checked but for the features.

        Raises:
            InputError: If the features are not quantised.
        """
        buffers = self._buffers
        long = require_quantised("features", features, buffers.features.shape[1])
        codes = self._hashing.codes(features) if self._hashing else np.zeros((0, len(ids)))
        first, self._count = self._count, self._count + len(ids)
        self._make_room(first)
        given = (features, long, labels, ids, remaining, codes.T)
        for column, values in zip(self._buffers.columns, given, strict=True):
            column[first : self._count] = values

    def forget(self, positions: NDArray[np.intp]) -> None:
        """Overwrite rows: the last ones move into their places, and zeros into theirs.

        Args:
            positions: The positions of the rows, each once.
        """
        left = self._count - len(positions)
        holes = positions[positions < left]
        moving = np.setdiff1d(np.arange(left, self._count), positions, assume_unique=True)
        for column in self._buffers.columns:
            column[holes] = column[moving]
            column[left : self._count] = 0
        self._count = left

    def _make_room(self, used: int) -> None:
        """Move into larger buffers if need be."""
        old = self._buffers
        room, features = old.features.shape
        if self._count <= room:
            return
        tables = len(old.codes)
        self._buffers = _Buffers.of(max(self._count, 2 * room), features, tables)
        for column, before in zip(self._buffers.columns, old.columns, strict=True):
            column[:used] = before[:used]
            before[:used] = 0
