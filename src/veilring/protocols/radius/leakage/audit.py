"""An audit: what runs on two neighbouring tables prove about epsilon, whatever is claimed."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.proportions import proportion_bounds

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
    each = alarm / (4 * len(one))  # an upper and a lower bound for each event and table
    first, second = (proportion_bounds(counts, int(counts.sum()), each) for counts in (one, other))
    ratios = np.concatenate([first.low / second.high, second.low / first.high])
    return float(np.log(np.maximum(ratios, 1.0)).max())
