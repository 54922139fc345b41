"""Means over random splits of one table, with confidence intervals."""

from collections.abc import Sequence
from math import sqrt
from typing import Final, NamedTuple

import numpy as np

from veilring.protocols.ring.leakage import proportion_interval

CONFIDENCE: Final = 0.95
INTERVAL: Final = (
    "the mean over the splits with a 95% interval of Student's t distribution. Its variance is s²"
    " (1/J + q/n), for J splits with q queries and n training rows (the corrected resampled t of "
    "Nadeau and Bengio, 2003). Splits of one table share most of their rows, so that without the "
    "second term intervals would be too narrow. If the splits happen to agree, the interval "
    "reaches as far as the exact (Clopper-Pearson) interval of the same number of independent "
    "queries."
)
"""A description of the intervals."""


class Interval(NamedTuple):
    """A mean over splits with its confidence interval."""

    mean: float
    low: float
    high: float


def over_splits(values: Sequence[float], overlap: float) -> Interval:
    """Return the mean of one number per split with its corrected resampled t interval.

    Source: Nadeau and Bengio, "Inference for the generalization error", Machine Learning 52 (2003),
    Section 3: the variance `s² (1/J + n2/n1)` accounts for the overlap of the splits.

    Args:
        values: One value per split, at least two.
        overlap: The number of queries of a split divided by that of its training rows, `n2/n1`.
    """
    from scipy.special import stdtrit

    count, mean = len(values), float(np.mean(values))
    deviation = float(np.std(values, ddof=1))
    quantile = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    reach = quantile * deviation * sqrt(1 / count + overlap)
    return Interval(mean, mean - reach, mean + reach)


def share_over_splits(shares: Sequence[float], overlap: float, queries: int) -> Interval:
    """Return the mean of one share per split with its interval: see `INTERVAL`.

    Args:
        shares: The shares of equally many queries, at least two.
    """
    mean, low, high = over_splits(shares, overlap)
    exact = proportion_interval(mean, queries * len(shares), CONFIDENCE)
    return Interval(mean, max(0.0, min(low, exact[0])), min(1.0, max(high, exact[1])))
