"""Prime fields, whose elements fill arrays of 64-bit words.

Both fields of the draft have a modulus `h² - c h + 1`, where h is 2^32 or 2^64. So the square of h
is `c h - 1` in the field, and a product folds back by a few additions, without a division.

An array of elements has the shape (words, length, reports): the words of an element come first, the
lowest word at 0, and reports last, so that each operation runs over adjacent memory. Any other axes
may stand between. All elements are canonical, that is below the modulus, unless stated otherwise.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
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
_SHIFT: Final = np.uint64(_LIMB_BITS)
# Products of 16-bit digits are exact in double precision, and so are sums of up to 2^21 of them.
_DIGIT_BITS: Final = 16
_DIGIT: Final = np.uint64(0xFFFF)
_DIGIT_SHIFT: Final = np.uint64(_DIGIT_BITS)
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
        elements = words.transpose(2, 1, 0).astype(np.uint64, order="C")
        return elements, self.is_canonical(elements).all(axis=0)

    def is_canonical(self, elements: Elements) -> Bools:
        """Return whether each element is below the modulus, without the axis of words."""
        below = np.zeros(elements.shape[1:], dtype=np.bool_)
        for word, limit in zip(elements, self._modulus_words, strict=True):
            below = (word < limit) | ((word == limit) & below)
        return below

    def sub(self, a: Elements, b: Elements) -> Elements:
        """Return a - b; b may also be the modulus itself."""
        found = np.empty(np.broadcast_shapes(a.shape, b.shape), dtype=np.uint64)
        borrow: Bools | None = None
        for out, left, right in zip(found, a, b, strict=True):
            np.subtract(left, right, out=out)
            below = left < right
            if borrow is not None:
                below |= borrow & (out == 0)
                out -= borrow
            borrow = below
        assert borrow is not None  # there is at least one word
        self._add_modulus(found, borrow)
        return found

    def _add_modulus(self, elements: Elements, chosen: Bools) -> None:
        """Add the modulus to the chosen elements, in place; the last carry is dropped."""
        carry = np.zeros((), dtype=np.bool_)
        mask = chosen.astype(np.uint64)
        for out, word in zip(elements, self._modulus_words, strict=True):
            added = mask * word
            added += carry  # no word of a modulus has all bits set
            out += added
            carry = out < added

    def neg(self, a: Elements) -> Elements:
        """Return -a."""
        return self.sub(np.zeros_like(a), a)

    def add(self, a: Elements, b: Elements) -> Elements:
        """Return a + b."""
        return self.sub(a, self._complement(b))

    def _complement(self, b: Elements) -> Elements:
        """Return the modulus minus b, which is not canonical if b is 0."""
        found = np.empty_like(b)
        borrow: Bools | None = None
        for out, limit, word in zip(found, self._modulus_words, b, strict=True):
            np.subtract(limit, word, out=out)
            below = word > limit
            if borrow is not None:
                out -= borrow
            borrow = below
        return found

    def mul(self, a: Elements, b: Elements) -> Elements:
        """Return a · b."""
        left, right = _limbs(a), _limbs(b)
        shape = np.broadcast_shapes(a.shape[1:], b.shape[1:])
        columns = [np.empty(shape, dtype=np.uint64) for _ in range(2 * self.limbs)]
        for i, x in enumerate(left):
            carry: NDArray[np.uint64] | None = None
            for j, y in enumerate(right):
                # At most (2^32 - 1)² + 2 (2^32 - 1), which is the largest number of 64 bits.
                product = x * y
                if i:
                    product += columns[i + j]
                if carry is not None:
                    product += carry
                np.bitwise_and(product, _LIMB, out=columns[i + j])
                carry = product
                carry >>= _SHIFT
            assert carry is not None  # there is at least one limb
            columns[i + self.limbs] = carry
        return self.reduce(columns)

    def square(self, a: Elements) -> Elements:
        """Return a²."""
        return self.mul(a, a)

    def sum(self, a: Elements, axis: int) -> Elements:
        """Return the sums along an axis of at most 2^28 elements."""
        return self.reduce([limb.sum(axis=axis - 1) for limb in _limbs(a)])

    def matmul(self, left: Elements, right: Elements) -> Elements:
        """Return a matrix product for each report, shape (words, rows, columns, reports).

        The products of digits are sums of integers below 2^53, so double precision is exact.

        Args:
            left: Shape (words, rows, inner, reports), with an inner length of at most 2^18.
            right: Shape (words, inner, columns, reports).
        """
        digits = _DIGITS_IN_WORD * self.words
        (_, rows, inner, reports), (_, _, columns, _) = left.shape, right.shape
        a = _digits(left).transpose(0, 1, 3, 2).reshape(reports, rows * digits, inner)
        b = _digits(right).reshape(reports, inner, columns * digits)
        split = (a @ b).reshape(reports, rows, digits, columns, digits)
        products = split.transpose(2, 4, 1, 3, 0).astype(np.uint64, order="C")
        sums = list(products[0]) + list(products[1:, -1])
        for i, row in enumerate(products[1:], start=1):
            for j, product in enumerate(row[:-1]):
                sums[i + j] += product
        return self.reduce(_join_digits(sums))

    def reduce(self, columns: Sequence[NDArray[np.uint64]]) -> Elements:
        """Return the elements `Σ columns[i] · 2^(32 i)`.

        Args:
            columns: At most `2 · limbs + 1` arrays, of numbers below 2^46; if there are only `limbs`
                arrays, of numbers below 2^60. They are overwritten.
        """
        signed = [column.view(np.int64) for column in columns]
        while len(signed) > self.limbs:
            self._fold(signed, signed.pop())
        while len(signed) < self.limbs:
            signed.append(np.zeros_like(signed[0]))
        self._fold(signed, _carry(signed), at=0)
        over = _carry(signed)
        return self._assemble(signed, over)

    def _fold(self, columns: list[NDArray[np.int64]], top: NDArray[np.int64], at: int = -1) -> None:
        """Add `top · h²`, which is `top · (c h - 1)`, at a column; by default it came off the end."""
        low = len(columns) - self.limbs if at < 0 else at
        columns[low] -= top
        columns[low + self.limbs // 2] += top if self.c == 1 else top * self.c

    def _assemble(self, limbs: list[NDArray[np.int64]], over: NDArray[np.int64]) -> Elements:
        """Return canonical elements from limbs of 32 bits and a carry of -1, 0 or 1 beyond them."""
        found = np.empty((self.words, *limbs[0].shape), dtype=np.uint64)
        for i, out in enumerate(found):
            np.left_shift(limbs[2 * i + 1], _LIMB_BITS, out=out.view(np.int64))
            out |= limbs[2 * i].view(np.uint64)
        # Random elements get here once in 2^20 times or less.
        if (over.view(np.uint64) | (found[-1] >= self._modulus_words[-1])).any():
            self._add_modulus(found, over < 0)
            excess = (over > 0) | ((over == 0) & ~self.is_canonical(found))
            modulus = self._modulus_words.reshape(-1, *(1,) * over.ndim)
            found = np.where(excess, self.sub(found, modulus), found)
        return found


FIELD64: Final = Field(words=1, c=1, order_bits=32)
FIELD128: Final = Field(words=2, c=28, order_bits=66)


def _split(number: int, words: int) -> Elements:
    return np.array([number >> 64 * i & 0xFFFFFFFFFFFFFFFF for i in range(words)], dtype=np.uint64)


def _limbs(a: Elements) -> list[NDArray[np.uint64]]:
    """Return the 32-bit limbs of elements, the lowest first."""
    return [limb for word in a for limb in (word & _LIMB, word >> _SHIFT)]


def _carry(columns: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Reduce each column to 32 bits, in place, and return what is carried out of the last."""
    carry: NDArray[np.int64] | None = None
    for column in columns:
        if carry is not None:
            column += carry
        carry = column >> _LIMB_BITS
        column &= np.int64(0xFFFFFFFF)
    assert carry is not None  # there is at least one column
    return carry


def _digits(a: Elements) -> NDArray[np.float64]:
    """Return the 16-bit digits of matrices, the lowest first, shape (reports, ..., digits)."""
    words = np.ascontiguousarray(np.moveaxis(a, (-1, 0), (0, -1))).astype("<u8", copy=False)
    return words.view("<u2").astype(np.float64)


def _join_digits(sums: Sequence[NDArray[np.uint64]]) -> list[NDArray[np.uint64]]:
    """Return columns of 32 bits, and one beyond, from sums of products of 16-bit digits."""
    digits, carry = [], np.zeros_like(sums[0])
    for each in sums:
        carry = carry + each
        digits.append(carry & _DIGIT)
        carry = carry >> _DIGIT_SHIFT
    digits.append(carry & _DIGIT)
    joined = [low | high << _DIGIT_SHIFT for low, high in pairwise(digits)]
    return [*joined[::2], carry >> _DIGIT_SHIFT]
