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
_WORD_BITS: Final = 64
# Single products are made of halves of words, whose products just fit into a word.
_LIMB_BITS: Final = 32
_LIMB: Final = np.uint64((1 << _LIMB_BITS) - 1)
_LIMB_SHIFT: Final = np.uint64(_LIMB_BITS)
# Shifted by fewer bits, a limb has at most 58, which leaves room for the sum.
_PLACES_MAX: Final = 26
# Sums of products are made of digits, whose products have 52 bits: the sum of 2^8 products of
# elements, with at most five digits' products in a column, has fewer than 63 bits.
_DIGIT_BITS: Final = 26
_DIGIT: Final = np.uint64((1 << _DIGIT_BITS) - 1)
_DIGIT_SHIFT: Final = np.uint64(_DIGIT_BITS)
_INNER_MAX: Final = 1 << 8


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

    @cached_property
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

    def constant(self, number: int, axes: int) -> Elements:
        """Return an integer modulo the prime, with a number of axes, each but the first of 1."""
        return self.elements([number]).reshape(self.words, *(1,) * (axes - 1))

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
        length = rows.shape[1] // self.element_bytes
        words = np.ascontiguousarray(rows).view("<u8").reshape(len(rows), length, self.words)
        elements: Elements = words.transpose(2, 1, 0).astype(np.uint64, order="C")
        return elements, np.asarray(self.is_canonical(elements).all(axis=0))

    def is_canonical(self, elements: Elements) -> Bools:
        """Return whether each element is below the modulus, without the axis of words."""
        below: Bools = elements[-1] < self._modulus_words[-1]
        if below.all():
            return below
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
            products >>= _LIMB_SHIFT
            columns[i + 1 : i + 1 + self.limbs] += products
        return self._reduce(columns)

    def sum(self, a: Elements, axis: int) -> Elements:
        """Return the sums along an axis, after that of the words, of at most 2^28 elements."""
        return self._reduce(_limbs(a).sum(axis=axis))

    def join_bits(self, a: Elements) -> Elements:
        """Return `Σ 2^i a[..., i, :]`, shape (words, ..., n), for a of shape (words, ..., bits, n).

        The elements may be shares of bits, and then so are the results.
        """
        found = self._join_places(a[..., :_PLACES_MAX, :])
        for start in range(_PLACES_MAX, a.shape[-2], _PLACES_MAX):
            high = self._join_places(a[..., start : start + _PLACES_MAX, :])
            found = self.add(found, self.mul(high, self.constant(1 << start, high.ndim)))
        return found

    def _join_places(self, a: Elements) -> Elements:
        places = np.arange(a.shape[-2], dtype=np.uint64)[:, None]
        return self._reduce((_limbs(a) << places).sum(axis=-2))

    def matmul(self, left: Elements, right: Elements) -> Elements:
        """Return a matrix product for each report, shape (words, rows, columns, reports).

        Args:
            left: Shape (words, rows, inner, reports).
            right: Shape (words, inner, columns, reports).
        """
        found = self.zeros(left.shape[1], *right.shape[2:])
        for start in range(0, left.shape[2], _INNER_MAX):
            inner = slice(start, start + _INNER_MAX)
            a, b = self._digits(left[:, :, inner]), self._digits(right[:, inner])
            products = np.einsum("irkn,jkcn->ijrcn", a, b)
            columns = np.zeros((2 * len(a) - 1, *found.shape[1:]), dtype=np.uint64)
            for i, row in enumerate(products):
                columns[i : i + len(row)] += row
            part = self._reduce(self._limbs_of_digits(columns))
            found = self.add(found, part) if start else part
        return found

    def _digits(self, a: Elements) -> NDArray[np.uint64]:
        """Return the 26-bit digits of elements, shape (digits, ...), the lowest first."""
        digits = -(-_WORD_BITS * self.words // _DIGIT_BITS)
        found = np.empty((digits, *a.shape[1:]), dtype=np.uint64)
        for i, digit in enumerate(found):
            word, bit = divmod(i * _DIGIT_BITS, _WORD_BITS)
            np.right_shift(a[word], np.uint64(bit), out=digit)
            if bit + _DIGIT_BITS > _WORD_BITS and word + 1 < self.words:
                np.bitwise_or(digit, a[word + 1] << np.uint64(_WORD_BITS - bit), out=digit)
        found &= _DIGIT
        return found

    def _limbs_of_digits(self, columns: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return columns of 26 bits, of numbers below 2^63, as those of a product's limbs."""
        for i in range(1, len(columns)):
            columns[i] += columns[i - 1] >> _DIGIT_SHIFT
        columns[:-1] &= _DIGIT
        found = np.zeros((2 * self.limbs, *columns.shape[1:]), dtype=np.uint64)
        for i, column in enumerate(columns):
            limb, bit = divmod(i * _DIGIT_BITS, _LIMB_BITS)
            if limb + 1 < len(found):
                found[limb] += column << np.uint64(bit) & _LIMB
                found[limb + 1] += column >> np.uint64(_LIMB_BITS - bit)
            else:
                found[limb] += column << np.uint64(bit)
        return found

    def _reduce(self, columns: NDArray[np.uint64]) -> Elements:
        """Return the elements `Σ columns[i] · 2^(32 i)`.

        Args:
            columns: `2 limbs` columns of numbers below 2^50, or `limbs` columns of numbers below
                2^60. They are overwritten.
        """
        signed, middle = columns.view(np.int64), self.limbs // 2
        for low in range(len(signed) - self.limbs - middle, -1, -middle):
            # The square of h is c h - 1, and h is `middle` limbs.
            self._fold(signed[low:], signed[low + self.limbs : low + self.limbs + middle])
        limbs = signed[: self.limbs]
        beyond = limbs[-1:] >> _LIMB_BITS
        limbs[-1:] &= np.int64(_LIMB)
        self._fold(limbs, beyond)
        for i in range(1, len(limbs)):
            limbs[i] += limbs[i - 1] >> _LIMB_BITS
        beyond = limbs[-1] >> _LIMB_BITS
        limbs &= np.int64(_LIMB)
        return self._assemble(limbs, beyond)

    def _fold(self, limbs: NDArray[np.int64], top: NDArray[np.int64]) -> None:
        """Add `top · h²`, which is `top · (c h - 1)`, in place."""
        middle = self.limbs // 2
        limbs[: len(top)] -= top
        limbs[middle : middle + len(top)] += top if self.c == 1 else top * self.c

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


def _subtract(a: Elements, b: Elements) -> tuple[Elements, Bools]:
    """Return a - b modulo a power of two, and where it is negative."""
    found, below = a - b, a < b
    for i in range(1, len(found)):
        below[i] |= below[i - 1] & (found[i] == 0)
        found[i] -= below[i - 1]
    return found, below[-1]
