"""Private walks: their results, their cost, and their exact spending."""

from itertools import product
from math import exp, log

import numpy as np
import pytest
from numpy.random import Generator
from scipy.spatial import cKDTree
from scipy.stats import chi2

from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm.tree import Tree, build_tree
from veilring.protocols.treewalk.algorithm.walks import (
    BASIC,
    Comparison,
    Distance,
    Utility,
    Variant,
    walk,
)
from veilring.protocols.treewalk.leakage import walk_log_likelihood
from veilring.randomness import Streams

SQUARE = 2**0.5
VARIANTS = [BASIC, Variant("parallel", 1), Variant("early", 2), Variant("greedy")]
UTILITIES: list[Utility] = [
    Comparison(0.7),
    Comparison(3.0),
    Comparison(1.0, paper=True),
    Distance(0.7, SQUARE, SQUARE),
    Distance(3.0, SQUARE, SQUARE),
]


@pytest.fixture
def rng() -> Generator:
    """Return the draws of one test, equal for each run."""
    return Streams(11).generator("walks")


def _tree(points: int, rng: Generator, dimensions: int = 2) -> Tree:
    return build_tree(rng.random((points, dimensions)))


@pytest.mark.parametrize("points", [2, 16, 61, 64])
def test_compositions_have_their_closed_forms(points: int) -> None:
    """The four kinds of variant take L, (L - s) 2^s, L - s and L (L + 1) / 2 steps."""
    depth = (points - 1).bit_length()
    assert BASIC.compositions(depth) == depth
    assert Variant("parallel", 1).compositions(depth) == (depth - 1) * 2
    assert Variant("early", 1).compositions(depth) == depth - 1
    assert Variant("greedy").compositions(depth) == depth * (depth + 1) // 2


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.kind)
def test_shapes_do_not_depend_on_private_data(variant: Variant, rng: Generator) -> None:
    """Bits and found leaves have the closed forms' sizes for every query."""
    tree = _tree(61, rng)
    walks = walk(tree, rng.random((50, 2)), Comparison(1.0), variant, rng)
    assert walks.bits.shape == (50, variant.compositions(tree.depth))
    assert walks.found.shape == (50, variant.found(tree.depth))


def test_without_noise_one_dimension_is_exact(rng: Generator) -> None:
    """A walk with almost no noise finds the nearest of 1,000 points on a line for all queries."""
    tree = _tree(1000, rng, dimensions=1)
    queries = rng.random((500, 1))
    found = walk(tree, queries, Comparison(80.0), BASIC, rng).found[:, 0]
    np.testing.assert_array_equal(found, cKDTree(tree.points).query(queries)[1])


def test_exact_hits_are_found(rng: Generator) -> None:
    """A query equal to a point leads to that point, since equality goes right."""
    tree = _tree(64, rng)
    found = walk(tree, tree.points, Comparison(80.0), BASIC, rng).found[:, 0]
    np.testing.assert_array_equal(found, np.arange(64))


@pytest.mark.parametrize("utility", UTILITIES, ids=repr)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.kind)
@pytest.mark.parametrize("points", [5, 16])
def test_no_two_queries_differ_by_more_than_the_claim(
    utility: Utility, variant: Variant, points: int, rng: Generator
) -> None:
    """The loss over all transcripts and pairs of queries is at most c times that of a step."""
    tree = _tree(points, rng)
    corners = np.array(list(product((0.0, 1.0), repeat=2)))
    queries = np.vstack([rng.random((20, 2)), corners, tree.points])
    steps = variant.compositions(tree.depth)
    bits = np.array(list(product((False, True), repeat=steps)))
    likelihood = walk_log_likelihood(tree, utility, variant, bits, queries)
    np.testing.assert_allclose(np.exp(likelihood).sum(axis=0), 1.0, rtol=1e-9)
    loss = (likelihood.max(axis=1) - likelihood.min(axis=1)).max()
    assert loss <= steps * utility.step_loss * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [1e-9, 0.01, 0.1, 1.0, 5.0, 20.0])
def test_a_step_is_randomised_response_at_half_of_epsilon(epsilon: float) -> None:
    """A comparison spends at most epsilon / 2, or epsilon as in the paper's plots."""
    assert Comparison(epsilon).step_loss == pytest.approx(epsilon / 2, rel=1e-6)
    assert Comparison(epsilon).step_loss <= epsilon / 2 * (1 + 1e-12)
    assert Comparison(epsilon, paper=True).step_loss == pytest.approx(epsilon, rel=1e-6)


def test_distances_hide_near_queries_from_each_other(rng: Generator) -> None:
    """With a radius r as sensitivity, a step loses at most epsilon s / r at distance s."""
    tree, radius = _tree(16, rng), 0.05
    queries = rng.random((40, 2))
    bits = np.array(list(product((False, True), repeat=4)))
    likelihood = walk_log_likelihood(tree, Distance(1.0, radius), BASIC, bits, queries)
    loss = np.abs(likelihood[:, :, None] - likelihood[:, None, :]).max(axis=0)
    apart = np.sqrt(np.square(queries[:, None] - queries[None]).sum(axis=2))
    assert (loss <= 4 * apart / radius * (1 + 1e-6) + 1e-9).all()


def test_nodes_invented_by_a_server_reveal_no_more() -> None:
    """With nodes at 2^66 radii, queries a tenth of a radius apart differ by at most e^0.1."""
    nodes = np.array([[2.0**66, 0.0, -(2.0**66), 0.0]])
    near = np.array([[4096.0, 0.0], [4096.1, 0.0]])
    first, second = (
        Distance(1.0, 1.0).judge(nodes, query[None], 0).slip[0] / 2**64 for query in near
    )
    assert abs(log(first / second)) <= 0.1 * (1 + 1e-4)


@pytest.mark.parametrize("utility", [Comparison(1.0), Distance(2.0, SQUARE, SQUARE)], ids=repr)
def test_walks_follow_the_distribution_of_the_likelihood(utility: Utility, rng: Generator) -> None:
    """100,000 walks of one query pass a chi-square test against the exact transcript distribution.

    The false-alarm rate is 1e-6; the seed is fixed.
    """
    tree, runs = _tree(8, rng), 100_000
    query = rng.random((1, 2))
    walks = walk(tree, np.repeat(query, runs, axis=0), utility, BASIC, rng)
    counts = np.bincount(walks.bits @ np.array([4, 2, 1]), minlength=8)
    bits = np.array(list(product((False, True), repeat=3)))
    expected = runs * np.exp(walk_log_likelihood(tree, utility, BASIC, bits, query))[:, 0]
    statistic = (np.square(counts - expected) / expected).sum()
    assert statistic < chi2.isf(1e-6, df=7)


def test_the_worked_step() -> None:
    """At epsilon 2 a comparison slips with probability 1 / (1 + e), rounded up."""
    slip = int(Comparison(2.0).judge(np.zeros((1, 1)), np.zeros((1, 2)), 0).slip)
    assert slip / 2**64 == pytest.approx(1 / (1 + exp(1)), rel=1e-12)
    assert log((2**64 - slip) / slip) <= 1.0


def test_bad_parameters_are_named() -> None:
    """An invalid parameter is refused by name."""
    with pytest.raises(InputError, match="epsilon is 0"):
        Comparison(0.0)
    with pytest.raises(InputError, match="sensitivity is -1"):
        Distance(1.0, -1.0)
    with pytest.raises(InputError, match="splits is 3"):
        Variant("basic", 3)
    with pytest.raises(InputError, match="splits is 9"):
        Variant("early", 9).check(depth=4)
