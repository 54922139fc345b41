"""Naive Bayes classifiers learned from a tally.

Source: Yilmaz, Al-Rubaie and Chang, 2019, Section 3.1 (discrete features, from estimated counts)
and Section 3.2 (Gaussian features, from estimated moments).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import pi
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.errors import InputError
from veilring.privacy.checks import require, require_that
from veilring.protocols.ldp.algorithm.randomiser import (
    CONSISTENCIES,
    INTERVAL_CONFIDENCE,
    Consistency,
    LocalRandomiser,
    Sums,
    SurveyEstimate,
    given_ends,
    make_consistent,
)
from veilring.protocols.ldp.algorithm.steps import Step, apply_steps, require_columns
from veilring.protocols.ldp.algorithm.survey import (
    DiscreteBayesSurvey,
    GaussianBayesSurvey,
    Survey,
    Tally,
)

# Below every relevant probability, so that a count of 0 is very unlikely but not impossible.
_TINY: Final = 1e-300
# Without noise, questions have the weights of their clients.
_LEAST_SPREAD: Final = 1e-12


class Posterior(ABC):
    """A classifier that computes the joint probability of a row and each class."""

    __slots__ = ()

    @abstractmethod
    def joint(self, rows: NDArray[Any]) -> Floats:
        """Return the log joint probability of each class and row, up to a constant."""

    def log_probabilities(self, rows: NDArray[Any]) -> Floats:
        """Return the log probabilities of the classes given each row, shape (rows, classes)."""
        joint = self.joint(rows)
        highest = joint.max(axis=1, keepdims=True)
        total = np.log(np.exp(joint - highest).sum(axis=1, keepdims=True))
        return np.asarray(joint - highest - total)

    def classify(self, rows: NDArray[Any]) -> Ints:
        """Return the most likely class of each row; ties go to the first class."""
        return np.asarray(self.joint(rows).argmax(axis=1), dtype=np.int64)


def log_shares(counts: Floats) -> Floats:
    """Return the log fractions of counts along the first axis; equal if all counts are 0."""
    totals = counts.sum(axis=0)
    is_known = totals > 0
    shares = np.where(is_known, counts / np.where(is_known, totals, 1.0), 1 / len(counts))
    return np.asarray(np.log(np.maximum(shares, _TINY)))


def evidence(
    survey: Survey, tally: Tally, *, confidence: float = INTERVAL_CONFIDENCE
) -> tuple[SurveyEstimate, ...]:
    """Return the estimate of each question.

    A question without answers has zeros, infinite variances and unbounded intervals.
    """
    if len(tally.sums) != len(survey.questions):
        raise InputError.because(
            f"the tally has {len(tally.sums)} questions; the survey has {len(survey.questions)}",
            field="tally",
        )
    triples = zip(survey.questions, tally.sums, tally.counts, strict=True)
    return tuple(_estimate(*each, confidence) for each in triples)


def _estimate(
    question: LocalRandomiser, sums: Sums, count: int, confidence: float
) -> SurveyEstimate:
    if count:
        return question.estimate(sums, count, confidence=confidence)
    nothing, everything = np.zeros(question.entries), np.full(question.entries, np.inf)
    return SurveyEstimate(nothing, everything, 0, partial(given_ends, -everything, everything))


def counts_of(estimate: SurveyEstimate, values: int, how: Consistency) -> Floats:
    """Return the estimated number of clients with each of the first values, never negative.

    An oracle has at least two entries, even for a single value.
    """
    require(how in CONSISTENCIES, "consistency", how, ", ".join(CONSISTENCIES))
    if not estimate.clients:
        return np.zeros(values)
    return np.asarray(make_consistent(estimate, how)[:values] * estimate.clients)


# The substitute for a count of 0, as in scikit-learn: a value without clients of a class excludes
# that class if other classes have the value, and otherwise decides nothing.
SMOOTHING_MIN: Final = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class DiscreteBayes(Posterior):
    """A classifier of rows whose values are numbered from 0.

    Attributes:
        class_counts: The counts after consistency, shape (classes,).
        feature_counts: For each feature, the counts after consistency, shape (values, classes).
        evidence: The raw estimates with their intervals: of the class, then of each feature with
            class (fractions of the clients asked for it, values outermost).
    """

    class_counts: Floats
    feature_counts: tuple[Floats, ...]
    smoothing: float
    evidence: tuple[SurveyEstimate, ...]

    @property
    def log_priors(self) -> Floats:
        """The logarithm of `P(C_j) = E_j / sum(E)`."""
        return log_shares(self.class_counts)

    @property
    def log_conditionals(self) -> tuple[Floats, ...]:
        """The logarithms of `P(F_i = x | C_j) = E_xj / sum_h(E_hj)`, each (values, classes)."""
        return tuple(log_shares(counts + self.smoothing) for counts in self.feature_counts)

    def joint(self, rows: Ints) -> Floats:
        """Return `log(P(C_j) prod_i P(F_i = x_i | C_j))`, shape (rows, classes)."""
        sizes = [len(counts) for counts in self.feature_counts]
        require_columns(rows, len(sizes))
        allowed = "number the values first, with the step of the model"
        require_that(rows.dtype.kind in "iu", "rows", f"rows has the type {rows.dtype}; {allowed}")
        if not np.all((rows >= 0) & (rows < np.array(sizes))):
            raise InputError.because(
                "rows must hold the numbers of each feature's values, from 0", field="rows"
            )
        terms = zip(self.log_conditionals, rows.T, strict=True)
        return np.asarray(sum(logs[values] for logs, values in terms) + self.log_priors)


def learn_discrete(
    survey: DiscreteBayesSurvey,
    tally: Tally,
    *,
    consistency: Consistency = "paper",
    smoothing: float | None = None,
    confidence: float = INTERVAL_CONFIDENCE,
) -> DiscreteBayes:
    """Return the model learned from a tally.

    Args:
        smoothing: The number added to each count of a value; at least `SMOOTHING_MIN`, which is
            negligible. The default is 0 with the paper's consistency, which already turns negative
            counts into 1. Otherwise it is one standard deviation of the noise of such a count, so
            that noise decides little; without noise it is 1 (Laplace), because one count of 0 would
            exclude a class.
    """
    found = evidence(survey, tally, confidence=confidence)
    if smoothing is None:
        smoothing = SMOOTHING_MIN if consistency == "paper" else _noise_of_counts(found[1:])
    require(smoothing >= SMOOTHING_MIN, "smoothing", smoothing, f"at least {SMOOTHING_MIN}")
    classes = survey.classes
    sizes = [classes * values for values in survey.domains]
    counts = [counts_of(*pair, consistency) for pair in zip(found[1:], sizes, strict=True)]
    features = tuple(each.reshape(-1, classes) for each in counts)
    asked = found[0] if consistency == "paper" else _classes_of_all(found, classes, survey.domains)
    return DiscreteBayes(counts_of(asked, classes, consistency), features, smoothing, found)


def _classes_of_all(
    found: Sequence[SurveyEstimate], classes: int, domains: Sequence[int]
) -> SurveyEstimate:
    """Return the shares of the classes from all questions, each of which asks for the class too.

    They are weighted by the inverse of their variances; those of a value's cells are added.
    """
    total, weights, clients = np.zeros(classes), 0.0, 0
    for each, values in zip(found, (1, *domains), strict=True):
        if each.clients:
            spread = values * float(np.mean(each.variance)) * each.clients
            weight = each.clients / max(spread, _LEAST_SPREAD)
            cells = each.values[: classes * values].reshape(values, classes)
            total, weights = total + weight * cells.sum(axis=0), weights + weight
            clients += each.clients
    if not clients:
        return found[0]
    variance = np.full(classes, 1 / weights)
    return SurveyEstimate(total / weights, variance, clients, found[0].intervals)


def _noise_of_counts(found: Sequence[SurveyEstimate]) -> float:
    """Return the standard deviation of a count, over all estimated counts; at least 1."""
    squares = [np.mean(each.variance) * each.clients**2 for each in found if each.clients]
    return max(1.0, float(np.sqrt(np.mean(squares)))) if squares else 1.0


# For features in [-1, 1]. A difference of two noisy numbers is often below 0, which must not decide
# the class. A tenth of half the range is narrow for a feature, and wide enough for noise.
VARIANCE_FLOOR: Final = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class GaussianBayes(Posterior):
    """A classifier of rows of features in [-1, 1]; values outside are clipped, as by clients.

    Attributes:
        class_counts: The counts after consistency, shape (classes,).
        means: The mean of each feature within each class, in [-1, 1], shape (features, classes).
        variances: The variances, in [floor, 1].
        evidence: The raw estimates with their intervals: of the class frequencies, of `mean(x_i
            [class = c])` over all clients asked, and of the same means of squares.
    """

    class_counts: Floats
    means: Floats
    variances: Floats
    evidence: tuple[SurveyEstimate, ...]

    def joint(self, rows: Floats) -> Floats:
        """Return the log joint density of each class and row, shape (rows, classes)."""
        require_columns(rows, len(self.means))
        terms = zip(np.clip(rows, -1.0, 1.0).T, self.means, self.variances, strict=True)
        densities = (
            -0.5 * (np.log(2 * pi * variances) + (values[:, None] - means) ** 2 / variances)
            for values, means, variances in terms
        )
        return np.asarray(sum(densities) + log_shares(self.class_counts))


def learn_gaussian(
    survey: GaussianBayesSurvey,
    tally: Tally,
    *,
    consistency: Consistency = "paper",
    variance_floor: float = VARIANCE_FLOOR,
    confidence: float = INTERVAL_CONFIDENCE,
) -> GaussianBayes:
    """Return the model learned from a tally.

    The estimate for a feature is its mean within a class times the frequency of that class, so it
    is divided by the frequency. Means are clipped to [-1, 1], squares to [0, 1].
    """
    require(0 < variance_floor <= 1, "variance_floor", variance_floor, "in (0, 1]")
    found = evidence(survey, tally, confidence=confidence)
    shape = (survey.means.features, survey.means.classes)
    counts = counts_of(found[0], shape[1], consistency)
    shares = np.exp(log_shares(counts))
    firsts, seconds = (each.values.reshape(shape) / shares for each in found[1:])
    means = np.clip(firsts, -1.0, 1.0)
    variances = np.clip(np.clip(seconds, 0.0, 1.0) - means**2, variance_floor, 1.0)
    return GaussianBayes(counts, means, variances, found)


BayesModel: TypeAlias = DiscreteBayes | GaussianBayes
"""A naive Bayes model of rows after a survey's steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Classifier(Posterior):
    """A naive Bayes classifier that applies the clients' public steps to a row first."""

    steps: tuple[Step, ...]
    model: BayesModel

    @override
    def joint(self, rows: NDArray[Any]) -> Floats:
        """Return the log joint probability of each class and row, shape (rows, classes)."""
        return self.model.joint(apply_steps(self.steps, rows))


def learn(
    survey: Survey,
    tally: Tally,
    *,
    consistency: Consistency = "paper",
    smoothing: float | None = None,
    variance_floor: float = VARIANCE_FLOOR,
) -> Classifier:
    """Return the classifier learned from a tally, for the clients' original rows."""
    model: BayesModel
    match survey:
        case DiscreteBayesSurvey():
            model = learn_discrete(survey, tally, consistency=consistency, smoothing=smoothing)
        case GaussianBayesSurvey():
            model = learn_gaussian(
                survey, tally, consistency=consistency, variance_floor=variance_floor
            )
        case _:
            raise InputError("survey", type(survey).__name__, "a naive Bayes survey")
    return Classifier(survey.steps, model)
