"""What the ring leaks to the successor of a party, on the rows of a split."""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.table import Rows, pairwise_distances
from veilring.protocols.ring.algorithm.topk import own_smallest
from veilring.protocols.ring.roles import KNNParameters
from veilring.protocols.system import Estimate, Leakage
from veilring.scenarios.leakage import leakage_among, trials_among

TRIALS: Final = 5_000
"""As many as a scenario's report has unless it says otherwise."""
_NAMES: Final = ("exposure", "claim", "lop", "lop_peak")


def measure_leakage(
    parts: Iterable[Rows], queries: NDArray[np.float64], parameters: KNNParameters, rng: Generator
) -> Leakage:
    """Estimate what a hop leaks over these queries, as the report of a scenario does.

    Args:
        parts: The rows of each party.
        queries: Shape (queries, features).
        parameters: Public.
        rng: Source of the trials.
    """
    k = parameters.k
    own = [own_smallest(pairwise_distances(queries, rows.features), k) for rows in parts]
    trials = trials_among(len(own), parameters.topk, TRIALS)
    found = leakage_among(np.stack(own, axis=1), parameters.topk, trials, rng)
    estimates = (getattr(found, name) for name in _NAMES)
    return Leakage(
        trials,
        {
            name: Estimate(each.value, each.standard_error)
            for name, each in zip(_NAMES, estimates, strict=True)
        },
    )
