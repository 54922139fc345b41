"""Bounds: of honest counts, of probabilities behind counts, and of the loss that runs prove.

An honest report leaves the range of `binomial_range` with probability below 2^-64 on either side,
by Chernoff's bound. Without it a collector would also accept reports that no honest client draws in
the lifetime of the universe, each of which outweighs many clients.
`proportion_bounds` is the opposite direction: exact bounds on a probability from the number of
occurrences.

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
from typing import Final, NamedTuple

import numpy as np

from veilring.arrays import Bools, Floats, Ints

# A million clients that report each second for a thousand years send 2^55 reports.
NEVER_BITS: Final = 64

_SURE: Final = NEVER_BITS * math.log(2)


def binomial_range(trials: int, chance: float) -> tuple[int, int]:
    """Return the minimum and the maximum count that n coins of probability q ever give.

    `P[count >= k]` is at most `e**(-n D(k/n, q))` for `k` above the mean `n q`, with the relative
    entropy `D` of two coins (Hoeffding 1963, Theorem 1), and `P[count <= k]` below it.
    """
    mean = trials * chance

    def surprise(count: int) -> float:
        own = _part(count, trials * chance)
        return own + _part(trials - count, trials * (1 - chance))

    low = _last(lambda down: surprise(math.floor(mean) - down) < _SURE, math.floor(mean))
    high = _last(lambda up: surprise(math.ceil(mean) + up) < _SURE, trials - math.ceil(mean))
    return math.floor(mean) - low, math.ceil(mean) + high


def _part(count: int, expected: float) -> float:
    """Return a coin's side of `n D`, which is infinite for an impossible side."""
    if count == 0:
        return 0.0
    return count * math.log(count / expected) if expected > 0 else math.inf


def _last(holds: Callable[[int], bool], most: int) -> int:
    """Return the largest number from 0 to `most` up to which a condition holds."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


class ProportionBounds(NamedTuple):
    """Bounds of probabilities, one for each count."""

    low: Floats
    high: Floats


def proportion_bounds(counts: Ints, runs: int, alarm: float) -> ProportionBounds:
    """Return a lower and an upper bound on each event's probability (Clopper and Pearson 1934).

    `counts`, of any shape, are the occurrences of each event in independent runs.
    """
    from scipy.special import betainccinv, betaincinv

    low = betaincinv(np.maximum(counts, 1), runs - counts + 1, alarm)
    high = betainccinv(counts + 1, np.maximum(runs - counts, 1), alarm)
    return ProportionBounds(np.where(counts > 0, low, 0.0), np.where(counts < runs, high, 1.0))


ALARM: Final = 1e-6
"""The probability that an audit reports more than the true loss."""


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
