"""Exact distributions and privacy losses of the answers to a batch, and a batch hard to plan.

Given the rows, the answers to a batch are independent. The greatest log-ratio of the probabilities
of an answer to the whole batch, on one table and on another, is therefore the sum of one maximum
per query, without enumeration of the answers. `veilring.privacy.bounds` has the membership attacks
on these distributions.
"""

import numpy as np
from numpy.random import Generator

from veilring.arrays import Floats
from veilring.data.table import Rows, pairwise_distances
from veilring.privacy.selection import permute_and_flip_probabilities
from veilring.protocols.radius.algorithm.allocation import Allocation
from veilring.protocols.radius.algorithm.balls import count_votes


def batch_probabilities(
    queries: Floats, radii: Floats, rows: Rows, classes: int, allocation: Allocation
) -> Floats:
    """Return the distribution of each query's label, shape (Q, classes), under any allocation.

    Args:
        allocation: The ε of each query, which need not be safe.
    """
    counts = count_votes(queries, radii, rows, classes)
    return permute_and_flip_probabilities(counts, allocation.epsilons, monotone=True)


def greatest_loss(one: Floats, other: Floats) -> float:
    """Return the greatest absolute log-ratio of the probabilities of any joint answer.

    Args:
        one: The distribution of each answer on one table, shape (Q, answers), all above 0.
    """
    ratios = np.log(one) - np.log(other)
    return float(max(ratios.max(axis=1).sum(), (-ratios).max(axis=1).sum()))


def hostile_batch(
    queries: int, features: int, share: float, rng: Generator
) -> tuple[Floats, Floats]:
    """Return a batch whose exact clique search does not end in practice.

    In many dimensions all distances are similar, so the overlap graph is close to a random graph.

    Returns:
        The queries, shape (Q, f), and their radii, shape (Q,).
    """
    points = rng.random((queries, features))
    pairs = pairwise_distances(points, points)[np.triu_indices(queries, 1)]
    return points, np.full(queries, np.quantile(pairs, share) / 2)
