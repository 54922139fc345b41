"""Pólya noise: shares that parties draw independently and that add up to discrete Laplace noise.

The distribution, also called negative binomial, has an exponent a and `q = e**(-1 / scale)`:

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
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilring.privacy.checks import require, require_positive
from veilring.privacy.draws import UniformBits, geometric, require_scale
from veilring.privacy.exact import FractionBounds, exp_bounds, log_bounds

# A table has 42 entries for each unit of the scale: 11 MB here, built in a tenth of a second.
POLYA_SCALE_MAX: Final = 2**15
# Beyond this number of scales the mass is below 2**-60, because q**k bounds S[k] for exponents up
# to 1.
_REACH: Final = 42
_BEYOND: Final = 2.0**-60
_UNIT: Final = 2.0**-53  # the maximum relative size of half a unit in the last place
_SLACK: Final = 8.0
_CONSTANT: Final = 512  # times the slack: the 4096 units above
_DIGITS: Final = 40


def polya(
    exponent: float | Fraction,
    scale: float | Fraction,
    shape: int | tuple[int, ...],
    rng: np.random.Generator,
    *,
    slack: float = _SLACK,
) -> NDArray[np.int64]:
    """Draw exact Pólya noise, at least 0.

    Args:
        exponent: a, above 0 and at most 1. A float is treated as an exact fraction.
        scale: From 2**-20 to `POLYA_SCALE_MAX`, or to 2**40 if the exponent is 1. A float is
            treated as an exact fraction.
        slack: The error of a table entry in roundings, for each unit of its index and of the scale.
            A larger one changes only the speed.
    """
    require(0 < exponent <= 1, "exponent", exponent, "above 0 and at most 1")
    if exponent == 1:
        return geometric(scale, shape, rng)
    require(scale <= POLYA_SCALE_MAX, "scale", scale, f"at most {POLYA_SCALE_MAX:,}")
    a, s = Fraction(exponent), require_scale("scale", scale)
    draws = rng.random(shape)
    rising = _polya_tail(a, s)
    drawn = len(rising) - np.searchsorted(rising, draws.ravel(), side="right")
    for index in np.flatnonzero(_doubtful(rising, draws.ravel(), drawn, float(s), slack)):
        drawn[index] = _settled(UniformBits(float(draws.flat[index])), a, s, rng)
    return drawn.astype(np.int64).reshape(shape)


def polya_difference(
    exponent: float | Fraction,
    scale: float | Fraction,
    shape: int | tuple[int, ...],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw the difference of two draws: a share of discrete Laplace noise.

    The arguments are those of `polya`; shares whose exponents add up to 1 make all of the noise.
    """
    return polya(exponent, scale, shape, rng) - polya(exponent, scale, shape, rng)


def polya_pmf(
    k: ArrayLike, exponent: float | Fraction, scale: float | Fraction
) -> NDArray[np.float64]:
    """Return the probabilities of whole numbers, of the same shape; 0 below 0.

    Args:
        k: Whole numbers; time and memory grow with the largest.
        exponent: a, above 0.
    """
    a, s = require_positive("exponent", exponent), require_scale("scale", scale)
    numbers = np.asarray(k, dtype=np.int64)
    pmf = _pmf_table(a, s, int(numbers.max(initial=0)) + 1)
    return np.where(numbers < 0, 0.0, pmf[np.maximum(numbers, 0)])


def polya_difference_pmf(
    k: ArrayLike, exponent: float | Fraction, scale: float | Fraction
) -> NDArray[np.float64]:
    """Return the distribution of `polya_difference`: discrete Laplace if the exponent is 1.

    It is the sum of `P[j] P[j + |k|]` over all j, so that even small probabilities have small
    relative errors.

    Args:
        k: Whole numbers. Each takes time in proportion to the scale.
        exponent: a, above 0: the sum over all shares.
    """
    a, s = require_positive("exponent", exponent), require_scale("scale", scale)
    apart, back = np.unique(np.abs(np.asarray(k, dtype=np.int64)), return_inverse=True)
    # exponents above 1 have the bulk of their distribution further out
    terms = math.ceil((_REACH + 4 * a) * s) + 2
    pmf = _pmf_table(a, s, terms + int(apart.max(initial=0)))
    sums = np.array([pmf[:terms] @ pmf[gap : gap + terms] for gap in apart.tolist()])
    return sums[back].reshape(np.shape(k))


def _pmf_table(a: Fraction, scale: Fraction, terms: int) -> NDArray[np.float64]:
    """Return the probabilities of the first `terms` whole numbers."""
    k = np.arange(1, terms)
    factors = np.cumprod(np.concatenate([[1.0], (k - 1 + float(a)) / k]))
    first = float(_first(a, *_ratio(scale, _DIGITS), 10**_DIGITS)[0])
    return np.asarray(first * factors * np.exp(-np.arange(terms) * float(1 / scale)))


@lru_cache(maxsize=32)
def _polya_tail(a: Fraction, scale: Fraction) -> NDArray[np.float64]:
    """Return the probabilities of at least ..., 2, 1: ascending, for searching."""
    pmf = _pmf_table(a, scale, math.ceil(_REACH * scale) + 2)
    return np.cumsum(pmf[:0:-1])


def _doubtful(
    rising: NDArray[np.float64],
    draws: NDArray[np.float64],
    drawn: NDArray[np.intp],
    scale: float,
    slack: float,
) -> NDArray[np.bool_]:
    """Return which draws are too close to the last entry above them, or to the next one."""
    share = slack * (drawn + 1 + scale + _CONSTANT) * _UNIT
    above = rising.take(len(rising) - drawn, mode="clip")
    below = rising.take(len(rising) - drawn - 1, mode="clip")
    near_above = (drawn > 0) & (above - draws <= above * share + _UNIT)
    return np.asarray(near_above | (draws - below <= below * share + _BEYOND))


def _settled(number: UniformBits, a: Fraction, scale: Fraction, rng: np.random.Generator) -> int:
    """Return the greatest k such that the number is below `S[k]`, drawing bits of it as needed."""
    while True:
        found = _found(number, a, scale)
        if found is not None:
            return found
        number.refine(rng)


def _found(number: UniformBits, a: Fraction, scale: Fraction) -> int | None:
    """Return that k if the known bits of the number determine it; terms are in 10**-digits."""
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
