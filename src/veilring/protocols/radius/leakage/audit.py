"""An audit: what runs on two neighbouring tables prove about epsilon, whatever is claimed."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ("ALARM", "audited_epsilon")

ALARM: Final = 1e-6
"""How often an audit may say more than is true."""


def audited_epsilon(
    one: NDArray[np.int64], other: NDArray[np.int64], alarm: float = ALARM
) -> float:
    """Return an epsilon that the mechanism surely exceeds or meets, at least 0.

    Each event's probability on one table is at most `e^epsilon` times that on the other. Both get
    exact binomial bounds (Clopper and Pearson 1934) that hold all together but for the alarm rate,
    so the events may be any partition of the answers that does not depend on these runs.

    Args:
        one: How often each event came up in independent runs on one table, shape (events,).
        other: The same on its neighbour.
        alarm: The probability that the result is above the true epsilon, at most.
    """
    from scipy.stats import beta  # noqa: PLC0415  (0.8 s, and an audit is rare)

    each = alarm / (4 * len(one))  # an upper and a lower bound for each event and table
    bounds = []
    for counts in (one, other):
        runs = counts.sum()
        low = np.where(counts > 0, beta.ppf(each, np.maximum(counts, 1), runs - counts + 1), 0.0)
        tail = beta.isf(each, counts + 1, np.maximum(runs - counts, 1))
        bounds.append((low, np.where(counts < runs, tail, 1.0)))
    (low_one, high_one), (low_other, high_other) = bounds
    ratios = np.concatenate([low_one / high_other, low_other / high_one])
    return float(np.log(np.maximum(ratios, 1.0)).max())
