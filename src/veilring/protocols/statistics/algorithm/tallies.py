"""The base of all statistics: lines that are added up over the rows, and an estimate from totals.

A line has a number for each cell. A row adds to at most one cell: 1, its numbers, or their
products, in steps from the middles of their ranges. So a row's part in a line is one whole number
of at most `reach`, which is the sensitivity of the line. Statistics with equal lines share them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import nan, prod
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.protocols.statistics.algorithm.columns import (
    MISSING,
    Column,
    Encoded,
    Factor,
    Number,
    cells_of,
)

Moment: TypeAlias = tuple[Number, ...]
"""The numbers that are multiplied; none for a count of rows."""
Totals: TypeAlias = NDArray[np.object_]
"""Exact numbers, whole or fractions, shape (lines, cells); NaN where hidden."""

Result_co = TypeVar("Result_co", covariant=True)

ROWS: Moment = ()


@dataclass(frozen=True)
class Line:
    """A number for each cell of some factors: the sum of a moment over the rows of the cell.

    Attributes:
        factors: The factors; without any, there is one cell.
        skips: The columns without whose values a row is left out.
    """

    factors: tuple[Factor, ...]
    moment: Moment = ROWS
    skips: tuple[Column, ...] = ()

    @property
    def cells(self) -> int:
        """The number of cells, at least 1."""
        return cells_of(self.factors)

    @property
    def reach(self) -> int:
        """The maximum absolute value that a row adds, at least 1."""
        return prod(each.reach for each in self.moment)

    def add_up(self, encoded: Encoded) -> Ints:
        """Return the sums over one party's rows, shape (cells,). Secret."""
        places, inside = np.zeros(encoded.rows, np.int64), np.ones(encoded.rows, np.bool_)
        for factor in self.factors:
            parts = factor.place(encoded.columns[factor.column.name])
            inside &= parts >= 0
            places = places * len(factor) + parts
        for column in self.skips:
            inside &= encoded.columns[column.name] != MISSING
        values = np.ones(encoded.rows, np.int64)
        for number in self.moment:
            values *= encoded.columns[number.name] - number.middle
        sums = np.zeros(self.cells, np.int64)
        np.add.at(sums, places[inside], values[inside])
        return sums


class Statistic(ABC, Generic[Result_co]):
    """What is computed from the rows of all parties. Its fields are public.

    Subclasses are frozen dataclasses, because parties compare their fields.
    """

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The factors whose values form cells; without any, there is one cell."""
        return ()

    @property
    def moments(self) -> tuple[Moment, ...]:
        """The moments that are added up in each cell; the first one is `ROWS`."""
        return (ROWS,)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The numbers that are added up."""
        return (*dict.fromkeys(number for moment in self.moments for number in moment),)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that the statistic reads."""
        return (*dict.fromkeys([*(factor.column for factor in self.factors), *self.numbers]),)

    @property
    def skips(self) -> tuple[Column, ...]:
        """The columns without whose values it leaves out a row, by their names."""
        return tuple(sorted((each for each in self.columns if each.skip), key=lambda c: c.name))

    @property
    def rounds(self) -> int:
        """The number of sums that it needs, one after the other."""
        return 1

    def lines(self, number: int, totals: Sequence[Totals] = ()) -> tuple[Line, ...]:  # noqa: ARG002  (a search needs both)
        """Return the lines of a round, all with the same number of cells.

        Their number and sizes are the same for any rows.

        Args:
            number: The round, from 0.
            totals: The public totals of the rounds before, which may determine the cells.
        """
        return tuple(Line(self.factors, moment, self.skips) for moment in self.moments)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the published numbers, (lines, cells)."""
        return len(self.moments), cells_of(self.factors)

    def publish(self, totals: Sequence[Totals]) -> Totals:
        """Return the numbers from which the result follows, from the totals of all rounds."""
        return totals[0]

    @abstractmethod
    def estimate(self, shown: Totals) -> Result_co:
        """Return the result from the published numbers, which may contain noise."""


def ratio(part: Any, whole: Any) -> Any:  # noqa: ANN401  (a whole number, a fraction, or NaN)
    """Return an exact ratio; NaN if the denominator is not above 0, or if both are hidden."""
    return Fraction(part) / whole if whole > 0 else nan


def as_floats(totals: NDArray[np.object_]) -> Floats:
    """Return exact numbers as the nearest floats, of the same shape."""
    return totals.astype(np.float64)


def as_exact(totals: Ints, scale: int) -> list[Any]:
    """Return totals divided by the scale of their line: whole numbers, or fractions."""
    whole = totals.tolist()
    return whole if scale == 1 else [Fraction(value, scale) for value in whole]
