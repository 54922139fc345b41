"""Bounds that hold for the exact distribution at any number of draws, without normality."""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from papers.oracles import SummedHistogram
from scipy import optimize, stats

from veilring.arrays import Floats
from veilring.protocols.ldp.algorithm.randomiser import FrequencyOracle, PureOracle

Distribution: TypeAlias = tuple[Floats, Floats]
"""Outcomes and their probabilities."""


def bernstein(variance: float, largest: float, alarm: float) -> float:
    """Return a bound on a sum of independent centred numbers, exceeded with probability `alarm`.

    Args:
        variance: The variance of the sum.
        largest: The maximum absolute value of a single number.
        alarm: The false-alarm rate of both sides together.
    """
    needed = math.log(2 / alarm)
    return math.sqrt(2 * variance * needed) + 2 * largest * needed / 3


def sum_distribution(oracle: FrequencyOracle, clients: int, *, own: bool) -> Distribution:
    """Return the exact distribution of one sum over clients that all hold one value.

    Args:
        oracle: The frequency oracle.
        clients: The number of clients.
        own: Whether to count their own value or another one.
    """
    if isinstance(oracle, PureOracle):
        outcomes = np.arange(clients + 1.0)
        p = float(oracle.p if own else oracle.q)
        return outcomes, np.asarray(stats.binom.pmf(outcomes, clients, p))
    assert isinstance(oracle, SummedHistogram)
    distribution = np.array([float(each) for each in oracle.distributions.probabilities(int(own))])
    size = clients * (len(distribution) - 1) + 1
    power = np.fft.irfft(np.fft.rfft(distribution, size) ** clients, size)
    return np.arange(float(size)) - clients * oracle.bound, np.maximum(power, 0.0)


def squared_error(distribution: Distribution) -> Distribution:
    """Return the distribution of the squared distance from the mean, divided by the variance."""
    outcomes, probabilities = distribution
    centred = (outcomes - outcomes @ probabilities) ** 2
    return centred / (centred @ probabilities), probabilities


def chernoff(distributions: Sequence[Distribution], runs: int, alarm: float) -> tuple[float, float]:
    """Return an interval that contains a mean of independent numbers with probability 1 - `alarm`.

    Args:
        distributions: The distributions of the numbers, which are at least 0 and have mean 1.
        runs: The number of numbers of each distribution.
        alarm: The false-alarm rate of both sides together.
    """
    needed = math.log(2 / alarm) / (runs * len(distributions))

    def side(sign: float) -> float:
        """Return the best of the bounds over all Chernoff parameters."""

        def bound(log_parameter: float) -> float:
            t = sign * math.exp(log_parameter)
            mean = sum(_log_moment(distribution, t) for distribution in distributions) / len(
                distributions
            )
            return sign * (mean + needed) / t

        found = optimize.minimize_scalar(bound, bounds=(-8.0, 2.0), method="bounded")
        return float(found.fun)

    return -side(-1.0), side(1.0)


def _log_moment(distribution: Distribution, t: float) -> float:
    outcomes, probabilities = distribution
    top = max(t * float(outcomes.max()), 0.0)
    return math.log(float(np.exp(t * outcomes - top) @ probabilities)) + top
