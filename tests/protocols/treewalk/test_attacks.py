"""A server's guesses of queries, compared with exact probabilities and proven bounds."""

from itertools import product
from math import exp

import numpy as np
import pytest
from papers.overheard import (
    Overheard,
    attack_queries,
    overheard_response,
    overheard_walk,
    walk_log_likelihood,
)
from scipy.stats import binomtest

from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm.mechanisms import Comparison, bucket_distribution
from veilring.protocols.treewalk.algorithm.tree import build_tree
from veilring.randomness import Streams

RUNS = 20_000
ALARM = 1e-6
POINTS = Streams(1).generator("points").random((16, 2))
TREE = build_tree(POINTS)
CANDIDATES = Streams(2).generator("candidates").random((12, 2))
PRIOR = np.arange(1.0, 13.0) / 78
EXACTLY = 1e-9  # a radius within which there is one candidate only


def _exact(splits: int, steps: Comparison, times: int = 1) -> float:
    """Return the fraction of queries that are the likeliest candidate, over all transcripts."""
    bits = np.array(list(product((False, True), repeat=TREE.depth - splits)))
    likelihood = np.exp(walk_log_likelihood(TREE, steps, splits, bits, CANDIDATES))
    joint = likelihood * PRIOR
    for _ in range(times - 1):
        joint = (joint[:, None, :] * likelihood[None]).reshape(-1, len(CANDIDATES))
    return float(joint.max(axis=1).sum())


@pytest.mark.parametrize("splits", [0, 2])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_a_server_guesses_at_the_bayes_rate(splits: int, epsilon: float) -> None:
    """Of 20,000 queries the server finds the exact Bayes fraction over all transcripts.

    The false-alarm rate is 1e-6; the seed is fixed.
    """
    steps, rng = Comparison(epsilon), Streams(3).generator("attack", splits, str(epsilon))
    overheard = overheard_walk(TREE, steps, splits)
    found = attack_queries(overheard, CANDIDATES, EXACTLY, runs=RUNS, rng=rng, prior=PRIOR)
    hits = round(found.within * RUNS)
    assert binomtest(hits, RUNS, _exact(splits, steps)).pvalue > ALARM
    assert found.blind_within == pytest.approx(PRIOR.max())


def test_repetition_reveals_more() -> None:
    """Of queries repeated with new coins, the server finds the exact fraction of pairs.

    The false-alarm rate is 1e-6; the seed is fixed.
    """
    steps, rng = Comparison(2.0), Streams(4).generator("twice")
    overheard = overheard_walk(TREE, steps, 0)
    found = attack_queries(overheard, CANDIDATES, EXACTLY, runs=RUNS, rng=rng, prior=PRIOR, times=2)
    once, twice = (_exact(0, steps, times) for times in (1, 2))
    assert binomtest(round(found.within * RUNS), RUNS, twice).pvalue > ALARM
    assert twice > once + 0.05


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("mechanism", ["walk", "response"])
def test_no_guess_is_better_than_epsilon_allows(mechanism: str, epsilon: float) -> None:
    """With n candidates, no posterior probability exceeds e**epsilon / (e**epsilon + n - 1).

    The false-alarm rate is 1e-6; the seed is fixed.
    """
    overheard: Overheard
    if mechanism == "walk":
        overheard = overheard_walk(TREE, Comparison(2 * epsilon / TREE.depth), 0)
    else:
        overheard = overheard_response(TREE, bucket_distribution(TREE.depth, 0, epsilon))
    rng = Streams(5).generator(mechanism, str(epsilon))
    found = attack_queries(overheard, TREE.points, EXACTLY, runs=RUNS, rng=rng)
    most = exp(epsilon) / (exp(epsilon) + len(TREE) - 1)
    assert binomtest(round(found.within * RUNS), RUNS, most, "greater").pvalue > ALARM


def test_a_response_reaches_that_bound() -> None:
    """In buckets of one point the server finds exactly the fraction that epsilon allows.

    The false-alarm rate is 1e-6; the seed is fixed.
    """
    distribution = bucket_distribution(TREE.depth, 0, 2.0)
    rng = Streams(6).generator("reached")
    found = attack_queries(
        overheard_response(TREE, distribution), TREE.points, EXACTLY, runs=RUNS, rng=rng
    )
    assert float(distribution.p) == pytest.approx(exp(2) / (exp(2) + 15), rel=1e-9)
    assert binomtest(round(found.within * RUNS), RUNS, float(distribution.p)).pvalue > ALARM


def test_without_noise_nothing_is_hidden_and_with_much_everything_is() -> None:
    """At a large epsilon the guess is the query, at a tiny one a blind guess."""
    rng = Streams(8).generator("extremes")
    open_, closed = (
        attack_queries(
            overheard_walk(TREE, Comparison(epsilon), 0), TREE.points, 0.2, runs=2000, rng=rng
        )
        for epsilon in (70.0, 1e-12)
    )
    assert (open_.error, open_.within) == (0.0, 1.0)
    assert open_.blind_error == closed.blind_error
    assert binomtest(round(closed.within * 2000), 2000, closed.blind_within).pvalue > ALARM


def test_bad_parameters_are_named() -> None:
    """Counts below one, and invalid priors, are refused by name."""
    overheard, rng = overheard_walk(TREE, Comparison(1.0), 0), Streams(9).generator("bad")
    with pytest.raises(InputError, match="times is 0"):
        attack_queries(overheard, CANDIDATES, 0.1, runs=1, rng=rng, times=0)
    with pytest.raises(InputError, match="prior has"):
        attack_queries(overheard, CANDIDATES, 0.1, runs=1, rng=rng, prior=np.full(12, 1.0))
