"""What both estimators share: each row is a client that answers, and only sums are learned from."""

from abc import abstractmethod
from math import inf
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from veilring.estimators.base import PrivateClassifier
from veilring.estimators.privacy import Privacy
from veilring.nodes.cost import Traffic
from veilring.protocols.forecast import Forecast
from veilring.protocols.ldp.algorithm.bayes import BayesModel, Classifier
from veilring.protocols.ldp.algorithm.survey import (
    BayesSurvey,
    Tally,
    answer,
    census,
    tally_reports,
)
from veilring.protocols.ldp.roles import batch_traffic
from veilring.protocols.ldp.task import Task


class LDPBayes(PrivateClassifier):
    """What both estimators share: playing the clients, and predicting."""

    epsilon: float
    tally_: Tally
    epsilon_: float

    @property
    @override
    def cost_(self) -> Forecast:
        """What the collection cost, each client being a party of its own; predicting is free."""
        check_is_fitted(self)
        task, total = Task({}, self.survey_), Traffic()
        for question, clients in enumerate(self.tally_.counts):
            total = total.plus(batch_traffic(task, question, 1, times=clients))
        return Forecast(1, total)

    @property
    @override
    def deployment_privacy_(self) -> Privacy:
        """What each client would spend on its report; predicting spends nothing."""
        check_is_fitted(self)
        silent = "" if self.epsilon_ < inf else "Nothing is hidden: rows are counted as they are."
        return Privacy(
            protects="each client's row",
            against="everybody, the aggregator first of all",
            trusts="nobody: the noise is drawn where the row is",
            epsilon=self.epsilon_,
            delta=0.0,
            unit="one report",
            measure="ε-LDP",
            note=silent,
        )

    @override
    def _begin(self, rows: NDArray[Any], numbers: NDArray[np.int64], rng: Generator) -> None:
        survey = self._survey(rows)
        if self.epsilon == inf:
            self.tally_ = census(survey, rows, numbers, rng)
        else:
            self.tally_ = tally_reports(survey, answer(survey, rows, numbers, rng).reports)
        self.survey_, self.epsilon_ = survey, survey.exact_epsilon
        self.model_ = Classifier(survey.steps, self._learn(survey, self.tally_))

    @abstractmethod
    def _survey(self, rows: NDArray[np.float64]) -> BayesSurvey:
        """Return what is asked; only public numbers of the rows may count."""

    @abstractmethod
    def _learn(self, survey: Any, tally: Tally) -> BayesModel:  # noqa: ANN401  (the subclass's own)
        """Return the model of prepared rows."""

    @override
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

    @override
    def _is_noisy(self) -> bool:
        return self.epsilon != inf
