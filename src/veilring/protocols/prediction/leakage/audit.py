"""An audit: what runs on two neighbouring tables prove about the privacy loss, whatever is claimed.

A test says "the record is there" if its score is high. How often it does so on either table has
exact binomial bounds (Clopper and Pearson 1934), which hold all together but for the alarm rate.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.proportions import ProportionBounds, proportion_bounds

ALARM: Final = 1e-6
"""How often an audit may say more than is true."""


def audited_epsilon(
    present: NDArray[np.int64],
    absent: NDArray[np.int64],
    highest: int,
    delta: float,
    alarm: float = ALARM,
) -> float:
    """Return an epsilon that the mechanism surely exceeds or meets at this delta, at least 0.

    Args:
        present: Scores of independent runs with the record, from 0 to `highest`, shape (runs,).
        absent: The same without it.
        highest: Of all scores that are possible.
        delta: Of the claim.
        alarm: The probability that the result is above the truth, at most.
    """
    one, other = _bounds(present, absent, highest, alarm)
    likely = np.concatenate([one.low, 1 - one.high, other.low, 1 - other.high])
    rare = np.concatenate([other.high, 1 - other.low, one.high, 1 - one.low])
    # A test that nearly always says yes has a bound of 1 for its other answer: it proves nothing.
    ratios = np.maximum(likely - delta, 0) / np.maximum(rare, np.finfo(float).tiny)
    return float(np.log(np.maximum(ratios, 1.0)).max())


def audited_mu(
    present: NDArray[np.int64], absent: NDArray[np.int64], highest: int, alarm: float = ALARM
) -> float:
    """Return a mu of Gaussian DP that the mechanism surely exceeds or meets, at least 0.

    A test that says yes with probabilities p and q is as good as telling N(0, 1) from N(mu, 1)
    where mu is the difference of their quantiles (Nasr et al. 2023). Arguments as above.
    """
    from scipy.special import ndtri  # noqa: PLC0415  (a party that audits nothing starts sooner)

    one, other = _bounds(present, absent, highest, alarm)
    gaps = np.concatenate([ndtri(one.low) - ndtri(other.high), ndtri(other.low) - ndtri(one.high)])
    return max(0.0, float(gaps.max()))


def _bounds(
    present: NDArray[np.int64], absent: NDArray[np.int64], highest: int, alarm: float
) -> tuple[ProportionBounds, ProportionBounds]:
    """Bound how often the score is at least t, for each t from 1 to `highest`."""
    each = alarm / (4 * highest)  # an upper and a lower bound, for each threshold and table
    thresholds = np.arange(1, highest + 1)
    one, other = (
        proportion_bounds((scores[:, None] >= thresholds).sum(axis=0), len(scores), each)
        for scores in (present, absent)
    )
    return one, other
