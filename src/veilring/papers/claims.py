"""Claims of a paper as statistical tests on the splits.

A claim is a quantity with one value (or several, such as one at each point of a curve) per split,
and a bound that its mean must exceed, or stay below, at every point. The means get two-sided
Student intervals that hold jointly with 95 % confidence (Bonferroni). A claim `holds` if all
intervals are beyond the bound, `does not hold` if one is wholly on the other side, and `is
inconclusive` otherwise. A claim about tables named by the paper `is not tested` on others.

Splits of one table share most of their rows. The intervals are therefore about the mean over the
splits of *this* table, as shown in the papers' figures, not about tables of the same kind.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.scenarios.intervals import Interval, mean_intervals

ClaimOutcome = Literal["holds", "does not hold", "is inconclusive", "is not tested"]


class CurveKey(NamedTuple):
    """One curve of a figure."""

    measure: str
    series: str


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """All curves of a figure on one data set.

    Attributes:
        data: The data set.
        x: The ascending points of measurement, shape (points,).
        curves: The measurements of each split, shape (splits, points).
    """

    data: str
    x: tuple[float, ...]
    curves: Mapping[CurveKey, NDArray[np.float64]]

    @property
    def splits(self) -> int:
        """The number of splits."""
        return len(next(iter(self.curves.values())))

    def of(self, measure: str) -> dict[str, NDArray[np.float64]]:
        """Return the curves of one measure by their series."""
        return {key.series: curve for key, curve in self.curves.items() if key.measure == measure}


class Evidence(NamedTuple):
    """The numbers that a claim is tested on.

    Attributes:
        labels: The different labels of the columns.
        values: Shape (splits, columns).
    """

    labels: tuple[str, ...]
    values: NDArray[np.float64]


Take = Callable[[Measured], Evidence]
"""Extracts the evidence for or against a claim from measurements: see `evidence`."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A paper's statement about a figure, and how it is tested.

    Attributes:
        says: The paper's sentence, in short.
        quantity: A description of the quantity.
        side: The required side of the mean, at every point.
        bound: The bound.
        take: Takes it.
        tables: The tables that the claim is about, as they may be called; any table if empty.
    """

    says: str
    quantity: str
    side: Literal["above", "below"]
    bound: float
    take: Take
    tables: tuple[str, ...] = ()

    def is_about(self, data: str) -> bool:
        """Return whether the claim is about a data set, by its name."""
        name = data.removeprefix("openml:").partition(".")[0].casefold()
        return not self.tables or name in {table.casefold() for table in self.tables}


def above(
    says: str, quantity: str, bound: float, take: Take, tables: tuple[str, ...] = ()
) -> Claim:
    """Return the claim that a quantity is above a bound, on the given tables or on any."""
    return Claim(says, quantity, "above", bound, take, tables)


def below(says: str, quantity: str, bound: float, take: Take) -> Claim:
    """Return the claim that a quantity is below a bound."""
    return Claim(says, quantity, "below", bound, take)


def about(says: str, quantity: str, ends: tuple[float, float], take: Take) -> tuple[Claim, Claim]:
    """Return the two claims that a quantity lies between two bounds."""
    return above(says, quantity, ends[0], take), below(says, quantity, ends[1], take)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of testing a claim on a data set.

    Attributes:
        claim: The claim.
        data: The data set.
        splits: The number of splits.
        intervals: One for each column of the evidence, by its label.
    """

    claim: Claim
    data: str
    splits: int
    intervals: Mapping[str, Interval]

    @property
    def outcome(self) -> ClaimOutcome:
        """Whether the claim holds."""
        if not self.claim.is_about(self.data):
            return "is not tested"
        margins = [self._margins(each) for each in self.intervals.values()]
        if all(least > 0 for least, _ in margins):
            return "holds"
        return "does not hold" if any(most <= 0 for _, most in margins) else "is inconclusive"

    @property
    def weakest(self) -> str:
        """The label of the column whose mean supports the claim least."""
        return min(self.intervals, key=lambda label: self._sign * self.intervals[label].mean)

    @property
    def met(self) -> int:
        """The number of intervals beyond the bound."""
        return sum(self._margins(each)[0] > 0 for each in self.intervals.values())

    @property
    def _sign(self) -> int:
        return 1 if self.claim.side == "above" else -1

    def _margins(self, each: Interval) -> tuple[float, float]:
        """Return by how much an interval is on the right side, at its worse and better end."""
        ends = [self._sign * (end - self.claim.bound) for end in (each.low, each.high)]
        return min(ends), max(ends)

    def __str__(self) -> str:
        claim, (mean, low, high) = self.claim, self.intervals[self.weakest]
        if self.outcome == "is not tested":
            tables = " or ".join(claim.tables)
            return f"{self.data}: {self.outcome}: {claim.says}. It is about {tables}: use --data."
        counted = extreme = where = ""
        if len(self.intervals) > 1:
            counted = f", {self.met} of {len(self.intervals)} points"
            extreme = "least " if claim.side == "above" else "most "
            where = f" at {self.weakest}"
        return (
            f"{self.data}: {self.outcome}: {claim.says}. Tested: {claim.quantity} {claim.side} "
            f"{claim.bound:g}{counted}; {extreme}{mean:.3f} [{low:.3f}, {high:.3f}]{where}, "
            f"{self.splits} splits."
        )


def judge_claim(claim: Claim, measured: Measured) -> Judgement:
    """Return the judgement of a claim on a data set with at least two measured splits."""
    labels, values = claim.take(measured)
    intervals = dict(zip(labels, mean_intervals(values), strict=True))
    return Judgement(claim, measured.data, measured.splits, intervals)
