"""Gaussian naive Bayes as a scikit-learn estimator."""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.estimators.base import RangesLike, Seed, number
from veilring.estimators.ldp.playing import LDPBayes
from veilring.protocols.ldp.algorithm.bayes import VARIANCE_FLOOR, GaussianBayes, learn_gaussian
from veilring.protocols.ldp.algorithm.means import Approach, make_means
from veilring.protocols.ldp.algorithm.oracle import Consistency
from veilring.protocols.ldp.algorithm.planner import make_oracle
from veilring.protocols.ldp.algorithm.steps import Scaling
from veilring.protocols.ldp.algorithm.survey import GaussianBayesSurvey, Tally


class LDPGaussianNaiveBayes(LDPBayes):
    """Gaussian naive Bayes under local differential privacy.

    Args:
        epsilon: What a client may spend, in (0, 20]; infinite for no noise, where every client
            answers every question.
        approach: To many features: `all-features`, `one-bit` or `one-feature`.
        oracle: The name of the frequency oracle for the class: one of `ORACLES`, or `auto` for the
            best of them for this number of classes.
        ranges: The public range of each feature, or one for all. By default that of the rows, which
            reveals something of them: then `fit` warns, and no ε holds.
        consistency: What becomes of negative counts of classes: `paper`, `clip` or `norm-sub`.
        variance_floor: The least variance of a feature scaled into [-1, 1].
        random_state: A seed for experiments, under which no ε holds. By default the clients'
            randomness is cryptographic.

    Attributes:
        classes_: The classes, sorted; which there are counts as public.
        epsilon_: What each client spent, exactly; at most `epsilon`.
        tally_: The sums of the reports: all that the model knows.
        survey_: What was asked.
        model_: The public steps, then a `GaussianBayes`; `save_classifier` takes it.
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
    def _survey(self, rows: NDArray[np.float64]) -> GaussianBayesSurvey:
        classes, epsilon = len(self.classes_), number("epsilon", self.epsilon)
        oracle = make_oracle(self.oracle, epsilon)(max(2, classes))
        means = make_means(self.approach, epsilon, rows.shape[1], classes)
        return GaussianBayesSurvey(oracle, means, (Scaling(self._public_ranges(rows)),))

    @override
    def _learn(self, survey: GaussianBayesSurvey, tally: Tally) -> GaussianBayes:
        floor = number("variance_floor", self.variance_floor)
        return learn_gaussian(survey, tally, consistency=self.consistency, variance_floor=floor)
