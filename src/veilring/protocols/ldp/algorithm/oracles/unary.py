"""Unary encoding: one bit a value, of which only the client's own is set; then each bit lies.

Source: Wang et al., USENIX Security 2017, Sections 4.2 and 4.3. `SymmetricUnary` is basic RAPPOR
(Erlingsson, Pihur and Korolova, CCS 2014) without its memory.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.privacy.coins import bernoulli, packed_bernoulli
from veilring.privacy.dyadic import Dyadic
from veilring.privacy.loss import exp_floor, unary_epsilon
from veilring.privacy.tails import binomial_range
from veilring.protocols.ldp.algorithm.chunks import chunks
from veilring.protocols.ldp.algorithm.oracles.bitmaps import bit_of, bitmap_bytes, is_padded
from veilring.protocols.ldp.algorithm.oracles.columns import column_sums
from veilring.protocols.ldp.algorithm.oracles.oracle import BITS, PureOracle
from veilring.protocols.ldp.algorithm.randomiser import Reports, Sums

_WORK_BYTES: Final = 32  # a client's value, the place of its byte, its mask and its coin


class UnaryOracle(PureOracle):
    """A bit a value, set with probability `p` for the client's own and `q` for all others.

    A report is the bits packed in the order of `numpy.packbits`; padding bits are 0.
    """

    @property
    @abstractmethod
    def own(self) -> Dyadic:
        """The probability of the client's own bit."""

    @property
    @abstractmethod
    def other(self) -> Dyadic:
        """The probability of each other bit."""

    @property
    @override
    def p(self) -> Fraction:
        return self.own.fraction

    @property
    @override
    def q(self) -> Fraction:
        return self.other.fraction

    @property
    @override
    def _loss(self) -> float:
        return unary_epsilon(self.p, self.q)

    @property
    @override
    def law(self) -> Mapping[str, int]:
        return {"bits": BITS, "p": int(self.p * 2**BITS), "q": self.other.numerator}

    @property
    @override
    def report_bytes(self) -> int:
        return bitmap_bytes(self.domain)

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        own = self._require_values(values)
        reports = packed_bernoulli(self.other, len(own), self.domain, rng)
        for chunk in chunks(len(own), _WORK_BYTES):
            rows, (place, mask) = reports[chunk], bit_of(own[chunk])
            coin = bernoulli(self.own, len(rows), rng)
            clients = np.arange(len(rows))
            rows[clients, place] = rows[clients, place] & ~mask | mask * coin
        return reports

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """The least and the greatest number of bits that an honest report ever has set."""
        low, high = binomial_range(self.domain - 1, float(self.q))
        return low, high + 1  # the client's own bit

    @override
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        low, high = self.sizes
        sizes = np.bitwise_count(reports).sum(axis=1, dtype=np.int64)
        return np.asarray(is_padded(reports, self.domain) & (sizes >= low) & (sizes <= high))

    @override
    def aggregate(self, reports: Reports) -> Sums:
        return column_sums(reports, self.domain)


@dataclass(frozen=True)
class SymmetricUnary(UnaryOracle):
    """Each bit keeps its meaning with the same probability: `p + q = 1`, half of epsilon a bit."""

    name: ClassVar[str] = "sue"

    @cached_property
    @override
    def own(self) -> Dyadic:
        weight = exp_floor(Fraction(self.epsilon) / 2)
        return Dyadic.floor(weight / (weight + 1), BITS)

    @property
    @override
    def other(self) -> Dyadic:
        return self.own.complement


@dataclass(frozen=True)
class OptimisedUnary(UnaryOracle):
    """`p = 1/2`, and all of epsilon goes to the many bits that are not the client's own."""

    name: ClassVar[str] = "oue"

    @property
    @override
    def own(self) -> Dyadic:
        return Dyadic(1, 1)

    @cached_property
    @override
    def other(self) -> Dyadic:
        return Dyadic.ceil(1 / (exp_floor(self.epsilon) + 1), BITS)
