"""The public parameters of a classifier from verified sums: its statistic, reports and noise.

The statistics are those of a release, in one sum about the middle of the ranges: a client sends one
report, so no centre is released before. Each of the two aggregators adds all of the noise, because
the other one may be the adversary.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import Any, Final, Literal

from typing_extensions import override

from veilring.privacy.checks import require
from veilring.protocols.digests import digest_of
from veilring.protocols.prio.algorithm.reports import ReportForm
from veilring.protocols.release.algorithm.classifiers import MANY_COLUMNS, Predictor, count_columns
from veilring.protocols.release.algorithm.noise import Trust, rule_deviation
from veilring.protocols.release.algorithm.rule import Rule
from veilring.protocols.release.algorithm.statistic import ScaledStatistic, Statistic
from veilring.protocols.release.algorithm.steps import ReleaseParameters
from veilring.protocols.release.algorithm.tallies import Tally, fits_grid

PrioMethod = Literal["means", "lda", "counts", "grid", "trees"]
"""The statistics of `release` for classes. The last three count rows."""

AGGREGATORS: Final = Trust(parties=2, tolerated=1)
"""The leader and the helper, each of whom adds all of the noise."""
BITS_MIN: Final = 6
"""With fewer bits, a direction in many dimensions is rounded to 0."""
BITS_MAX: Final = 16
"""More bits are finer than the noise."""
REPORTS_MAX: Final = 1 << 20
"""All reports are verified in one session, and added up at once."""
CELLS_MAX: Final = 60_000
"""The most cells of a grid, for all classes together: a report of more does not fit a frame."""
# The rows of a class relative to the noise of one of its counts: from here on, bins of a number
# tell more than its mean. Of categories, means know the frequencies already, with less noise.
_COUNTED_MIN: Final = 7.0
_CATEGORIES_COUNTED_MIN: Final = 100.0


@dataclass(frozen=True, eq=False)
class PrioParameters(ReleaseParameters):
    """The public parameters of all clients and both aggregators.

    Attributes:
        bits: The bits of each number in a report, unless the statistic counts rows.
    """

    bits: int = 8

    def __post_init__(self) -> None:
        require(
            1 <= self.plan.rows <= REPORTS_MAX,
            "rows",
            self.plan.rows,
            f"a whole number from 1 to {REPORTS_MAX}",
        )
        super().__post_init__()

    @cached_property
    @override
    def digest(self) -> bytes:
        return digest_of(super().digest, self.bits.to_bytes(1))

    @override
    def main(self, frame: Any = None) -> Statistic[Predictor]:
        found = super().main(frame)
        if not isinstance(found, ScaledStatistic) or isinstance(found, Tally):
            return found
        return _in_bits(found, self.bits)

    @cached_property
    def statistic(self) -> Statistic[Predictor]:
        """The statistic of the only sum."""
        return self.main()

    @cached_property
    def form(self) -> ReportForm:
        """The form of a report."""
        return ReportForm(self.statistic, self.bits)


def bind_parameters(rule: Rule, method: Literal["auto"] | PrioMethod, bits: int) -> PrioParameters:
    """Return the parameters for the public numbers of a rule.

    Args:
        rule: The numbers; its trust is `AGGREGATORS`.
    """
    plan = rule.plan(choose(rule) if method == "auto" else method)
    if plan.method == "grid":
        cells = CELLS_MAX / len(rule.features.classes)
        plan = replace(plan, side=min(plan.side, int(cells ** (1 / len(rule.features)))))
    return PrioParameters(rule.features, replace(plan, reference="middle"), bits=bits)


def choose(rule: Rule) -> PrioMethod:
    """Return the statistic by public numbers alone, which costs no budget."""
    if fits_grid(rule.features):
        return "grid"
    columns, classes = count_columns(rule.features), len(rule.features.classes)
    counted = rule.rows / (classes * _count_deviation(rule, columns))
    few = 2 * len(rule.features.categories) < columns < MANY_COLUMNS
    return "counts" if counted >= (_COUNTED_MIN if few else _CATEGORIES_COUNTED_MIN) else "means"


def _count_deviation(rule: Rule, columns: int) -> float:
    """Return the standard deviation of the noise on a count of naive Bayes, in rows."""
    if rule.tally(columns).norm == "l1":
        return columns * sqrt(2 * AGGREGATORS.factor) / rule.epsilon
    return sqrt(columns) * rule_deviation(rule.epsilon, rule.delta, AGGREGATORS)


def _in_bits(statistic: ScaledStatistic[Predictor], bits: int) -> ScaledStatistic[Predictor]:
    """Return a statistic whose entries, with their signs, fit into the given number of bits."""
    most = (1 << bits - 1) - 1
    largest = float(statistic.largest)
    scale = int(most / (largest if statistic.norm == "l1" else sqrt(largest)))
    return replace(statistic, scale=max(1, min(scale, statistic.scale)))
