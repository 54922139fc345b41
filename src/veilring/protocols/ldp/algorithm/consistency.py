"""What may be done to estimates that are no frequencies, because some are below 0.

The estimates of an oracle are unbiased, and so some are negative. What follows takes the noise's
sign into account and gains accuracy, for a bias upward. The raw estimate and its intervals are kept
beside the result: no interval is made from processed values, since it would not hold.

Sources: "paper", Yilmaz, Al-Rubaie and Chang 2019, Section 3; "norm-sub", Wang et al., "Locally
differentially private frequency estimation with consistency", NDSS 2020, Section 4.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.randomiser import Estimate

Consistency = Literal["paper", "clip", "norm-sub", "raw"]
"""Negative counts become 1; become 0; the nearest frequencies that add up to 1; or nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Processed:
    """Frequencies after processing, beside what they were made of.

    Attributes:
        values: At least 0 unless the method is `"raw"`, shape (entries,).
        method: How they were made.
        raw: The unbiased estimate with its intervals, untouched.
    """

    values: NDArray[np.float64]
    method: Consistency
    raw: Estimate


def process(estimate: Estimate, method: Consistency) -> Processed:
    """Return what a method makes of an estimate.

    Args:
        estimate: Of frequencies over a whole domain.
        method: `"paper"`, `"clip"`, `"norm-sub"` or `"raw"`.

    Raises:
        InputError: If the method is unknown.
    """
    raw = estimate.values
    match method:
        case "paper":
            values = np.where(raw < 0, 1 / estimate.clients, raw)
        case "clip":
            values = np.maximum(raw, 0.0)
        case "norm-sub":
            values = project_on_simplex(raw)
        case "raw":
            values = raw.copy()
        case _:
            raise InputError("method", method, f"one of {', '.join(get_args(Consistency))}")
    return Processed(values, method, estimate)


def project_on_simplex(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest vector (Euclidean) whose entries are at least 0 and add up to 1.

    One number is subtracted from all entries, and what falls below 0 becomes 0; that number is
    unique, and sorting finds it (Held, Wolfe and Crowder 1974).

    Args:
        values: Shape (entries,), at least one.
    """
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    return np.asarray(np.maximum(values - excess[last], 0.0))
