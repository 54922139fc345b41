"""Secure sum: fixed point in Z_{2^64}, uniform masks, and shares.

Source: Xiong, Chitti and Liu, SAC 2007, Algorithm 3. Which rings the shares go round, and what a
coalition learns of them, is in `exposure`.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm.checks import require

# Beyond 62 fractional bits not even the number 1 fits a signed 64-bit integer.
MOST_SCALE_BITS: Final = 62

_LARGEST_SIGNED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """A public encoding of reals as integers modulo 2^64, under which sums cannot overflow.

    Attributes:
        scale_bits: Number of fractional bits, 0 to 62; the resolution is `2**-scale_bits`.
        parties: How many encoded values are added up at most, at least 1.

    Raises:
        InputError: If a field is outside its range.
    """

    scale_bits: int
    parties: int

    def __post_init__(self) -> None:
        """Refuse what is outside the documented ranges."""
        allowed = f"an integer from 0 to {MOST_SCALE_BITS}"
        require(0 <= self.scale_bits <= MOST_SCALE_BITS, "scale_bits", self.scale_bits, allowed)
        allowed = "an integer from 1 to 2**63 - 1"
        require(1 <= self.parties <= _LARGEST_SIGNED, "parties", self.parties, allowed)

    @property
    def limit(self) -> float:
        """The largest magnitude that `encode` accepts.

        It is the greatest double whose scaled value is at most `(2**63 - 1) // parties`. That
        quotient is an integer, so rounding to the nearest integer cannot pass it, and the sum over
        all parties stays within a signed 64-bit integer.
        """
        share = _LARGEST_SIGNED // self.parties
        nearest = float(share)
        below = nearest if int(nearest) <= share else math.nextafter(nearest, 0)
        return math.ldexp(below, -self.scale_bits)

    def encode(self, values: NDArray[np.float64], field: str = "values") -> NDArray[np.uint64]:
        """Return the values in fixed point, rounded to the nearest (half to even), same shape.

        Args:
            values: Any shape; each finite and of magnitude at most `limit`.
            field: What to call the values in an error.

        Raises:
            InputError: If any value is not finite or too large. The message gives the limit, never
                a value: they are private.
        """
        fits = bool((np.abs(values) <= self.limit).all())  # a NaN is not
        allowed = f"finite numbers of magnitude at most {self.limit!r}"
        require(fits, field, "too large or not finite in some place", allowed)
        scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), self.scale_bits))
        return np.asarray(scaled).astype(np.int64).view(np.uint64)

    def decode(self, encoded: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Return the reals that sums of encoded values stand for, same shape.

        Exact up to the 53 bits of a double.
        """
        signed = np.asarray(encoded, dtype=np.uint64).view(np.int64)
        return np.asarray(np.ldexp(signed.astype(np.float64), -self.scale_bits))


def draw_masks(shape: int | tuple[int, ...], rng: np.random.Generator) -> NDArray[np.uint64]:
    """Return uniform elements of Z_{2^64}: added to any value, they hide it perfectly, once."""
    return rng.integers(0, 2**64, size=shape, dtype=np.uint64)


def split_shares(
    values: NDArray[np.uint64], shares: int, rng: np.random.Generator
) -> NDArray[np.uint64]:
    """Return additive shares that sum to the values modulo 2^64.

    Any `shares - 1` of them are independent and uniform.

    Args:
        values: What to split, any shape.
        shares: How many shares, at least 1.
        rng: Source of the shares. A secret of the party.

    Returns:
        Shape `(shares, *values.shape)`.

    Raises:
        InputError: If `shares` < 1.
    """
    require(shares >= 1, "shares", shares, "an integer of at least 1")
    parts = np.empty((shares, *values.shape), dtype=np.uint64)
    parts[1:] = draw_masks((shares - 1, *values.shape), rng)
    parts[:1] = values
    parts[:1] -= parts[1:].sum(axis=0, keepdims=True, dtype=np.uint64)
    return parts
