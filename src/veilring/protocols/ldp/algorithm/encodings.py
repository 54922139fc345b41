"""Oracles that encode the value itself: directly, or as one bit per value.

- `DirectEncoding`: the client reports its value or another one (k-ary randomised response).
- `OptimisedUnary`: one bit per value, of which only the client's own is set; then each bit is
  flipped at random.

Sources: Wang et al., USENIX Security 2017, Section 4; Kairouz, Oh and Viswanath, NeurIPS 2014.
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

from veilring.privacy.bounds import binomial_range
from veilring.privacy.draws import bernoulli, packed_bernoulli
from veilring.privacy.exact import Dyadic, exp_floor, unary_epsilon
from veilring.privacy.tables import (
    ResponseDistribution,
    randomised_response,
)
from veilring.protocols.ldp.algorithm.oracle import (
    BITS,
    PureOracle,
    require_values,
)
from veilring.protocols.ldp.algorithm.packing import (
    bit_of,
    bitmap_bytes,
    client_slices,
    column_sums,
    counted,
    decoded,
    encoded,
    is_padded,
    width_of,
)
from veilring.protocols.ldp.algorithm.randomiser import (
    Reports,
    Sums,
)

_WORK_BYTES: Final = 32  # per client: a value, a draw, another value and the answer


@dataclass(frozen=True)
class DirectEncoding(PureOracle):
    """The client's value with probability `p`, and each of the others with probability `q`.

    A report is the number of a value, in the minimum number of bytes, little-endian. It is the best
    oracle for small domains: better than `OptimisedUnary` if `domain < 3 e^epsilon + 2`.
    """

    name: ClassVar[str] = "de"

    @cached_property
    def _response(self) -> ResponseDistribution:
        return ResponseDistribution.spending(self.epsilon, self.domain)

    @property
    @override
    def p(self) -> Fraction:
        return self._response.p

    @property
    @override
    def q(self) -> Fraction:
        return self._response.q

    @property
    @override
    def _loss(self) -> float:
        return self._response.epsilon

    @property
    @override
    def exact_parameters(self) -> Mapping[str, int]:
        return {"own": self._response.own, "other": self._response.other}

    @property
    @override
    def report_bytes(self) -> int:
        return width_of(self.domain)

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        own = require_values(values, self.domain)
        reports = np.empty((len(own), self.report_bytes), dtype=np.uint8)
        for chunk in client_slices(len(own), _WORK_BYTES):
            said = randomised_response(own[chunk], self._response, rng)
            reports[chunk] = encoded(said, self.report_bytes)
        return reports

    @override
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        return decoded(reports) < self.domain

    @override
    def aggregate(self, reports: Reports) -> Sums:
        return counted(reports, self.domain)


class UnaryOracle(PureOracle):
    """One bit per value, set with probability `p` for the client's own and `q` for all others.

    A report is the bits packed in the order of `numpy.packbits`; padding bits are 0.
    """

    @property
    @abstractmethod
    def own(self) -> Dyadic:
        """The probability that the client's own bit is set."""

    @property
    @abstractmethod
    def other(self) -> Dyadic:
        """The probability that each other bit is set."""

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
    def exact_parameters(self) -> Mapping[str, int]:
        return {"bits": BITS, "p": int(self.p * 2**BITS), "q": self.other.numerator}

    @property
    @override
    def report_bytes(self) -> int:
        return bitmap_bytes(self.domain)

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        own = require_values(values, self.domain)
        reports = packed_bernoulli(self.other, len(own), self.domain, rng)
        for chunk in client_slices(len(own), _WORK_BYTES):
            rows, (place, mask) = reports[chunk], bit_of(own[chunk])
            coin = bernoulli(self.own, len(rows), rng)
            clients = np.arange(len(rows))
            rows[clients, place] = rows[clients, place] & ~mask | mask * coin
        return reports

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """The minimum and the maximum number of bits set in an honest report."""
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
class OptimisedUnary(UnaryOracle):
    """`p = 1/2`: all of epsilon is used for the many bits that are not the client's own."""

    name: ClassVar[str] = "oue"

    @property
    @override
    def own(self) -> Dyadic:
        return Dyadic(1, 1)

    @cached_property
    @override
    def other(self) -> Dyadic:
        return Dyadic.ceil(1 / (exp_floor(self.epsilon) + 1), BITS)
