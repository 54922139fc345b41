"""The choice of the released statistic by public numbers alone, which costs no budget.

The rule uses the declared number of rows, the schema, epsilon and delta, and the factor f by which
the parties' noise exceeds an owner's (see `Trust`). Its thresholds compare the sum of a class, a
feature or a leaf with the noise on it: if noise dominates, the statistic with fewer numbers is
chosen.

Tallies are the numbers of rows of each class with a value, in a cell or in a leaf. Counts are whole
numbers. A row adds 1 at a fixed number of positions, so the same sum has an L1
bound, for pure epsilon, and a smaller L2 bound. A scale above 1 multiplies the counts: noise of a
small deviation may need it to stay exact if several parties draw shares.

Trees are drawn independently of the rows, so only the counts in their leaves cost privacy.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.random import Generator
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Features
from veilring.errors import InputError
from veilring.privacy.checks import require, require_delta, require_positive, require_that
from veilring.privacy.divisible import POLYA_SCALE_MAX
from veilring.protocols.release.algorithm.classifiers import (
    Classifier,
    CountsClassifier,
    GridClassifier,
    TreesClassifier,
    decode_counts,
    decode_grid,
    decode_trees,
)
from veilring.protocols.release.algorithm.columns import (
    DEPTH,
    TREES,
    Bins,
    Frame,
    Trees,
    cell_of,
    count_columns,
)
from veilring.protocols.release.algorithm.directions import (
    L1_SCALE,
    L2_SCALE,
    Centre,
    ClassMeans,
    Discriminant,
    Moments,
    require_labels,
)
from veilring.protocols.release.algorithm.noise import (
    CENTRE_SHARE,
    NoiseDistribution,
    Norm,
    Trust,
    rule_deviation,
    scale_for,
)
from veilring.protocols.release.algorithm.statistic import (
    SCALE_MAX,
    Bound,
    Entries,
    Statistic,
    require_released,
    require_scale,
)

GRID_COLUMNS_MAX: Final = 4
"""With more columns, even 3 cells per side give more cells than most tables have rows."""
SIDE_MIN: Final = 3
"""With fewer cells per side, a class in the middle is split."""
SIDE_MAX: Final = 32
"""With four columns this gives a million cells; a sum of more would be too large to send."""


@dataclass(frozen=True, slots=True)
class ClassCounts(Statistic[CountsClassifier]):
    """The number of rows of each class in each bin of each column, for naive Bayes.

    Attributes:
        norm: The norm of the bound: d (`"l1"`) or its root (`"l2"`), for d columns.
    """

    features: Features
    norm: Norm = "l1"
    scale: int = 1

    def __post_init__(self) -> None:
        require_scale(self.scale)

    @property
    @override
    def length(self) -> int:
        return len(self.features.classes) * sum(Bins.of(self.features).sizes)

    @property
    @override
    def bound(self) -> Bound:
        return Bound.scaled(self.norm, self.scale, len(Bins.of(self.features).sizes))

    @property
    @override
    def support(self) -> int:
        return len(Bins.of(self.features).sizes)

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        require_labels(labels, self.features)
        bins = Bins.of(self.features)
        placed = bins.place(rows)
        starts = np.cumsum((0, *bins.sizes))
        positions = labels[:, None] * starts[-1] + starts[:-1] + np.maximum(placed, 0)
        return Entries(positions, np.where(placed >= 0, self.scale, 0))

    @override
    def decode(self, noisy: Ints, deviation: float) -> CountsClassifier:
        require_released(noisy, deviation, self.length)
        counts = noisy.reshape(len(self.features.classes), -1) / self.scale
        bins = Bins.of(self.features)
        return decode_counts(counts, bins, self.features.classes, deviation / self.scale)


@dataclass(frozen=True, slots=True)
class LabelledGrid(Statistic[GridClassifier]):
    """The number of rows of each class in each cell of a grid over numeric columns.

    Attributes:
        side: The number of cells per side, from 1 to `SIDE_MAX`.
        norm: The norm of the bound, which is 1 in either norm.
    """

    features: Features
    side: int
    norm: Norm = "l1"
    scale: int = 1

    def __post_init__(self) -> None:
        require_scale(self.scale)
        require_that(
            fits_grid(self.features),
            "features",
            f"a labelled grid needs up to {GRID_COLUMNS_MAX} columns, all of them numbers",
        )
        require(
            1 <= self.side <= SIDE_MAX, "side", self.side, f"a whole number from 1 to {SIDE_MAX}"
        )

    @property
    def cells(self) -> int:
        """The number of cells."""
        return int(self.side ** len(self.features))

    @property
    @override
    def length(self) -> int:
        return self.cells * len(self.features.classes)

    @property
    @override
    def bound(self) -> Bound:
        return Bound.scaled(self.norm, self.scale, 1)

    @property
    @override
    def support(self) -> int:
        return 1

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        require_labels(labels, self.features)
        place = cell_of(rows, self.side)
        cells = np.ravel_multi_index(tuple(place.T), (self.side,) * place.shape[1])
        positions = labels * self.cells + cells
        return Entries(positions[:, None], np.full((len(rows), 1), self.scale))

    @override
    def decode(self, noisy: Ints, deviation: float) -> GridClassifier:
        require_released(noisy, deviation, self.length)
        classes = self.features.classes
        shape = (len(classes), *(self.side,) * len(self.features))
        return decode_grid((noisy / self.scale).reshape(shape), classes, deviation / self.scale)


def fits_grid(features: Features) -> bool:
    """Return whether all columns are numbers, at least one and few enough for a grid."""
    return not features.categories and 1 <= len(features) <= GRID_COLUMNS_MAX


def grid_side(rows: int, columns: int, epsilon: float, factor: float = 1.0) -> int:
    """Return the number of cells per side, as Su et al. (2016) with a smaller constant.

    It is `clip((rows epsilon / (3 sqrt(f))) ** (2 / (2 + d)), 3, 32)`, rounded.

    Args:
        rows: The declared number of rows, at least 1.
        columns: d, at least 1.
        epsilon: The epsilon of the grid, above 0.
        factor: f, the variance of all noise relative to that required by epsilon, at least 1.
    """
    side = (rows * epsilon / (3 * factor**0.5)) ** (2 / (2 + columns))
    return int(np.clip(round(side), SIDE_MIN, SIDE_MAX))


@dataclass(frozen=True, slots=True)
class RandomTrees(Statistic[TreesClassifier]):
    """The number of rows of each class that reach each leaf of several public trees.

    Attributes:
        norm: The norm of the bound: the number of trees (`"l1"`), or its root (`"l2"`).
    """

    features: Features
    trees: Trees
    norm: Norm = "l1"
    scale: int = 1

    def __post_init__(self) -> None:
        require_scale(self.scale)

    @property
    @override
    def length(self) -> int:
        return self.support * self.trees.leaves * len(self.features.classes)

    @property
    @override
    def bound(self) -> Bound:
        return Bound.scaled(self.norm, self.scale, self.support)

    @property
    @override
    def support(self) -> int:
        return len(self.trees.tested)

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        require_labels(labels, self.features)
        starts = np.arange(self.support) * self.trees.leaves
        leaves = starts + self.trees.place(rows)
        positions = leaves * len(self.features.classes) + labels[:, None]
        return Entries(positions, np.full(positions.shape, self.scale))

    @override
    def decode(self, noisy: Ints, deviation: float) -> TreesClassifier:
        require_released(noisy, deviation, self.length)
        counts = noisy.reshape(self.support, self.trees.leaves, -1) / self.scale
        classes = self.features.classes
        return decode_trees(counts, self.trees, len(self.features), classes, deviation / self.scale)


Method = Literal["means", "lda", "counts", "grid", "trees"]
"""Class means, linear discriminant, naive Bayes counts, labelled grid, random trees."""
Reference = Literal["middle", "centre", "moments"]
"""The frame of directions: around the middle of the ranges, around the released centre, or around
the released centre in units of the released standard deviations."""

DISCRIMINANT_FEATURES_MAX: Final = 150
"""With more features, the second moment has more than 11,000 numbers, and the spectral norm of its
noise hides all but the largest eigenvalues."""
# The rows of a class relative to the noise of one number: below this, class means have errors of
# their own size, and a discriminant, whose noise is a quarter larger, does not pay off.
_CLASS_MIN: Final = 20.0
# n / (sqrt(2) s d**1.5) compares a mean eigenvalue of the covariance, n / d, with the spectral norm
# of its noise, of about s sqrt(2 d). From 2 on, most eigenvalues exceed the noise, spreads are
# released with an error of a few per cent, and little needs to be added to them.
_EIGENVALUES_MIN: Final = 2.0
_KAPPA_SEEN: Final = 0.3
_KAPPA_BURIED: Final = 1.0
# n epsilon / (8 sqrt(2 f) 128 C) is the mean count of a leaf relative to its noise. From a half on,
# since rows concentrate in few leaves, trees capture dependencies that no product of columns does.
_LEAF_MIN: Final = 0.5
# The number of tests of a row in all trees, relative to the number of columns. With fewer, most
# columns are never used.
_TESTS_MIN: Final = 2.0
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

    @property
    def norm(self) -> Norm:
        """The norm of the bound that the noise hides."""
        return "l1" if self.distribution == "laplace" else "l2"

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """The part of the budget for each sum, in order."""
        whole = Fraction(1)
        return (whole,) if self.reference == "middle" else (CENTRE_SHARE, whole - CENTRE_SHARE)


def plan_release(
    features: Features,
    *,
    rows: int,
    epsilon: float,
    delta: float,
    trust: Trust,
    statistic: Method | Literal["auto"] = "auto",
    distribution: Literal["gaussian", "skellam"] = "gaussian",
) -> Plan:
    """Return the plan of a release, as a pure function of public values.

    Args:
        rows: n, the declared number of rows, at least 1.
        epsilon: The budget, above 0.
        delta: The δ, in [0, 1); 0 for a pure guarantee. Even above 0, a tally may be pure if that
            needs less noise.
        distribution: The distribution of noise that is not pure.
    """
    require_positive("epsilon", epsilon)
    require_delta(delta, zero=True)
    require(rows >= 1, "rows", rows, "a whole number of at least 1")
    methods = get_args(Method)
    require(statistic in ("auto", *methods), "statistic", statistic, f"auto, {', '.join(methods)}")
    rule = _Rule(features, rows, epsilon, delta, trust)
    chosen = rule.choose() if statistic == "auto" else statistic
    found = rule.shape(chosen)
    pure = found.norm == "l1"
    return Plan(
        chosen,
        "laplace" if pure else distribution,
        epsilon,
        0.0 if pure else delta,
        trust,
        rows,
        found.reference,
        found.kappa,
        found.side,
    )


def plan_own(
    statistic: Statistic[Any],
    *,
    rows: int,
    epsilon: float,
    delta: float,
    trust: Trust,
    distribution: Literal["gaussian", "skellam"] = "gaussian",
) -> Plan:
    """Return the plan of a custom statistic; it is pure if the statistic has an L1 bound.

    Args:
        distribution: The distribution of noise that is not pure.
    """
    require_positive("epsilon", epsilon)
    require_delta(delta, zero=True)
    require(rows >= 1, "rows", rows, "a whole number of at least 1")
    pure = statistic.bound.norm == "l1"
    require_that(
        pure or delta > 0,
        "delta",
        "the statistic has an L2 bound, which needs a delta above 0; or bound its L1 norm",
    )
    return Plan(
        "own", "laplace" if pure else distribution, epsilon, 0.0 if pure else delta, trust, rows
    )


class _Shape(NamedTuple):
    """The parts of a `Plan` that follow from the choice of a statistic."""

    norm: Norm
    reference: Reference = "middle"
    kappa: float = 0.0
    side: int = 1


@dataclass(frozen=True, slots=True)
class _Rule:
    """The public numbers of a release, and the rule's choices for them."""

    features: Features
    rows: int
    epsilon: float
    delta: float
    trust: Trust

    @property
    def deviation(self) -> float:
        """The standard deviation s of Gaussian noise at an L2 bound of 1 and the whole budget."""
        return rule_deviation(self.epsilon, self.delta, self.trust)

    @property
    def laplace(self) -> float:
        """The standard deviation of Laplace noise at an L1 bound of 1 and the whole budget."""
        return sqrt(2 * self.trust.factor) / self.epsilon

    def choose(self) -> Method:
        classes, columns = len(self.features.classes), count_columns(self.features)
        if fits_grid(self.features):
            return "grid"
        if self.delta:
            many = len(self.features) > DISCRIMINANT_FEATURES_MAX
            few = self.rows / (classes * self.deviation) < _CLASS_MIN
            return "means" if many or few else "lda"
        leaf = self.rows / (2**DEPTH * classes * TREES * self.laplace)
        if leaf >= _LEAF_MIN and _TESTS_MIN * columns <= TREES * DEPTH:
            return "trees"
        return "counts" if 2 * len(self.features.categories) >= columns else "means"

    def shape(self, method: Method) -> _Shape:
        match method:
            case "lda":
                return self._discriminant()
            case "means":
                if self.delta:
                    return _Shape("l2", "centre")
                return _Shape("l1", "centre" if self._finds_centre() else "middle")
            case "grid":
                factor = float(self.trust.factor)
                return _Shape(
                    "l1", side=grid_side(self.rows, len(self.features), self.epsilon, factor)
                )
            case "counts":
                return _Shape(self._quieter(count_columns(self.features)))
            case "trees":
                return _Shape(self._quieter(TREES))

    def _discriminant(self) -> _Shape:
        require_that(
            self.delta > 0,
            "statistic",
            "a linear discriminant has only an L2 bound: choose a delta above 0, or another "
            "statistic",
        )
        columns = count_columns(self.features)
        eigenvalues = self.rows / (sqrt(2 * columns) * self.deviation * columns)
        if eigenvalues >= _EIGENVALUES_MIN:
            return _Shape("l2", "moments", _KAPPA_SEEN)
        return _Shape("l2", "centre", _KAPPA_BURIED)

    def _finds_centre(self) -> bool:
        """Return whether a centre exceeds its Laplace noise, and can be released in integers."""
        columns, share = count_columns(self.features), float(CENTRE_SHARE)
        seen = self.rows * share / (self.laplace * columns) >= _CENTRE_MIN
        return seen and _CENTRE_STEPS * columns <= POLYA_SCALE_MAX * self.epsilon * share

    def _quieter(self, places: int) -> Norm:
        """Return the norm with less noise if a row adds 1 at some places; L1 in a tie."""
        louder = self.delta > 0 and places * self.laplace > sqrt(places) * self.deviation
        return "l2" if louder else "l1"


def first_statistic(plan: Plan, features: Features) -> Statistic[Frame] | None:
    """Return the statistic of the first release, or None if there is only one release."""
    if plan.reference == "middle":
        return None
    kind = Centre if plan.reference == "centre" else Moments
    made = kind(features, plan.rows, plan.norm, SCALE_MAX)
    return replace(made, scale=_scale(plan, made.bound, plan.weights[0]))


def main_statistic(
    plan: Plan, features: Features, public: Generator, frame: Frame | None = None
) -> Statistic[Classifier]:
    """Return the statistic for the classifier; its bound does not depend on the frame.

    Args:
        frame: The frame decoded from the first release; by default the middle of the ranges.
    """
    about = Frame.middle(features) if frame is None else frame
    made = _made(plan, features, public, about)
    # Pure noise is exact at any scale, and tallies are already whole numbers.
    if plan.distribution == "laplace" and plan.method != "means":
        return replace(made, scale=1)
    return replace(made, scale=_scale(plan, made.bound, plan.weights[-1]))


def _made(
    plan: Plan, features: Features, public: Generator, frame: Frame
) -> ClassMeans | Discriminant | ClassCounts | LabelledGrid | RandomTrees:
    """Return the statistic at the finest scale."""
    match plan.method:
        case "means":
            return ClassMeans(features, frame, plan.norm, SCALE_MAX)
        case "lda":
            return Discriminant(features, frame, plan.kappa, SCALE_MAX)
        case "counts":
            return ClassCounts(features, plan.norm, SCALE_MAX)
        case "grid":
            return LabelledGrid(features, plan.side, plan.norm, SCALE_MAX)
        case "trees":
            return RandomTrees(features, Trees.draw(features, public), plan.norm, SCALE_MAX)
        case "own":
            raise InputError.because(
                "a plan cannot build a custom statistic; pass it to `ReleaseParameters`",
                field="statistic",
            )


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
