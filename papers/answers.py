"""Answers of a data owner and of a prediction server, for adversaries who know the mechanism.

Given the rows, the answers of an owner to a batch are independent. The greatest log-ratio of the
probabilities of an answer to the whole batch, on one table and on another, is therefore the sum of
one maximum per query, without enumeration of the answers. For a prediction server, the labels of
many servers with and without one record take their place.

An audit runs a mechanism on two neighbouring data sets and proves a lower bound on its privacy loss
from the runs, whatever it claims. Every probability has exact binomial bounds (Clopper and Pearson
1934) that hold jointly except with the false-alarm rate.

A membership attack infers from the answers to a batch whether a record is in the table. The
adversary knows all other records, the batch and the mechanism, and compares the likelihoods of the
answers with and without the record. No test of the same answers has a greater advantage, and
differential privacy bounds that advantage.
"""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.privacy.bounds import ALARM, ProportionBounds, proportion_bounds
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


def audited_epsilon(one: Ints, other: Ints, alarm: float = ALARM) -> float:
    """Return a proven lower bound on the mechanism's epsilon, at least 0.

    The probability of each event on one data set is at most `e^epsilon` times that on the other.
    The events may be any partition of the answers that does not depend on these runs; each array
    has their counts in independent runs on one of two neighbouring data sets, shape (events,).
    """
    each = alarm / (4 * len(one))  # an upper and a lower bound for each event and data set
    first, second = (proportion_bounds(counts, int(counts.sum()), each) for counts in (one, other))
    ratios = np.concatenate([first.low / second.high, second.low / first.high])
    return float(np.log(np.maximum(ratios, 1.0)).max())


def audited_epsilon_of_scores(
    present: Ints, absent: Ints, highest: int, delta: float, alarm: float = ALARM
) -> float:
    """Return a proven lower bound on the mechanism's epsilon at this delta, at least 0.

    A test infers that the record is present if the score of a run, from 0 to `highest`, reaches a
    threshold. The scores are those of independent runs, shape (runs,).
    """
    one, other = _threshold_bounds(present, absent, highest, alarm)
    likely = np.concatenate([one.low, 1 - one.high, other.low, 1 - other.high])
    rare = np.concatenate([other.high, 1 - other.low, one.high, 1 - one.low])
    # A test that nearly always says yes has a bound of 1 for its other answer and proves nothing.
    ratios = np.maximum(likely - delta, 0) / np.maximum(rare, np.finfo(float).tiny)
    return float(np.log(np.maximum(ratios, 1.0)).max())


def audited_mu(present: Ints, absent: Ints, highest: int, alarm: float = ALARM) -> float:
    """Return a proven lower bound on the mechanism's mu of Gaussian DP, at least 0.

    A test that says yes with probabilities p and q is as good as one that distinguishes N(0, 1)
    from N(mu, 1), where mu is the difference of their quantiles (Nasr et al. 2023). The arguments
    are those of `audited_epsilon_of_scores`.
    """
    from scipy.special import ndtri

    one, other = _threshold_bounds(present, absent, highest, alarm)
    gaps = np.concatenate([ndtri(one.low) - ndtri(other.high), ndtri(other.low) - ndtri(one.high)])
    return max(0.0, float(gaps.max()))


def _threshold_bounds(
    present: Ints, absent: Ints, highest: int, alarm: float
) -> tuple[ProportionBounds, ProportionBounds]:
    """Bound the probability that a score is at least t, for each t from 1 to `highest`."""
    each = alarm / (4 * highest)  # an upper and a lower bound, for each threshold and data set
    thresholds = np.arange(1, highest + 1)
    one, other = (
        proportion_bounds((scores[:, None] >= thresholds).sum(axis=0), len(scores), each)
        for scores in (present, absent)
    )
    return one, other


def guess_membership(labels: Ints, present: Floats, absent: Floats) -> Bools:
    """Return whether the labels of each run are more likely with the record, shape (runs,).

    Args:
        labels: The labels of the batch asked in each run, shape (runs, queries).
        present: The distribution of each query's label with the record, shape (queries, classes).
        absent: Those without it.
    """
    ratios = np.log(present) - np.log(absent)
    return np.asarray(ratios[np.arange(labels.shape[1]), labels].sum(axis=1) > 0)


def membership_advantage(with_record: Bools, without: Bools) -> float:
    """Return the rate of true positives minus the rate of false positives of guesses in runs."""
    return float(with_record.mean() - without.mean())


def exact_advantage(present: Floats, absent: Floats) -> float:
    """Return the greatest advantage of any test: half the sum of differences over all answers.

    The distributions are those of `guess_membership`; `classes ** queries` answers are enumerated.
    """
    queries, classes = present.shape
    answers = np.array(list(product(range(classes), repeat=queries)))
    places = np.arange(queries)
    one, other = (distribution[places, answers].prod(axis=1) for distribution in (present, absent))
    return float(np.abs(one - other).sum() / 2)


def advantage_bound(epsilon: float) -> float:
    """Return the greatest advantage that epsilon-DP allows: `(e^eps - 1) / (e^eps + 1)`."""
    return math.tanh(epsilon / 2)


def gaussian_advantage_bound(mu: float) -> float:
    """Return the greatest advantage that mu-Gaussian DP allows: `2 Phi(mu / 2) - 1`."""
    return math.erf(mu / math.sqrt(8))
