"""Oracles with short reports for any domain: local hashing and Hadamard response.

- `LocalHashing`: the client reports a hash function, and its value's bucket or another bucket (Wang
  et al., USENIX Security 2017, Section 4.4).
- `HadamardResponse`: one random entry of the value's row of a Hadamard matrix, with a randomised
  sign (Acharya, Sun and Zhang, "Hadamard response", AISTATS 2019, Section 4, high-privacy regime;
  Bassily and Smith, STOC 2015).

`HashFamily` multiplies, adds and takes the high bits, so that its distribution is known exactly
(Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer arithmetic
without primes", STACS 1996). With words of `w` bits and values of `u`, the highest
`k = w - u + 1` bits of `a * x + b` are, over uniform words `a` and `b`, pairwise independent and
uniform. Cutting `[0, 2**k)` into `g` runs of nearly equal length then gives buckets whose
probabilities, alone and in pairs, are known exactly, even if `g` is not a power of two.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.privacy.draws import bernoulli
from veilring.privacy.exact import Dyadic, epsilon_of, exp_floor
from veilring.privacy.tables import ResponseDistribution, randomised_response
from veilring.protocols.ldp.algorithm.oracle import BITS, PureOracle, require_values
from veilring.protocols.ldp.algorithm.packing import (
    client_slices,
    counted,
    decoded,
    encoded,
    width_of,
)
from veilring.protocols.ldp.algorithm.randomiser import Reports, Sums

HashWords: TypeAlias = NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class HashFamily:
    """Hash functions from `[0, domain)` to `[0, buckets)`, each named by two words.

    Attributes:
        buckets: The number of buckets, `g`; at least 2.
        word_bits: The size of a word: 8, 16 or 32. Small words are for enumeration.
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
        """The number of bits of a word that choose the bucket, `k`."""
        return self.word_bits + 1 - (self.domain - 1).bit_length()

    @cached_property
    def starts(self) -> HashWords:
        """The smallest word of each bucket; the last entry is the first bucket's again: 0.

        If there are more buckets than high bits can represent, some are empty and start at the same
        word as the next bucket.
        """
        low_bits = self.word_bits - self.high_bits
        edges = [
            -(-(bucket << self.high_bits) // self.buckets) << low_bits
            for bucket in range(self.buckets + 1)
        ]
        return np.array([edge % (1 << self.word_bits) for edge in edges], dtype=self.word)

    @property
    def collision(self) -> Fraction:
        """The exact probability that two given values share a bucket; slightly above `1 / g`."""
        short, longer = divmod(1 << self.high_bits, self.buckets)
        squares = longer * (short + 1) ** 2 + (self.buckets - longer) * short**2
        return Fraction(squares, 1 << 2 * self.high_bits)

    def bucket(self, a: HashWords, b: HashWords, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bucket of each value under each function.

        Args:
            values: The values, in `[0, domain)`; the three arguments are broadcast.
        """
        words = a * values.astype(self.word) + b
        high = (words >> (self.word_bits - self.high_bits)).astype(np.uint64)
        return (high * np.uint64(self.buckets) >> np.uint64(self.high_bits)).astype(np.int64)

    def add_supported(
        self, sums: NDArray[np.int64], a: HashWords, b: HashWords, buckets: NDArray[np.int64]
    ) -> None:
        """Add to each value's sum the number of functions that map the value to their bucket.

        A bucket is a range of words, so its members are found by one subtraction with wrap-around;
        from one value to the next a word grows by `a`.

        Args:
            sums: One sum per value; changed in place.
            a: The factors, shape (functions,).
        """
        words = b - self.starts[buckets]
        length = self.starts[buckets + 1] - self.starts[buckets]
        inside = np.empty(len(words), dtype=np.bool_)
        for value in range(self.domain):
            np.less(words, length, out=inside)
            sums[value] += np.count_nonzero(inside)
            words += a


# A bucket's number has two bytes: above epsilon 11.1 there are fewer buckets than optimal.
_MOST_BUCKETS: Final = 1 << 16
_SEED_BYTES: Final = 8  # two words of the hash family
_HASH_BYTES: Final = 16  # per value: two hash words, the bucket's length, and a comparison


@dataclass(frozen=True)
class LocalHashing(PureOracle):
    """A hash function and one of its `g = round(e^epsilon) + 1` buckets, for domains of any size.

    The bucket is that of the client's value with probability `p`, otherwise another one. A report
    is the two words of the function and the number of the bucket, all little-endian. The
    collector's work grows with clients times domain.
    """

    name: ClassVar[str] = "olh"

    @cached_property
    def family(self) -> HashFamily:
        """The hash functions that a client draws from."""
        return HashFamily(self.domain, min(round(math.exp(self.epsilon)) + 1, _MOST_BUCKETS))

    @cached_property
    def _response(self) -> ResponseDistribution:
        return ResponseDistribution.spending(self.epsilon, self.family.buckets)

    @property
    @override
    def p(self) -> Fraction:
        return self._response.p

    @property
    @override
    def q(self) -> Fraction:
        # The report has the own value's bucket, which the other value may share, or another bucket.
        lie = self._response.q
        return lie + (self.p - lie) * self.family.collision

    @property
    @override
    def _loss(self) -> float:
        return self._response.epsilon

    @property
    @override
    def exact_parameters(self) -> Mapping[str, int]:
        return {
            "own": self._response.own,
            "other": self._response.other,
            "buckets": self.family.buckets,
            "word_bits": self.family.word_bits,
            "high_bits": self.family.high_bits,
        }

    @property
    @override
    def report_bytes(self) -> int:
        return _SEED_BYTES + width_of(self.family.buckets)

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        own = require_values(values, self.domain)
        reports = np.empty((len(own), self.report_bytes), dtype=np.uint8)
        for chunk in client_slices(len(own), _HASH_BYTES):
            words = rng.integers(1 << 32, size=(len(own[chunk]), 2), dtype=np.uint32).astype("<u4")
            true = self.family.bucket(words[:, 0], words[:, 1], own[chunk])
            said = randomised_response(true, self._response, rng)
            reports[chunk, :_SEED_BYTES] = words.view(np.uint8)
            reports[chunk, _SEED_BYTES:] = encoded(said, width_of(self.family.buckets))
        return reports

    @override
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        return decoded(reports[:, _SEED_BYTES:]) < self.family.buckets

    @override
    def aggregate(self, reports: Reports) -> Sums:
        sums = np.zeros(self.domain, dtype=np.int64)
        for chunk in client_slices(len(reports), _HASH_BYTES):
            a, b = _words(reports[chunk])
            self.family.add_supported(sums, a, b, decoded(reports[chunk, _SEED_BYTES:]))
        return sums


def _words(reports: Reports) -> tuple[HashWords, HashWords]:
    """Return the two words of each report."""
    words = np.ascontiguousarray(reports[:, :_SEED_BYTES]).view("<u4")
    return np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])


_ROW_BYTES: Final = 32  # per client: a row, its sign, a coin and the code


@dataclass(frozen=True)
class HadamardResponse(PureOracle):
    """A random row of the matrix, and the sign at the client's value or the opposite sign.

    The matrix has `order = 2^ceil(log2(domain + 1))` rows, and value v has column v + 1, because
    column 0 carries no information. In any other column the signs agree with v's in half of the
    rows, so `q` is exactly 1/2. A report is `2 * row + (sign is plus)` in the minimum number of
    bytes, little-endian. The collector's work hardly depends on the domain.
    """

    name: ClassVar[str] = "hr"

    @property
    def order(self) -> int:
        """The number of rows of the matrix, `K`."""
        return 1 << self.domain.bit_length()

    @cached_property
    def _keep(self) -> Dyadic:
        weight = exp_floor(self.epsilon)
        return Dyadic.floor(weight / (weight + 1), BITS)

    @property
    @override
    def p(self) -> Fraction:
        return self._keep.fraction

    @property
    @override
    def q(self) -> Fraction:
        return Fraction(1, 2)

    @property
    @override
    def _loss(self) -> float:
        return epsilon_of(self.p, 1 - self.p)

    @property
    @override
    def exact_parameters(self) -> Mapping[str, int]:
        return {"bits": BITS, "p": self._keep.numerator, "order": self.order}

    @property
    @override
    def report_bytes(self) -> int:
        return width_of(2 * self.order)

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        own = require_values(values, self.domain)
        reports = np.empty((len(own), self.report_bytes), dtype=np.uint8)
        for chunk in client_slices(len(own), _ROW_BYTES):
            rows = rng.integers(self.order, size=len(own[chunk]), dtype=np.uint32)
            minus = np.bitwise_count(rows & (own[chunk] + 1).astype(np.uint32)) & 1
            plus = minus != bernoulli(self._keep, len(rows), rng)
            reports[chunk] = encoded(rows << 1 | plus, self.report_bytes)
        return reports

    @override
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        return decoded(reports) < 2 * self.order

    @override
    def aggregate(self, reports: Reports) -> Sums:
        counts = counted(reports, 2 * self.order)
        agreements = walsh_hadamard(counts[1::2] - counts[::2])
        return (len(reports) + agreements[1 : self.domain + 1]) // 2


def walsh_hadamard(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the product of the Sylvester Hadamard matrix and a vector, in `K log K` steps.

    Args:
        numbers: Shape (K,), where K is a power of two.
    """
    product = numbers
    for half in (1 << place for place in range(len(numbers).bit_length() - 1)):
        pairs = product.reshape(-1, 2, half)
        both = (pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1])
        product = np.stack(both, axis=1).reshape(-1)
    return product
