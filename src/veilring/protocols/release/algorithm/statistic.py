"""Statistics: each row's contribution to the released sum, with its bound.

A row adds whole numbers, so that noise on whole numbers protects it exactly
(`veilring.privacy.noise` explains the leak of floats). A real vector is multiplied by a public
scale and truncated toward zero. A float vector of norm 1 may be slightly longer: the bound is
therefore checked in whole numbers, and a longer vector is shortened until it is within the bound.
The bound thus includes rounding.

Neighbouring data sets differ by the presence of one row: the bound on one row is the sensitivity of
the sum. Replacing a row costs twice that.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt, sqrt
from typing import Final, Generic, NamedTuple, Self, TypeVar

import numpy as np
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Features, is_table
from veilring.errors import InputError
from veilring.privacy.checks import require, require_choice, require_that
from veilring.protocols.release.algorithm.noise import Norm, Sensitivity

# The squares of a million entries still fit into 63 bits, and the noise hides finer steps.
SCALE_MAX: Final = 2**20
L2_SCALE: Final = 2**16
"""The number of steps in 1 with Gaussian noise: a step is about a thousandth of the smallest noise,
so truncation loses nothing that survives the noise."""
L1_SCALE: Final = 2**14
"""The steps in 1 under Laplace noise. It is less, since the table of an exact Pólya share grows
with `scale / epsilon`: at epsilon = 1 it is 2**14, and may be 2**15."""
# The numbers of one block of rows: 32 MiB of positions and values.
_BLOCK: Final = 2**21

Decoded_co = TypeVar("Decoded_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Bound:
    """The largest vector of whole numbers that one row may add.

    Attributes:
        most: A whole number of at least 1 that bounds the sum of absolute values (`"l1"`) or the
            sum of squares (`"l2"`), which avoids rounding a root.
    """

    norm: Norm
    most: int

    def __post_init__(self) -> None:
        require_choice("norm", self.norm, Norm)
        allowed = "a whole number from 1 to 2**62"
        require(1 <= self.most <= 1 << 62, "most", self.most, allowed)

    @classmethod
    def scaled(cls, norm: Norm, scale: int, value: float | Fraction) -> Self:
        """Return the bound on real vectors after scaling and truncation, at least 1.

        Args:
            scale: The number of steps in 1.
            value: The maximum norm (`"l1"`), or its square (`"l2"`).
        """
        return cls(norm, max(1, int(Fraction(value) * (scale if norm == "l1" else scale**2))))

    @property
    def value(self) -> float:
        """The maximum norm: the sensitivity of the sum."""
        return float(self.most) if self.norm == "l1" else sqrt(self.most)

    def measure(self, vectors: Ints) -> Ints:
        """Return the sum of absolute values or squares of each vector, exactly, shape (rows,).

        Vectors have the shape (rows, entries), and no entry is beyond the bound's own value.
        """
        if self.norm == "l1":
            return np.asarray(np.abs(vectors).sum(axis=1))
        return np.asarray(np.einsum("ij,ij->i", vectors, vectors))

    def holds(self, vectors: Ints) -> bool:
        """Return whether every vector, shape (rows, entries), is within the bound."""
        reach = self.most if self.norm == "l1" else isqrt(self.most)
        # An entry beyond the bound is detected before its square, or the sum, could overflow.
        if vectors.max(initial=0) > reach or vectors.min(initial=0) < -reach:
            return False
        exact = vectors.shape[1] * (reach if self.norm == "l1" else reach**2) < 1 << 63
        found = self.measure(vectors if exact else vectors.astype(object))
        return bool((found <= self.most).all())


class Entries(NamedTuple):
    """The contributions of several rows to the sum: values at positions, and 0 elsewhere.

    Attributes:
        positions: Shape (rows, entries), ascending in each row without repetition.
        values: Shape (rows, entries), whole numbers.
    """

    positions: Ints
    values: Ints

    @classmethod
    def dense(cls, vectors: Ints) -> Self:
        """Return the entries of dense vectors, shape (rows, length)."""
        return cls(np.broadcast_to(np.arange(vectors.shape[1]), vectors.shape), vectors)


class Statistic(ABC, Generic[Decoded_co]):
    """A sum over rows that is released with noise. Subclass it for a custom release.

    `sum` rejects rows whose vectors exceed the stated bound, so a mistake in `entries` causes an
    error rather than a false guarantee.
    """

    @property
    @abstractmethod
    def length(self) -> int:
        """The number of released whole numbers, at least 1."""

    @property
    @abstractmethod
    def bound(self) -> Bound:
        """The bound on a row's contribution, which depends only on public values."""

    @property
    def sensitivity(self) -> Sensitivity:
        """The maximum change of the sum by one row, for which the noise is planned."""
        return Sensitivity(self.bound.norm, self.bound.most, self.length)

    @property
    def support(self) -> int:
        """The maximum number of entries of one row, which determines the size of blocks of rows."""
        return self.length

    @abstractmethod
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        """Return the entries that each row adds, from the row and its label alone.

        Args:
            rows: Shape (rows, features), in [0, 1]. Secret.
            labels: Shape (rows,), positions of the public classes. Secret.
        """

    @abstractmethod
    def decode(self, noisy: Ints, deviation: float) -> Decoded_co:
        """Return the result decoded from a released sum, such as a classifier. Costs no privacy.

        Args:
            noisy: Shape (length,), the sum over all rows with its noise. Public.
            deviation: The standard deviation of the noise on each number, from 0. Public.
        """

    def sum(self, rows: Floats, labels: Ints) -> Ints:
        """Return the exact sum over rows, shape (length,). Secret.

        Args:
            rows: Shape (rows, features), in [0, 1]; may be empty.
            labels: Shape (rows,), positions of the public classes.
        """
        require_that(
            is_table(rows) and labels.shape == rows.shape[:1],
            "rows",
            f"rows has the shape {rows.shape} and labels has {labels.shape}; they must be "
            "(rows, features) and (rows,)",
        )
        require_that(
            len(rows) * self.bound.value < 2.0**62,
            "rows",
            "there are too many rows for a sum in 64 bits; choose a smaller scale",
        )
        total = np.zeros(self.length, dtype=np.int64)
        step = max(1, _BLOCK // max(1, self.support))
        for start in range(0, len(rows), step):
            block = slice(start, start + step)
            positions, values = self._checked(self.entries(rows[block], labels[block]))
            np.add.at(total, positions, values)
        return total

    def _checked(self, found: Entries) -> Entries:
        positions, values = found
        whole = values.dtype == np.int64 and positions.shape == values.shape
        ascending = whole and bool((positions[:, 1:] > positions[:, :-1]).all())
        least, most = positions[:, :1], positions[:, -1:]  # of an ascending row
        inside = ascending and bool((least >= 0).all() and (most < self.length).all())
        if not inside:
            raise InputError.because(
                "the statistic must place 64-bit whole numbers at ascending positions below its "
                f"length of {self.length}; correct its `entries`",
                field="statistic",
            )
        if not self.bound.holds(values):
            raise InputError.because(
                f"a row exceeds the stated {self.bound.norm.upper()} bound on the statistic; "
                "shorten the result of `entries`, or state a larger bound",
                field="statistic",
            )
        return found


@dataclass(frozen=True, slots=True)
class ScaledStatistic(Statistic[Decoded_co]):
    """A built-in statistic: vectors of reals, in whole numbers of steps.

    Attributes:
        norm: The norm of the bound.
        scale: The number of steps in 1.
    """

    features: Features
    norm: Norm = field(default="l2", kw_only=True)
    scale: int = field(default=L2_SCALE, kw_only=True)

    def __post_init__(self) -> None:
        require(
            1 <= self.scale <= SCALE_MAX,
            "scale",
            self.scale,
            f"a whole number from 1 to {SCALE_MAX}",
        )

    @property
    @abstractmethod
    def largest(self) -> float | Fraction:
        """The maximum norm of a row's real vector (`"l1"`), or its square (`"l2"`)."""

    @property
    @override
    def bound(self) -> Bound:
        return Bound.scaled(self.norm, self.scale, self.largest)

    def read(self, noisy: Ints, deviation: float) -> tuple[Floats, float]:
        """Return a released sum and its noise in units of a row."""
        require_that(
            noisy.shape == (self.length,),
            "noisy",
            f"the released sum has the shape {noisy.shape}; its statistic has {self.length}"
            " numbers",
        )
        require(0 <= deviation < np.inf, "deviation", deviation, "a finite number of at least 0")
        return noisy / self.scale, deviation / self.scale


def require_labels(labels: Ints, features: Features) -> None:
    """Reject labels that are not positions of the public classes."""
    require_that(
        bool(((labels >= 0) & (labels < len(features.classes))).all()),
        "labels",
        f"every label must be the position of one of the {len(features.classes)} public classes",
    )


def cut_off(vectors: Floats, scale: int, bound: Bound) -> Ints:
    """Return finite vectors times a scale, truncated toward zero, and shortened to a bound."""
    # Far beyond the bound a square could overflow; only the direction matters there.
    reach = bound.value / scale
    high, low = (end(vectors, axis=1, initial=0.0, keepdims=True) for end in (np.max, np.min))
    largest = np.maximum(high, -low)
    if (largest > reach).any():
        vectors = vectors * (reach / np.maximum(largest, reach))
    return shorten((vectors * scale).astype(np.int64), bound)  # truncates toward zero


def shorten(vectors: Ints, bound: Bound) -> Ints:
    """Return vectors within a bound; vectors beyond it are shortened, with nearly their direction.

    A vector beyond the bound is first shortened in floats, and truncated toward zero; any excess
    due to rounding is removed from its largest entries, one step at a time. No entry may be much
    beyond the bound's own value.
    """
    measures = bound.measure(vectors)
    beyond = np.flatnonzero(measures > bound.most)
    if not beyond.size:
        return vectors
    mended = vectors.copy()
    shares = bound.most / measures[beyond]
    factors = shares if bound.norm == "l1" else np.sqrt(shares)
    mended[beyond] = np.trunc(mended[beyond] * factors[:, None])
    for row in beyond:
        while bound.measure(mended[row : row + 1])[0] > bound.most:
            largest = np.argmax(np.abs(mended[row]))
            mended[row, largest] -= np.sign(mended[row, largest])
    return mended


def apportion(vectors: Floats, scale: int) -> Ints:
    """Return integer vectors whose absolute values add up to the scale: an L1 norm of 1.

    Absolute values are rounded down, and the missing units go to the largest remainders; ties go to
    the first. A zero vector stays zero.
    """
    sizes = np.abs(vectors)
    largest = sizes.max(axis=1, initial=0.0, keepdims=True)
    # Divided by the largest first: a sum of huge or tiny entries would overflow or lose digits.
    sizes = np.divide(sizes, largest, out=np.zeros_like(sizes), where=largest > 0)
    totals = sizes.sum(axis=1, keepdims=True)
    exact = np.divide(sizes * scale, totals, out=np.zeros_like(sizes), where=totals > 0)
    whole = np.floor(exact).astype(np.int64)
    missing = np.where(totals[:, 0] > 0, scale - whole.sum(axis=1), 0)
    order = np.argsort(whole - exact, axis=1, kind="stable")
    ranks = np.argsort(order, axis=1, kind="stable")
    whole += ranks < missing[:, None]
    return np.asarray(np.where(vectors < 0, -whole, whole))
