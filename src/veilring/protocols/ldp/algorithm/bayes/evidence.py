"""What the reports say before anything is made of it: raw estimates with their intervals."""

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.randomiser import CONFIDENCE, Estimate, LocalRandomiser, Sums
from veilring.protocols.ldp.algorithm.survey import Survey, Tally

__all__ = ("counts_of", "evidence")


def evidence(
    survey: Survey, tally: Tally, *, confidence: float = CONFIDENCE
) -> tuple[Estimate, ...]:
    """Return the estimate of each question.

    A question that nobody answered gets zeros, infinite variances, and intervals of all numbers.

    Raises:
        InputError: If the tally is of another survey.
    """
    if len(tally.sums) != len(survey.questions):
        given = f"of {len(tally.sums)} questions"
        raise InputError("tally", given, f"one of {len(survey.questions)}, as the survey")
    triples = zip(survey.questions, tally.sums, tally.counts, strict=True)
    return tuple(_estimate(*each, confidence) for each in triples)


def _estimate(question: LocalRandomiser, sums: Sums, count: int, confidence: float) -> Estimate:
    if count:
        return question.estimate(sums, count, confidence=confidence)
    # How many entries there would be only an estimate tells.
    entries = len(question.estimate(np.zeros_like(sums), 1).values)
    nothing = np.zeros(entries)
    everything = np.full(entries, np.inf)
    return Estimate(nothing, everything, -everything, everything, 0)


def counts_of(estimate: Estimate, values: int) -> NDArray[np.float64]:
    """Return how many of the clients hold each of the first so many values, by estimate."""
    return np.asarray(estimate.values[:values] * estimate.clients)
