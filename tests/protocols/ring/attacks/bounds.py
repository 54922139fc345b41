"""Concentration bounds on sums of independent bounded terms, with derived probabilities."""

import numpy as np

from veilring.arrays import Floats


def hoeffding(width: float, count: int, false_alarm: float) -> float:
    """Return a bound that a sum of centred terms exceeds with probability `false_alarm`.

    Args:
        width: The width of the interval that contains each term.
        count: The number of terms.
        false_alarm: The false-alarm rate of one side.
    """
    return float(width * np.sqrt(count * np.log(1 / false_alarm) / 2))


def bernstein(variance: float, largest: float, false_alarm: float) -> float:
    """Return a bound that a sum of centred terms exceeds with probability `false_alarm`.

    Args:
        variance: The variance of the sum.
        largest: The largest value of a term.
        false_alarm: The false-alarm rate of one side.
    """
    log = np.log(1 / false_alarm)
    return float(largest * log / 3 + np.sqrt((largest * log / 3) ** 2 + 2 * variance * log))


def empirical_bernstein(terms: Floats, width: float, false_alarm: float) -> float:
    """Return a bound on a sum's deviation from its mean, with an estimated variance.

    Source: Maurer and Pontil, "Empirical Bernstein bounds and sample-variance penalization", COLT
    2009, Theorem 4.

    Args:
        terms: Independent terms of one distribution, shape (T,).
        width: The width of the interval that contains each term.
        false_alarm: The false-alarm rate of one side.
    """
    count, log = len(terms), np.log(2 / false_alarm)
    mean = np.sqrt(2 * terms.var(ddof=1) * log / count) + 7 * width * log / (3 * (count - 1))
    return float(count * mean)
