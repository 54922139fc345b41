"""What both estimators share: each row is a client that answers, and only sums are learned from."""

from abc import abstractmethod
from collections.abc import Sequence
from math import inf
from typing import Any, Final, Self

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from veilring.protocols.ldp.algorithm.bayes import BayesModel, Classifier
from veilring.protocols.ldp.algorithm.plain import census
from veilring.protocols.ldp.algorithm.steps import Ranges
from veilring.protocols.ldp.algorithm.survey import Tally, answer, tally
from veilring.protocols.ldp.algorithm.surveys import BayesSurvey
from veilring.randomness import Streams

__all__ = ("LDPBayes", "RangesLike")

RangesLike = tuple[Sequence[float], Sequence[float]]
"""The least and the greatest value of each feature."""
_STREAM: Final = "ldp estimator"


class LDPBayes(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
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
        self.model_ = Classifier(survey.steps, self._learn(survey, self.tally_))
        return self

    @abstractmethod
    def _survey(self, rows: NDArray[np.float64]) -> BayesSurvey:
        """Return what is asked; only public numbers of the rows may count."""

    @abstractmethod
    def _learn(self, survey: Any, tally: Tally) -> BayesModel:  # noqa: ANN401  (the subclass's own)
        """Return the model of prepared rows."""

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most likely class of each row, shape (rows,)."""
        rows = self._checked(X)
        return np.asarray(self.classes_[self.model_.classify(rows)])

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the logarithm of each class's probability, shape (rows, classes)."""
        rows = self._checked(X)
        return self.model_.log_probabilities(rows)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return each class's probability, shape (rows, classes)."""
        return np.exp(self.predict_log_proba(X))

    def _checked(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, reset=False))

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


def _generator(random_state: int | RandomState | Generator | None) -> Generator:
    match random_state:
        case Generator():
            return random_state
        case RandomState():
            return Streams(int(random_state.randint(2**31))).generator(_STREAM)
        case _:
            return Streams(random_state).generator(_STREAM)
