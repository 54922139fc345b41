"""Distributions that turn a number from -1 to 1 into a code, with exactly known probabilities.

A number is first rounded to a public grid, up or down at random so that its mean is unchanged. All
later steps use integers. Rounding happens before the distribution, so the distribution's loss
bounds the loss of both: mixtures of inputs are no easier to distinguish than the inputs.

- `OneBit`: a sign with a bias towards the right one (Duchi; Nguyên et al. 2016).
- `Plain`: no noise, as the upper bound for private answers.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import inf
from typing import ClassVar, Final

import numpy as np
from numpy.random import Generator
from typing_extensions import override

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.exact import exp_floor, log_ceil
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
    def codes(self) -> int:
        return 2

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

    def __post_init__(self) -> None:
        """Accept any epsilon: there is no privacy."""

    @property
    @override
    def exact_epsilon(self) -> float:
        return inf

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
