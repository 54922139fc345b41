"""The choice of the released statistic by public numbers alone, which costs no budget.

The rule uses the public number of rows, the schema, epsilon and delta, and the factor f by which
the parties' noise exceeds an owner's (see `Trust`). Its thresholds compare the sum of a class, a
feature or a leaf with the noise on it: if noise dominates, the statistic with fewer numbers is
chosen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import Any, Final, Literal, NamedTuple

from numpy.random import Generator

from veilring.data.table import Features
from veilring.errors import InputError
from veilring.privacy.checks import require_that
from veilring.privacy.divisible import POLYA_SCALE_MAX
from veilring.protocols.release.algorithm.classifiers import (
    DEPTH,
    TREES,
    Frame,
    Predictor,
    Trees,
    count_columns,
)
from veilring.protocols.release.algorithm.directions import (
    COUNT_WEIGHT,
    Centre,
    ClassMeans,
    Discriminant,
    Moments,
)
from veilring.protocols.release.algorithm.noise import (
    CENTRE_SHARE,
    ApproximateNoise,
    NoiseDistribution,
    Norm,
    Trust,
    rule_deviation,
    scale_for,
)
from veilring.protocols.release.algorithm.ridge import Ridge
from veilring.protocols.release.algorithm.statistic import (
    L1_SCALE,
    L2_SCALE,
    SCALE_MAX,
    Bound,
    ScaledStatistic,
    Statistic,
)
from veilring.protocols.release.algorithm.tallies import (
    ClassCounts,
    LabelledGrid,
    RandomTrees,
    Tally,
    fits_grid,
    grid_side,
)

Method = Literal["means", "lda", "counts", "grid", "trees", "ridge"]
"""Class means, linear discriminant, naive Bayes counts, labelled grid, random trees; and the second
moments of a ridge regression, if the label is a number."""
Reference = Literal["middle", "centre", "moments"]
"""The frame of directions: around the middle of the ranges, around the released centre, or around
the released centre in units of the released standard deviations."""

DISCRIMINANT_FEATURES_MAX: Final = 150
"""With more features, the second moment has more than 11,000 numbers, and the spectral norm of its
noise hides all but the largest eigenvalues."""
# The rows of a class relative to the noise of one number: below this, a covariance, whose noise is
# a quarter larger, does not pay off.
_CLASS_MIN: Final = 40.0
# The noise on a number of rows, relative to all rows, is a sixth at most: a class of three quarters
# of the rows is then found to be the largest. In a small table, its weight is larger.
_COUNTS_SEEN: Final = 6.0
# The weight of the numbers of rows in pure noise, where it adds to the bound itself.
_PURE_COUNT_WEIGHT: Final = Fraction(1, 10)
# Weights in these steps, and the most of the bound for the numbers of rows, or of its square.
_WEIGHT_STEPS: Final = 20
_COUNT_PART_MAX: Final = 0.9
# A pure release has at least half as many steps in the bound as its noise supports.
_STEP_PART: Final = 2.0
# n epsilon / (sqrt(2 f) C d) is the mean count of a class, relative to its noise and to the number
# of columns. Below this, naive Bayes answers worse than the largest class.
_BIN_MIN: Final = 10.0
# n / (sqrt(2) s d**1.5) compares a mean eigenvalue of the covariance, n / d, with the spectral norm
# of its noise, of about s sqrt(2 d). From 2 on, most eigenvalues exceed the noise, spreads are
# released with an error of a few per cent, and little needs to be added to them.
_EIGENVALUES_MIN: Final = 2.0
_KAPPA_SEEN: Final = 0.3
_KAPPA_BURIED: Final = 1.0
# n epsilon / (8 sqrt(2 f) 128 C) is the mean count of a leaf relative to its noise. From a half on,
# since rows concentrate in few leaves, trees capture dependencies that no product of columns does.
_LEAF_MIN: Final = 0.5
# n epsilon 0.15 / (sqrt(2 f) d) is half the range of a column relative to the noise of the released
# centre: below this, noise hides the centre, and the middle of the ranges is a better origin.
_CENTRE_MIN: Final = 1.15
# The minimum number of steps in 1 of a pure first release, whose scale has to shrink with epsilon:
# with fewer, truncation errors are as large as the differences between centres.
_CENTRE_STEPS: Final = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """The public plan of a release: the statistic and its noise.

    Attributes:
        method: The statistic; `"own"` for a custom one.
        delta: 0 for a pure guarantee.
        reference: The frame of directions; other than the middle, it needs a first release.
    """

    method: Method | Literal["own"]
    distribution: NoiseDistribution
    epsilon: float
    delta: float
    trust: Trust
    rows: int
    reference: Reference = "middle"
    kappa: float = 0.0
    side: int = 1
    count_weight: Fraction = COUNT_WEIGHT

    @property
    def norm(self) -> Norm:
        """The norm of the bound that the noise hides."""
        return "l1" if self.distribution == "laplace" else "l2"

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """The part of the budget for each sum, in order."""
        whole = Fraction(1)
        return (whole,) if self.reference == "middle" else (CENTRE_SHARE, whole - CENTRE_SHARE)


class _Shape(NamedTuple):
    """The parts of a `Plan` that follow from the choice of a statistic."""

    norm: Norm
    reference: Reference = "middle"
    kappa: float = 0.0
    side: int = 1
    count_weight: Fraction = COUNT_WEIGHT


@dataclass(frozen=True, slots=True)
class Rule:
    """The public numbers of a release, and the rule's choices for them.

    Attributes:
        rows: n, the public number of rows, at least 1.
        delta: The δ; 0 for a pure guarantee. Even above 0, a tally may be pure if that needs less
            noise.
        distribution: The distribution of noise that is not pure.
    """

    features: Features
    rows: int
    epsilon: float
    delta: float
    trust: Trust
    distribution: ApproximateNoise = "gaussian"

    def plan(self, statistic: Literal["auto", Method] | Statistic[Any] = "auto") -> Plan:
        """Return the plan of a release; that of a custom statistic is pure for an L1 bound."""
        method: Method | Literal["own"]
        if isinstance(statistic, Statistic):
            method, found = "own", _Shape(statistic.bound.norm)
            require_that(
                found.norm == "l1" or self.delta > 0,
                "delta",
                "the statistic has an L2 bound, which needs a delta above 0; or bound its L1 norm",
            )
        else:
            method = self._choose() if statistic == "auto" else statistic
            require_that(
                (method == "ridge") == (self.features.target is not None),
                "statistic",
                f"the statistic is {method}, but the label is {self.features.label_text}; ridge is"
                " for a number, and all others are for classes",
            )
            found = _STATISTICS[method].shape(self)
        pure = found.norm == "l1"
        return Plan(
            method,
            "laplace" if pure else self.distribution,
            self.epsilon,
            0.0 if pure else self.delta,
            self.trust,
            self.rows,
            *found[1:],
        )

    @property
    def _deviation(self) -> float:
        """The standard deviation s of Gaussian noise at an L2 bound of 1 and the whole budget."""
        return rule_deviation(self.epsilon, self.delta, self.trust)

    @property
    def _laplace(self) -> float:
        """The standard deviation of Laplace noise at an L1 bound of 1 and the whole budget."""
        return sqrt(2 * self.trust.factor) / self.epsilon

    def _choose(self) -> Method:
        if self.features.target is not None:
            return "ridge"
        classes, columns = len(self.features.classes), count_columns(self.features)
        if fits_grid(self.features):
            return "grid"
        if self.delta:
            many = len(self.features) > DISCRIMINANT_FEATURES_MAX
            few = self.rows / (classes * self._deviation) < _CLASS_MIN
            return "means" if many or few else "lda"
        counted = self.rows / (classes * columns * self._laplace)
        if 2 * len(self.features.categories) >= columns and counted >= _BIN_MIN:
            return "counts"
        # With more columns than trees, few are tested in each: most tests find nothing.
        leaf = self.rows / (2**DEPTH * classes * TREES * self._laplace)
        return "trees" if leaf >= _LEAF_MIN and columns <= TREES else "means"

    def grid(self) -> _Shape:
        """Use a grid that is as fine as the noise allows."""
        factor = float(self.trust.factor)
        side = grid_side(self.rows, len(self.features), self.epsilon, factor)
        return _Shape("l1", side=side)

    def means(self) -> _Shape:
        """Use a released centre, unless pure noise would hide it."""
        norm: Norm = "l2" if self.delta else "l1"
        centre = norm == "l2" or self._finds_centre()
        weight = self._count_weight(norm)
        return _Shape(norm, "centre" if centre else "middle", count_weight=weight)

    def ridge(self) -> _Shape:
        """Use released moments, with the target as a column."""
        require_that(
            self.delta > 0,
            "delta",
            "a ridge regression has only an L2 bound: choose a delta above 0",
        )
        return _Shape("l2", "moments")

    def discriminant(self) -> _Shape:
        """Use released moments if most eigenvalues exceed the noise, otherwise a centre."""
        require_that(
            self.delta > 0,
            "statistic",
            "a linear discriminant has only an L2 bound: choose a delta above 0, or another "
            "statistic",
        )
        columns = count_columns(self.features)
        eigenvalues = self.rows / (sqrt(2 * columns) * self._deviation * columns)
        weight = self._count_weight("l2")
        if eigenvalues >= _EIGENVALUES_MIN:
            return _Shape("l2", "moments", _KAPPA_SEEN, count_weight=weight)
        return _Shape("l2", "centre", _KAPPA_BURIED, count_weight=weight)

    def _count_weight(self, norm: Norm) -> Fraction:
        """Return the weight of the numbers of rows that lets the largest class be seen."""
        noise = self._laplace if norm == "l1" else self._deviation
        part = _COUNTS_SEEN * noise / self.rows
        if norm == "l1":  # at least one step, although these grow as epsilon shrinks
            part = max(part, _STEP_PART / (POLYA_SCALE_MAX * self.epsilon))
        part = min(part, _COUNT_PART_MAX)
        weight = part / (1 - part) if norm == "l1" else part / sqrt(1 - part**2)
        least = _PURE_COUNT_WEIGHT if norm == "l1" else COUNT_WEIGHT
        return max(least, Fraction(round(weight * _WEIGHT_STEPS), _WEIGHT_STEPS))

    def _finds_centre(self) -> bool:
        """Return whether a centre exceeds its Laplace noise, and can be released in integers."""
        columns, share = count_columns(self.features), float(CENTRE_SHARE)
        seen = self.rows * share / (self._laplace * columns) >= _CENTRE_MIN
        return seen and _CENTRE_STEPS * columns <= POLYA_SCALE_MAX * self.epsilon * share

    def tally(self, places: int) -> _Shape:
        """Use the norm with less noise if a row adds 1 at some places; L1 in a tie."""
        louder = self.delta > 0 and places * self._laplace > sqrt(places) * self._deviation
        return _Shape("l2" if louder else "l1")


class _Kind(NamedTuple):
    """The rule for the numbers of a statistic, and how to make it."""

    shape: Callable[[Rule], _Shape]
    made: Callable[[Plan, Features, Generator, Frame], ScaledStatistic[Predictor]]


_STATISTICS: Final[Mapping[Method, _Kind]] = {
    "means": _Kind(
        Rule.means,
        lambda plan, features, _, frame: ClassMeans(
            features, frame, count_weight=plan.count_weight
        ),
    ),
    "lda": _Kind(
        Rule.discriminant,
        lambda plan, features, _, frame: Discriminant(
            features, frame, plan.kappa, count_weight=plan.count_weight
        ),
    ),
    "counts": _Kind(
        lambda rule: rule.tally(count_columns(rule.features)),
        lambda _, features, *__: ClassCounts(features),
    ),
    "grid": _Kind(Rule.grid, lambda plan, features, *_: LabelledGrid(features, plan.side)),
    "trees": _Kind(
        lambda rule: rule.tally(TREES),
        lambda _, features, public, __: RandomTrees(features, Trees.draw(features, public)),
    ),
    "ridge": _Kind(Rule.ridge, lambda plan, features, _, frame: Ridge(features, frame, plan.rows)),
}
"""Each built-in statistic, by its name."""


def first_statistic(plan: Plan, features: Features) -> Statistic[Frame] | None:
    """Return the statistic of the first release, or None if there is only one release."""
    if plan.reference == "middle":
        return None
    kind = Centre if plan.reference == "centre" else Moments
    made = kind(features, plan.rows, norm=plan.norm, scale=SCALE_MAX)
    return replace(made, scale=_scale(plan, made.bound, plan.weights[0]))


def main_statistic(
    plan: Plan, features: Features, public: Generator, frame: Frame | None = None
) -> Statistic[Predictor]:
    """Return the statistic for the classifier; its bound does not depend on the frame."""
    about = Frame.middle(features) if frame is None else frame
    if plan.method == "own":
        raise InputError.because(
            "a plan cannot build a custom statistic; pass it to `ReleaseParameters`",
            field="statistic",
        )
    made = _STATISTICS[plan.method].made(plan, features, public, about)
    made = replace(made, norm=plan.norm, scale=SCALE_MAX)
    # Pure noise is exact at any scale, and tallies are already whole numbers.
    if plan.distribution == "laplace" and isinstance(made, Tally):
        return replace(made, scale=1)
    return replace(made, scale=_scale(plan, made.bound, plan.weights[-1]))


def _scale(plan: Plan, finest: Bound, weight: Fraction) -> int:
    """Return the scale of a statistic, given its bound at `SCALE_MAX`."""
    steps = SCALE_MAX if plan.norm == "l1" else SCALE_MAX**2
    return scale_for(
        plan.distribution,
        plan.epsilon,
        plan.delta,
        plan.trust,
        Fraction(finest.most + 1, steps),
        most=L1_SCALE if plan.norm == "l1" else L2_SCALE,
        weight=weight,
    )
