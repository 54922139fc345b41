"""Labels by noisy votes within radii: private r-N (Algorithm 3), by permute-and-flip.

Each row has one label, so a row changes one count by one, and the budget of a query covers all its
labels. Adding a row never decreases a count, so permute-and-flip does not need the factor of 2 of
the paper's exponential mechanism.

Queries, radii, parameters and functions of them, such as each query's share of the budget, are
public. Rows, counts and the generator are secret. Labels are released.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.table import Rows
from veilring.privacy.selection import permute_and_flip
from veilring.protocols.radius.algorithm.allocation import (
    WORK_MAX,
    Allocation,
    allocate_budget,
)
from veilring.protocols.radius.algorithm.balls import count_votes, overlap_graph, require_width


@dataclass(frozen=True, slots=True)
class RNParameters:
    """The public parameters of a batch with radii.

    Attributes:
        epsilon: The budget of the batch, above 0, if a row is added or removed; twice as much if a
            row is replaced.
    """

    epsilon: float
    classes: int
    work: int = WORK_MAX


def label_within(
    queries: NDArray[np.float64],
    radii: NDArray[np.float64],
    rows: Rows,
    parameters: RNParameters,
    rng: Generator,
) -> NDArray[np.int64]:
    """Release a label for each query, shape (Q,), all under `parameters.epsilon` (Algorithm 3).

    For a ball without rows, the label is random.

    Args:
        queries: The queries, shape (Q, f), in [0, 1].
        radii: The radii, shape (Q,), finite, at least 0.
        rows: The secret table with f features.
        rng: The secret source of randomness.
    """
    require_width(queries, rows)
    shares = plan_batch(queries, radii, parameters).epsilons
    counts = count_votes(queries, radii, rows, parameters.classes)
    return permute_and_flip(counts, shares, rng, monotone=True)


def plan_batch(
    queries: NDArray[np.float64], radii: NDArray[np.float64], parameters: RNParameters
) -> Allocation:
    """Return the share of the budget of each query, from public values alone.

    Args:
        queries: The queries, shape (Q, f), in [0, 1].
        radii: The radii, shape (Q,), finite, at least 0.
    """
    graph = overlap_graph(queries, radii)
    return allocate_budget(graph, parameters.epsilon, work=parameters.work)
