"""Probabilities that a few random bits hit exactly.

A probability such as `1 / (e**epsilon + 1)` is no binary fraction, so no finite number of coins
gives it. The mechanisms use a neighbour that one can, publish that exact number, and account for
the loss that *it* has.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self, TypeAlias

from veilring.privacy.checks import require

# One coin takes at most one word of the generator.
MOST_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class Dyadic:
    """The probability `numerator / 2**bits`.

    Attributes:
        numerator: From 0 to `2**bits`, both included.
        bits: From 0 to 64: how many random bits decide one coin.

    Raises:
        InputError: If one of them is outside its range.
    """

    numerator: int
    bits: int

    def __post_init__(self) -> None:
        require(0 <= self.bits <= MOST_BITS, "bits", self.bits, f"from 0 to {MOST_BITS}")
        allowed = f"from 0 to 2**{self.bits}"
        require(0 <= self.numerator <= 2**self.bits, "numerator", self.numerator, allowed)

    @classmethod
    def floor(cls, x: float | Fraction, bits: int) -> Self:
        """Return the greatest probability of so many bits that is not above `x`, in [0, 1].

        Raises:
            InputError: If `x` is no probability, or `bits` is outside its range.
        """
        return cls(math.floor(_scaled(x, bits)), bits)

    @classmethod
    def ceil(cls, x: float | Fraction, bits: int) -> Self:
        """Return the least probability of so many bits that is not below `x`, in [0, 1].

        Raises:
            InputError: If `x` is no probability, or `bits` is outside its range.
        """
        return cls(math.ceil(_scaled(x, bits)), bits)

    @property
    def fraction(self) -> Fraction:
        """The same number as a fraction."""
        return Fraction(self.numerator, 2**self.bits)

    @property
    def complement(self) -> "Dyadic":
        """The probability of the other side of the coin."""
        return Dyadic(2**self.bits - self.numerator, self.bits)

    def __float__(self) -> float:
        return self.numerator / (1 << self.bits)


# What exact computations take.
Probability: TypeAlias = Dyadic | Fraction


def fraction_of(p: Probability) -> Fraction:
    """Return a probability as a fraction."""
    return p.fraction if isinstance(p, Dyadic) else Fraction(p)


def _scaled(x: float | Fraction, bits: int) -> Fraction:
    require(0 <= x <= 1, "x", x, "a probability, from 0 to 1")
    require(0 <= bits <= MOST_BITS, "bits", bits, f"from 0 to {MOST_BITS}")
    return Fraction(x) * (1 << bits)
