"""Exact probabilities, bounds on logarithms, and the privacy loss of finite distributions.

A probability such as `1 / (e**epsilon + 1)` is not a binary fraction, so no finite number of coins
gives it. The mechanisms use a nearby probability that is one (`Dyadic`), publish that exact number,
and account for *its* privacy loss.

The loss of a pair of distributions is the maximum `|ln(a / b)|` over all outcomes: the `epsilon` of
pure differential privacy for this pair of inputs. It is computed from fractions and rounded up to a
float, so the reported value is never below the truth.
"""

import decimal
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, Self, TypeAlias

from veilring.privacy.checks import require, require_that

# one coin takes at most one word of the generator
MOST_BITS: Final = 64
# Ratios of 64-bit weights differ from 1 by at least 2**-64, so 40 digits are ample.
_DIGITS: Final = 60
# After rounding to this many digits, a power of this size still gives 50 digits of its exponential.
EXP_MAX: Final = 10**4
# A fraction of e**-10000 has 4,343 digits; those of smaller numbers could fill the memory.
_DEEPEST: Final = Fraction(-10_000)
FractionBounds = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class Dyadic:
    """The probability `numerator / 2**bits`, of a coin that this number of random bits decides."""

    numerator: int
    bits: int

    def __post_init__(self) -> None:
        require(0 <= self.bits <= MOST_BITS, "bits", self.bits, f"from 0 to {MOST_BITS}")
        allowed = f"from 0 to 2**{self.bits}"
        require(0 <= self.numerator <= 2**self.bits, "numerator", self.numerator, allowed)

    @classmethod
    def floor(cls, x: float | Fraction, bits: int) -> Self:
        """Return the largest probability of `bits` bits that is at most `x`, in [0, 1]."""
        return cls(math.floor(_scaled(x, bits)), bits)

    @classmethod
    def ceil(cls, x: float | Fraction, bits: int) -> Self:
        """Return the smallest probability of `bits` bits that is at least `x`, in [0, 1]."""
        return cls(math.ceil(_scaled(x, bits)), bits)

    @property
    def fraction(self) -> Fraction:
        """The probability as a fraction."""
        return Fraction(self.numerator, 2**self.bits)

    @property
    def complement(self) -> "Dyadic":
        """The probability of the other side of the coin."""
        return Dyadic(2**self.bits - self.numerator, self.bits)

    def __float__(self) -> float:
        return self.numerator / (1 << self.bits)


# The argument types of exact computations.
Probability: TypeAlias = Dyadic | Fraction


def fraction_of(p: Probability) -> Fraction:
    """Return a probability as a fraction."""
    return p.fraction if isinstance(p, Dyadic) else Fraction(p)


def _scaled(x: float | Fraction, bits: int) -> Fraction:
    require(0 <= x <= 1, "x", x, "a probability, from 0 to 1")
    require(0 <= bits <= MOST_BITS, "bits", bits, f"from 0 to {MOST_BITS}")
    return Fraction(x) * (1 << bits)


def epsilon_of(p: Probability, q: Probability) -> float:
    """Return the `epsilon` of a bit that is set with `p` or with `q`, rounded up like `loss`."""
    a, b = fraction_of(p), fraction_of(q)
    return loss((a, 1 - a), (b, 1 - b))


def unary_epsilon(p: Probability, q: Probability) -> float:
    """Return the loss of a unary encoding: a value sets its own bit with `p`, others with `q`.

    Two values differ in two bits, so the loss is `ln(p (1 - q) / (q (1 - p)))` (Wang et al. 2017,
    Theorem 2), rounded up.
    """
    a, b = fraction_of(p), fraction_of(q)
    require(a >= b, "p", a, f"at least q, which is {b}")
    if a != b and (b == 0 or a == 1):
        return math.inf
    return 0.0 if a == b else log_ceil(a * (1 - b) / (b * (1 - a)))


def loss(a: Sequence[Probability], b: Sequence[Probability]) -> float:
    """Return the maximum `|ln(a[i] / b[i])|` over all outcomes i of two inputs, rounded up.

    It is infinite if one input has an outcome that the other lacks. Weights with a common total
    work as well as probabilities.
    """
    require_that(
        len(a) == len(b), "b", f"a and b must have the same length; they have {len(a)} and {len(b)}"
    )
    greatest = Fraction(1)
    for one, other in zip(map(fraction_of, a), map(fraction_of, b), strict=True):
        require_that(
            min(one, other) >= 0,
            "a, b",
            "a and b must be probabilities; one of them has a negative entry",
        )
        if one == other:
            continue
        if min(one, other) == 0:
            return math.inf
        greatest = max(greatest, one / other, other / one)
    return log_ceil(greatest)


def log_ceil(ratio: Fraction) -> float:
    """Return a float that is not below `ln(ratio)`, and at most the second one above it."""
    return float_ceil(_log_bounds_from_one(ratio)[1])


def log_floor(ratio: Fraction) -> float:
    """Return a float that is not above `ln(ratio)`, and at least the second one below it."""
    return max(0.0, -float_ceil(-_log_bounds_from_one(ratio)[0]))


def _log_bounds_from_one(ratio: Fraction) -> FractionBounds:
    require(ratio >= 1, "ratio", ratio, "a number of at least 1")
    return log_bounds(ratio, _DIGITS)


def float_ceil(x: Fraction) -> float:
    """Return the smallest float that is at least a fraction; infinity beyond the largest."""
    try:
        nearest = float(x)
    except OverflowError:
        return math.inf
    return nearest if nearest >= x else math.nextafter(nearest, math.inf)


def exp_floor(x: float | Fraction) -> Fraction:
    """Return a fraction just below `e**x`, by less than 1e-50 of it; exactly 1 for 0."""
    return exp_bounds(_power(x), _DIGITS)[0]


def exp_ceil(x: float | Fraction) -> Fraction:
    """Return a fraction just above `e**x`, by less than 1e-50 of it; exactly 1 for 0."""
    return exp_bounds(_power(x), _DIGITS)[1]


def _power(x: float | Fraction) -> Fraction:
    allowed = f"from -{EXP_MAX} to {EXP_MAX}"
    require(-EXP_MAX <= x <= EXP_MAX, "x", x, allowed)
    return Fraction(x)


def exp_bounds(x: Fraction, digits: int) -> FractionBounds:
    """Return fractions below and above `e**x` for x up to `EXP_MAX`; both are 1 for 0."""
    if x == 0:
        return Fraction(1), Fraction(1)
    if x < _DEEPEST:
        return Fraction(0), exp_bounds(_DEEPEST, digits)[1]
    return _enclosed(decimal.Context.exp, x, digits)


def log_bounds(x: Fraction, digits: int) -> FractionBounds:
    """Return fractions below and above `ln(x)` for x above 0; both are 0 for 1."""
    if x == 1:
        return Fraction(0), Fraction(0)
    return _enclosed(decimal.Context.ln, x, digits)


_Applied = Callable[[decimal.Context, Decimal], Decimal]


def _enclosed(function: _Applied, x: Fraction, digits: int) -> FractionBounds:
    """Return bounds on an increasing function, which rounds to the nearest in any context."""
    down, up = (
        decimal.Context(digits, rounding, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
        for rounding in (decimal.ROUND_FLOOR, decimal.ROUND_CEILING)
    )
    above, below = Decimal(x.numerator), Decimal(x.denominator)
    low, high = (function(each, each.divide(above, below)) for each in (down, up))
    return Fraction(down.next_minus(low)), Fraction(up.next_plus(high))
