"""What a hop leaks in a scenario: the protocol's estimators on the scenario's own distances.

Only the runner of an experiment has all parties' rows; no party of a deployment could do this.
"""

from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.leakage import HopLeakage, estimate_hop_leakage

TRIALS_MIN: Final = 2  # with one there is no standard error
# Entries of all vectors of all trials: what one core works through in a second or two. A ring of
# 1,000 parties with k = 5 and 8 rounds is left with 104 trials.
ENTRIES_MAX: Final = 2**22


def trials_among(parties: int, parameters: TopKParameters, wanted: int) -> int:
    """Return how many trials are run among so many parties, as `trials_for` does."""
    entries = parties * parameters.rounds * parameters.k
    return min(wanted, max(TRIALS_MIN, ENTRIES_MAX // entries))


def leakage_among(
    own: NDArray[np.float64], parameters: TopKParameters, trials: int, rng: Generator
) -> HopLeakage:
    """Estimate what a hop leaks among parties with these distances, as `estimate_leakage` does.

    Args:
        own: Each party's k smallest distances to each query, shape (queries, parties, k).
        parameters: Of PP-TopK.
        trials: At least `TRIALS_MIN`.
        rng: Source of the queries, the orders, and the parties' coins and noise.
    """
    queries, parties, _ = own.shape
    drawn = rng.integers(queries, size=trials)
    orders = rng.permuted(np.tile(np.arange(parties), (trials, 1)), axis=1)
    return estimate_hop_leakage(own[drawn[:, None], orders], parameters, rng)
