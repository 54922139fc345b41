"""Both naive Bayes classifiers under local differential privacy, as scikit-learn estimators.

`fit` plays all clients: each row goes through the very `perturb` that a client on its own machine
calls, and only the reports' sums reach the model. So the accuracy is that of a real collection.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from veilring.estimators.base import PrivateClassifier, RangesLike, Seed, number, whole
from veilring.nodes.cost import Traffic
from veilring.protocols.forecast import Forecast
from veilring.protocols.ldp.algorithm.bayes import Classifier
from veilring.protocols.ldp.algorithm.means import Approach
from veilring.protocols.ldp.algorithm.oracle import Consistency
from veilring.protocols.ldp.algorithm.planner import make_oracle
from veilring.protocols.ldp.algorithm.survey import (
    BayesSurvey,
    DiscreteBayesSurvey,
    GaussianBayesSurvey,
    answer,
    census,
    tally_reports,
    whole_numbers,
)
from veilring.protocols.ldp.roles import batch_traffic
from veilring.protocols.ldp.system import LDPBayes
from veilring.protocols.ldp.task import Task
from veilring.protocols.system import Promise

_USUAL: Final = LDPBayes()


class LDPClassifier(PrivateClassifier):
    """What both estimators share: playing the clients, and predicting.

    Attributes:
        epsilon_: What each client spent, exactly; at most `epsilon`.
        tally_: The sums of the reports: all that the model knows.
        survey_: The survey.
        model_: The public steps, then the model.
    """

    epsilon: float
    survey_: BayesSurvey

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
    def deployment_privacy_(self) -> Promise:
        """What each client would spend on its report; predicting spends nothing."""
        check_is_fitted(self)
        note = "" if self.epsilon_ < inf else "Nothing is hidden: rows are counted as they are."
        return replace(self._fitted.promise(), epsilon=self.epsilon_, note=note)

    @override
    def _begin(self, rows: NDArray[Any], numbers: NDArray[np.int64], rng: Generator) -> None:
        self._fitted = system = self._system()
        survey = self._survey(system, rows)
        if self.epsilon == inf:
            self.tally_ = census(survey, rows, numbers, rng)
        else:
            self.tally_ = tally_reports(survey, answer(survey, rows, numbers, rng).reports)
        self.survey_, self.epsilon_ = survey, survey.exact_epsilon
        self.model_: Classifier = system.learn(survey, self.tally_)

    def _survey(self, system: LDPBayes, rows: NDArray[np.float64]) -> BayesSurvey:
        """Return the survey; only public numbers of the rows may count."""
        ranges, classes = self._public_ranges(rows), len(self.classes_)
        return system.bind(ranges, classes, epsilon=number("epsilon", self.epsilon))

    def _system(self) -> LDPBayes:
        """Return the system with the estimator's parameters."""
        epsilon = number("epsilon", self.epsilon)
        bound = _USUAL.epsilon if epsilon == inf else epsilon  # without noise it is not used
        return LDPBayes(epsilon=bound, **self._parameters())

    @abstractmethod
    def _parameters(self) -> dict[str, Any]:
        """Return all parameters of the system but its epsilon."""

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


class LDPNaiveBayes(LDPClassifier):
    """Discrete naive Bayes under local differential privacy.

    Args:
        epsilon: What a client may spend, in (0, 20]; infinite for no noise, where every client
            answers every question.
        oracle: The name of a frequency oracle: one of `ORACLES`, or `auto` for the best of them for
            each domain.
        domains: How many values each feature has, if `X` holds them numbered from 0. By default
            features are numbers, and go to equal-width bins.
        bins: The number of bins of each feature.
        ranges: The public range of each feature, or one for all. By default that of the rows, which
            reveals something of them: then `fit` warns, and no ε holds.
        consistency: How negative counts are made consistent: `paper`, `clip` or `norm-sub`.
        smoothing: Added to each count; see `learn_discrete`.
        random_state: A seed for experiments, under which no ε holds. By default the clients'
            randomness is cryptographic.

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        epsilon_: What each client spent, exactly; at most `epsilon`.
        tally_: The sums of the reports: all that the model knows.
        survey_: The survey.
        model_: The public steps, then a `DiscreteBayes`; `save_classifier` takes it.
        ranges_origin_: Where the ranges came from.
    """

    survey_: DiscreteBayesSurvey

    def __init__(
        self,
        epsilon: float = _USUAL.epsilon,
        *,
        oracle: str = _USUAL.oracle,
        domains: Sequence[int] | None = None,
        bins: int = _USUAL.bins,
        ranges: RangesLike | None = None,
        consistency: Consistency = _USUAL.consistency,
        smoothing: float | None = None,
        random_state: Seed = None,
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
    def _parameters(self) -> dict[str, Any]:
        given = self.smoothing
        return {
            "kind": "discrete-bayes",
            "oracle": self.oracle,
            "bins": whole("bins", self.bins),
            "consistency": self.consistency,
            "smoothing": "auto" if given is None else number("smoothing", given),
        }

    @override
    def _survey(self, system: LDPBayes, rows: NDArray[np.float64]) -> BayesSurvey:
        if self.domains is None:
            return super()._survey(system, rows)
        self.ranges_origin_ = "no ranges: values are numbered"
        domains = [whole("domains", each) for each in self.domains]
        make = make_oracle(self.oracle, number("epsilon", self.epsilon))
        return DiscreteBayesSurvey.of(domains, len(self.classes_), make)

    @override
    def _checked(self, X: ArrayLike) -> NDArray[Any]:
        rows = super()._checked(X)
        if self.survey_.steps:
            return rows
        columns = zip(rows.T, self.survey_.domains, strict=True)
        numbered = [whole_numbers(column, values, n) for n, (column, values) in enumerate(columns)]
        return np.column_stack(numbered)


class LDPGaussianNaiveBayes(LDPClassifier):
    """Gaussian naive Bayes under local differential privacy.

    Args:
        epsilon: What a client may spend, in (0, 20]; infinite for no noise, where every client
            answers every question.
        approach: How a client answers about many features: `all-features`, `one-bit` or
            `one-feature`.
        oracle: The name of the frequency oracle for the class: one of `ORACLES`, or `auto` for the
            best of them for this number of classes.
        ranges: The public range of each feature, or one for all. By default that of the rows, which
            reveals something of them: then `fit` warns, and no ε holds.
        consistency: How negative counts of classes are made consistent: `paper`, `clip` or
            `norm-sub`.
        variance_floor: The least variance of a feature scaled into [-1, 1].
        random_state: A seed for experiments, under which no ε holds. By default the clients'
            randomness is cryptographic.

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        epsilon_: What each client spent, exactly; at most `epsilon`.
        tally_: The sums of the reports: all that the model knows.
        survey_: The survey.
        model_: The public steps, then a `GaussianBayes`; `save_classifier` takes it.
        ranges_origin_: Where the ranges came from.
    """

    survey_: GaussianBayesSurvey

    def __init__(
        self,
        epsilon: float = _USUAL.epsilon,
        *,
        approach: Approach = _USUAL.approach,
        oracle: str = _USUAL.oracle,
        ranges: RangesLike | None = None,
        consistency: Consistency = _USUAL.consistency,
        variance_floor: float = _USUAL.variance_floor,
        random_state: Seed = None,
    ) -> None:
        self.epsilon = epsilon
        self.approach = approach
        self.oracle = oracle
        self.ranges = ranges
        self.consistency = consistency
        self.variance_floor = variance_floor
        self.random_state = random_state

    @override
    def _parameters(self) -> dict[str, Any]:
        return {
            "kind": "gaussian-bayes",
            "oracle": self.oracle,
            "approach": self.approach,
            "consistency": self.consistency,
            "variance_floor": number("variance_floor", self.variance_floor),
        }
