"""Distributions of codes, each of which carries one number from -1 to 1 with noise.

A number is first rounded to a public grid, up or down at random so that its mean is unchanged. A
`CodeDistribution` with exactly known probabilities then turns it into a code; all its steps use
integers. Rounding happens first, so the distribution's loss bounds the loss of both: mixtures of
inputs are no easier to distinguish than the inputs.

- `OneBit`: a sign with a bias towards the right one (Duchi et al.; Nguyên et al.).
- `Plain`: no noise, as the upper bound for private answers.

Distributions of more codes are in `numbers`. Sources: Yilmaz, Al-Rubaie and Chang 2019; Duchi,
Jordan and Wainwright 2018; Nguyên et al., arXiv:1606.05053.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from math import ceil, floor, inf
from typing import ClassVar, Final

import numpy as np
from numpy.random import Generator
from typing_extensions import override

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.bounds import binomial_range
from veilring.privacy.exact import exp_floor, log_ceil
from veilring.protocols.ldp.algorithm.intervals import (
    NORMAL_VARIANCE,
    Outcomes,
    exact_intervals,
    of_share,
    sum_interval,
)
from veilring.protocols.ldp.algorithm.packing import width_of
from veilring.protocols.ldp.algorithm.randomiser import REPORT_EPSILON_MAX

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
    @abstractmethod
    def influence(self) -> float:
        """The largest number that a code can represent; honest numbers are at most 1."""

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
        """Return the mean square of the value reported for a number `x`: it is affine in `x**2`."""

    def squares(self, sums: Ints, counts: Ints) -> Floats:  # noqa: ARG002  (a subclass's own)
        """Return the sum of the squares of the values, or a bound if no part has it.

        Args:
            counts: The number of codes in each sum.
        """
        return np.asarray(counts * self.second_moment(1.0))

    @cached_property
    def is_sign(self) -> bool:
        """Whether a code only has a sign, so that its square is the same for any number."""
        return self.second_moment(0.0) == self.second_moment(1.0)

    def exact_interval(
        self, sums: Ints, reports: int, confidence: float, *, is_sample: bool
    ) -> tuple[float, float] | None:
        """Return the interval of a mean by exact distributions; None if a normal one will do.

        It holds for equal numbers of all clients, and for numbers that differ as much as any.

        Args:
            sums: The sums of the reports, shape (parts,).
            is_sample: Whether the clients that tell the number are drawn from others.
        """
        if self.is_sign or self.codes > _TABLE_MAX or reports >= self._normal_from:
            return None
        mean, most = float(self.total(sums)) / reports, 1 + self.influence
        ends = [
            sum_interval(partial(laws, reports=reports), mean, most, confidence)
            for laws in ((self._drawn,) if is_sample else (self._alike, self._apart))
        ]
        return min(low for low, _ in ends), max(high for _, high in ends)

    @cached_property
    def _normal_from(self) -> int:
        """The number of reports from which on their mean is nearly normal."""
        greatest = 0.0
        for number in (0.0, 1.0):
            ((values, chances, _),) = self._alike(number, 1)
            away = (values - number) ** 2
            greatest = max(greatest, float(away**2 @ chances / (away @ chances) ** 2))
        return max(_NORMAL_MIN, ceil(_NORMAL_KURTOSES * greatest))

    def _alike(self, mean: float, reports: int) -> tuple[Outcomes, ...]:
        """Return the reports of clients that all have the mean.

        A mean outside of [-1, 1], which none has, shifts the reports of the nearest one.
        """
        values, table = self._table
        inside = min(max(mean, -1.0), 1.0)
        below = min(floor(inside * self.levels), self.levels - 1)
        part = inside * self.levels - below
        chances = (1 - part) * table(below) + part * table(below + 1)
        return ((values + mean - inside, chances, reports),)

    def _apart(self, mean: float, reports: int) -> tuple[Outcomes, ...]:
        """Return the reports of clients with -1 and 1, as many of each as gives the mean."""
        values, table = self._table
        plus = min(max(round((1 + mean) / 2 * reports), 0), reports)
        shift = mean - (2 * plus - reports) / reports
        both = ((-self.levels, reports - plus), (self.levels, plus))
        return tuple((values + shift, table(end), count) for end, count in both if count)

    def _drawn(self, mean: float, reports: int) -> tuple[Outcomes, ...]:
        """Return the reports of clients drawn from many with -1 and 1."""
        values, table = self._table
        inside = min(max(mean, -1.0), 1.0)
        chances = ((1 - inside) * table(-self.levels) + (1 + inside) * table(self.levels)) / 2
        return ((values + mean - inside, chances, reports),)

    @cached_property
    def _table(self) -> tuple[Floats, Callable[[int], Floats]]:
        codes = np.arange(self.codes)
        return self.total(self.summed(codes)), partial(self.probability, codes)

    def _squared(self, values: Floats) -> Ints:
        """Return the squares of values, as parts of the largest one."""
        return np.rint((values / self.influence) ** 2 * _SQUARE).astype(np.int64)

    def _unsquared(self, sums: Ints) -> Floats:
        return np.asarray(sums * (self.influence**2 / _SQUARE))


# The normal distribution of a mean of n reports misses the probability of an interval by about
# 0.008 / n of the kurtosis.
_NORMAL_MIN: Final = 30
_NORMAL_KURTOSES: Final = 4
_TABLE_MAX: Final = 1 << 20  # codes whose probabilities are listed
_SQUARE: Final = 2.0**28  # so that the squares of 2**35 reports can be added


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
    def influence(self) -> float:
        return 1 / float(self.slope)

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
    def plausible(self, codes: Codes, numbers: int) -> Bools:
        low, high = binomial_range(codes.shape[-1] - numbers, 0.5)
        plus = codes.sum(axis=-1)
        return np.asarray((plus >= low) & (plus <= high + numbers))

    @override
    def second_moment(self, x: float) -> float:
        return float(1 / self.slope**2)

    @override
    def exact_interval(
        self, sums: Ints, reports: int, confidence: float, *, is_sample: bool
    ) -> tuple[float, float] | None:
        """Return the interval of a mean by the distribution of the number of plus signs.

        It is that of equal numbers of all clients, which spread the most.
        """
        p = float(1 + self.slope) / 2
        plus = (reports + sums) // 2
        share = min(max(int(plus[0]) / reports, 1 - p), p)
        if reports * share * (1 - share) >= NORMAL_VARIANCE:
            return None
        low, high = exact_intervals(of_share(reports, p, 1 - p), plus, confidence)
        return 2 * float(low[0]) - 1, 2 * float(high[0]) - 1


@dataclass(frozen=True)
class Plain(CodeDistribution):
    """The number itself, with 36 fractional bits, unprotected."""

    epsilon: float | Fraction = inf

    name: ClassVar[str] = "plain"
    levels: ClassVar[int] = 1 << 36
    covers_one_hot: ClassVar[bool] = True
    exact_epsilon: ClassVar[float] = inf
    influence: ClassVar[float] = 1.0

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
