"""What the answers to a batch give away: exact laws and losses, and a batch that is hard to plan.

The answers to a batch are independent given the rows. So the greatest log-ratio of the probability
of any answer to the whole batch, on one table and on another, is a sum of one maximum a query; no
answer need be enumerated. `veilring.privacy.audits` has the membership attacks on these laws.
"""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.table import Rows, pairwise_distances
from veilring.protocols.radius.algorithm.allocation import Allocation
from veilring.protocols.radius.algorithm.balls import count_votes
from veilring.protocols.radius.algorithm.voting import (
    Mechanism,
    RNParameters,
    label_law,
    plan_batch,
)


def batch_law(  # noqa: PLR0917  (a batch, a table, and how it is labelled)
    queries: NDArray[np.float64],
    radii: NDArray[np.float64],
    rows: Rows,
    classes: int,
    allocation: Allocation,
    mechanism: Mechanism,
) -> NDArray[np.float64]:
    """Return the law of each query's label, shape (Q, classes), under any allocation.

    Args:
        queries: Shape (Q, f), in [0, 1].
        radii: Shape (Q,).
        rows: The table.
        classes: The number of classes.
        allocation: What each query spends, whether that is safe or not.
        mechanism: How a label is chosen.
    """
    counts = count_votes(queries, radii, rows, classes)
    return label_law(counts, allocation.epsilons, mechanism)


def greatest_loss(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the greatest absolute log-ratio of the probabilities of any joint answer.

    Args:
        one: The law of each answer on one table, shape (Q, answers), all above 0.
        other: The same on another table.
    """
    ratios = np.log(one) - np.log(other)
    return float(max(ratios.max(axis=1).sum(), (-ratios).max(axis=1).sum()))


def batch_loss(
    queries: NDArray[np.float64],
    radii: NDArray[np.float64],
    tables: tuple[Rows, Rows],
    parameters: RNParameters,
    allocation: Allocation | None = None,
) -> float:
    """Return the exact privacy loss of an r-N batch between two tables.

    Args:
        queries: Shape (Q, f), in [0, 1].
        radii: Shape (Q,).
        tables: Two neighbours.
        parameters: How the batch is labelled.
        allocation: What each query spends; by default what `parameters` says.
    """
    shares = allocation or plan_batch(queries, radii, parameters)
    one, other = (
        batch_law(queries, radii, rows, parameters.classes, shares, parameters.mechanism)
        for rows in tables
    )
    return greatest_loss(one, other)


def hostile_batch(
    queries: int, features: int, share: float, rng: Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a batch and its radii on which exact clique search does not come to an end.

    In many dimensions all distances are alike, so that edges are nearly those of a random graph.

    Args:
        queries: Q, the number of queries.
        features: The number of features; many.
        share: The share of all pairs that meet.
        rng: The source of the places.

    Returns:
        Places, shape (Q, f), and radii, shape (Q,).
    """
    points = rng.random((queries, features))
    pairs = pairwise_distances(points, points)[np.triu_indices(queries, 1)]
    return points, np.full(queries, np.quantile(pairs, share) / 2)
