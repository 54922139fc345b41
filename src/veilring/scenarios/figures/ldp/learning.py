"""What all figures share: who is asked, how often the answer is right, and what that is beside."""

from collections.abc import Callable, Mapping
from functools import cache
from math import inf
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data import Table
from veilring.protocols.ldp.algorithm.bayes import DiscreteBayes, learn_discrete
from veilring.protocols.ldp.algorithm.oracles import (
    DirectEncoding,
    FrequencyOracle,
    OptimisedUnary,
    SummedHistogram,
    SymmetricUnary,
    ThresholdedHistogram,
)
from veilring.protocols.ldp.algorithm.plain import PlainOracle, census
from veilring.protocols.ldp.algorithm.survey import Survey, Tally, answer, tally
from veilring.protocols.ldp.algorithm.surveys import DiscreteBayesSurvey

PLAIN: Final = "no noise"
MAJORITY: Final = "majority class"
TEST_SHARE: Final = 0.2
THETA: Final = 0.25  # the paper's, of THE

_KINDS: Final[Mapping[str, Callable[[int, float], FrequencyOracle]]] = {
    "DE": DirectEncoding,
    "SUE": SymmetricUnary,
    "OUE": OptimisedUnary,
    "SHE": SummedHistogram,
    "THE": lambda domain, epsilon: ThresholdedHistogram(domain, epsilon, THETA),
}
ORACLES: Final = tuple(_KINDS)
"""The paper's five."""


def asked(
    survey: Survey,
    rows: NDArray[np.float64] | NDArray[np.int64],
    labels: NDArray[np.int64],
    rng: Generator,
) -> Tally:
    """Return what clients say: one answer each, or without noise all answers."""
    if survey.exact_epsilon == inf:
        return census(survey, rows, labels, rng)
    return tally(survey, answer(survey, rows, labels, rng).reports)


def learned_discrete(
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    sizes: tuple[tuple[int, ...], int],
    *,
    oracle: str,
    epsilon: float,
    rng: Generator,
    all_questions: bool = False,
) -> DiscreteBayes:
    """Return discrete naive Bayes, learned from clients.

    Args:
        rows: Numbered values.
        labels: The class of each client.
        sizes: How many values each column has, and how many classes there are.
        oracle: One of `ORACLES`.
        epsilon: Of each client; infinite for no noise.
        rng: The clients' randomness.
        all_questions: Whether each client answers every question, and so spends epsilon as often
            as there are questions. It is only here to see what the paper's numbers stand for.
    """
    survey = _survey(*sizes, oracle, epsilon)
    if not all_questions:
        return learn_discrete(survey, asked(survey, rows, labels, rng))
    values, classes = survey.judged(rows, labels)
    reports = [
        question.perturb(survey.told(values, classes, number), rng)
        for number, question in enumerate(survey.questions)
    ]
    return learn_discrete(survey, tally(survey, reports))


@cache  # what some oracles draw from takes longer to compute than to draw
def _survey(
    domains: tuple[int, ...], classes: int, oracle: str, epsilon: float
) -> DiscreteBayesSurvey:
    if epsilon == inf:
        return DiscreteBayesSurvey.of(domains, classes, PlainOracle)
    kind = _KINDS[oracle]
    return DiscreteBayesSurvey.of(domains, classes, lambda domain: kind(domain, epsilon))


def accuracy(labels: NDArray[np.int64], held_out: Table) -> float:
    """Return the share of held-out rows whose label is right."""
    return float((labels == held_out.labels).mean())


def majority(train: Table, held_out: Table) -> float:
    """Return the accuracy of always saying the most common class."""
    most_common = np.bincount(train.labels).argmax()
    return accuracy(np.full(len(held_out), most_common), held_out)
