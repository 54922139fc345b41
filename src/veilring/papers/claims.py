"""What was measured for a figure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError


class CurveKey(NamedTuple):
    """One curve of a figure."""

    measure: str
    series: str


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """All curves of a figure on one data set.

    Attributes:
        data: The data set.
        x: Where they were measured, ascending, shape (points,).
        curves: What was measured in each split, shape (splits, points).
    """

    data: str
    x: tuple[float, ...]
    curves: Mapping[CurveKey, NDArray[np.float64]]

    @property
    def splits(self) -> int:
        """How many splits were measured."""
        return len(next(iter(self.curves.values())))

    def of(self, measure: str) -> dict[str, NDArray[np.float64]]:
        """Return the curves of one measure by their series."""
        return {key.series: curve for key, curve in self.curves.items() if key.measure == measure}


CONFIDENCE: Final = 0.95
_SPLITS_MIN: Final = 2

ClaimOutcome = Literal["holds", "does not hold", "is not settled", "is not tested"]


class Evidence(NamedTuple):
    """What speaks for a claim or against it.

    Attributes:
        labels: What each column is about.
        values: Shape (splits, columns).
    """

    labels: tuple[str, ...]
    values: NDArray[np.float64]


Take = Callable[[Measured], Evidence]
"""Takes what speaks for a claim, or against it, from what was measured."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a paper says of a figure, and how that is tested.

    Attributes:
        says: The paper's sentence, in short.
        quantity: What is taken from each split, in words.
        side: Where the mean must lie, at every point.
        bound: Of what.
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
        """Whether the claim is about a data set, by its name."""
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


class Interval(NamedTuple):
    """A mean over splits, and where it is with the stated confidence."""

    label: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a claim holds on a data set.

    Attributes:
        claim: The claim.
        data: The data set.
        splits: How many there were.
        intervals: One for each column of the evidence.
    """

    claim: Claim
    data: str
    splits: int
    intervals: tuple[Interval, ...]

    @property
    def outcome(self) -> ClaimOutcome:
        """Whether the claim holds."""
        if not self.claim.is_about(self.data):
            return "is not tested"
        margins = [self._margins(each) for each in self.intervals]
        if all(least > 0 for least, _ in margins):
            return "holds"
        return "does not hold" if any(most <= 0 for _, most in margins) else "is not settled"

    @property
    def weakest(self) -> Interval:
        """The interval whose mean speaks least for the claim."""
        return min(self.intervals, key=lambda each: self._sign * each.mean)

    @property
    def met(self) -> int:
        """How many intervals lie beyond the bound."""
        return sum(self._margins(each)[0] > 0 for each in self.intervals)

    @property
    def _sign(self) -> int:
        return 1 if self.claim.side == "above" else -1

    def _margins(self, each: Interval) -> tuple[float, float]:
        """Return by how much an interval is on the right side, at its worse and better end."""
        ends = [self._sign * (end - self.claim.bound) for end in (each.low, each.high)]
        return min(ends), max(ends)

    def __str__(self) -> str:
        claim, weakest = self.claim, self.weakest
        if self.outcome == "is not tested":
            about = " or ".join(claim.tables)
            return f"{self.data}: {self.outcome}: {claim.says}. It is about {about}: use --data."
        where = f" at {weakest.label}" if len(self.intervals) > 1 else ""
        least = "least" if claim.side == "above" else "most"
        extreme = f"{least} " if len(self.intervals) > 1 else ""
        counted = f", {self.met} of {len(self.intervals)} points" if len(self.intervals) > 1 else ""
        return (
            f"{self.data}: {self.outcome}: {claim.says}. Tested: {claim.quantity} {claim.side} "
            f"{claim.bound:g}{counted}; {extreme}{weakest.mean:.3f} "
            f"[{weakest.low:.3f}, {weakest.high:.3f}]{where}, {self.splits} splits."
        )


def judge_claim(claim: Claim, measured: Measured) -> Judgement:
    """Return whether a claim holds on a data set of which at least two splits were measured."""
    evidence = claim.take(measured)
    return Judgement(claim, measured.data, measured.splits, tuple(mean_intervals(evidence)))


def mean_intervals(evidence: Evidence, *, simultaneous: bool = True) -> list[Interval]:
    """Return the mean of each column with its Student interval.

    Args:
        evidence: Of at least two splits.
        simultaneous: Whether all intervals hold together with `CONFIDENCE`, or each by itself.

    Raises:
        InputError: If there is one split only.
    """
    from scipy import stats  # noqa: PLC0415  (0.8 s, and naming a figure needs none)

    splits, columns = evidence.values.shape
    if splits < _SPLITS_MIN:
        raise InputError("splits", splits, "at least 2, or there is no standard error")
    beyond = (1 - CONFIDENCE) / (2 * (columns if simultaneous else 1))
    means = evidence.values.mean(axis=0)
    reach = stats.t.isf(beyond, splits - 1) * evidence.values.std(axis=0, ddof=1) / splits**0.5
    columns_of = zip(evidence.labels, means, reach, strict=True)
    return [Interval(label, float(m), float(m - r), float(m + r)) for label, m, r in columns_of]
