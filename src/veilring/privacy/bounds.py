"""Fractions around exponentials and logarithms, as close as one asks."""

import decimal
from decimal import Decimal
from fractions import Fraction
from typing import Final

Bounds = tuple[Fraction, Fraction]

# A fraction of e**-10000 has 4,343 digits; those of lesser numbers could fill the memory.
_DEEPEST: Final = Fraction(-10_000)


def exp_bounds(x: Fraction, digits: int) -> Bounds:
    """Return fractions below and above `e**x`; both are 1 if `x` is 0.

    Args:
        x: Any number of at most 10,000; below -10,000 the lower bound is 0.
        digits: The precision of the computation, in decimal digits.
    """
    if x == 0:
        return Fraction(1), Fraction(1)
    if x < _DEEPEST:
        return Fraction(0), exp_bounds(_DEEPEST, digits)[1]
    down, up = _contexts(digits)
    low, high = _quotients(x, down, up)
    return Fraction(down.next_minus(down.exp(low))), Fraction(up.next_plus(up.exp(high)))


def log_bounds(x: Fraction, digits: int) -> Bounds:
    """Return fractions below and above `ln(x)`; both are 0 if `x` is 1.

    Args:
        x: Any number above 0.
        digits: The precision of the computation, in decimal digits.
    """
    if x == 1:
        return Fraction(0), Fraction(0)
    down, up = _contexts(digits)
    low, high = _quotients(x, down, up)
    return Fraction(down.next_minus(down.ln(low))), Fraction(up.next_plus(up.ln(high)))


def _contexts(digits: int) -> tuple[decimal.Context, decimal.Context]:
    """Return one that rounds down and one up; `exp` and `ln` round to the nearest in both."""
    return _context(digits, decimal.ROUND_FLOOR), _context(digits, decimal.ROUND_CEILING)


def _context(digits: int, rounding: str) -> decimal.Context:
    return decimal.Context(digits, rounding, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)


def _quotients(x: Fraction, down: decimal.Context, up: decimal.Context) -> tuple[Decimal, Decimal]:
    numerator, denominator = Decimal(x.numerator), Decimal(x.denominator)
    return down.divide(numerator, denominator), up.divide(numerator, denominator)
