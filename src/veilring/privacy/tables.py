"""Finite laws on whole numbers with weights of 64 bits: masses of exact draws, one word each.

Source of the sampler: Walker's alias method as Vose built it (IEEE TSE 17, 1991), in whole numbers
throughout: each column of the table holds `2**(64 - m)` of the `2**64` words, shared by at most two
outcomes. The high bits of a word choose the column, the low bits the outcome.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.checks import require
from veilring.privacy.loss import log_ceil

WEIGHT_BITS: Final = 64
# 2 MiB of words at a time: the table and what is worked on stay in the cache.
_CHUNK: Final = 2**18
# A column's share must leave bits for the outcome; and a table of this size is 1 MiB.
_MOST_OUTCOMES: Final = 2**16


class TableLaws:
    """Laws on the same whole numbers, one for each input.

    Args:
        first: The least outcome; the others follow it one by one.
        weights: A row for each input with a whole number for each outcome, at least 0, that add up
            to `2**64`.

    Attributes:
        first: As given.
        weights: As given; the law of input i gives outcome `first + j` the probability
            `weights[i][j] / 2**64`, exactly.

    Raises:
        InputError: If there is no law, no outcome or more than 65,536, or the weights are wrong.
    """

    def __init__(self, first: int, weights: Sequence[Sequence[int]]) -> None:
        self.first, self.weights = first, tuple(tuple(map(int, row)) for row in weights)
        sizes = {len(row) for row in self.weights}
        require(len(sizes) == 1, "weights", f"rows of {sizes}", "rows of one length, at least one")
        self.outcomes = sizes.pop()
        within = 1 <= self.outcomes <= _MOST_OUTCOMES
        require(within, "weights", f"for {self.outcomes} outcomes", f"from 1 to {_MOST_OUTCOMES}")
        for row in self.weights:
            right = min(row) >= 0 and sum(row) == 1 << WEIGHT_BITS
            require(right, "weights", f"a row with sum {sum(row)}", "at least 0, sum 2**64")
        self._column_bits = max(1, (self.outcomes - 1).bit_length())
        tables = [_alias(row, self._column_bits) for row in self.weights]
        self._thresholds = np.array([threshold for threshold, _ in tables], dtype=np.uint64)
        self._aliases = np.array([alias for _, alias in tables], dtype=np.intp)

    def sample(self, inputs: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw an outcome for each input.

        Args:
            inputs: Which law to draw from, by its index, of any shape.
            rng: Source of the draws: one word an outcome.

        Returns:
            The outcomes, of the same shape.

        Raises:
            InputError: If an index is outside the range.
        """
        count = len(self.weights)
        inside = inputs.size == 0 or bool(inputs.min() >= 0 and inputs.max() < count)
        require(inside, "inputs", "out of range", f"from 0 to {count - 1}")
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
        """Return the exact law of input `i`, from the least outcome to the greatest."""
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
        """The greatest loss of any two inputs, rounded up; 0 if there is one only."""
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
    """Return below which low bits a column means itself, and what it means from there on."""
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
