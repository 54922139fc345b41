"""Walks and responses: their results, their distributions, and their exact privacy losses."""

from itertools import product
from math import exp, log

import numpy as np
import pytest
from numpy.random import Generator
from papers.overheard import walk_log_likelihood
from scipy.spatial import cKDTree
from scipy.stats import binomtest, chi2

from veilring.arrays import Bools, Floats
from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm.mechanisms import (
    Comparison,
    bucket_distribution,
    bucket_points,
    buckets_of,
    respond,
    walk,
    walk_loss,
)
from veilring.protocols.treewalk.algorithm.tree import Splits, Tree, build_tree
from veilring.randomness import Streams

# Charges are rounded up by less than this, relative to themselves.
ROUNDING = 1e-9


@pytest.fixture
def rng() -> Generator:
    """Return the draws of one test, equal for each run."""
    return Streams(11).generator("walks")


def _tree(points: int, rng: Generator, dimensions: int = 2, splits: Splits | None = None) -> Tree:
    """Return a tree of points, an eighth of which coincide."""
    drawn = rng.random((points, dimensions))
    drawn[: points // 8] = drawn[0]
    return build_tree(drawn, splits)


def _queries(tree: Tree, rng: Generator) -> Floats:
    """Return all points, all corners of the domain, and others at random."""
    corners = np.array(list(product((0.0, 1.0), repeat=tree.dimensions)))
    return np.vstack([tree.points, corners, rng.random((24, tree.dimensions))])


def _transcripts(steps: int) -> Bools:
    return np.array(list(product((False, True), repeat=steps)))


def test_without_noise_one_dimension_is_exact(rng: Generator) -> None:
    """A walk with almost no noise finds the nearest of 1,000 points on a line for all queries."""
    tree = build_tree(rng.random((1000, 1)))
    queries = rng.random((500, 1))
    found = walk(tree, queries, Comparison(80.0), 0, rng).found[:, 0]
    np.testing.assert_array_equal(found, cKDTree(tree.points).query(queries)[1])


def test_exact_hits_are_found(rng: Generator) -> None:
    """A query equal to a point leads to that point, since equality goes right."""
    tree = build_tree(rng.random((64, 2)))
    found = walk(tree, tree.points, Comparison(80.0), 0, rng).found[:, 0]
    np.testing.assert_array_equal(found, np.arange(64))


@pytest.mark.parametrize("splits", [0, 4])
def test_a_bucket_is_where_a_walk_without_noise_ends(splits: int, rng: Generator) -> None:
    """The bucket of a query is the node that a walk with almost no noise reaches."""
    tree, queries = build_tree(rng.random((500, 2))), rng.random((2000, 2))
    found = walk(tree, queries, Comparison(80.0), splits, rng).found[:, 0]
    own = buckets_of(tree.splits, queries, tree.depth - splits)
    np.testing.assert_array_equal(tree.starts[own << splits], found)


@pytest.mark.parametrize("epsilon", [0.7, 4.0])
@pytest.mark.parametrize("splits", [0, 2])
@pytest.mark.parametrize(("points", "dimensions"), [(5, 2), (64, 1), (64, 2), (37, 2), (50, 3)])
def test_no_walk_leaks_more_than_its_charge(
    points: int, dimensions: int, splits: int, epsilon: float, rng: Generator
) -> None:
    """The greatest loss between any two queries, over all transcripts, is at most the charge."""
    tree, steps = _tree(points, rng, dimensions), Comparison(epsilon)
    bits, queries = _transcripts(tree.depth - splits), _queries(tree, rng)
    likelihood = walk_log_likelihood(tree, steps, splits, bits, queries)
    np.testing.assert_allclose(np.exp(likelihood).sum(axis=0), 1.0, rtol=1e-9)
    loss = (likelihood.max(axis=1) - likelihood.min(axis=1)).max()
    assert 0 < loss <= walk_loss(steps, tree.depth - splits) * (1 + ROUNDING)


@pytest.mark.parametrize("splits", ["least-right", "midpoint"])
def test_a_walk_leaks_its_whole_charge(splits: Splits, rng: Generator) -> None:
    """Two opposite corners differ at each step of some path: the charge is not merely a bound."""
    tree, corners = _tree(64, rng, splits=splits), np.array([[-1.0, -1.0], [2.0, 2.0]])
    likelihood = walk_log_likelihood(tree, Comparison(1.0), 0, _transcripts(6), corners)
    charged = walk_loss(Comparison(1.0), 6)
    assert np.ptp(likelihood, axis=1).max() == pytest.approx(charged, rel=ROUNDING)


@pytest.mark.parametrize("epsilon", [1e-9, 0.01, 0.1, 1.0, 5.0, 20.0])
def test_a_step_is_randomised_response_at_half_of_epsilon(epsilon: float) -> None:
    """A comparison slips with a probability that spends epsilon / 2, and 17 of them 17 times."""
    assert Comparison(epsilon).step_loss == pytest.approx(epsilon / 2, rel=1e-6)
    assert Comparison(epsilon).step_loss <= epsilon / 2 * (1 + 1e-12)
    assert walk_loss(Comparison(epsilon), 17) == pytest.approx(8.5 * epsilon, rel=1e-6)
    slip = Comparison(epsilon).slip
    assert slip / 2**64 == pytest.approx(1 / (1 + exp(epsilon / 2)), rel=1e-9)
    assert log((2**64 - slip) / slip) <= epsilon / 2


def test_walks_follow_the_distribution_of_the_likelihood(rng: Generator) -> None:
    """100,000 walks of one query pass a chi-square test against the exact transcript distribution.

    The false-alarm rate is 1e-6; the seed is fixed.
    """
    tree, runs, steps = build_tree(rng.random((8, 2))), 100_000, Comparison(1.0)
    query = rng.random((1, 2))
    walks = walk(tree, np.repeat(query, runs, axis=0), steps, 0, rng)
    counts = np.bincount(walks.bits @ np.array([4, 2, 1]), minlength=8)
    expected = runs * np.exp(walk_log_likelihood(tree, steps, 0, _transcripts(3), query))[:, 0]
    statistic = (np.square(counts - expected) / expected).sum()
    assert statistic < chi2.isf(1e-6, df=7)


def test_a_response_names_its_own_bucket_at_the_stated_rate(rng: Generator) -> None:
    """Of 20,000 responses the stated share is in its own bucket, over twice that of walks.

    The false-alarm rate is 1e-6; the seed is fixed.
    """
    tree, queries = build_tree(rng.random((500, 2))), rng.random((20_000, 2))
    distribution = bucket_distribution(tree.depth, 4, epsilon=3.0)
    own = tree.starts[buckets_of(tree.splits, queries, 5)]
    found = bucket_points(tree, 4, respond(tree.splits, queries, distribution, rng))
    hits = int((found.min(axis=1) == own).sum())
    assert found.shape == (20_000, 16)
    assert distribution.domain == 32
    assert float(distribution.p) == pytest.approx(exp(3) / (exp(3) + 31), rel=1e-9)
    assert binomtest(hits, len(queries), float(distribution.p)).pvalue > 1e-6
    walked = walk(tree, queries, Comparison(2 * 3.0 / 5), 4, rng).found.min(axis=1) == own
    assert hits > 2 * walked.sum() > 0


@pytest.mark.parametrize("points", [16, 37, 64])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_a_response_leaks_exactly_its_epsilon(points: int, epsilon: float, rng: Generator) -> None:
    """The exact distribution of the named bucket differs by e**epsilon between any two queries."""
    tree = _tree(points, rng)
    queries = _queries(tree, rng)
    for splits in range(tree.depth):
        distribution = bucket_distribution(tree.depth, splits, epsilon)
        own = buckets_of(tree.splits, queries, tree.depth - splits) - distribution.domain
        chances = np.where(
            own[:, None] == np.arange(distribution.domain), distribution.own, distribution.other
        )
        assert (chances.sum(axis=1) == distribution.total).all()
        # In logs of whole numbers the ratios are exact to the last bits of a float.
        assert log(int(chances.max())) - log(int(chances.min())) <= distribution.epsilon + 1e-12
        assert distribution.epsilon <= epsilon * (1 + ROUNDING)
        assert distribution.epsilon == pytest.approx(epsilon, rel=1e-6)


def test_bad_parameters_are_named() -> None:
    """An invalid parameter is refused by name."""
    with pytest.raises(InputError, match="epsilon is 0"):
        Comparison(0.0)
    with pytest.raises(InputError, match="splits"):
        bucket_distribution(5, 5, 1.0)
