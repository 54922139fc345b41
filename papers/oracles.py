"""The paper's frequency oracles that the package leaves out, because others are better.

- `SymmetricUnary` keeps each bit of a unary encoding alike: basic RAPPOR without memoization.
- `SummedHistogram`, `ThresholdedHistogram`: a one-hot vector plus Laplace noise, summed or compared
  with a threshold. No float noise leaves the client: summed values are points of a public grid, and
  threshold comparisons are drawn as bits.

`TableDistributions` draws by Walker's alias method in Vose's version (IEEE TSE 17, 1991), using
only whole numbers: each column of the table has `2**(64 - m)` of the `2**64` words, shared by at
most two outcomes. The high bits of a word choose the column, the low bits the outcome.

`clamped_laplace` is Laplace noise on a public grid, clamped to a public range, for reports by the
million. The output is a whole number from `-bound` to `bound`; the noise outside is invisible, so
clamping costs no privacy. Weights are rounded to 64 bits, and the noise is made slightly wider (by
less than a thousandth, usually by a millionth of that) so that no ratio exceeds its claim. That is
checked in whole numbers when the tables are built.

Sources: Wang et al., USENIX Security 2017, Sections 4.1 to 4.3 and Appendix; Erlingsson, Pihur and
Korolova, CCS 2014; Yilmaz, Al-Rubaie and Chang 2019.
"""

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations, pairwise
from types import MappingProxyType
from typing import ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.bounds import laplace_sum_max
from veilring.privacy.checks import require, require_that
from veilring.privacy.draws import require_scale
from veilring.privacy.exact import Dyadic, exp_ceil, exp_floor, log_ceil
from veilring.protocols.ldp.algorithm.oracles import ORACLES, OptimisedUnary
from veilring.protocols.ldp.algorithm.packing import client_slices
from veilring.protocols.ldp.algorithm.randomiser import BITS, FrequencyOracle, Reports, Sums

_WEIGHT_BITS: Final = 64
# 2 MiB of words at a time: the table and the working set stay in the cache
_CHUNK: Final = 2**18
# A column's share must leave bits for the outcome, and a table of this size is 1 MiB.
_MOST_OUTCOMES: Final = 2**16
# so that all outcomes fit into 16 bits
_GREATEST_BOUND: Final = 2**15 - 1
# The wider noise compensates the rounding of weights of at least this size.
_LEAST_WEIGHT: Final = 2.0**16
# The part of a claim reserved for rounding.
_MOST_WASTE: Final = 1e-3
# The relative error of a weight computed in floats, and of the one that absorbs the remainders.
_FLOAT_ERROR: Final = 2.0**-44


class TableDistributions:
    """Distributions on the same whole numbers, one for each input.

    Args:
        first: The smallest outcome; the others follow one by one.
        weights: A row for each input with a whole number for each outcome, at least 0, with sum
            `2**64`.

    Attributes:
        weights: As given; the distribution of input i gives outcome `first + j` the probability
            `weights[i][j] / 2**64`, exactly.
    """

    def __init__(self, first: int, weights: Sequence[Sequence[int]]) -> None:
        self.first, self.weights = first, tuple(tuple(map(int, row)) for row in weights)
        sizes = {len(row) for row in self.weights}
        require_that(
            len(sizes) == 1,
            "weights",
            f"the rows of weights must have one length, at least 1; they have {sizes}",
        )
        self.outcomes = sizes.pop()
        within = 1 <= self.outcomes <= _MOST_OUTCOMES
        require_that(
            within,
            "weights",
            f"weights has {self.outcomes} outcomes; it must have from 1 to {_MOST_OUTCOMES}",
        )
        for row in self.weights:
            right = min(row) >= 0 and sum(row) == 1 << _WEIGHT_BITS
            require_that(
                right,
                "weights",
                "a row of weights must be at least 0 and add up to 2**64; one adds up to "
                f"{sum(row)}",
            )
        self._column_bits = max(1, (self.outcomes - 1).bit_length())
        tables = [_alias(row, self._column_bits) for row in self.weights]
        self._thresholds = np.array([threshold for threshold, _ in tables], dtype=np.uint64)
        self._aliases = np.array([alias for _, alias in tables], dtype=np.intp)

    def sample(self, inputs: NDArray[np.integer], rng: np.random.Generator) -> Ints:
        """Draw an outcome for each input.

        Args:
            inputs: The index of the distribution for each draw, of any shape.

        Returns:
            The outcomes, of the same shape.
        """
        count = len(self.weights)
        inside = inputs.size == 0 or bool(inputs.min() >= 0 and inputs.max() < count)
        require_that(inside, "inputs", f"inputs must be from 0 to {count - 1}")
        flat, drawn = inputs.reshape(-1), np.empty(inputs.size, dtype=np.int64)
        for start in range(0, flat.size, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            drawn[chunk] = self._draw(flat[chunk], rng)
        return drawn.reshape(inputs.shape)

    def _draw(self, inputs: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.intp]:
        words = rng.integers(0, 2**_WEIGHT_BITS - 1, inputs.size, dtype=np.uint64, endpoint=True)
        low_bits = _WEIGHT_BITS - self._column_bits
        columns = (words >> np.uint64(low_bits)).astype(np.intp)
        words &= np.uint64((1 << low_bits) - 1)
        cells = (inputs.astype(np.intp) << self._column_bits) + columns
        own = words < self._thresholds.reshape(-1)[cells]
        return np.where(own, columns, self._aliases.reshape(-1)[cells]) + self.first

    def probabilities(self, i: int) -> tuple[Fraction, ...]:
        """Return the exact distribution of input `i`, from the least outcome to the greatest."""
        return tuple(Fraction(weight, 1 << _WEIGHT_BITS) for weight in self.weights[i])

    def mean(self, i: int) -> Fraction:
        """Return the exact mean of the outcomes for input `i`."""
        total = sum(weight * (self.first + j) for j, weight in enumerate(self.weights[i]))
        return Fraction(total, 1 << _WEIGHT_BITS)

    def variance(self, i: int) -> Fraction:
        """Return the exact variance of the outcomes for input `i`."""
        total = sum(weight * (self.first + j) ** 2 for j, weight in enumerate(self.weights[i]))
        return Fraction(total, 1 << _WEIGHT_BITS) - self.mean(i) ** 2

    def loss(self, i: int, j: int) -> float:
        """Return the exact privacy loss of inputs `i` and `j`, rounded up; it may be infinite."""
        ratio = greatest_ratio(self.weights[i], self.weights[j])
        return math.inf if ratio is None else log_ceil(ratio)

    @property
    def epsilon(self) -> float:
        """The maximum loss of any two inputs, rounded up; 0 if there is only one."""
        pairs = combinations(range(len(self.weights)), 2)
        return max((self.loss(i, j) for i, j in pairs), default=0.0)


def greatest_ratio(a: Sequence[int], b: Sequence[int]) -> Fraction | None:
    """Return the greatest `a[i] / b[i]` or `b[i] / a[i]`; `None` if it is infinite."""
    above, below = 1, 1
    for one, other in zip(a, b, strict=True):
        least, most = min(one, other), max(one, other)
        if most * below > above * least:
            if least == 0:
                return None
            above, below = most, least
    return Fraction(above, below)


def _alias(weights: Sequence[int], column_bits: int) -> tuple[list[int], list[int]]:
    """Return the threshold of the low bits for each column's own outcome, and its other outcome."""
    columns, capacity = 1 << column_bits, 1 << (_WEIGHT_BITS - column_bits)
    left = [*weights, *[0] * (columns - len(weights))]
    thresholds, aliases = [capacity] * columns, list(range(columns))
    small = [column for column in range(columns) if left[column] < capacity]
    large = [column for column in range(columns) if left[column] > capacity]
    while small:
        column, donor = small.pop(), large[-1]
        thresholds[column], aliases[column] = left[column], donor
        left[donor] -= capacity - left[column]
        if left[donor] <= capacity:
            large.pop()
        if left[donor] < capacity:
            small.append(donor)
    return thresholds, aliases


def clamped_laplace(
    inputs: Sequence[int], scale: float | Fraction, bound: int
) -> TableDistributions:
    """Approximate `clip(input + discrete Laplace noise, -bound, bound)` by tables.

    The loss of any two inputs u and v is at most `|u - v| / scale`, exactly: the claim of the
    Laplace mechanism. The distributions are those of a scale that is larger by less than a
    thousandth.

    Args:
        inputs: The possible inputs in steps of the grid, ascending, from `-bound` to `bound`.
        scale: The scale of the noise, in steps of the grid, from 2**-20 to 2**40.
        bound: The largest outcome, from 1 to 32,767.
    """
    exact = require_scale("scale", scale)
    require(1 <= bound <= _GREATEST_BOUND, "bound", bound, f"from 1 to {_GREATEST_BOUND}")
    steps = [after - before for before, after in pairwise(inputs)]
    rising = len(inputs) > 0 and min(steps, default=1) > 0
    right = rising and -bound <= inputs[0] <= inputs[-1] <= bound
    require_that(right, "inputs", f"inputs must increase from {-bound} to {bound}")
    rate = float(1 / exact)
    least = float(_ideal(inputs, rate, bound).min())
    fine = f"a bound at which each outcome has a probability of at least 2**-{_WEIGHT_BITS - 16}"
    require(least >= _LEAST_WEIGHT, "bound", bound, fine)
    waste = (4 / least + _FLOAT_ERROR) / min(steps, default=1)
    while waste <= _MOST_WASTE * rate:
        distributions = TableDistributions(-bound, _whole(_ideal(inputs, rate - waste, bound)))
        if _holds(distributions, steps, exact):
            return distributions
        waste *= 2
    raise InputError("scale", scale, fine)


def _ideal(inputs: Sequence[int], rate: float, bound: int) -> Floats:
    """Return each input's distribution (rows) in units of `2**-64`, clamped but not yet rounded."""
    outcomes = np.arange(-bound, bound + 1)
    weights = np.exp(-rate * np.abs(outcomes - np.array(inputs)[:, None]))
    weights[:, 1:-1] *= np.tanh(rate / 2)
    # the mass on the ends or beyond: a geometric sum
    weights[:, [0, -1]] /= 1 + np.exp(-rate)
    return np.asarray(np.ldexp(weights, _WEIGHT_BITS))


def _whole(ideal: Floats) -> list[list[int]]:
    """Round weights; the most likely outcome absorbs the remainder to `2**64`."""
    rows = []
    for weights in ideal:
        row = [int(weight) for weight in np.rint(weights)]
        row[int(weights.argmax())] += (1 << _WEIGHT_BITS) - sum(row)
        rows.append(row)
    return rows


def _holds(distributions: TableDistributions, steps: Sequence[int], scale: Fraction) -> bool:
    """Return whether all neighbouring inputs satisfy the claim, which implies it for all pairs."""
    ratios = [greatest_ratio(*rows) for rows in pairwise(distributions.weights)]
    return all(
        ratio is not None and Fraction(log_ceil(ratio)) <= step / scale
        for ratio, step in zip(ratios, steps, strict=True)
    )


@dataclass(frozen=True)
class SymmetricUnary(OptimisedUnary):
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
    def _of_coordinates(self) -> tuple[float, float, float, float]:
        """The mean of another coordinate, the excess of the own one, and both variances."""
        zero, one = self.distributions.mean(0), self.distributions.mean(1)
        idle, own = (float(self.distributions.variance(which)) for which in (0, 1))
        return float(zero), float(one - zero), idle, own

    @property
    @override
    def influence(self) -> float:
        return float(2 * self.bound / self._of_coordinates[1])

    @override
    def variance(self, frequency: float = 0.0) -> float:
        """Return the exact variance, `8 / epsilon^2` up to the effects of grid and clamping."""
        _, signal, idle, own = self._of_coordinates
        return (idle + frequency * (own - idle)) / signal**2

    @property
    @override
    def report_bytes(self) -> int:
        return _NUMBER.itemsize * self.domain

    @property
    @override
    def _work_bytes(self) -> int:
        return 8 * self.domain

    @override
    def _draw(self, values: Ints, rng: Generator) -> Reports:
        coordinates = np.zeros((len(values), self.domain), dtype=np.intp)
        coordinates[np.arange(len(coordinates)), values] = 1
        return self.distributions.sample(coordinates, rng).astype(_NUMBER).view(np.uint8)

    @override
    def _fits(self, reports: Reports) -> Bools:
        numbers = np.ascontiguousarray(reports).view(_NUMBER)
        inside = (numbers >= -self.bound) & (numbers <= self.bound)
        together = np.abs(numbers.astype(np.int64)).sum(axis=1)
        return np.asarray(inside.all(axis=1) & (together <= self._most_together))

    @override
    def aggregate(self, reports: Reports) -> Sums:
        sums = np.zeros(self.domain, dtype=np.int64)
        for chunk in client_slices(len(reports), self._work_bytes):
            numbers = np.ascontiguousarray(reports[chunk]).view(_NUMBER)
            sums += numbers.sum(axis=0, dtype=np.int64)
        return sums

    @property
    @override
    def _summands(self) -> tuple[int, int]:
        return -self.bound, self.bound

    @override
    def _moments(self, sums: Sums, clients: int) -> tuple[Floats, Floats]:
        """Return `(sum/m - mean_0) / (mean_1 - mean_0)` for each value, and its variance."""
        zero, signal, _, _ = self._of_coordinates
        values = (sums / clients - zero) / signal
        slope = self.variance(1.0) - self.variance()
        variance = (self.variance() + slope * np.clip(values, 0.0, 1.0)) / clients
        return values, variance


# A table takes up to half a second and a few MiB; the questions of a survey share an epsilon.
@lru_cache(maxsize=16)
def _distributions(half: int, scale: Fraction, bound: int) -> TableDistributions:
    return clamped_laplace((-half, half), scale, bound)


@dataclass(frozen=True)
class ThresholdedHistogram(OptimisedUnary):
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


ALL_ORACLES: Final[Mapping[str, type[FrequencyOracle]]] = MappingProxyType(
    {
        **ORACLES,
        **{kind.name: kind for kind in (SymmetricUnary, SummedHistogram, ThresholdedHistogram)},
    }
)
"""The package's oracles and the paper's, by name."""
