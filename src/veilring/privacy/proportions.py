"""Exact bounds of probabilities, from how often something happened in independent runs."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class ProportionBounds(NamedTuple):
    """Bounds of probabilities, one for each count.

    Attributes:
        low: At least 0.
        high: At most 1.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]


def proportion_bounds(counts: NDArray[np.int64], runs: int, alarm: float) -> ProportionBounds:
    """Return a lower and an upper bound of each event's probability (Clopper and Pearson 1934).

    Args:
        counts: How often each event came up, from 0 to `runs`, of any shape.
        runs: How many independent runs there were, at least 1.
        alarm: With which probability each single bound is wrong, at most.
    """
    from scipy.special import betainccinv, betaincinv  # noqa: PLC0415  (0.1 s, and an audit is rare)

    low = betaincinv(np.maximum(counts, 1), runs - counts + 1, alarm)
    high = betainccinv(counts + 1, np.maximum(runs - counts, 1), alarm)
    return ProportionBounds(np.where(counts > 0, low, 0.0), np.where(counts < runs, high, 1.0))
