"""A family of hash functions whose law is known exactly: multiply, add, and take the high bits.

Source: Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer
arithmetic without primes", STACS 1996. With words of `w` bits and values of `u`, the highest
`k = w - u + 1` bits of `a * x + b` are, over uniform words `a` and `b`, pairwise independent and
uniform. Cutting `[0, 2**k)` into `g` runs of nearly equal length then gives buckets whose
probabilities, alone and in pairs, are known to the last digit, also where `g` is no power of two.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class HashFamily:
    """Hash functions from `[0, domain)` to `[0, buckets)`, each named by two words.

    Attributes:
        domain: How many values are hashed.
        buckets: Into how many buckets, `g`; at least 2.
        word_bits: The size of a word: 8, 16 or 32. Small ones are for enumeration.
    """

    domain: int
    buckets: int
    word_bits: int = 32

    @property
    def word(self) -> np.dtype[np.unsignedinteger]:
        """The type of a word: arithmetic on it is modulo `2**word_bits`."""
        return np.dtype(f"<u{self.word_bits // 8}")

    @property
    def high_bits(self) -> int:
        """How many bits of a word choose the bucket, `k`."""
        return self.word_bits + 1 - (self.domain - 1).bit_length()

    @cached_property
    def starts(self) -> Words:
        """The least word of each bucket; the last entry is that of the first again: 0.

        With more buckets than high bits tell apart, some are empty and begin where the next does.
        """
        low_bits = self.word_bits - self.high_bits
        edges = [
            -(-(bucket << self.high_bits) // self.buckets) << low_bits
            for bucket in range(self.buckets + 1)
        ]
        return np.array([edge % (1 << self.word_bits) for edge in edges], dtype=self.word)

    @property
    def collision(self) -> Fraction:
        """The exact probability that two given values share a bucket; hardly above `1 / g`."""
        short, longer = divmod(1 << self.high_bits, self.buckets)
        squares = longer * (short + 1) ** 2 + (self.buckets - longer) * short**2
        return Fraction(squares, 1 << 2 * self.high_bits)

    def bucket(self, a: Words, b: Words, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bucket of each value under each function.

        Args:
            a: The factors.
            b: The summands.
            values: In `[0, domain)`; the three are broadcast.
        """
        words = a * values.astype(self.word) + b
        high = (words >> (self.word_bits - self.high_bits)).astype(np.uint64)
        return (high * np.uint64(self.buckets) >> np.uint64(self.high_bits)).astype(np.int64)

    def add_supported(
        self, sums: NDArray[np.int64], a: Words, b: Words, buckets: NDArray[np.int64]
    ) -> None:
        """Add to each value's sum how many functions put it into their given bucket.

        A bucket is a run of words, so that its members are found by one subtraction that wraps
        around; and from one value to the next a word grows by `a`.

        Args:
            sums: One a value; changed in place.
            a: The factors, shape (functions,).
            b: The summands.
            buckets: One a function.
        """
        words = b - self.starts[buckets]
        length = self.starts[buckets + 1] - self.starts[buckets]
        inside = np.empty(len(words), dtype=np.bool_)
        for value in range(self.domain):
            np.less(words, length, out=inside)
            sums[value] += np.count_nonzero(inside)
            words += a
