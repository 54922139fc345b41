"""The exact privacy loss of finite laws, and logarithms that err on the safe side only.

The loss of a pair of laws is the greatest `|ln(a / b)|` over what both can show: the `epsilon` of
pure differential privacy for this pair of inputs. It is computed from fractions, and its float is
rounded up, so that what is reported is never below the truth.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from veilring.privacy.bounds import exp_bounds, log_bounds
from veilring.privacy.checks import require
from veilring.privacy.dyadic import Probability, fraction_of

# Ratios of 64-bit weights differ from 1 by 2**-64 at least: 40 digits to spare.
_DIGITS: Final = 60
# Rounding a power of this size to so many digits still gives 50 digits of its exponential.
EXP_MAX: Final = 10**4


def epsilon_of(p: Probability, q: Probability) -> float:
    """Return the loss of two coins: the `epsilon` of a bit that is set with `p` or with `q`.

    Returns:
        Rounded up; infinite if one coin can show what the other cannot.
    """
    a, b = fraction_of(p), fraction_of(q)
    return loss((a, 1 - a), (b, 1 - b))


def unary_epsilon(p: Probability, q: Probability) -> float:
    """Return the loss of a unary encoding: a value sets its own bit with `p`, others with `q`.

    Two values differ in two bits, so that it is `ln(p (1 - q) / (q (1 - p)))` (Wang et al. 2017,
    Theorem 2), rounded up.

    Args:
        p: At least `q`.
        q: The probability that the bit of another value is set.

    Raises:
        InputError: If `p` is below `q`.
    """
    a, b = fraction_of(p), fraction_of(q)
    require(a >= b, "p", a, f"at least q, which is {b}")
    if a != b and (b == 0 or a == 1):
        return math.inf
    return 0.0 if a == b else log_ceil(a * (1 - b) / (b * (1 - a)))


def loss(a: Sequence[Probability], b: Sequence[Probability]) -> float:
    """Return the greatest `|ln(a[i] / b[i])|` over all i with a probability above 0.

    Args:
        a: The law of the outcomes for one input. Weights on a common total do as well.
        b: The law of the same outcomes for another.

    Returns:
        Rounded up; infinite if one input can show what the other cannot.

    Raises:
        InputError: If the laws have different lengths or a negative entry.
    """
    require(len(a) == len(b), "b", f"of length {len(b)}", f"of length {len(a)}, as a")
    greatest = Fraction(1)
    for one, other in zip(map(fraction_of, a), map(fraction_of, b), strict=True):
        require(min(one, other) >= 0, "a, b", "with a negative entry", "probabilities")
        if one == other:
            continue
        if min(one, other) == 0:
            return math.inf
        greatest = max(greatest, one / other, other / one)
    return log_ceil(greatest)


def log_ceil(ratio: Fraction) -> float:
    """Return a float that is not below `ln(ratio)`, and at most the second one above it.

    Args:
        ratio: A number of at least 1.

    Raises:
        InputError: If it is below 1.
    """
    require(ratio >= 1, "ratio", ratio, "a number of at least 1")
    if ratio == 1:
        return 0.0
    bound = log_bounds(ratio, _DIGITS)[1]
    return float_ceil(bound)


def log_floor(ratio: Fraction) -> float:
    """Return a float that is not above `ln(ratio)`, and at least the second one below it.

    Args:
        ratio: A number of at least 1.

    Raises:
        InputError: If it is below 1.
    """
    require(ratio >= 1, "ratio", ratio, "a number of at least 1")
    return 0.0 if ratio == 1 else -float_ceil(-log_bounds(ratio, _DIGITS)[0])


def float_ceil(x: Fraction) -> float:
    """Return the least float that is not below a fraction; infinity beyond the greatest."""
    try:
        nearest = float(x)
    except OverflowError:
        return math.inf
    return nearest if nearest >= x else math.nextafter(nearest, math.inf)


def exp_floor(x: float | Fraction) -> Fraction:
    """Return a fraction just below `e**x`, by less than 1e-50 of it; exactly 1 for 0.

    Args:
        x: From -10,000 to 10,000.

    Raises:
        InputError: If it is outside.
    """
    return exp_bounds(_power(x), _DIGITS)[0]


def exp_ceil(x: float | Fraction) -> Fraction:
    """Return a fraction just above `e**x`, by less than 1e-50 of it; exactly 1 for 0.

    Args:
        x: From -10,000 to 10,000.

    Raises:
        InputError: If it is outside.
    """
    return exp_bounds(_power(x), _DIGITS)[1]


def _power(x: float | Fraction) -> Fraction:
    allowed = f"from -{EXP_MAX} to {EXP_MAX}"
    require(-EXP_MAX <= x <= EXP_MAX, "x", x, allowed)
    return Fraction(x)
