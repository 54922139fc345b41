"""Claims of a paper as statistical tests on the splits.

A claim consists of a quantity and a bound. The quantity gives a number, or one at each point of a
curve, for each split; the bound is a limit above or below for the mean, at every point. The means
get two-sided Student intervals with 95 % joint confidence (Bonferroni). A claim
`holds` if all intervals lie beyond the bound, `does not hold` if one lies wholly on the other side,
and `is inconclusive` otherwise. A claim about tables that the paper names `is not tested` on other
tables.

Splits of one table share most of their rows. The intervals therefore describe the mean over splits
of *this* table, as the papers' figures do, and not tables of the same kind.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.measures import CONFIDENCE
from veilring.scenarios.comparison.tuning import Interval

_SPLITS_MIN: Final = 2

ClaimOutcome = Literal["holds", "does not hold", "is inconclusive", "is not tested"]


def mean_intervals(values: Floats, *, simultaneous: bool = True) -> list[Interval]:
    """Return the mean of each column with its Student interval.

    Args:
        values: The values, shape (splits, columns), of at least two splits.
    """
    from scipy.special import stdtrit

    splits, columns = values.shape
    if splits < _SPLITS_MIN:
        raise InputError("splits", splits, f"at least {_SPLITS_MIN}; fewer have no standard error")
    beyond = (1 - CONFIDENCE) / (2 * (columns if simultaneous else 1))
    means = values.mean(axis=0)
    reach = -stdtrit(splits - 1, beyond) * values.std(axis=0, ddof=1) / splits**0.5
    return [Interval(m, m - r, m + r) for m, r in zip(means.tolist(), reach.tolist(), strict=True)]


class CurveKey(NamedTuple):
    """One curve of a figure."""

    measure: str
    series: str


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """All curves of a figure on one data set.

    Attributes:
        data: The data set.
        x: The points of the axis, ascending, shape (points,).
        curves: The measured values of each curve, shape (splits, points).
    """

    data: str
    x: tuple[float, ...]
    curves: Mapping[CurveKey, Floats]

    @property
    def splits(self) -> int:
        """The number of splits."""
        return len(next(iter(self.curves.values())))

    def of(self, measure: str) -> dict[str, Floats]:
        """Return the curves of one measure by their series."""
        return {key.series: curve for key, curve in self.curves.items() if key.measure == measure}


class Evidence(NamedTuple):
    """The numbers that a claim is tested on.

    Attributes:
        labels: The unique label of each column.
        values: The numbers, shape (splits, columns).
    """

    labels: tuple[str, ...]
    values: Floats


Take = Callable[[Measured], Evidence]
"""A function that extracts the evidence for or against a claim from measured curves: see
`evidence`."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A paper's statement about a figure, and its test.

    Attributes:
        says: The paper's sentence, abridged.
        quantity: The quantity of each split, in words.
        side: The side of the bound on which the mean must be, at every point.
        bound: The bound.
        take: The function that extracts the quantity.
        tables: The possible names of the tables that the claim is about; any table if empty.
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
    """Return the two claims that a quantity is between two bounds."""
    return above(says, quantity, ends[0], take), below(says, quantity, ends[1], take)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The test of a claim on a data set.

    Attributes:
        claim: The claim.
        data: The data set.
        splits: The number of splits.
        intervals: The interval of each column of the evidence, by its label.
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
        """The number of intervals on the right side of the bound."""
        return sum(self._margins(each)[0] > 0 for each in self.intervals.values())

    @property
    def _sign(self) -> int:
        return 1 if self.claim.side == "above" else -1

    def _margins(self, each: Interval) -> tuple[float, float]:
        """Return the margins of an interval's worse and better end, positive on the right side."""
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
    """Test a claim on a data set with at least two measured splits."""
    labels, values = claim.take(measured)
    intervals = dict(zip(labels, mean_intervals(values), strict=True))
    return Judgement(claim, measured.data, measured.splits, intervals)
