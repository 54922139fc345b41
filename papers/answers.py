"""Answers of a data owner and of a prediction server, for adversaries who know the mechanism.

Given the rows, the answers of an owner to a batch are independent. The greatest log-ratio of the
probabilities of an answer to the whole batch, on one table and on another, is therefore the sum of
one maximum per query, without enumeration of the answers. For a prediction server, the labels of
many servers with and without one record take their place. `veilring.privacy.bounds` has the
membership attacks on both.
"""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.privacy.selection import permute_and_flip_probabilities
from veilring.protocols.prediction.algorithm.predictor import Predictor
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


MakePredictor = Callable[[bool], Predictor]
"""A function that makes a fresh predictor, with or without the canary."""


def canary_labels(
    make: MakePredictor, *, present: bool, queries: NDArray[np.float32], runs: int, rng: Generator
) -> Ints:
    """Return the labels from independent servers, shape (runs, queries).

    The worst queries repeat the canary itself, if few other records are near.
    """
    labels = np.empty((runs, len(queries)), np.int64)
    for run in range(runs):
        answers = make(present).answer_block(queries, rng)
        labels[run] = [answer.label for answer in answers]
    return labels


def label_probabilities(labels: Ints, classes: int) -> Floats:
    """Return the frequency of each label at each query, shape (queries, classes), never 0."""
    counts = (labels[..., None] == np.arange(classes)).sum(axis=0) + 0.5
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
