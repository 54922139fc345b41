"""Prime fields, whose elements fill arrays of 64-bit words.

Both fields of the draft have a modulus `h² - c h + 1`, where h is 2^32 or 2^64. So the square of h
is `c h - 1` in the field, and a product folds back by a few additions, without a division.

An array of elements has the shape (words, length, reports): the words of an element come first, the
lowest word at 0, and reports last, so that each operation runs over adjacent memory. Any other axes
may stand between. All elements are canonical, that is below the modulus, unless stated otherwise.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Ints

Elements: TypeAlias = NDArray[np.uint64]
"""Field elements, shape (words, length, reports)."""
Octets: TypeAlias = NDArray[np.uint8]
"""Rows of bytes, shape (reports, bytes)."""

WORD_BYTES: Final = 8
_LIMB_BITS: Final = 32
_LIMB: Final = np.uint64(0xFFFFFFFF)
_LIMB_SHIFT: Final = np.uint64(_LIMB_BITS)
# Products of 16-bit digits are exact in double precision, and so are sums of up to 2^21 of them.
_DIGIT: Final = np.uint64(0xFFFF)
_DIGIT_SHIFT: Final = np.uint64(16)
_DIGITS_IN_WORD: Final = 4


@dataclass(frozen=True)
class Field:
    """A prime field with the modulus `h² - c h + 1`, where h has half the bits of an element.

    Attributes:
        words: The number of 64-bit words of an element, which is also its encoded size over 8.
        c: The middle coefficient of the modulus.
        order_bits: The logarithm of the order of the largest subgroup of a power of two.
        generator: The number that has the generator of that subgroup as a power (section "fields").
    """

    words: int
    c: int
    order_bits: int
    generator: int = 7

    @cached_property
    def modulus(self) -> int:
        """The prime."""
        half = 1 << (self.limbs // 2 * _LIMB_BITS)
        return half * half - self.c * half + 1

    @property
    def limbs(self) -> int:
        """The number of 32-bit limbs of an element."""
        return 2 * self.words

    @property
    def element_bytes(self) -> int:
        """The number of bytes of an encoded element."""
        return WORD_BYTES * self.words

    @cached_property
    def _modulus_words(self) -> Elements:
        return _split(self.modulus, self.words)

    def root(self, size: int) -> int:
        """Return the primitive root of unity of an order that is a power of two."""
        base = pow(self.generator, (self.modulus - 1) >> self.order_bits, self.modulus)
        return pow(base, (1 << self.order_bits) // size, self.modulus)

    def zeros(self, *shape: int) -> Elements:
        """Return zeros of a shape, without the axis of words."""
        return np.zeros((self.words, *shape), dtype=np.uint64)

    def elements(self, numbers: Iterable[int]) -> Elements:
        """Return integers modulo the prime, shape (words, length)."""
        reduced = [number % self.modulus for number in numbers]
        found = np.array([_split(number, self.words) for number in reduced], dtype=np.uint64)
        return np.ascontiguousarray(found.reshape(-1, self.words).T)

    def small(self, numbers: NDArray[np.unsignedinteger] | Ints | Bools) -> Elements:
        """Return integers from 0 to 2^63 as elements; the words get an axis of their own."""
        found = self.zeros(*numbers.shape)
        found[0] = numbers
        return found

    def integers(self, elements: Elements) -> list[int]:
        """Return elements of the shape (words, length) as integers."""
        rows = elements.T.tolist()
        return [sum(word << 64 * i for i, word in enumerate(row)) for row in rows]

    def encode(self, elements: Elements) -> Octets:
        """Return the bytes of vectors, shape (reports, length · element_bytes)."""
        _, length, reports = elements.shape
        rows = np.ascontiguousarray(elements.transpose(2, 1, 0)).astype("<u8", copy=False)
        return rows.view(np.uint8).reshape(reports, length * self.element_bytes)

    def decode(self, rows: Octets) -> tuple[Elements, Bools]:
        """Return the vectors that rows of bytes encode, and which rows are canonical.

        An element that is not canonical is returned as it is: discard its row.
        """
        words = np.ascontiguousarray(rows).view("<u8").reshape(len(rows), -1, self.words)
        elements: Elements = words.transpose(2, 1, 0).astype(np.uint64, order="C")
        return elements, self.is_canonical(elements).all(axis=0)

    def is_canonical(self, elements: Elements) -> Bools:
        """Return whether each element is below the modulus, without the axis of words."""
        below = np.zeros(elements.shape[1:], dtype=np.bool_)
        for word, limit in zip(elements, self._modulus_words, strict=True):
            below = (word < limit) | ((word == limit) & below)
        return below

    def sub(self, a: Elements, b: Elements) -> Elements:
        """Return a - b; b may also be the modulus itself."""
        found, negative = _subtract(a, b)
        self._add_modulus(found, negative)
        return found

    def add(self, a: Elements, b: Elements) -> Elements:
        """Return a + b."""
        return self.sub(a, _subtract(self._modulus_for(b), b)[0])

    def mul(self, a: Elements, b: Elements) -> Elements:
        """Return a · b, which have the same number of axes."""
        left, right = _limbs(a), _limbs(b)
        shape = np.broadcast_shapes(a.shape[1:], b.shape[1:])
        columns = np.zeros((2 * self.limbs, *shape), dtype=np.uint64)
        for i, limb in enumerate(left):
            products = limb * right
            columns[i : i + self.limbs] += products & _LIMB
            columns[i + 1 : i + 1 + self.limbs] += products >> _LIMB_SHIFT
        return self._reduce(columns)

    def sum(self, a: Elements, axis: int) -> Elements:
        """Return the sums along an axis, after that of the words, of at most 2^28 elements."""
        return self._reduce(_limbs(a).sum(axis=axis))

    def matmul(self, left: Elements, right: Elements) -> Elements:
        """Return a matrix product for each report, shape (words, rows, columns, reports).

        The products of digits are sums of integers below 2^53, so double precision is exact.

        Args:
            left: Shape (words, rows, inner, reports), with an inner length of at most 2^16.
            right: Shape (words, inner, columns, reports).
        """
        digits = _DIGITS_IN_WORD * self.words
        (_, rows, inner, reports), (_, _, columns, _) = left.shape, right.shape
        a = _digits(left).transpose(0, 1, 3, 2).reshape(reports, rows * digits, inner)
        b = _digits(right).reshape(reports, inner, columns * digits)
        split = (a @ b).reshape(reports, rows, digits, columns, digits)
        products = split.transpose(2, 4, 1, 3, 0).astype(np.uint64, order="C")
        sums = np.zeros((2 * digits, rows, columns, reports), dtype=np.uint64)
        for i, row in enumerate(products):
            sums[i : i + digits] += row
        for i in range(2 * digits - 1):
            sums[i + 1] += sums[i] >> _DIGIT_SHIFT
            sums[i] &= _DIGIT
        return self._reduce(sums[::2] + (sums[1::2] << _DIGIT_SHIFT))

    def _reduce(self, columns: NDArray[np.uint64]) -> Elements:
        """Return the elements `Σ columns[i] · 2^(32 i)`.

        Args:
            columns: At most `2 limbs` columns of numbers below 2^50, or `limbs` columns of numbers
                below 2^60. They are overwritten.
        """
        signed, middle = columns.view(np.int64), self.limbs // 2
        for low in range(len(signed) - self.limbs - middle, -1, -middle):
            # The square of h is c h - 1, and h is `middle` columns.
            top = signed[low + self.limbs : low + self.limbs + middle]
            signed[low : low + middle] -= top
            signed[low + middle : low + self.limbs] += top * self.c
        limbs = signed[: self.limbs]
        beyond = _carry(limbs)
        limbs[0] -= beyond
        limbs[middle] += beyond * self.c
        return self._assemble(limbs, _carry(limbs))

    def _assemble(self, limbs: NDArray[np.int64], beyond: NDArray[np.int64]) -> Elements:
        """Return elements from limbs of 32 bits, and a carry of -1, 0 or 1 beyond them."""
        found = (limbs[::2] | limbs[1::2] << _LIMB_BITS).view(np.uint64)
        # Of uniform elements, fewer than one in 2^20 needs this.
        if (beyond.view(np.uint64) | (found[-1] >= self._modulus_words[-1])).any():
            self._add_modulus(found, beyond < 0)
            excess = (beyond > 0) | ((beyond == 0) & ~self.is_canonical(found))
            found = np.where(excess, _subtract(found, self._modulus_for(found))[0], found)
        return found

    def _modulus_for(self, elements: Elements) -> Elements:
        """Return the modulus with the axes of some elements, each of length 1."""
        return self._modulus_words.reshape(self.words, *(1,) * (elements.ndim - 1))

    def _add_modulus(self, elements: Elements, chosen: Bools) -> None:
        """Add the modulus to the chosen elements, in place, without the carry beyond them."""
        added = chosen * self._modulus_for(elements)
        elements += added
        for i in range(1, self.words):
            elements[i] += elements[i - 1] < added[i - 1]


FIELD64: Final = Field(words=1, c=1, order_bits=32)
FIELD128: Final = Field(words=2, c=28, order_bits=66)


def _split(number: int, words: int) -> Elements:
    """Return the words of an integer."""
    return np.array([number >> 64 * i & 0xFFFFFFFFFFFFFFFF for i in range(words)], dtype=np.uint64)


def _limbs(a: Elements) -> NDArray[np.uint64]:
    """Return the 32-bit limbs of elements, shape (limbs, ...), the lowest first."""
    found = np.empty((2 * len(a), *a.shape[1:]), dtype=np.uint64)
    np.bitwise_and(a, _LIMB, out=found[::2])
    np.right_shift(a, _LIMB_SHIFT, out=found[1::2])
    return found


def _digits(a: Elements) -> NDArray[np.float64]:
    """Return the 16-bit digits of matrices, shape (reports, ..., digits), the lowest first."""
    words = np.ascontiguousarray(np.moveaxis(a, (-1, 0), (0, -1))).astype("<u8", copy=False)
    return words.view("<u2").astype(np.float64)


def _subtract(a: Elements, b: Elements) -> tuple[Elements, Bools]:
    """Return a - b modulo a power of two, and where it is negative."""
    found, below = a - b, a < b
    for i in range(1, len(found)):
        below[i] |= below[i - 1] & (found[i] == 0)
        found[i] -= below[i - 1]
    return found, below[-1]


def _carry(limbs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Reduce columns to 32 bits, in place, and return the carry out of the last."""
    for i in range(1, len(limbs)):
        limbs[i] += limbs[i - 1] >> _LIMB_BITS
    beyond = limbs[-1] >> _LIMB_BITS
    limbs &= np.int64(_LIMB)
    return beyond
