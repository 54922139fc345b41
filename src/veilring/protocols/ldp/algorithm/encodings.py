"""Oracles that encode the value itself: directly, as a histogram, or as one bit per value.

- `DirectEncoding`: the client reports its value or another one (k-ary randomised response).
- `SymmetricUnary`, `OptimisedUnary`: one bit per value, of which only the client's own is set; then
  each bit is flipped at random. `SymmetricUnary` is basic RAPPOR without memoization.
- `SummedHistogram`, `ThresholdedHistogram`: a one-hot vector plus Laplace noise, summed or compared
  with a threshold. No float noise leaves the client: summed values are points of a public grid, and
  threshold comparisons are drawn as bits.

Sources: Wang et al., USENIX Security 2017, Sections 4.1 to 4.3 and Appendix; Kairouz, Oh and
Viswanath, NeurIPS 2014; Erlingsson, Pihur and Korolova, CCS 2014.
"""

import hashlib
import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.privacy.bounds import binomial_range, laplace_sum_max
from veilring.privacy.draws import bernoulli, packed_bernoulli
from veilring.privacy.exact import Dyadic, exp_ceil, exp_floor, unary_epsilon
from veilring.privacy.tables import (
    ResponseDistribution,
    TableDistributions,
    clamped_laplace,
    randomised_response,
)
from veilring.protocols.ldp.algorithm.oracle import (
    BITS,
    FrequencyOracle,
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
    INTERVAL_CONFIDENCE,
    Reports,
    Sums,
    SurveyEstimate,
    normal_estimate,
    require_sums,
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
class SymmetricUnary(UnaryOracle):
    """Each bit is kept with the same probability: `p + q = 1`, half of epsilon per bit."""

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


# The noise's scale in steps, if epsilon allows it: the grid then adds 5e-6 to the variance.
_SCALE_STEPS: Final = 128
# Noise beyond this many scales is clamped: one number in nine million.
_CLAMPED_AT: Final = 16
_MOST_STEPS: Final = (1 << 15) - 1  # a number has two bytes
# At half this epsilon, tables of 64-bit weights are too coarse for the claimed privacy.
_LEAST_EPSILON: Final = 2.0**-23
# Tables have noise wider than requested by less than this.
_WIDER: Final = Fraction(1001, 1000)
_NUMBER: Final = np.dtype("<i2")
# sums of this number of light-tailed values are nearly normal
_NORMAL_CLIENTS: Final = 30


@dataclass(frozen=True)
class SummedHistogram(FrequencyOracle):
    """Noise of scale `2 / epsilon` on each coordinate of the one-hot vector, to be summed.

    The coordinates are -1/2 and, for the client's value, +1/2, in steps of a public grid, and the
    output is clamped to a public range. A report is a signed number of steps per value, in two
    bytes, little-endian. It is never the best oracle, and is included for comparison.
    """

    name: ClassVar[str] = "she"

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon < _LEAST_EPSILON:
            raise InputError("epsilon", self.epsilon, f"at least {_LEAST_EPSILON}")

    @property
    def half(self) -> int:
        """The number of steps of the grid in 1/2."""
        return max(1, round(_SCALE_STEPS * self.epsilon / 4))

    @property
    def bound(self) -> int:
        """The maximum number of steps in a report, in either direction."""
        reach = math.ceil(_CLAMPED_AT * self._scale) + self.half
        return min(reach, _MOST_STEPS)

    @cached_property
    def _most_together(self) -> int:
        """The maximum sum of absolute values in an honest report."""
        return self.domain * self.half + laplace_sum_max(self._scale * _WIDER, self.domain)

    @property
    def _scale(self) -> Fraction:
        return 4 * self.half / Fraction(self.epsilon)

    @property
    def distributions(self) -> TableDistributions:
        """The exact distributions of a coordinate: of another value's, then of the client's own."""
        return _distributions(self.half, self._scale, self.bound)

    @property
    @override
    def _loss(self) -> float:
        # Two values differ in two coordinates, and each may reveal the maximum.
        return 2 * self.distributions.loss(0, 1)

    @property
    @override
    def exact_parameters(self) -> Mapping[str, int | str]:
        weights = ",".join(map(str, itertools.chain(*self.distributions.weights)))
        digest = hashlib.sha256(weights.encode()).hexdigest()
        return {"half": self.half, "bound": self.bound, "weights": digest}

    @cached_property
    def _moments(self) -> tuple[float, float, float, float]:
        """The mean of another coordinate, the excess of the own one, and both variances."""
        zero, one = self.distributions.mean(0), self.distributions.mean(1)
        idle, own = (float(self.distributions.variance(which)) for which in (0, 1))
        return float(zero), float(one - zero), idle, own

    @property
    @override
    def influence(self) -> float:
        return float(2 * self.bound / self._moments[1])

    @override
    def variance(self, frequency: float = 0.0) -> float:
        """Return the exact variance, `8 / epsilon^2` up to the effects of grid and clamping."""
        _, signal, idle, own = self._moments
        return (idle + frequency * (own - idle)) / signal**2

    @property
    @override
    def report_bytes(self) -> int:
        return _NUMBER.itemsize * self.domain

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        own = require_values(values, self.domain)
        reports = np.empty((len(own), self.report_bytes), dtype=np.uint8)
        for chunk in client_slices(len(own), _WORK_BYTES * self.domain):
            coordinates = np.zeros((len(own[chunk]), self.domain), dtype=np.intp)
            coordinates[np.arange(len(coordinates)), own[chunk]] = 1
            reports[chunk] = (
                self.distributions.sample(coordinates, rng).astype(_NUMBER).view(np.uint8)
            )
        return reports

    @override
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        numbers = np.ascontiguousarray(reports).view(_NUMBER)
        inside = (numbers >= -self.bound) & (numbers <= self.bound)
        together = np.abs(numbers.astype(np.int64)).sum(axis=1)
        return np.asarray(inside.all(axis=1) & (together <= self._most_together))

    @override
    def aggregate(self, reports: Reports) -> Sums:
        sums = np.zeros(self.domain, dtype=np.int64)
        for chunk in client_slices(len(reports), 8 * self.domain):
            numbers = np.ascontiguousarray(reports[chunk]).view(_NUMBER)
            sums += numbers.sum(axis=0, dtype=np.int64)
        return sums

    @override
    def rough(self, sums: Sums, clients: int) -> NDArray[np.bool_]:
        return np.full(self.entries, clients < _NORMAL_CLIENTS)

    @override
    def estimate(
        self, sums: Sums, clients: int, *, confidence: float = INTERVAL_CONFIDENCE
    ) -> SurveyEstimate:
        """Return `(sum/m - mean_0) / (mean_1 - mean_0)` for each value, with its normal interval.

        The noise has sixteen bits and light tails, so the normal distribution is accurate from
        `_NORMAL_CLIENTS` clients on.

        Args:
            sums: The summed steps of each value, shape (domain,).
            clients: The number of reports, at least 1.
            confidence: The confidence of each interval on its own, in (0, 1).
        """
        most = self.bound * clients
        require_sums(sums, self.cells, clients, low=-most, high=most)
        zero, signal, _, _ = self._moments
        values = (sums / clients - zero) / signal
        slope = self.variance(1.0) - self.variance()
        variance = (self.variance() + slope * np.clip(values, 0.0, 1.0)) / clients
        return normal_estimate(values, variance, clients, confidence)


# A table takes up to half a second and a few MiB; the questions of a survey share an epsilon.
@lru_cache(maxsize=16)
def _distributions(half: int, scale: Fraction, bound: int) -> TableDistributions:
    return clamped_laplace((-half, half), scale, bound)


@dataclass(frozen=True)
class ThresholdedHistogram(UnaryOracle):
    """The client reports for each coordinate whether it exceeds `theta` with its noise.

    Comparing noise with a public number gives a biased coin, so such coins are drawn directly. The
    oracle is therefore unary encoding, with `p = 1 - e^((epsilon/2)(theta - 1)) / 2` and `q =
    e^(-(epsilon/2) theta) / 2`, and it spends less than the epsilon of the noise.

    The p printed in the paper has the opposite sign of `theta - 1`, and is always below q.

    Attributes:
        theta: The threshold, in [0, 1]; the default has the smallest variance.
    """

    name: ClassVar[str] = "the"

    theta: float | None = None

    @override
    def __post_init__(self) -> None:
        if self.theta is not None and not 0 <= self.theta <= 1:
            raise InputError("theta", self.theta, "a number in [0, 1]")
        super().__post_init__()

    @property
    def threshold(self) -> float:
        """The threshold in use."""
        return best_theta(self.epsilon) if self.theta is None else self.theta

    @cached_property
    @override
    def own(self) -> Dyadic:
        exponent = Fraction(self.epsilon) * (Fraction(self.threshold) - 1) / 2
        return Dyadic.floor(1 - exp_ceil(exponent) / 2, BITS)

    @cached_property
    @override
    def other(self) -> Dyadic:
        exponent = -Fraction(self.epsilon) * Fraction(self.threshold) / 2
        return Dyadic.ceil(exp_ceil(exponent) / 2, BITS)


def best_theta(epsilon: float) -> float:
    """Return the `theta` with the smallest variance, between 1/2 and 1.

    With `a = e^(-epsilon/2)` and `x = e^(epsilon theta / 2)` the variance of frequency 0 is
    `(2x - 1) / (1 + a x^2 - 2x)^2`, and its derivative is zero where `3a x^2 - 2(1 + a) x + 1` is.
    """
    a = math.exp(-epsilon / 2)
    x = (1 + a + math.sqrt(1 - a + a * a)) / (3 * a)
    return min(1.0, 2 * math.log(x) / epsilon)
