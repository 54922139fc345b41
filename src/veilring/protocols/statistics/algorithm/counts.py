"""Statistics from counts in cells: histograms and cross tables."""

from dataclasses import dataclass
from math import nan

import numpy as np
from typing_extensions import override

from veilring.arrays import Floats
from veilring.privacy.checks import require_that
from veilring.protocols.statistics.algorithm.columns import Factor, Grouping
from veilring.protocols.statistics.algorithm.tallies import Statistic, Totals, as_floats


@dataclass(frozen=True)
class Histogram(Statistic[Floats]):
    """The number of rows in each interval or category, shape (cells,); NaN where hidden."""

    by: Grouping

    @property
    @override
    def factors(self) -> tuple[Factor, ...]:
        return (self.by,)

    @override
    def estimate(self, shown: Totals) -> Floats:
        return as_floats(shown[0])


@dataclass(frozen=True)
class CrossTableResult:
    """A cross table with the test of independence.

    Attributes:
        rows: The number of rows in each cell, shape (first, second); NaN where hidden.
        chi_squared: Pearson's χ², without a correction for continuity; NaN if a count is hidden.
        freedom: Its degrees of freedom: rows and columns without any row do not count.
        p_value: The probability of at least this χ² if the columns are independent.
    """

    rows: Floats
    chi_squared: float
    freedom: int
    p_value: float


@dataclass(frozen=True)
class CrossTable(Statistic[CrossTableResult]):
    """The number of rows in each pair of cells of two columns, with χ²."""

    first: Grouping
    second: Grouping

    def __post_init__(self) -> None:
        require_that(
            self.first.column.name != self.second.column.name,
            "second",
            "a cross table needs two different columns",
        )

    @property
    @override
    def factors(self) -> tuple[Factor, ...]:
        return self.first, self.second

    @override
    def estimate(self, shown: Totals) -> CrossTableResult:
        counts = as_floats(shown[0]).reshape(len(self.first), len(self.second))
        return CrossTableResult(counts, *_independence(np.maximum(counts, 0.0)))


def _independence(counts: Floats) -> tuple[float, int, float]:
    """Return χ², its degrees of freedom and its p-value."""
    from scipy.special import chdtrc

    if np.isnan(counts).any():
        return nan, 0, nan
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    freedom = max(0, counts.shape[0] - 1) * max(0, counts.shape[1] - 1)
    if freedom == 0:
        return 0.0, 0, 1.0
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    found = float(((counts - expected) ** 2 / expected).sum())
    return found, freedom, float(chdtrc(freedom, found))
