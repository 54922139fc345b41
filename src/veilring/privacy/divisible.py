"""Noise of which parties draw shares independently: Pólya, and Poisson and Skellam.

**Pólya** shares add up to discrete Laplace noise. The distribution, also called negative binomial,
has an exponent a and `q = e**(-1 / scale)`:

    P[k] = (a (a + 1) ... (a + k - 1) / k!) (1 - q)**a q**k

Exponents add up: the sum of m independent draws with exponent 1 / m has exponent 1, which is
geometric; and the difference of two geometric numbers is exactly discrete Laplace noise. So m
parties that each add the difference of two draws together make the noise of one trusted party
(Goryczka and Xiong, IEEE TDSC 14, 2017, Section 4).

A Pólya draw is exact by inversion of `S[k] = P[at least k]`. Floats decide, and the rare undecided
case is computed with more and more digits against more and more bits, as in `draws`. Let `u` be
`2**-53`, and let exponentials have a relative error of `32 u`. A term of the table has a relative
error of at most `(4 k + 200) u`: four roundings for each factor, and the power of q. The mean
beyond k is at most `k + scale`, and adding up has an error of `(scale + 2) u`. An allowance of
`8 (k + scale) + 4096` units is therefore more than enough.

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
from functools import lru_cache, partial
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilring.arrays import Bools, Floats, Ints
from veilring.privacy.checks import require, require_positive
from veilring.privacy.draws import UniformBits, coins, geometric, propose, require_scale
from veilring.privacy.exact import FractionBounds, exp_bounds, log_bounds
from veilring.privacy.noise import discrete_laplace

SKELLAM_VARIANCE_MIN: Final = 2
"""Below it almost all draws are 0, 1 or -1, which is useless noise."""
SKELLAM_VARIANCE_MAX: Final = 2**33
"""Up to here at most one draw in 2**25 is undecided by floats, and takes a second."""

# From here on the series below is accurate to 2**-46; before, `math.lgamma` is.
_SERIES_FROM: Final = 16
# Rounding, NumPy's logarithm (2**-48) and the series, for each unit of what is added up.
_ROUNDED: Final = 2.0**-44
_ROUNDING: Final = 64.0
# above the float error of the constant c, and otherwise negligible
_MARGIN: Final = 2.0**-20


def skellam(
    variance: float | Fraction, shape: int | tuple[int, ...], rng: np.random.Generator
) -> Ints:
    """Draw exact Skellam noise with mean 0: the difference of two Poisson numbers."""
    mean = _checked(variance) / 2
    return poisson(mean, shape, rng) - poisson(mean, shape, rng)


def skellam_pmf(k: ArrayLike, variance: float | Fraction) -> Floats:
    """Return the probabilities of whole numbers, of the same shape."""
    from scipy.special import ive

    return np.asarray(ive(np.abs(np.asarray(k, dtype=np.float64)), float(_checked(variance))))


def poisson(
    mean: float | Fraction,
    shape: int | tuple[int, ...],
    rng: np.random.Generator,
    *,
    slack: float = _ROUNDED,
) -> Ints:
    """Draw exact Poisson numbers.

    `slack` is the float error for each unit of the summands; a larger one changes only the speed.
    """
    low, high = SKELLAM_VARIANCE_MIN // 2, SKELLAM_VARIANCE_MAX // 2
    require(low <= mean <= high, "mean", mean, f"from {low} to {high:,}")
    distribution = PoissonDistribution.of(Fraction(mean))

    def proposals(missing: NDArray[np.intp]) -> tuple[Ints, Bools]:
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

    The constant c is `peak`, at least `|x| / scale - surprise(x)` for any x.
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

    def surprise(self, x: Ints) -> Floats:
        """Return `ln(P[middle] / P[middle + x])` for numbers of at least 0."""
        there = self._log(self.middle + 1 + x.astype(np.float64))
        return there - self._log(np.array([self.middle + 1], dtype=np.float64))

    def chances(self, x: Ints) -> tuple[Floats, Floats]:
        """Return the acceptance probability of each, and its error in roundings."""
        there = np.maximum(x, -self.middle)
        logs = np.abs(x) / self.scale - float(self.peak) - self.surprise(there)
        # None is above 0 except by rounding, and errors far out do not matter.
        chances = np.where(x < -self.middle, 0.0, np.exp(np.minimum(logs, 0.0)))
        growth = 1 + np.abs(there) / float(self.mean)
        return chances, np.where(x < -self.middle, 0.0, _ROUNDING + 2 * np.abs(x) * growth)

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

    def _log(self, z: Floats) -> Floats:
        """Return `ln(gamma(z)) - z ln(mean)` up to a constant, without its large terms."""
        mean = float(self.mean)
        return np.asarray((z - 0.5) * np.log1p((z - mean) / mean) - (z - mean) + _stirling_rest(z))


def _stirling_rest(z: Floats) -> Floats:
    """Return the error of Stirling's formula for `ln(gamma(z))` for whole numbers from 1 on."""
    inverse = 1 / np.maximum(z, _SERIES_FROM)
    square = inverse**2
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
    first = _FIRST_RESTS[np.minimum(z, _SERIES_FROM - 1).astype(np.intp)]
    return np.where(z < _SERIES_FROM, first, series)


def _first_rests() -> Floats:
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


# A table has 42 entries for each unit of the scale: 11 MB here, built in a tenth of a second.
POLYA_SCALE_MAX: Final = 2**15
# Beyond this number of scales the mass is below 2**-60, because q**k bounds S[k] for exponents up
# to 1.
_REACH: Final = 42
_BEYOND: Final = 2.0**-60
_UNIT: Final = 2.0**-53  # the maximum relative size of half a unit in the last place
_SLACK: Final = 8.0
_SLACK_UNITS: Final = 512  # times the slack: the 4096 units above
_DIGITS: Final = 40


def polya(
    exponent: float | Fraction,
    scale: float | Fraction,
    shape: int | tuple[int, ...],
    rng: np.random.Generator,
    *,
    slack: float = _SLACK,
) -> Ints:
    """Draw exact Pólya noise, at least 0; floats are treated as exact fractions.

    `slack` is the error of a table entry in roundings, for each unit of its index and of the scale;
    a larger one changes only the speed.
    """
    if exponent == 1:
        return geometric(scale, shape, rng)
    a, s, rising = _polya_tail(exponent, scale)
    draws = rng.random(shape)
    drawn = len(rising) - np.searchsorted(rising, draws.ravel(), side="right")
    for index in np.flatnonzero(_doubtful(rising, draws.ravel(), drawn, float(s), slack)):
        number = UniformBits(float(draws.flat[index]))
        drawn[index] = number.settle(partial(_found, number, a, s), rng)
    return drawn.astype(np.int64).reshape(shape)


def polya_difference(
    exponent: float | Fraction,
    scale: float | Fraction,
    shape: int | tuple[int, ...],
    rng: np.random.Generator,
) -> Ints:
    """Draw a share of discrete Laplace noise: exponents add up, to 1 for all of it."""
    above, below = polya(exponent, scale, (2, int(np.prod(shape))), rng)
    return np.asarray((above - below).reshape(shape))


def polya_pmf(k: ArrayLike, exponent: float | Fraction, scale: float | Fraction) -> Floats:
    """Return the probabilities of whole numbers, of the same shape; 0 below 0.

    Time and memory grow with the largest number.
    """
    a, s = require_positive("exponent", exponent), require_scale("scale", scale)
    numbers = np.asarray(k, dtype=np.int64)
    pmf = _pmf_table(a, s, int(numbers.max(initial=0)) + 1)
    return np.where(numbers < 0, 0.0, pmf[np.maximum(numbers, 0)])


def polya_difference_pmf(
    k: ArrayLike, exponent: float | Fraction, scale: float | Fraction
) -> Floats:
    """Return the distribution of `polya_difference`: discrete Laplace if the exponent is 1.

    It is the sum of `P[j] P[j + |k|]` over all j, so that even small probabilities have small
    relative errors. Each number takes time in proportion to the scale.
    """
    a, s = require_positive("exponent", exponent), require_scale("scale", scale)
    apart, back = np.unique(np.abs(np.asarray(k, dtype=np.int64)), return_inverse=True)
    # exponents above 1 have the bulk of their distribution further out
    terms = math.ceil((_REACH + 4 * a) * s) + 2
    pmf = _pmf_table(a, s, terms + int(apart.max(initial=0)))
    sums = np.array([pmf[:terms] @ pmf[gap : gap + terms] for gap in apart.tolist()])
    return sums[back].reshape(np.shape(k))


def _pmf_table(a: Fraction, scale: Fraction, terms: int) -> Floats:
    """Return the probabilities of the first `terms` whole numbers."""
    k = np.arange(1, terms)
    factors = np.cumprod(np.concatenate([[1.0], (k - 1 + float(a)) / k]))
    first = float(_first(a, *_ratio(scale, _DIGITS), 10**_DIGITS)[0])
    return np.asarray(first * factors * np.exp(-np.arange(terms) * float(1 / scale)))


@lru_cache(maxsize=32)
def _polya_tail(
    exponent: float | Fraction, scale: float | Fraction
) -> tuple[Fraction, Fraction, Floats]:
    """Return the parameters, checked, and the probabilities of at least ..., 2, 1 for searching."""
    require(0 < exponent <= 1, "exponent", exponent, "above 0 and at most 1")
    require(scale <= POLYA_SCALE_MAX, "scale", scale, f"at most {POLYA_SCALE_MAX:,}")
    a, s = Fraction(exponent), require_scale("scale", scale)
    pmf = _pmf_table(a, s, math.ceil(_REACH * s) + 2)
    return a, s, np.cumsum(pmf[:0:-1])


def _doubtful(
    rising: Floats, draws: Floats, drawn: NDArray[np.intp], scale: float, slack: float
) -> Bools:
    """Return which draws are too close to the last entry above them, or to the next one."""
    share = slack * (drawn + 1 + scale + _SLACK_UNITS) * _UNIT
    above = rising.take(len(rising) - drawn, mode="clip")
    below = rising.take(len(rising) - drawn - 1, mode="clip")
    near_above = (drawn > 0) & (above - draws <= above * share + _UNIT)
    return np.asarray(near_above | (draws - below <= below * share + _BEYOND))


def _found(number: UniformBits, a: Fraction, scale: Fraction) -> int | None:
    """Return the greatest k such that the number is below `S[k]` if its known bits determine it.

    Terms are in 10**-digits.
    """
    unit = 10**number.digits
    q_low, q_high = _ratio(scale, number.digits)
    first = _first(a, q_low, q_high, unit)
    low, high = math.floor(first[0] * unit), math.ceil(first[1] * unit)
    # S[k] is 1 minus the terms before k
    enough, too_few = math.ceil((1 - number.low) * unit), math.floor((1 - number.high) * unit)
    least, most, k = low, high, 0
    while least < enough:
        if most > too_few:
            return None
        k += 1
        above, below = (k - 1) * a.denominator + a.numerator, k * a.denominator * unit
        low, high = low * q_low * above // below, -(-high * q_high * above // below)
        least, most = least + low, most + high
    return k


def _ratio(scale: Fraction, digits: int) -> tuple[int, int]:
    """Return bounds on q in units of 10**-digits."""
    low, high = exp_bounds(-1 / scale, digits)
    return math.floor(low * 10**digits), math.ceil(high * 10**digits)


def _first(a: Fraction, q_low: int, q_high: int, unit: int) -> FractionBounds:
    """Return bounds on `(1 - q)**a`."""
    digits = len(str(unit))
    low = log_bounds(Fraction(unit - q_high, unit), digits)[0]
    high = log_bounds(Fraction(unit - q_low, unit), digits)[1]
    return exp_bounds(a * low, digits)[0], exp_bounds(a * high, digits)[1]
