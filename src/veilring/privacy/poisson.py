"""Poisson and Skellam noise: whole numbers whose distributions add up exactly.

A **Poisson** number of mean m is k with probability `e**-m m**k / k!`. Means add up. A **Skellam**
number is the difference of two of them with mean v / 2 each, so its variance is v and variances add
up: shares of parties make the noise of one trusted party (Agarwal, Kairouz and Liu, NeurIPS 2021).
Its probabilities are `e**-v I_|k|(v)` with the modified Bessel function.

A Poisson draw is exact by rejection. A proposal is the floor of m plus discrete Laplace noise x of
scale s, about the standard deviation, and is accepted with probability::

    e**(|x| / s - c) P[floor(m) + x] / P[floor(m)],

with a constant c for which that is never above 1. The ratio of probabilities is a product of
fractions, so it can be bounded arbitrarily tightly. Floats decide by Stirling's series, and the
rare undecided case is computed with more and more digits, as in `draws`.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilring.privacy.checks import require
from veilring.privacy.draws import coins, propose
from veilring.privacy.exact import FractionBounds, exp_bounds
from veilring.privacy.noise import discrete_laplace

SKELLAM_VARIANCE_MIN: Final = 2
"""Below it almost all draws are 0, 1 or -1, which is useless noise."""
SKELLAM_VARIANCE_MAX: Final = 2**33
"""Up to here at most one draw in 2**25 is undecided by floats, and takes a second."""

# From here on the series below is accurate to 2**-46; before, `math.lgamma` is.
_SERIES_FROM: Final = 16
# Rounding, NumPy's logarithm (2**-48) and the series, for each unit of what is added up.
_ROUNDED: Final = 2.0**-44
_CONSTANT: Final = 64.0
# above the float error of the constant c, and otherwise negligible
_MARGIN: Final = 2.0**-20


def skellam(
    variance: float | Fraction, shape: int | tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw exact Skellam noise with mean 0: the difference of two Poisson numbers.

    Args:
        variance: From `SKELLAM_VARIANCE_MIN` to `SKELLAM_VARIANCE_MAX`. A float is treated as an
            exact fraction.
    """
    mean = _checked(variance) / 2
    return poisson(mean, shape, rng) - poisson(mean, shape, rng)


def skellam_pmf(k: ArrayLike, variance: float | Fraction) -> NDArray[np.float64]:
    """Return the probabilities of whole numbers, of the same shape."""
    from scipy.special import ive

    return np.asarray(ive(np.abs(np.asarray(k, dtype=np.float64)), float(_checked(variance))))


def poisson(
    mean: float | Fraction,
    shape: int | tuple[int, ...],
    rng: np.random.Generator,
    *,
    slack: float = _ROUNDED,
) -> NDArray[np.int64]:
    """Draw exact Poisson numbers.

    Args:
        mean: Half of a variance allowed by `skellam`. A float is treated as an exact fraction.
        slack: The float error for each unit of the summands. A larger one changes only the speed.
    """
    low, high = SKELLAM_VARIANCE_MIN // 2, SKELLAM_VARIANCE_MAX // 2
    require(low <= mean <= high, "mean", mean, f"from {low} to {high:,}")
    distribution = PoissonDistribution.of(Fraction(mean))

    def proposals(missing: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        x = discrete_laplace(distribution.scale, missing.size, rng)
        chances, doubts = distribution.chances(x)
        return x, coins(
            chances,
            lambda index, digits: distribution.bounds(int(x[index]), digits),
            rng,
            slack=doubts * slack,
        )

    drawn = propose(int(np.prod(shape)), proposals)
    return (drawn + distribution.middle).reshape(shape)


@dataclass(frozen=True, slots=True)
class PoissonDistribution:
    """A Poisson distribution relative to its middle: x is the distance of a number from the middle.

    Attributes:
        peak: The constant c, at least `|x| / scale - surprise(x)` for any x.
    """

    mean: Fraction
    middle: int
    scale: int
    peak: Fraction

    @classmethod
    def of(cls, mean: Fraction) -> Self:
        """Return the distribution of a mean of at least 1."""
        middle, scale = math.floor(mean), math.isqrt(math.floor(mean)) + 1
        flat = cls(mean, middle, scale, Fraction(0))
        # Away from the middle the surprise grows by more and more per step, and by 1 / scale here.
        turns = [math.floor(mean * Fraction(math.exp(way / scale))) for way in (1, -1)]
        near = np.array([turn - middle + step for turn in turns for step in (-1, 0, 1)])
        near = near[near >= -middle]
        gains = np.abs(near) / scale - flat.surprise(near)
        return cls(mean, middle, scale, Fraction(max(0.0, float(gains.max())) + _MARGIN))

    def surprise(self, x: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return `ln(P[middle] / P[middle + x])` for numbers of at least 0."""
        there = self._log(self.middle + 1 + x.astype(np.float64))
        return there - self._log(np.array([self.middle + 1], dtype=np.float64))

    def chances(self, x: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the acceptance probability of each, and its error in roundings."""
        there = np.maximum(x, -self.middle)
        logs = np.abs(x) / self.scale - float(self.peak) - self.surprise(there)
        # None is above 0 except by rounding, and errors far out do not matter.
        chances = np.where(x < -self.middle, 0.0, np.exp(np.minimum(logs, 0.0)))
        growth = 1 + np.abs(there) / float(self.mean)
        return chances, np.where(x < -self.middle, 0.0, _CONSTANT + 2 * np.abs(x) * growth)

    def bounds(self, x: int, digits: int) -> FractionBounds:
        """Return bounds on the probability of accepting x, computed in units of 10**-digits."""
        if x < -self.middle:
            return Fraction(0), Fraction(0)
        unit, mean = 10**digits, self.mean
        low = high = unit
        for number in range(self.middle + 1, self.middle + x + 1):
            above, below = mean.numerator, mean.denominator * number
            low, high = low * above // below, -(-high * above // below)
        for number in range(self.middle, self.middle + x, -1):
            above, below = mean.denominator * number, mean.numerator
            low, high = low * above // below, -(-high * above // below)
        rise = exp_bounds(Fraction(abs(x), self.scale) - self.peak, digits)
        return rise[0] * Fraction(low, unit), rise[1] * Fraction(high, unit)

    def _log(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `ln(gamma(z)) - z ln(mean)` up to a constant, without its large terms."""
        mean = float(self.mean)
        return np.asarray((z - 0.5) * np.log1p((z - mean) / mean) - (z - mean) + _stirling_rest(z))


def _stirling_rest(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the error of Stirling's formula for `ln(gamma(z))` for whole numbers from 1 on."""
    inverse = 1 / np.maximum(z, _SERIES_FROM)
    square = inverse**2
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
    first = _FIRST_RESTS[np.minimum(z, _SERIES_FROM - 1).astype(np.intp)]
    return np.where(z < _SERIES_FROM, first, series)


def _first_rests() -> NDArray[np.float64]:
    rests = [
        math.lgamma(z) - ((z - 0.5) * math.log(z) - z + math.log(2 * math.pi) / 2)
        for z in range(1, _SERIES_FROM)
    ]
    return np.array([math.nan, *rests])


_FIRST_RESTS: Final = _first_rests()


def _checked(variance: float | Fraction) -> Fraction:
    low, high = SKELLAM_VARIANCE_MIN, SKELLAM_VARIANCE_MAX
    require(low <= variance <= high, "variance", variance, f"from {low} to {high:,}")
    return Fraction(variance)
