"""Discrete naive Bayes as a scikit-learn estimator."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from veilring.estimators.base import RangesLike, Seed, number, whole
from veilring.estimators.ldp.playing import LDPBayes
from veilring.protocols.ldp.algorithm.bayes import DiscreteBayes, learn_discrete
from veilring.protocols.ldp.algorithm.oracle import Consistency
from veilring.protocols.ldp.algorithm.planner import make_oracle
from veilring.protocols.ldp.algorithm.steps import Bins
from veilring.protocols.ldp.algorithm.survey import DiscreteBayesSurvey, Tally
from veilring.protocols.ldp.algorithm.survey import whole_numbers as numbered


class LDPNaiveBayes(LDPBayes):
    """Discrete naive Bayes under local differential privacy.

    Args:
        epsilon: What a client may spend, in (0, 20]; infinite for no noise, where every client
            answers every question.
        oracle: The name of a frequency oracle: one of `ORACLES`, or `auto` for the best of them for
            each domain, which is the default of a survey.
        domains: How many values each feature has, if `X` holds them numbered from 0. By default
            features are numbers, and go to equal-width bins.
        bins: How many.
        ranges: The public range of each feature, or one for all. By default that of the rows, which
            reveals something of them: then `fit` warns, and no ε holds.
        consistency: What becomes of negative counts: `paper`, `clip` or `norm-sub`.
        smoothing: Added to each count; see `learn_discrete`.
        random_state: A seed for experiments, under which no ε holds. By default the clients'
            randomness is cryptographic.

    Attributes:
        classes_: The classes, sorted; which there are counts as public.
        epsilon_: What each client spent, exactly; at most `epsilon`.
        tally_: The sums of the reports: all that the model knows.
        survey_: What was asked.
        model_: The public steps, then a `DiscreteBayes`; `save_classifier` takes it.
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
    def _survey(self, rows: NDArray[np.float64]) -> DiscreteBayesSurvey:
        make = make_oracle(self.oracle, number("epsilon", self.epsilon))
        classes, features = len(self.classes_), rows.shape[1]
        if self.domains is not None:
            self.ranges_origin_ = "no ranges: values are numbered"
            domains = [whole("domains", each) for each in self.domains]
            return DiscreteBayesSurvey.of(domains, classes, make)
        counts = (whole("bins", self.bins),) * features
        bins = Bins(self._public_ranges(rows), counts)
        return DiscreteBayesSurvey.of(counts, classes, make, (bins,))

    @override
    def _checked(self, X: ArrayLike) -> NDArray[Any]:
        rows = super()._checked(X)
        if self.survey_.steps:
            return rows
        columns = zip(rows.T, self.survey_.domains, strict=True)
        told = [numbered(column, values, n) for n, (column, values) in enumerate(columns)]
        return np.column_stack(told)

    @override
    def _learn(self, survey: DiscreteBayesSurvey, tally: Tally) -> DiscreteBayes:
        added = None if self.smoothing is None else number("smoothing", self.smoothing)
        return learn_discrete(survey, tally, consistency=self.consistency, smoothing=added)
