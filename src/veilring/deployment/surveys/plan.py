"""The number of people that a survey needs for each kind of trust, and what repeating it costs."""

import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from statistics import NormalDist
from typing import Final, NamedTuple

from veilring.deployment.surveys.questionnaire import AGGREGATED, NOBODY, Questionnaire
from veilring.privacy.accounting import PureDP, PureSteps
from veilring.privacy.checks import require
from veilring.privacy.noise import discrete_laplace_tail
from veilring.protocols.ldp.algorithm.oracles import recommend_oracle
from veilring.protocols.prio.algorithm.parameters import AGGREGATORS
from veilring.protocols.release.algorithm.noise import Trust

COLLECTED: Final = "the collector"
"""The trust in one party that gets all answers, and adds an owner's noise."""
_SHARE_VARIANCE: Final = 0.25
"""The greatest variance of whether a person drawn at random has an answer."""


class Need(NamedTuple):
    """The number of people who have to answer.

    Attributes:
        people: The number with which the noise alone keeps within the bound.
        sampled: The number with which noise and sampling do, if people are drawn at random from a
            large population.
    """

    trust: str
    epsilon: float
    people: int
    sampled: int


class Repeated(NamedTuple):
    """The ε of a person who answers a survey several times.

    Attributes:
        basic: The sum, which holds with δ = 0.
        optimal: The smallest ε for a δ that holds for all mechanisms with the ε of each survey.
            Other accounts of pure guarantees, such as zero-concentrated ones, give no less.
    """

    epsilon: float
    times: int
    basic: float
    optimal: float


def people_needed(
    asked: Questionnaire, epsilon: float, bound: float, confidence: float
) -> tuple[Need, ...]:
    """Return the number of people for each kind of trust.

    Each share of people with an answer is then within the bound with the given confidence, whatever
    the share is; the bounds of several answers do not hold jointly.

    Args:
        epsilon: The ε of a person's answers to all questions together.
        bound: The largest error of a share, such as 0.03 for 3 percentage points.
        confidence: Above 0 and below 1.
    """
    require(0 < bound < 1, "points", 100 * bound, "a number between 0 and 100")
    require(0 < confidence < 1, "confidence", confidence, "a number between 0 and 1")
    require(epsilon > 0, "epsilon", epsilon, "a number above 0")
    scale = asked.norm / Fraction(epsilon)
    summed = {AGGREGATED: AGGREGATORS, COLLECTED: Trust(1, 0)}
    return (
        Need(NOBODY, epsilon, *_noisy_reports(asked, epsilon, bound, confidence)),
        *(
            Need(trust, epsilon, *_noisy_totals(scale, float(of.factor), bound, confidence))
            for trust, of in summed.items()
        ),
    )


def _noisy_reports(
    asked: Questionnaire, epsilon: float, bound: float, confidence: float
) -> tuple[int, int]:
    """Return the numbers for a survey in which each person answers one column, drawn at random."""
    columns = [len(each.categories) or asked.bins for each in asked.columns]
    oracles = [recommend_oracle(values, epsilon) for values in set(columns)]
    z = NormalDist().inv_cdf((1 + confidence) / 2)

    def people(sampling: float) -> int:
        ends = [(each.variance(0.0), each.variance(1.0)) for each in oracles]
        worst = max(_largest(*pair, sampling) for pair in ends)
        return len(columns) * math.ceil(worst * (z / bound) ** 2)

    return people(0.0), people(1.0)


def _largest(at_none: float, at_all: float, sampling: float) -> float:
    """Return the greatest variance of a person's contribution to a share f, from 0 to 1.

    The variance is affine in f, and sampling adds `f (1 - f)`.
    """
    slope = at_all - at_none + sampling
    f = min(1.0, max(0.0, slope / (2 * sampling) if sampling else float(slope > 0)))
    return at_none + f * slope - sampling * f * f


def _noisy_totals(
    scale: Fraction, draws: float, bound: float, confidence: float
) -> tuple[int, int]:
    """Return the numbers for totals with the sum of some discrete Laplace draws."""

    def is_enough(variance: float) -> Callable[[int], bool]:
        # an error of exactly the bound is within it; the slack absorbs the rounding of a product
        return lambda people: (
            discrete_laplace_tail(
                math.floor(people * bound + 1e-9), scale, draws, people * variance
            )
            <= 1 - confidence
        )

    return _least(is_enough(0.0)), _least(is_enough(_SHARE_VARIANCE))


def _least(holds: Callable[[int], bool]) -> int:
    high = 1
    while not holds(high):
        high *= 2
    return bisect_left(range(high + 1), True, lo=1, key=holds)


def repeat_survey(epsilon: float, times: int, delta: float) -> Repeated:
    """Return the total ε of a person who answers each of several surveys with the same ε."""
    require(times >= 1, "times", times, "a whole number of at least 1")
    basic = PureDP(epsilon).repeat(times).epsilon()
    return Repeated(epsilon, times, basic, PureSteps(epsilon, times).epsilon(delta))
