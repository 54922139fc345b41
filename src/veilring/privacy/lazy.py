"""Exact draws against real thresholds: floats decide, and the rare doubtful case goes on exactly.

A uniform real number is an endless row of random bits. Whether it is below `e**-gamma` is settled
by its first 53 bits and a float, unless the two are closer than the float can err: one case in
2**43. That case is computed with more and more digits, against more and more bits, until it is
settled too. So the law is exact, and the price is one exponential a draw.

Canonne, Kamath and Steinke (2020, Algorithm 1) reach the same law by rows of rational coins; here
it costs a tenth. What is relied on is that NumPy's `exp` and `log` err by less than 2**-48 of their
value, sixteen times the unit in the last place.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.bounds import exp_bounds, log_bounds
from veilring.privacy.scales import Scale, Scales

# How far the computed and the true threshold may be apart: NumPy's error and that of `gamma`.
_SLACK: Final = 2.0**-44
_FLOAT_BITS: Final = 53  # what `Generator.random` gives
_MORE_BITS: Final = 32
_FIRST_DIGITS: Final = 30
_MORE_DIGITS: Final = 10  # as fine as so many bits


class Uniform:
    """A uniform real number in [0, 1) of which more and more bits are drawn.

    Args:
        start: Its first 53 bits, as `Generator.random` gives them.

    Attributes:
        low: The greatest known lower bound.
        width: The number is below `low + width`.
        digits: The precision that goes with so many bits.
    """

    def __init__(self, start: float) -> None:
        self.low, self.width = Fraction(start), Fraction(1, 1 << _FLOAT_BITS)
        self.digits = _FIRST_DIGITS

    def refine(self, rng: np.random.Generator) -> None:
        """Draw 32 more bits."""
        self.width /= 1 << _MORE_BITS
        self.low += int(rng.integers(0, 1 << _MORE_BITS)) * self.width
        self.digits += _MORE_DIGITS

    @property
    def high(self) -> Fraction:
        """The least known upper bound; the number is below it."""
        return self.low + self.width


def bernoulli_exp(
    gamma: NDArray[np.float64],
    exact: Callable[[int], Fraction],
    rng: np.random.Generator,
    *,
    slack: float = _SLACK,
) -> NDArray[np.bool_]:
    """Flip coins that show heads with probability exactly `e**-gamma`.

    Args:
        gamma: Of any shape, at least 0; may err by as much as changes `e**-gamma` by 2**-46.
        exact: Gives the exact gamma of the entry with this flat index.
        rng: Source of the coins.
        slack: At which distance floats decide. A larger one changes nothing but the speed.
    """
    thresholds, draws = np.exp(-gamma), rng.random(gamma.shape)
    heads = np.asarray(draws < thresholds)
    for index in np.flatnonzero(np.abs(draws - thresholds) < slack):
        number = Uniform(float(draws.flat[index]))
        heads.flat[index] = _below(number, exact(int(index)), rng)
    return heads


def _below(number: Uniform, gamma: Fraction, rng: np.random.Generator) -> bool:
    """Return whether a uniform number is below `e**-gamma`."""
    while True:
        low, high = exp_bounds(-gamma, number.digits)
        if number.high <= low:
            return True
        if number.low >= high:
            return False
        number.refine(rng)


def geometric(
    scale: Scale,
    shape: int | tuple[int, ...],
    rng: np.random.Generator,
    *,
    slack: float = _SLACK,
) -> NDArray[np.int64]:
    """Draw whole numbers that are k or more with probability exactly `e**(-k / scale)`.

    By inversion: the whole part of `-scale * ln(U)`.

    Args:
        scale: From 2**-20 to 2**40, for all draws or an array of it that fits `shape`. A float is
            taken as the fraction that it is.
        shape: The shape of the result.
        rng: Source of the draws.
        slack: At which relative distance floats decide. A larger one changes only the speed.

    Raises:
        InputError: If `scale` is outside its range.
    """
    scales = Scales.of("scale", scale, shape)
    draws = rng.random(scales.floats.size)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is in doubt, and settled below
        high = np.floor(np.log(draws) * scales.floats * -(1 + slack))
    low = np.floor(np.log(draws + 2.0**-_FLOAT_BITS) * scales.floats * -(1 - slack))
    for index in np.flatnonzero(low != high):
        low[index] = _inverse(Uniform(float(draws[index])), scales.exact(int(index)), rng)
    return low.astype(np.int64).reshape(shape)


def _inverse(number: Uniform, scale: Fraction, rng: np.random.Generator) -> int:
    """Return the whole part of `-scale * ln(number)`."""
    while True:
        if number.low > 0:
            least = math.floor(-scale * log_bounds(number.high, number.digits)[1])
            most = math.floor(-scale * log_bounds(number.low, number.digits)[0])
            if least == most:
                return least
        number.refine(rng)
