"""Both naive Bayes classifiers as scikit-learn estimators.

`fit` plays all clients: each row goes through the very `perturb` that a client on its own machine
calls, and only the reports' sums reach the model. So the accuracy is that of a real collection. It
is a simulation of one nevertheless: whoever calls `fit` has all rows.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Any, Self

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from typing_extensions import override

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.bayes import Posterior, learn_discrete, learn_gaussian
from veilring.protocols.ldp.algorithm.bayes.gaussian import VARIANCE_FLOOR
from veilring.protocols.ldp.algorithm.consistency import Consistency
from veilring.protocols.ldp.algorithm.means import Approach, make_means
from veilring.protocols.ldp.algorithm.oracles import ORACLES
from veilring.protocols.ldp.algorithm.plain import PlainOracle, census
from veilring.protocols.ldp.algorithm.randomiser import LocalRandomiser
from veilring.protocols.ldp.algorithm.steps import Bins, Ranges, Step, prepared
from veilring.protocols.ldp.algorithm.survey import Survey, Tally, answer, tally
from veilring.protocols.ldp.algorithm.surveys import (
    DiscreteBayesSurvey,
    GaussianBayesSurvey,
    MakeOracle,
)
from veilring.randomness import Streams

__all__ = ("LDPGaussianNaiveBayes", "LDPNaiveBayes", "RangesLike", "make_oracle")

RangesLike = tuple[Sequence[float], Sequence[float]]
"""The least and the greatest value of each feature."""
_STREAM = "ldp estimator"


class _LDPBayes(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What both estimators share: playing the clients, and predicting."""

    epsilon: float
    ranges: RangesLike | None
    random_state: int | RandomState | Generator | None

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Play one client a row, and learn from what they say.

        Args:
            X: Shape (clients, features).
            y: The class of each.

        Returns:
            Itself.
        """
        rows, labels = validate_data(self, X, y)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        rng = _generator(self.random_state)
        survey = self._survey(rows)
        if self.epsilon == inf:
            self.tally_ = census(survey, rows, numbers, rng)
        else:
            self.tally_ = tally(survey, answer(survey, rows, numbers, rng).reports)
        self.survey_, self.epsilon_ = survey, survey.exact_epsilon
        self.model_ = self._learn(survey, self.tally_)
        return self

    @abstractmethod
    def _survey(self, rows: NDArray[np.float64]) -> Survey:
        """Return what is asked; only public numbers of the rows may count."""

    @abstractmethod
    def _learn(self, survey: Any, tally: Tally) -> Posterior:  # noqa: ANN401  (the subclass's own)
        """Return the model."""

    @abstractmethod
    def _steps(self) -> tuple[Step, ...]:
        """Return what rows go through."""

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most likely class of each row, shape (rows,)."""
        rows = self._prepared(X)
        return np.asarray(self.classes_[self.model_.classify(rows)])

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the logarithm of each class's probability, shape (rows, classes)."""
        rows = self._prepared(X)
        return self.model_.log_probabilities(rows)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return each class's probability, shape (rows, classes)."""
        return np.exp(self.predict_log_proba(X))

    def _prepared(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False)
        return prepared(self._steps(), rows)

    def _public_ranges(self, rows: NDArray[np.float64]) -> Ranges:
        """Return the ranges that were given, or those of the rows, and note which."""
        if self.ranges is None:
            self.ranges_origin_ = "the rows themselves, which is not private"
            return Ranges.of(rows)
        self.ranges_origin_ = "given as public"
        lows, highs = self.ranges
        return Ranges(tuple(map(float, lows)), tuple(map(float, highs)))

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401  (scikit-learn has no types)
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.epsilon < inf
        # Privacy costs accuracy: what is fine with thousands of clients is noise with thirty.
        tags.classifier_tags.poor_score = self.epsilon < inf
        return tags


class LDPNaiveBayes(_LDPBayes):
    """Discrete naive Bayes under local differential privacy.

    Args:
        epsilon: What a client may spend, in (0, 20]; infinite for no noise, where every client
            answers every question.
        oracle: The name of a frequency oracle: one of `ORACLES`.
        domains: How many values each feature has, if `X` holds them numbered from 0. By default
            features are numbers, and go to equal-width bins.
        bins: How many.
        ranges: The public range of each feature. By default that of the rows themselves, which
            tells of them: then `ranges_origin_` says so.
        consistency: What becomes of negative counts: `paper`, `clip` or `norm-sub`.
        smoothing: Added to each count; see `learn_discrete`.
        random_state: A seed for experiments. By default the clients' randomness is cryptographic.

    Attributes:
        classes_: The classes, sorted; which there are counts as public.
        epsilon_: What each client spent, exactly; at most `epsilon`.
        tally_: The sums of the reports: all that the model knows.
        survey_: What was asked.
        model_: A `DiscreteBayes`.
        ranges_origin_: Where the ranges came from.
    """

    survey_: DiscreteBayesSurvey

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        oracle: str = "oue",
        domains: Sequence[int] | None = None,
        bins: int = 4,
        ranges: RangesLike | None = None,
        consistency: Consistency = "paper",
        smoothing: float | None = None,
        random_state: int | RandomState | Generator | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.oracle = oracle
        self.domains = domains
        self.bins = bins
        self.ranges = ranges
        self.consistency = consistency
        self.smoothing = smoothing
        self.random_state = random_state

    @override
    def _survey(self, rows: NDArray[np.float64]) -> DiscreteBayesSurvey:
        make = make_oracle(self.oracle, self.epsilon)
        classes, features = len(self.classes_), rows.shape[1]
        if self.domains is not None:
            self.ranges_origin_ = "no ranges: values are numbered"
            return DiscreteBayesSurvey.of(self.domains, classes, make)
        counts = (self.bins,) * features
        bins = Bins(self._public_ranges(rows), counts)
        return DiscreteBayesSurvey.of(counts, classes, make, (bins,))

    @override
    def _learn(self, survey: DiscreteBayesSurvey, tally: Tally) -> Posterior:
        return learn_discrete(survey, tally, consistency=self.consistency, smoothing=self.smoothing)

    @override
    def _steps(self) -> tuple[Step, ...]:
        return self.survey_.steps


class LDPGaussianNaiveBayes(_LDPBayes):
    """Gaussian naive Bayes under local differential privacy.

    Args:
        epsilon: What a client may spend, in (0, 20]; infinite for no noise, where every client
            answers every question.
        approach: To many features: `all-features`, `one-bit` or `one-feature`.
        oracle: The name of the frequency oracle for the class: one of `ORACLES`.
        ranges: The public range of each feature. By default that of the rows themselves, which
            tells of them: then `ranges_origin_` says so.
        consistency: What becomes of negative counts of classes: `paper`, `clip` or `norm-sub`.
        variance_floor: The least variance of a feature scaled into [-1, 1].
        random_state: A seed for experiments. By default the clients' randomness is cryptographic.

    Attributes:
        classes_: The classes, sorted; which there are counts as public.
        epsilon_: What each client spent, exactly; at most `epsilon`.
        tally_: The sums of the reports: all that the model knows.
        survey_: What was asked.
        model_: A `GaussianBayes`.
        ranges_origin_: Where the ranges came from.
    """

    survey_: GaussianBayesSurvey

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        approach: Approach = "one-bit",
        oracle: str = "de",
        ranges: RangesLike | None = None,
        consistency: Consistency = "paper",
        variance_floor: float = VARIANCE_FLOOR,
        random_state: int | RandomState | Generator | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.approach = approach
        self.oracle = oracle
        self.ranges = ranges
        self.consistency = consistency
        self.variance_floor = variance_floor
        self.random_state = random_state

    @override
    def _survey(self, rows: NDArray[np.float64]) -> GaussianBayesSurvey:
        classes = len(self.classes_)
        oracle = make_oracle(self.oracle, self.epsilon)(max(2, classes))
        means = make_means(self.approach, self.epsilon, rows.shape[1], classes)
        return GaussianBayesSurvey(oracle, means, (self._public_ranges(rows),))

    @override
    def _learn(self, survey: GaussianBayesSurvey, tally: Tally) -> Posterior:
        return learn_gaussian(
            survey, tally, consistency=self.consistency, variance_floor=self.variance_floor
        )

    @override
    def _steps(self) -> tuple[Step, ...]:
        return self.survey_.steps


def make_oracle(name: str, epsilon: float) -> MakeOracle:
    """Return what makes oracles of a kind; without noise if epsilon is infinite.

    Raises:
        InputError: If there is no such oracle.
    """
    if name not in ORACLES:
        raise InputError("oracle", name, ", ".join(ORACLES))
    return PlainOracle if epsilon == inf else partial(_make, name, epsilon)


def _make(name: str, epsilon: float, domain: int) -> LocalRandomiser:
    return ORACLES[name](domain, epsilon)


def _generator(random_state: int | RandomState | Generator | None) -> Generator:
    match random_state:
        case Generator():
            return random_state
        case RandomState():
            return Streams(int(random_state.randint(2**31))).generator(_STREAM)
        case _:
            return Streams(random_state).generator(_STREAM)
