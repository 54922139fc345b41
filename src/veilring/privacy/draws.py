"""Exact draws: coins with a dyadic probability, and draws against real thresholds.

`bernoulli` compares uniform whole numbers with the numerator. `packed_bernoulli` compares the bits
of 64 coins at a time, highest first, and stops for a coin at the first bit that differs, on average
the second. A million reports of a thousand coins take under a second, whatever the number of bits.

`coins`, `bernoulli_exp` and `geometric` draw against real thresholds. A uniform real number is an
endless sequence of random bits. Whether it is below `e**-gamma` is decided by its first 53 bits and
a float, unless the two are closer than the float's error: one case in 2**43. That case is computed
with more and more digits, against more and more bits, until it is decided. The distribution is
therefore exact, at the price of one exponential per draw.

Canonne, Kamath and Steinke (2020, Algorithm 1) reach the same distribution by sequences of rational
coins; here it costs a tenth. It relies on NumPy's `exp` and `log` having a relative error of less
than 2**-48, sixteen times the unit in the last place.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.checks import require, require_that
from veilring.privacy.exact import Dyadic, FractionBounds, exp_bounds, log_bounds

# The maximum distance between the computed and the true threshold: NumPy's error and that of
# `gamma`.
_SLACK: Final = 2.0**-44
_FLOAT_BITS: Final = 53  # the resolution of `Generator.random`
_MORE_BITS: Final = 32
_FIRST_DIGITS: Final = 30
_MORE_DIGITS: Final = 10  # as fine as these bits
# below it, noise is 0 in all but one of e**(2**20) draws
_LEAST: Final = Fraction(1, 2**20)
# above it, floats leave too many draws undecided (one in 30)
_GREATEST: Final = Fraction(2**40)
# 256 KiB of words: the working set stays in the cache of one core
_CHUNK_WORDS: Final = 2**15
# From here on few words contain an undecided coin (one in four), so gathering them pays off.
_GATHER_FROM: Final = 8
_ALL: Final = np.uint64(2**64 - 1)
_Decision = TypeVar("_Decision")
# From 2**-20 to 2**40, one for all draws, or an array that fits their shape. A float is treated as
# an exact fraction.
Scale: TypeAlias = float | Fraction | Floats
Word: TypeAlias = np.uint8 | np.uint16 | np.uint32 | np.uint64
_WIDTHS: Final[tuple[type[Word], ...]] = (np.uint8, np.uint16, np.uint32, np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """Scales as floats for computation, and as the exact fractions that they stand for.

    Without a common exact scale, each is its own float.
    """

    floats: Floats
    common: Fraction | None

    @classmethod
    def of(cls, field: str, scale: Scale, shape: int | tuple[int, ...]) -> Self:
        """Return the scales of all draws of a shape."""
        size = int(np.prod(shape))
        if not isinstance(scale, np.ndarray):
            exact = require_scale(field, scale)
            return cls(np.broadcast_to(np.float64(exact), size), exact)
        inside = bool(((scale >= float(_LEAST)) & (scale <= float(_GREATEST))).all())
        require_that(inside, field, f"each {field} must be a number from 2**-20 to 2**40")
        try:
            spread = np.broadcast_to(scale, shape)
        except ValueError:
            raise InputError.because(
                f"{field} has the shape {scale.shape}, which does not fit {shape}", field=field
            ) from None
        return cls(spread.reshape(-1).astype(np.float64), None)

    def exact(self, index: int) -> Fraction:
        """Return the exact scale of one draw."""
        return Fraction(float(self.floats[index])) if self.common is None else self.common

    def take(self, indices: NDArray[np.intp]) -> "Scales":
        """Return the scales of some of the draws."""
        if self.common is None:
            return Scales(self.floats[indices], None)
        return Scales(self.floats[: indices.size], self.common)


def require_scale(field: str, value: float | Fraction) -> Fraction:
    """Return a scale as an exact fraction; refuse values outside [2**-20, 2**40]."""
    require(_LEAST <= value <= _GREATEST, field, value, "from 2**-20 to 2**40")
    return Fraction(value)


def bernoulli(p: Dyadic, shape: int | tuple[int, ...], rng: np.random.Generator) -> Bools:
    """Flip coins that show heads with probability exactly `p`.

    Each takes one number of 8, 16, 32 or 64 bits of the generator.
    """
    if p.numerator in {0, 2**p.bits}:
        return np.full(shape, p.numerator != 0)
    dtype = next(width for width in _WIDTHS if np.iinfo(width).bits >= p.bits)
    bound = dtype(p.numerator << (np.iinfo(dtype).bits - p.bits))
    draws = rng.integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)
    return np.asarray(draws < bound)


def packed_bernoulli(
    p: Dyadic, rows: int, columns: int, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Flip many coins that show heads with probability exactly `p`, eight to a byte.

    The shape is (rows, ceil(columns / 8)), in the order of `numpy.packbits`; padding bits are 0.
    """
    require(rows >= 0, "rows", rows, "a whole number of at least 0")
    require(columns >= 0, "columns", columns, "a whole number of at least 0")
    width = -(-columns // 8)
    words = np.empty(-(-rows * width // 8), dtype=np.uint64)
    for chunk in _chunks(words.size):
        words[chunk] = _coins(p, words[chunk].size, rng)
    packed = words.view(np.uint8)[: rows * width].reshape(rows, width)
    if columns % 8:
        packed[:, -1] &= np.uint8(0xFF << (8 - columns % 8) & 0xFF)
    return packed


def _coins(p: Dyadic, size: int, rng: np.random.Generator) -> NDArray[np.uint64]:
    """Return words whose bits are coins."""
    if p.numerator == 2**p.bits:
        return np.full(size, _ALL)
    heads, undecided = np.zeros(size, dtype=np.uint64), np.full(size, _ALL)
    where: NDArray[np.intp] | slice = slice(None)
    for place, bit in enumerate(_bits(p)):
        if place >= _GATHER_FROM:
            left = np.flatnonzero(undecided)
            where = left if isinstance(where, slice) else where[left]
            undecided = undecided[left]
        # a set bit of a coin's word marks a difference to the bit of `p`
        differs = rng.integers(0, _ALL, undecided.size, dtype=np.uint64, endpoint=True)
        if bit:
            heads[where] |= undecided & differs
        undecided &= ~differs
    return heads


def _bits(p: Dyadic) -> Iterator[bool]:
    """Yield the bits of `p`, highest first, up to the last set bit: the rest decide nothing."""
    for place in range(p.bits - 1, -1, -1):
        if p.numerator & ((1 << (place + 1)) - 1) == 0:
            return
        yield bool(p.numerator >> place & 1)


def _chunks(words: int) -> Iterator[slice]:
    return (slice(first, first + _CHUNK_WORDS) for first in range(0, words, _CHUNK_WORDS))


class UniformBits:
    """A uniform real number in [0, 1): its first 53 bits, and more of them as they are needed."""

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
        """The smallest known upper bound; the number is below it."""
        return self.low + self.width

    def settle(self, decide: Callable[[], _Decision | None], rng: np.random.Generator) -> _Decision:
        """Draw bits until `decide`, which returns none before, decides; return the decision."""
        while (decided := decide()) is None:
            self.refine(rng)
        return decided


def coins(
    chances: Floats,
    bounds: Callable[[int, int], FractionBounds],
    rng: np.random.Generator,
    *,
    slack: float | Floats = _SLACK,
) -> Bools:
    """Flip coins with probabilities that can be computed to any precision.

    Args:
        chances: The probabilities, in any shape, each off by less than `slack`.
        bounds: A function that returns bounds on the probability of the entry with this flat index,
            computed to this number of decimal digits. More digits bring them together.
        slack: The distance above which floats decide, for all or each. A larger one changes only
            the speed.
    """
    draws = rng.random(chances.shape)
    heads = np.asarray(draws < chances)
    for index in np.flatnonzero(np.abs(draws - chances) < slack):
        number = UniformBits(float(draws.flat[index]))
        heads.flat[index] = number.settle(partial(_below, number, partial(bounds, int(index))), rng)
    return heads


def bernoulli_exp(
    gamma: Floats,
    exact: Callable[[int], Fraction],
    rng: np.random.Generator,
    *,
    slack: float = _SLACK,
) -> Bools:
    """Flip coins that show heads with probability exactly `e**-gamma`.

    Args:
        gamma: The exponents, in any shape, at least 0; their error may change `e**-gamma` by at
            most 2**-46.
        slack: The distance above which floats decide. A larger one changes only the speed.
    """

    def bounds(index: int, digits: int) -> FractionBounds:
        return exp_bounds(-exact(index), digits)

    return coins(np.exp(-gamma), bounds, rng, slack=slack)


def _below(number: UniformBits, bounds: Callable[[int], FractionBounds]) -> bool | None:
    """Return whether a uniform number is below a threshold; none if its known bits do not tell."""
    low, high = bounds(number.digits)
    if number.high <= low:
        return True
    return None if number.low < high else False


def propose(size: int, proposals: Callable[[NDArray[np.intp]], tuple[Ints, Bools]]) -> Ints:
    """Return the first accepted proposal of each draw, shape (size,).

    `proposals` makes one proposal for each of these draws, and returns which are accepted.
    """
    accepted = np.empty(size, dtype=np.int64)
    missing = np.arange(size)
    while missing.size:
        proposed, kept = proposals(missing)
        accepted[missing[kept]] = proposed[kept]
        missing = missing[~kept]
    return accepted


def geometric(
    scale: Scale, shape: int | tuple[int, ...], rng: np.random.Generator, *, slack: float = _SLACK
) -> Ints:
    """Draw whole numbers that are at least k with probability exactly `e**(-k / scale)`.

    By inversion: the whole part of `-scale * ln(U)`, decided by floats unless they are within the
    relative `slack`, of which a larger one changes only the speed.
    """
    scales = Scales.of("scale", scale, shape)
    draws = rng.random(scales.floats.size)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is undecided, and handled below
        high = np.floor(np.log(draws) * scales.floats * -(1 + slack))
    low = np.floor(np.log(draws + 2.0**-_FLOAT_BITS) * scales.floats * -(1 - slack))
    for index in np.flatnonzero(low != high):
        number = UniformBits(float(draws[index]))
        low[index] = number.settle(partial(_inverse, number, scales.exact(int(index))), rng)
    return low.astype(np.int64).reshape(shape)


def _inverse(number: UniformBits, scale: Fraction) -> int | None:
    """Return the whole part of `-scale * ln(number)` if its known bits determine it."""
    if number.low == 0:
        return None
    least = math.floor(-scale * log_bounds(number.high, number.digits)[1])
    most = math.floor(-scale * log_bounds(number.low, number.digits)[0])
    return least if least == most else None
