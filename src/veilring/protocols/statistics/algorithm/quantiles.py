"""Quantiles by counting search: rounds of counts between public thresholds, ever closer.

The first round counts the rows in equal parts of the whole range. Each later round counts those in
the parts of the part that contains the quantile, until a part is one step. The number of rounds
follows from the public range and resolution, and is the same for any rows.

For the k-th row of all, the search returns its exact step. Searches run at the same time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, nan, prod
from typing import Any, Final

import numpy as np
from typing_extensions import override

from veilring.arrays import Floats
from veilring.privacy.checks import require
from veilring.protocols.statistics.algorithm.columns import Column, Number, Steps
from veilring.protocols.statistics.algorithm.tallies import Line, Statistic, Totals

QUARTILES: Final = (0.25, 0.5, 0.75)
THRESHOLDS: Final = 64
"""A trillion steps then take 7 rounds, and the noise of a round adds up over few counts."""
THRESHOLDS_MAX: Final = 2**16
"""A round of one quantile then takes half a frame."""


@dataclass(frozen=True)
class Quantiles(Statistic[Floats]):
    """The values below or at which a share of the rows lies, shape (shares,).

    The quantile of a share q of n rows is the value of the row of rank `ceil(q n)`, and at least of
    the first row: NumPy's `inverted_cdf`.

    Attributes:
        at: The shares, from 0 to 1.
        thresholds: The number of parts that a round tells apart.
    """

    column: Number
    at: tuple[float, ...] = QUARTILES
    thresholds: int = THRESHOLDS

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", tuple(map(float, self.at)))
        object.__setattr__(self, "thresholds", int(self.thresholds))
        some = bool(self.at) and all(0 <= share <= 1 for share in self.at)
        require(some, "at", self.at, "one or more numbers from 0 to 1")
        allowed = f"a whole number from 2 to {THRESHOLDS_MAX:,}"
        require(2 <= self.thresholds <= THRESHOLDS_MAX, "thresholds", self.thresholds, allowed)  # noqa: PLR2004  (one part would not shrink)

    @property
    @override
    def columns(self) -> tuple[Column, ...]:
        return (self.column,)

    @property
    @override
    def rounds(self) -> int:
        rounds, places = 1, self.thresholds
        while places <= self.column.steps:
            rounds, places = rounds + 1, places * self.thresholds
        return rounds

    @override
    def lines(self, number: int, totals: Sequence[Totals] = ()) -> tuple[Line, ...]:
        starts = [0] * (len(self.at) if number else 1)
        if totals:
            starts = [start for start, _ in self._found(totals)]
        width = self._width(number)
        factors = [(Steps(self.column, self.thresholds, start, width),) for start in starts]
        return tuple(Line(each, skips=self.skips) for each in factors)

    @property
    @override
    def shape(self) -> tuple[int, int]:
        return 1, len(self.at)

    @override
    def publish(self, totals: Sequence[Totals]) -> Totals:
        """Return the step of each quantile, NaN without rows, and no count."""
        there = sum(totals[0][0]) > 0
        steps = [min(start, self.column.steps) for start, _ in self._found(totals)]
        return np.array([steps if there else [nan] * len(steps)], np.object_)

    @override
    def estimate(self, shown: Totals) -> Floats:
        column = self.column
        return np.array(
            [float(column.origin + (s - column.middle) * column.unit) for s in shown[0]]
        )

    def ranks(self, rows: Any) -> list[int]:  # noqa: ANN401  (a whole number, or a fraction)
        """Return the rank of the row of each quantile, from 1."""
        return [_rank(share, rows) for share in self.at]

    def _width(self, number: int) -> int:
        """Return the number of steps of a part in a round."""
        return prod([self.thresholds] * (self.rounds - 1 - number))

    def _found(self, totals: Sequence[Totals]) -> list[tuple[int, Any]]:
        """Return the first step of the part of each quantile, and its rank in that part."""
        rows = sum(totals[0][0])
        found: list[tuple[int, Any]] = [(0, rank) for rank in self.ranks(rows)]
        for number, lines in enumerate(totals):
            spread = lines if number else [lines[0]] * len(found)
            width = self._width(number)
            found = [
                _next_part(line, start, rank, width)
                for line, (start, rank) in zip(spread, found, strict=True)
            ]
        return found


def _rank(share: float, rows: Fraction) -> int:
    """Return the rank of the row that is a quantile, from 1."""
    return max(1, ceil(Fraction(repr(share)) * rows))


def _next_part(counts: Sequence[Any], start: int, rank: Any, width: int) -> tuple[int, Any]:  # noqa: ANN401  (as above)
    """Return the first step of the part that contains a rank, and the rank in it.

    With noise, all counts together may be below the rank: then it is the last part.
    """
    below: Any = 0
    for part, count in enumerate(counts):
        if below + count >= rank or part == len(counts) - 1:
            return start + part * width, rank - below
        below += count
    raise AssertionError("a round has no parts")
