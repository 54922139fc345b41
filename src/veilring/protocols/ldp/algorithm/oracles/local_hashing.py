"""`LocalHashing`: the client names a hash function, and the bucket of its value, or another one.

Source: Wang et al., USENIX Security 2017, Section 4.4 (optimised local hashing).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.privacy.response import ResponseLaw, randomised_response
from veilring.protocols.ldp.algorithm.chunks import chunks
from veilring.protocols.ldp.algorithm.oracles.hashing import HashFamily, Words
from veilring.protocols.ldp.algorithm.oracles.numerals import decoded, encoded, width_of
from veilring.protocols.ldp.algorithm.oracles.oracle import PureOracle
from veilring.protocols.ldp.algorithm.randomiser import Reports, Sums

# A bucket has its number in two bytes: from epsilon 11.1 on there are fewer than would be best.
_MOST_BUCKETS: Final = 1 << 16
_SEED_BYTES: Final = 8  # two words of the hash family
_WORK_BYTES: Final = 16  # two words of the hash, the length of the bucket, and a comparison


@dataclass(frozen=True)
class LocalHashing(PureOracle):
    """A hash function and one of its `g = round(e^epsilon) + 1` buckets, however large the domain.

    The bucket is the one of the client's value with probability `p`, else one of the others. A
    report is the two words that name the function and the number of the bucket, all little-endian.
    The collector's work grows with clients times domain.
    """

    name: ClassVar[str] = "olh"

    @cached_property
    def family(self) -> HashFamily:
        """The hash functions that a client draws from."""
        return HashFamily(self.domain, min(round(math.exp(self.epsilon)) + 1, _MOST_BUCKETS))

    @cached_property
    def _response(self) -> ResponseLaw:
        return ResponseLaw.spending(self.epsilon, self.family.buckets)

    @property
    @override
    def p(self) -> Fraction:
        return self._response.p

    @property
    @override
    def q(self) -> Fraction:
        # Some value's bucket is said: the own one, which the other value may share, or another.
        lie = self._response.q
        return lie + (self.p - lie) * self.family.collision

    @property
    @override
    def _loss(self) -> float:
        return self._response.epsilon

    @property
    @override
    def law(self) -> Mapping[str, int]:
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
        own = self._require_values(values)
        reports = np.empty((len(own), self.report_bytes), dtype=np.uint8)
        for chunk in chunks(len(own), _WORK_BYTES):
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
        for chunk in chunks(len(reports), _WORK_BYTES):
            a, b = _words(reports[chunk])
            self.family.add_supported(sums, a, b, decoded(reports[chunk, _SEED_BYTES:]))
        return sums


def _words(reports: Reports) -> tuple[Words, Words]:
    """Return the two words of each report."""
    words = np.ascontiguousarray(reports[:, :_SEED_BYTES]).view("<u4")
    return np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])
