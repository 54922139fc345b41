"""`Classifier`: what a collection has learned, for rows as clients have them."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.bayes.discrete import DiscreteBayes, learn_discrete
from veilring.protocols.ldp.algorithm.bayes.gaussian import GaussianBayes, learn_gaussian
from veilring.protocols.ldp.algorithm.bayes.posterior import Posterior
from veilring.protocols.ldp.algorithm.consistency import Consistency
from veilring.protocols.ldp.algorithm.steps import Step, prepared
from veilring.protocols.ldp.algorithm.survey import Survey, Tally
from veilring.protocols.ldp.algorithm.surveys import DiscreteBayesSurvey, GaussianBayesSurvey

BayesModel: TypeAlias = DiscreteBayes | GaussianBayes
"""Naive Bayes of rows that went through a survey's steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Classifier(Posterior):
    """Naive Bayes behind the public steps that each client's row went through.

    Attributes:
        steps: What becomes of a row first.
        model: What the reports say.
    """

    steps: tuple[Step, ...]
    model: BayesModel

    @override
    def joint(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the logarithm of each class's probability with the row, (rows, classes).

        Raises:
            InputError: If rows do not fit the steps, or what comes of them not the model.
        """
        return self.model.joint(prepared(self.steps, rows))


def learn(survey: Survey, tally: Tally, *, consistency: Consistency = "paper") -> Classifier:
    """Return the classifier that a tally says, for rows as clients have them.

    `learn_discrete` and `learn_gaussian` leave more to choose.

    Args:
        survey: What was asked: one of naive Bayes.
        tally: What came of it.
        consistency: What becomes of negative counts.

    Raises:
        InputError: If the survey asks for something else, or the tally is of another one.
    """
    match survey:
        case DiscreteBayesSurvey():
            discrete = learn_discrete(survey, tally, consistency=consistency)
            return Classifier(survey.steps, discrete)
        case GaussianBayesSurvey():
            gaussian = learn_gaussian(survey, tally, consistency=consistency)
            return Classifier(survey.steps, gaussian)
        case _:
            raise InputError("survey", type(survey).__name__, "one of naive Bayes")
