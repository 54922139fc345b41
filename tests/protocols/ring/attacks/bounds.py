"""How far sums of independent bounded terms stray, with a derived probability."""

import numpy as np
from numpy.typing import NDArray


def hoeffding(width: float, count: int, false_alarm: float) -> float:
    """Return what a sum of so many centred terms passes that rarely.

    Args:
        width: Of the interval that each term is sure to lie in.
        count: How many terms.
        false_alarm: Of one side.
    """
    return float(width * np.sqrt(count * np.log(1 / false_alarm) / 2))


def bernstein(variance: float, largest: float, false_alarm: float) -> float:
    """Return what a sum of centred terms passes that rarely.

    Args:
        variance: Of the sum.
        largest: What no term passes.
        false_alarm: Of one side.
    """
    log = np.log(1 / false_alarm)
    return float(largest * log / 3 + np.sqrt((largest * log / 3) ** 2 + 2 * variance * log))


def empirical_bernstein(terms: NDArray[np.float64], width: float, false_alarm: float) -> float:
    """Return what a sum strays from its mean that rarely, its variance estimated from its terms.

    Source: Maurer and Pontil, "Empirical Bernstein bounds and sample-variance penalization", COLT
    2009, Theorem 4.

    Args:
        terms: Independent, of one law, shape (T,).
        width: Of the interval that each is sure to lie in.
        false_alarm: Of one side.
    """
    count, log = len(terms), np.log(2 / false_alarm)
    mean = np.sqrt(2 * terms.var(ddof=1) * log / count) + 7 * width * log / (3 * (count - 1))
    return float(count * mean)
