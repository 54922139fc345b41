"""The naive Bayes classifiers under local differential privacy, which play a survey."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from types import MappingProxyType
from typing import Any, ClassVar, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from veilring.config import DescribedKey
from veilring.estimators.base import (
    PrivateClassifier,
    number,
    whole,
)
from veilring.nodes.cost import Traffic
from veilring.protocols.forecast import Forecast
from veilring.protocols.ldp.algorithm.bayes import Classifier
from veilring.protocols.ldp.algorithm.planner import make_oracle
from veilring.protocols.ldp.algorithm.survey import (
    BayesSurvey,
    DiscreteBayesSurvey,
    GaussianBayesSurvey,
    Tally,
    answer,
    census,
    tally_reports,
    whole_numbers,
)
from veilring.protocols.ldp.roles import batch_traffic
from veilring.protocols.ldp.system import LDPBayes
from veilring.protocols.ldp.task import Task
from veilring.protocols.promise import Promise
from veilring.protocols.system import System


class LDPClassifier(PrivateClassifier):
    """Shared parts of the LDP estimators: playing the clients, and predicting.

    `fit` passes each row through the same `perturb` that a client calls on its own machine, and
    only the sums of the reports reach the model. The accuracy is therefore that of a real
    collection.

    Attributes:
        epsilon_: The exact ε that each client spent; at most `epsilon`.
        tally_: The sums of the reports, the only input of the model.
        survey_: The survey.
        model_: The public steps, followed by the model.
    """

    epsilon_: float
    tally_: Tally
    survey_: BayesSurvey
    model_: Classifier
    _changed: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
        {
            "epsilon": {
                "allowed": f"{LDPBayes.model_fields['epsilon'].description}; infinity means no"
                " noise, with every client answering every question"
            }
        }
    )

    @property
    @override
    def cost_(self) -> Forecast:
        """The cost of the collection, with each client as a party; predicting is free."""
        check_is_fitted(self)
        task, total = Task({}, self.survey_), Traffic()
        for question, clients in enumerate(self.tally_.counts):
            total = total.plus(batch_traffic(task, question, 1, times=clients))
        return Forecast(1, total)

    @property
    @override
    def deployment_privacy_(self) -> Promise:
        """The budget that each client would spend on its report; predicting spends nothing."""
        check_is_fitted(self)
        promise = replace(self.system_.promise(), epsilon=self.epsilon_)
        if self.epsilon_ < inf:
            return promise
        return replace(promise, note="Nothing is protected: rows are counted without noise.")

    @override
    def _begin(self, rows: NDArray[Any], numbers: NDArray[np.int64], rng: Generator) -> None:
        self.system_ = system = self._make_system()
        survey = self._survey(system, rows)
        if self.epsilon == inf:
            self.tally_ = census(survey, rows, numbers, rng)
        else:
            self.tally_ = tally_reports(survey, answer(survey, rows, numbers, rng).reports)
        self.survey_, self.epsilon_ = survey, survey.exact_epsilon
        self.model_ = system.learn(survey, self.tally_)

    def _survey(self, system: LDPBayes, rows: NDArray[np.float64]) -> BayesSurvey:
        """Return the survey, which may depend only on public numbers of the rows."""
        ranges, classes = self._public_ranges(rows), len(self.classes_)
        return system.bind(ranges, classes, epsilon=number("epsilon", self.epsilon))

    @override
    def _make_system(self) -> LDPBayes:
        if self.epsilon != inf:
            return cast("LDPBayes", super()._make_system())
        chosen = {**self.get_params(), "epsilon": LDPBayes().epsilon}  # on which nothing is spent
        return type(self)(**chosen)._make_system()  # noqa: SLF001  (an object of this class)

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
        return bool(self.epsilon != inf)


class LDPNaiveBayes(LDPClassifier):
    """Discrete naive Bayes under local differential privacy.

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        epsilon_: The exact ε that each client spent; at most `epsilon`.
        tally_: The sums of the reports, the only input of the model.
        survey_: The survey.
        model_: The public steps, followed by a `DiscreteBayes`; save it with `save_classifier`.
        ranges_origin_: The origin of the ranges.
    """

    survey_: DiscreteBayesSurvey
    _system: ClassVar[type[System]] = LDPBayes
    _fixed: ClassVar[Mapping[str, object]] = {"kind": "discrete-bayes"}
    _leaves_out: ClassVar[frozenset[str]] = frozenset({"approach", "variance_floor"})
    _own: ClassVar[tuple[DescribedKey, ...]] = (
        DescribedKey(
            "domains",
            None,
            "a whole number for each feature, or none",
            "The number of values of each feature, if the rows contain them numbered from 0. By"
            " default, features are numbers, which are put into bins of equal width.",
        ),
    )

    @override
    def _survey(self, system: LDPBayes, rows: NDArray[np.float64]) -> BayesSurvey:
        if self.domains is None:
            return super()._survey(system, rows)
        self.ranges_origin_ = "no ranges: values are numbered"
        domains = [whole("domains", each) for each in self.domains]
        make = make_oracle(system.oracle, number("epsilon", self.epsilon))
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

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        epsilon_: The exact ε that each client spent; at most `epsilon`.
        tally_: The sums of the reports, the only input of the model.
        survey_: The survey.
        model_: The public steps, followed by a `GaussianBayes`; save it with `save_classifier`.
        ranges_origin_: The origin of the ranges.
    """

    survey_: GaussianBayesSurvey
    _system: ClassVar[type[System]] = LDPBayes
    _fixed: ClassVar[Mapping[str, object]] = {"kind": "gaussian-bayes"}
    _leaves_out: ClassVar[frozenset[str]] = frozenset({"bins", "smoothing"})
