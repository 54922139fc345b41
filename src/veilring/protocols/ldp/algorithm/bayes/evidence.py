"""What the reports say before anything is made of it: raw estimates with their intervals."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.consistency import Consistency, process
from veilring.protocols.ldp.algorithm.randomiser import CONFIDENCE, Estimate, LocalRandomiser, Sums
from veilring.protocols.ldp.algorithm.survey import Survey, Tally

CONSISTENCIES: Final[tuple[Consistency, ...]] = ("paper", "clip", "norm-sub")
"""What may be done to negative counts; they cannot stay, since a classifier takes logarithms."""


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
    nothing, everything = np.zeros(question.entries), np.full(question.entries, np.inf)
    return Estimate(nothing, everything, -everything, everything, 0)


def counts_of(estimate: Estimate, values: int, how: Consistency) -> NDArray[np.float64]:
    """Return how many of the clients hold each of the first so many values; none is negative.

    Args:
        estimate: Of shares.
        values: How many of its entries are meant: an oracle has two at least, a survey maybe one.
        how: What becomes of negative counts.

    Raises:
        InputError: If there is no such way.
    """
    if how not in CONSISTENCIES:
        raise InputError("consistency", how, ", ".join(CONSISTENCIES))
    if not estimate.clients:
        return np.zeros(values)
    return np.asarray(process(estimate, how).values[:values] * estimate.clients)
