"""Finite distributions with exact weights: tables, clamped Laplace noise and randomised response.

`TableDistributions` draws by Walker's alias method in Vose's version (IEEE TSE 17, 1991), using
only whole numbers: each column of the table has `2**(64 - m)` of the `2**64` words, shared by at
most two outcomes. The high bits of a word choose the column, the low bits the outcome.

`clamped_laplace` is Laplace noise on a public grid, clamped to a public range, for reports by the
million. The output is a whole number from `-bound` to `bound`; the noise outside is invisible, so
clamping costs no privacy. Weights are rounded to 64 bits, and the noise is made slightly wider (by
less than a thousandth, usually by a millionth of that) so that no ratio exceeds its claim. That is
checked in whole numbers when the tables are built.

`ResponseDistribution` is k-ary randomised response, also called generalised randomised response or
direct encoding (Kairouz, Oh and Viswanath, 2014; Wang et al., USENIX Security 2017). The true value
is reported with `p = a / N`, each of the other `d - 1` values with `q = b / N`, where
`N = a + (d - 1) b`; the loss is exactly `ln(a / b)`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.checks import require, require_positive, require_that
from veilring.privacy.draws import require_scale
from veilring.privacy.exact import exp_floor, log_ceil

WEIGHT_BITS: Final = 64
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
# A draw below N takes one word, and stays a signed whole number.
_GREATEST_TOTAL: Final = 2**63
EPSILON_MAX: Final = 40.0
"""The maximum epsilon of a response: e**43 is 2**62, above which no weight is left for the other
values."""


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
            right = min(row) >= 0 and sum(row) == 1 << WEIGHT_BITS
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

    def sample(self, inputs: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.int64]:
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
        words = rng.integers(0, 2**WEIGHT_BITS - 1, inputs.size, dtype=np.uint64, endpoint=True)
        low_bits = WEIGHT_BITS - self._column_bits
        columns = (words >> np.uint64(low_bits)).astype(np.intp)
        words &= np.uint64((1 << low_bits) - 1)
        cells = (inputs.astype(np.intp) << self._column_bits) + columns
        own = words < self._thresholds.reshape(-1)[cells]
        return np.where(own, columns, self._aliases.reshape(-1)[cells]) + self.first

    def probabilities(self, i: int) -> tuple[Fraction, ...]:
        """Return the exact distribution of input `i`, from the least outcome to the greatest."""
        return tuple(Fraction(weight, 1 << WEIGHT_BITS) for weight in self.weights[i])

    def mean(self, i: int) -> Fraction:
        """Return the exact mean of the outcomes for input `i`."""
        total = sum(weight * (self.first + j) for j, weight in enumerate(self.weights[i]))
        return Fraction(total, 1 << WEIGHT_BITS)

    def variance(self, i: int) -> Fraction:
        """Return the exact variance of the outcomes for input `i`."""
        total = sum(weight * (self.first + j) ** 2 for j, weight in enumerate(self.weights[i]))
        return Fraction(total, 1 << WEIGHT_BITS) - self.mean(i) ** 2

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
    columns, capacity = 1 << column_bits, 1 << (WEIGHT_BITS - column_bits)
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
    fine = f"a bound at which each outcome has a probability of at least 2**-{WEIGHT_BITS - 16}"
    require(least >= _LEAST_WEIGHT, "bound", bound, fine)
    waste = (4 / least + _FLOAT_ERROR) / min(steps, default=1)
    while waste <= _MOST_WASTE * rate:
        distributions = TableDistributions(-bound, _whole(_ideal(inputs, rate - waste, bound)))
        if _holds(distributions, steps, exact):
            return distributions
        waste *= 2
    raise InputError("scale", scale, fine)


def _ideal(inputs: Sequence[int], rate: float, bound: int) -> NDArray[np.float64]:
    """Return each input's distribution (rows) in units of `2**-64`, clamped but not yet rounded."""
    outcomes = np.arange(-bound, bound + 1)
    weights = np.exp(-rate * np.abs(outcomes - np.array(inputs)[:, None]))
    weights[:, 1:-1] *= np.tanh(rate / 2)
    # the mass on the ends or beyond: a geometric sum
    weights[:, [0, -1]] /= 1 + np.exp(-rate)
    return np.asarray(np.ldexp(weights, WEIGHT_BITS))


def _whole(ideal: NDArray[np.float64]) -> list[list[int]]:
    """Round weights; the most likely outcome absorbs the remainder to `2**64`."""
    rows = []
    for weights in ideal:
        row = [int(weight) for weight in np.rint(weights)]
        row[int(weights.argmax())] += (1 << WEIGHT_BITS) - sum(row)
        rows.append(row)
    return rows


def _holds(distributions: TableDistributions, steps: Sequence[int], scale: Fraction) -> bool:
    """Return whether all neighbouring inputs satisfy the claim, which implies it for all pairs."""
    ratios = [greatest_ratio(*rows) for rows in pairwise(distributions.weights)]
    return all(
        ratio is not None and Fraction(log_ceil(ratio)) <= step / scale
        for ratio, step in zip(ratios, steps, strict=True)
    )


@dataclass(frozen=True, slots=True)
class ResponseDistribution:
    """The exact probabilities of reporting a value as itself or as another.

    Attributes:
        domain: d, the number of values, at least 2.
        other: b, the weight of each other value, at least 1 and at most `own`.
    """

    domain: int
    own: int
    other: int

    def __post_init__(self) -> None:
        require(self.domain >= 2, "domain", self.domain, "a whole number of at least 2")  # noqa: PLR2004  (one value needs no noise)
        require(1 <= self.other <= self.own, "other", self.other, f"from 1 to {self.own}")
        require(self.total <= _GREATEST_TOTAL, "own, other", self.total, "2**63 at most in total")

    @classmethod
    def spending(cls, epsilon: float | Fraction, domain: int) -> Self:
        """Return the distribution with the largest loss up to `epsilon` that 63 bits can represent.

        Args:
            epsilon: Above 0, at most `EPSILON_MAX`.
            domain: The number of values, at least 2.
        """
        exact = require_positive("epsilon", epsilon)
        require(exact <= EPSILON_MAX, "epsilon", epsilon, f"at most {EPSILON_MAX:g}")
        ratio = max(Fraction(1), exp_floor(exact))  # for a tiny budget the floor is below 1
        room = ratio + domain - 1 <= _GREATEST_TOTAL
        require(room, "domain", domain, "fewer values; at this epsilon these exceed 63 bits")
        other = 1 << (math.floor(_GREATEST_TOTAL / (ratio + domain - 1)).bit_length() - 1)
        return cls(domain, math.floor(ratio * other), other)

    @property
    def total(self) -> int:
        """N, the sum of all weights."""
        return self.own + (self.domain - 1) * self.other

    @property
    def p(self) -> Fraction:
        """The probability that the true value is reported."""
        return Fraction(self.own, self.total)

    @property
    def q(self) -> Fraction:
        """The probability that a certain other value is reported."""
        return Fraction(self.other, self.total)

    @property
    def epsilon(self) -> float:
        """The exact loss, `ln(p / q)`, rounded up to a float."""
        return log_ceil(Fraction(self.own, self.other))


def randomised_response(
    values: NDArray[np.integer], distribution: ResponseDistribution, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Report each value as itself or as another, with exactly the distribution's probabilities.

    Args:
        values: Whole numbers from 0 to `distribution.domain - 1`, of any shape.

    Returns:
        The reports, of the same shape.
    """
    inside = values.size == 0 or bool(values.min() >= 0 and values.max() < distribution.domain)
    require_that(inside, "values", f"values must be from 0 to {distribution.domain - 1}")
    draws = rng.integers(0, distribution.total, values.shape)
    # The draws from `own` on are divided among the others, in their order.
    others = (draws - distribution.own) // distribution.other
    others += others >= values
    return np.where(draws < distribution.own, values, others).astype(np.int64)
