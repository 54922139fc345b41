"""Making counts out of estimates that may be negative.

Estimates are unbiased, so that rare values often get a count below 0. What is done about it is no
longer unbiased, and so it is kept apart from the estimates.
"""

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError

__all__ = ("CONSISTENCIES", "Consistency", "consistent", "norm_sub")

Consistency = Literal["paper", "clip", "norm-sub"]
"""Negative counts become 1 (the paper, Section 3.1.2), or 0, or all counts are shifted alike."""
CONSISTENCIES: Final[tuple[Consistency, ...]] = ("paper", "clip", "norm-sub")


def consistent(counts: NDArray[np.float64], total: float, how: Consistency) -> NDArray[np.float64]:
    """Return counts of at least 0.

    Args:
        counts: Estimates, of any shape.
        total: What they would sum to without noise; only `norm-sub` heeds it.
        how: What to do about negative ones.

    Raises:
        InputError: If there is no such way.
    """
    match how:
        case "paper":
            return np.where(counts < 0, 1.0, counts)
        case "clip":
            return np.maximum(counts, 0.0)
        case "norm-sub":
            return norm_sub(counts, total) if total > 0 else np.zeros_like(counts)
        case _:
            raise InputError("consistency", how, ", ".join(CONSISTENCIES))


def norm_sub(counts: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """Return the nearest counts (least squares) that are at least 0 and sum to `total`.

    All are shifted by one number and cut at 0: the projection onto a simplex (Wang et al., "Locally
    differentially private frequency estimation with consistency", NDSS 2020, Norm-Sub).

    Args:
        counts: Of any shape.
        total: Above 0.
    """
    falling = np.sort(counts, axis=None)[::-1]
    shifts = (total - np.cumsum(falling)) / np.arange(1, falling.size + 1)
    # The largest so many are kept that are still above 0 when shifted by their own shift.
    kept = np.flatnonzero(falling + shifts > 0)[-1]
    return np.asarray(np.maximum(counts + shifts[kept], 0.0))
