"""Means of many features: every feature with a part of epsilon, or one feature with all of it.

`make_means` is the paper's second approach (Section 2.2.3): `SampledFeature` of one bit. The client
draws the feature, from a distribution that does not depend on its row.

With `classes` above 1, the perturbed vector has the number at the position of the client's class
and 0 elsewhere (Section 3.2), so neither the number nor the class is revealed.

A number from -1 to 1 is first rounded to a public grid, up or down at random so that its mean is
unchanged. A `CodeDistribution` with exactly known probabilities then turns it into a code; all its
steps use integers. Rounding happens first, so the distribution's loss bounds the loss of both:
mixtures of inputs are no easier to distinguish than the inputs. `OneBit` is a sign with a bias
towards the right one, and `Plain` adds no noise, as the upper bound for private answers.

Sources: Yilmaz, Al-Rubaie and Chang 2019; Duchi et al., Nguyên et al., arXiv:1606.05053 (one bit).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import inf
from typing import Any, ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.checks import require
from veilring.privacy.exact import exp_floor, float_ceil, log_ceil
from veilring.protocols.ldp.algorithm.packing import client_slices, decoded, encoded, width_of
from veilring.protocols.ldp.algorithm.randomiser import (
    RAREST_MIN,
    REPORT_EPSILON_MAX,
    LocalRandomiser,
    Reports,
    Sums,
    SurveyEstimate,
)

Codes = Ints
"""The codes that a distribution draws, numbers from 0 to `CodeDistribution.codes - 1`."""


@dataclass(frozen=True)
class CodeDistribution(ABC):
    """A distribution of codes for each point of a grid on [-1, 1].

    Attributes:
        levels: The resolution: the grid's points are the multiples of `1 / levels`.
        covers_one_hot: Whether perturbing all entries of a vector costs the ε of one entry if the
            vector is 0 except at one secret position.
    """

    epsilon: float | Fraction

    name: ClassVar[str]
    least_epsilon: ClassVar[float]
    levels: ClassVar[int] = 1
    parts: ClassVar[int] = 1
    covers_one_hot: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.least_epsilon <= self.epsilon <= REPORT_EPSILON_MAX:
            allowed = f"from {self.least_epsilon} to {REPORT_EPSILON_MAX:g}"
            raise InputError("epsilon", float(self.epsilon), allowed)

    @property
    @abstractmethod
    def exact_epsilon(self) -> float:
        """The exact loss of a code, rounded up; never more than `epsilon`."""

    @property
    def influence(self) -> float:
        """The largest number that a code can represent; honest numbers are at most 1."""
        ends = self.summed(np.array([0, self.codes - 1]))
        return float(np.abs(self.total(ends)).max())

    @property
    @abstractmethod
    def codes(self) -> int:
        """The number of codes."""

    @property
    def bits(self) -> int:
        """The bits of a code on the wire: 1, or a multiple of 8."""
        return 1 if self.codes == 2 else 8 * width_of(self.codes)  # noqa: PLR2004  (a bit has two values)

    @property
    @abstractmethod
    def public(self) -> Mapping[str, int]:
        """The integers that define the probabilities."""

    @abstractmethod
    def sample(self, grid: Ints, rng: Generator) -> Codes:
        """Return a code for each grid point, of the same shape.

        Args:
            rng: The clients' secret randomness.
        """

    @abstractmethod
    def probability(self, codes: Codes, grid: int) -> Floats:
        """Return the probability of each of some codes at a grid point, to float64's precision."""

    def plausible(self, codes: Codes, numbers: int) -> Bools:  # noqa: ARG002  (a subclass's own)
        """Return whether an honest client could make each report, shape (...).

        Args:
            codes: All codes of each report, shape (..., codes per report).
            numbers: The number of codes that represent a number; the others represent 0.
        """
        return np.ones(codes.shape[:-1], dtype=np.bool_)

    @abstractmethod
    def summed(self, codes: Codes) -> Ints:
        """Return the summands of each code, shape (..., parts)."""

    @abstractmethod
    def total(self, sums: Ints) -> Floats:
        """Return the sum of unbiased values for sums of shape (..., parts)."""

    @abstractmethod
    def second_moment(self, x: float) -> float:
        """Return the mean square of the value reported for a number `x`; it grows with `|x|`."""


def rounded(values: Floats, levels: int, rng: Generator) -> Ints:
    """Round numbers in [-1, 1] to multiples of `1 / levels`, up or down with the right mean.

    The levels are a power of two, so scaling is exact, and the fractional part has 53 bits. The
    mean is therefore exact for every multiple of `2**-53 / levels`, and otherwise its error is
    smaller, below the resolution of float64 at 1.
    """
    require_normalised(values)
    scaled = values * levels
    below = np.floor(scaled)
    return (below + (rng.random(values.shape) < scaled - below)).astype(np.int64)


def require_normalised(values: Floats) -> None:
    """Reject values outside [-1, 1] or not finite; the error shows none of them."""
    if not np.all((values >= -1.0) & (values <= 1.0)):
        raise InputError.because("values must be numbers from -1 to 1", field="values")


COIN_BITS: Final = 62  # the maximum for an int64 that may be doubled


def coin_lean(epsilon: float | Fraction, levels: int = 1) -> int:
    """Return the maximum amount, out of `2**62`, by which one level may bias a coin.

    At the ends of the grid the coin shows 1 with probability at most `e^eps / (e^eps + 1)`, and at
    least `1 / (e^eps + 1)`: the ratio is at most `e^eps`.
    """
    power = exp_floor(epsilon)
    return int((power - 1) / (power + 1) * 2 ** (COIN_BITS - 1)) // levels


@dataclass(frozen=True)
class OneBit(CodeDistribution):
    """One bit per number.

    For a vector that is 0 except at one position, all entries cost the ε of one: two such vectors
    differ in at most two positions, and `(1 + c) / 1 * 1 / (1 - c)`, with the distribution's `c`,
    is the ratio `(1 + c) / (1 - c)` of one number.
    """

    name: ClassVar[str] = "one-bit"
    # A number biases the coin by epsilon / 4, and at least by one of its 2**62 faces.
    least_epsilon: ClassVar[float] = 2.0 ** (3 - COIN_BITS)
    covers_one_hot: ClassVar[bool] = True
    codes: ClassVar[int] = 2

    @cached_property
    def _lean(self) -> int:
        return coin_lean(self.epsilon)

    @property
    def slope(self) -> Fraction:
        """The mean of the sign at x = 1, `c`: signs are divided by it."""
        return Fraction(self._lean, 2 ** (COIN_BITS - 1))

    @property
    @override
    def exact_epsilon(self) -> float:
        # The logarithm is rounded up, possibly above the requested epsilon.
        return min(float(self.epsilon), log_ceil((1 + self.slope) / (1 - self.slope)))

    @property
    @override
    def public(self) -> Mapping[str, int]:
        return {"lean": self._lean, "coin_bits": COIN_BITS}

    @override
    def sample(self, grid: Ints, rng: Generator) -> Codes:
        draws = rng.integers(0, 1 << COIN_BITS, size=grid.shape)
        return (draws < (1 << (COIN_BITS - 1)) + grid * self._lean).astype(np.int64)

    @override
    def probability(self, codes: Codes, grid: int) -> Floats:
        one = Fraction(1, 2) + grid * self.slope / 2
        return np.where(codes == 1, float(one), float(1 - one))

    @override
    def summed(self, codes: Codes) -> Ints:
        return (2 * codes - 1)[..., None]

    @override
    def total(self, sums: Ints) -> Floats:
        return np.asarray(sums[..., 0] / float(self.slope))

    @override
    def second_moment(self, x: float) -> float:
        return float(1 / self.slope**2)


@dataclass(frozen=True)
class Plain(CodeDistribution):
    """The number itself, with 36 fractional bits, unprotected."""

    epsilon: float | Fraction = inf

    name: ClassVar[str] = "plain"
    levels: ClassVar[int] = 1 << 36
    covers_one_hot: ClassVar[bool] = True
    exact_epsilon: ClassVar[float] = inf

    def __post_init__(self) -> None:
        """Accept any epsilon: there is no privacy."""

    @property
    @override
    def codes(self) -> int:
        return 2 * self.levels + 1

    @property
    @override
    def public(self) -> Mapping[str, int]:
        return {"levels": self.levels}

    @override
    def sample(self, grid: Ints, rng: Generator) -> Codes:
        return grid + self.levels

    @override
    def probability(self, codes: Codes, grid: int) -> Floats:
        return np.where(codes == grid + self.levels, 1.0, 0.0)

    @override
    def summed(self, codes: Codes) -> Ints:
        return (codes - self.levels)[..., None]

    @override
    def total(self, sums: Ints) -> Floats:
        return np.asarray(sums[..., 0] / self.levels)

    @override
    def second_moment(self, x: float) -> float:
        return x * x


_BYTE: Final = 8
_CODE_BYTES: Final = 64  # per code: its input, its draws and its summands


@dataclass(frozen=True)
class Means(LocalRandomiser):
    """Means of features, or of features within classes.

    Values have shape (clients, features), each in [-1, 1]; with classes there is one more column,
    the class. Estimates are of `mean(x_i)`, or of `mean(x_i [class = c])` over all clients of any
    class: shape (features * classes,), classes innermost.

    Attributes:
        classes: The number of classes, `k` of the paper; 1 if there is no class to hide.
    """

    _summands: ClassVar[None] = None  # the sums of codes are not checked

    distribution: CodeDistribution
    features: int
    classes: int = 1

    def __post_init__(self) -> None:
        require(self.features >= 1, "features", self.features, "an integer of at least 1")
        require(self.classes >= 1, "classes", self.classes, "an integer of at least 1")
        if self.classes > 1 and not self.distribution.covers_one_hot:
            raise InputError.because(
                f"the distribution {self.distribution.name} reveals which entries of a vector are"
                " nonzero, and thus the class; use one-bit",
                field="distribution",
            )

    @property
    @abstractmethod
    def _code_count(self) -> int:
        """The number of codes in a report."""

    @property
    def _code_bytes(self) -> int:
        return -(-self._code_count * self.distribution.bits // _BYTE)

    @property
    @override
    def entries(self) -> int:
        return self.features * self.classes

    @property
    @override
    def public(self) -> Mapping[str, int | str]:
        shape = {"features": self.features, "classes": self.classes}
        return {
            "means": self.name,
            "distribution": self.distribution.name,
            **shape,
            **self.distribution.public,
        }

    def _grid(self, values: NDArray[Any], rng: Generator) -> Ints:
        """Return the rounded vectors, shape (clients, features of `values`, classes)."""
        numbers, labels = values, np.zeros(len(values), dtype=np.int64)
        if self.classes > 1:
            numbers, labels = values[:, :-1], values[:, -1].astype(np.int64)
        grid = rounded(numbers, self.distribution.levels, rng)
        is_there = labels[:, None, None] == np.arange(self.classes)
        return np.where(is_there, grid[:, :, None], 0)

    @override
    def _checked(self, values: NDArray[Any]) -> Floats:
        columns = self.features + (self.classes > 1)
        if values.shape[1:] != (columns,):
            raise InputError.because(
                f"values has the shape {values.shape}; it must be (clients, {columns})",
                field="values",
            )
        if self.classes > 1 and not np.isin(values[:, -1], np.arange(self.classes)).all():
            raise InputError.because(
                "the last column of values must hold classes: integers from 0 to "
                f"{self.classes - 1}",
                field="values",
            )
        # All numbers are checked before any draw: an error must not reveal a drawn feature.
        require_normalised(values[:, : self.features])
        return values.astype(np.float64, copy=False)

    def _packed(self, codes: Codes) -> Reports:
        if self.distribution.bits == 1:
            return np.packbits(codes.astype(np.uint8), axis=1)
        return encoded(codes, self.distribution.bits // _BYTE).reshape(len(codes), -1)

    def _unpacked(self, packed: Reports) -> Codes:
        if self.distribution.bits == 1:
            return np.unpackbits(packed, axis=1, count=self._code_count).astype(np.int64)
        return decoded(packed.reshape(len(packed), self._code_count, -1))

    def _codes_fit(self, packed: Reports) -> Bools:
        codes = self._unpacked(packed)
        same = self._packed(codes) == packed  # padding bits are 0
        exist = (codes < self.distribution.codes).all(axis=1) & same.all(axis=1)
        return np.asarray(
            exist & self.distribution.plausible(codes, self._code_count // self.classes)
        )

    @property
    @override
    def _work_bytes(self) -> int:
        return self._code_count * _CODE_BYTES

    @abstractmethod
    def _split(self, sums: Sums, clients: int) -> tuple[Ints, Ints]:
        """Return the number of reports about each feature, and its sums, one row per feature."""

    @override
    def rough(self, sums: Sums, clients: int) -> Bools:
        counts, _ = self._split(sums, clients)
        # The probability of the rarer of the two extreme reports, one for and one against.
        rarest = (1 - 1 / self.distribution.influence) / 2
        few = counts * rarest < RAREST_MIN if np.isfinite(self.exact_epsilon) else counts < 1
        return np.repeat(few, self.classes)

    @override
    def _estimate(self, sums: Sums, clients: int, z: float) -> SurveyEstimate:
        """Return means, with 0, an infinite variance and [-1, 1] for those without reports.

        The variance is the maximum that the distribution allows with this mean: the variance at the
        ends of [-1, 1], where the clients' values also differ most.
        """
        counts, table = self._split(sums, clients)
        shape = (self.features, self.classes)
        known = np.broadcast_to(counts[:, None] > 0, shape)
        least = np.maximum(counts[:, None], 1)
        total = self.distribution.total(table.reshape(*shape, self.distribution.parts))
        values = np.where(known, total / least, 0.0)
        spread = self.distribution.second_moment(1.0) - np.clip(values, -1.0, 1.0) ** 2
        variance = np.where(known, spread / least, np.inf)
        reach = z * np.sqrt(variance)
        low = np.where(known, values - reach, -1.0)
        high = np.where(known, values + reach, 1.0)
        flat = (values.ravel(), variance.ravel(), low.ravel(), high.ravel())
        return SurveyEstimate(*flat, clients)


@dataclass(frozen=True)
class EachFeature(Means):
    """All features of a client in one report; its loss is the sum of the features' losses."""

    name: ClassVar[str] = "each-feature"

    @property
    @override
    def exact_epsilon(self) -> float:
        if not np.isfinite(self.distribution.exact_epsilon):
            return inf
        exact = self.features * min(
            Fraction(self.distribution.epsilon), Fraction(self.distribution.exact_epsilon)
        )
        return float_ceil(exact)

    @property
    @override
    def report_bytes(self) -> int:
        return self._code_bytes

    @property
    @override
    def cells(self) -> int:
        return self.features * self.classes * self.distribution.parts

    @property
    @override
    def _code_count(self) -> int:
        return self.features * self.classes

    @override
    def _draw(self, values: Floats, rng: Generator) -> Reports:
        codes = self.distribution.sample(self._grid(values, rng), rng)
        return self._packed(codes.reshape(len(codes), -1))

    @override
    def _fits(self, reports: Reports) -> Bools:
        return self._codes_fit(reports)

    @override
    def aggregate(self, reports: Reports) -> Sums:
        sums = np.zeros((self._code_count, self.distribution.parts), dtype=np.int64)
        for chunk in client_slices(len(reports), self._work_bytes):
            sums += self.distribution.summed(self._unpacked(reports[chunk])).sum(axis=0)
        return sums.ravel()

    @override
    def _split(self, sums: Sums, clients: int) -> tuple[Ints, Ints]:
        return np.full(self.features, clients), sums.reshape(self.features, -1)


@dataclass(frozen=True)
class SampledFeature(Means):
    """One feature per client, drawn by the client; its number precedes the report.

    Each mean is over the clients that drew its feature. It is unbiased if there are any, and has a
    smaller variance than the paper's sum over all clients times `n / m`.
    """

    name: ClassVar[str] = "sampled-feature"

    @property
    @override
    def exact_epsilon(self) -> float:
        return self.distribution.exact_epsilon

    @property
    def _index_bytes(self) -> int:
        return width_of(self.features)

    @property
    @override
    def report_bytes(self) -> int:
        return self._index_bytes + self._code_bytes

    @property
    @override
    def cells(self) -> int:
        """A count for each feature, then its sums."""
        return self.features * (1 + self.classes * self.distribution.parts)

    @property
    @override
    def _code_count(self) -> int:
        return self.classes

    @override
    def _draw(self, values: Floats, rng: Generator) -> Reports:
        drawn = rng.integers(self.features, size=len(values))
        only = np.take_along_axis(values, drawn[:, None], axis=1)
        chosen = np.hstack((only, values[:, self.features :]))
        codes = self.distribution.sample(self._grid(chosen, rng), rng)[:, 0]
        return np.hstack((encoded(drawn, self._index_bytes), self._packed(codes)))

    @override
    def _fits(self, reports: Reports) -> Bools:
        drawn = decoded(reports[:, : self._index_bytes])
        return (drawn < self.features) & self._codes_fit(reports[:, self._index_bytes :])

    @override
    def aggregate(self, reports: Reports) -> Sums:
        sums = np.zeros((self.features, 1 + self.classes * self.distribution.parts), dtype=np.int64)
        for chunk in client_slices(len(reports), self._work_bytes):
            drawn = decoded(reports[chunk, : self._index_bytes])
            codes = self._unpacked(reports[chunk, self._index_bytes :])
            ones = np.ones((len(drawn), 1), dtype=np.int64)
            summed = self.distribution.summed(codes).reshape(len(drawn), -1)
            np.add.at(sums, drawn, np.hstack((ones, summed)))
        return sums.ravel()

    @override
    def _split(self, sums: Sums, clients: int) -> tuple[Ints, Ints]:
        table = sums.reshape(self.features, -1)
        counts = table[:, 0]
        if counts.min() < 0 or counts.sum() != clients:
            raise InputError.because(
                f"the counts of features do not add up: each of the {clients} clients must "
                "be in one of them",
                field="sums",
            )
        return counts, table[:, 1:]


def make_means(epsilon: float, features: int, classes: int = 1) -> Means:
    """Return the randomiser of one bit of a feature per client; no noise if epsilon is infinite.

    Args:
        epsilon: The maximum ε of a report, above 0.
        classes: The number of classes among which to hide a client's class, or 1.
    """
    require(features >= 1, "features", features, "an integer of at least 1")
    require(epsilon > 0, "epsilon", epsilon, "a number above 0")
    if epsilon == inf:
        return EachFeature(Plain(), features, classes)
    return SampledFeature(OneBit(epsilon), features, classes)
