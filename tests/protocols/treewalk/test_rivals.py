"""Randomised response over buckets, and blurred queries."""

from math import exp

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.stats import binomtest

from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm.rivals import (
    Blur,
    blur,
    bucket_law,
    buckets_of,
    points_of,
    respond,
)
from veilring.protocols.treewalk.algorithm.steps import Comparison
from veilring.protocols.treewalk.algorithm.tree import build_tree
from veilring.protocols.treewalk.algorithm.walks import BASIC, Variant, walk
from veilring.randomness import Streams

RNG = Streams(9).generator("rivals")
TREE = build_tree(RNG.random((500, 2)))
QUERIES = RNG.random((20_000, 2))


def test_a_bucket_is_where_a_walk_without_noise_ends() -> None:
    """The bucket of a query is the node that a walk reaches that hardly ever slips."""
    found = walk(TREE, QUERIES, Comparison(80.0), BASIC, RNG).found[:, 0]
    leaves = buckets_of(TREE.splits, QUERIES, TREE.depth)
    np.testing.assert_array_equal(TREE.starts[leaves], found)


def test_a_response_names_the_own_bucket_as_often_as_it_says() -> None:
    """The share of 20,000 responses in their own bucket is that of the law.

    A test that is true fails with probability 1e-6; the seed is fixed.
    """
    law = bucket_law(TREE.depth, 4, epsilon=3.0)
    found = points_of(TREE, 4, respond(TREE.splits, QUERIES, law, RNG))
    own = TREE.starts[buckets_of(TREE.splits, QUERIES, 5)]
    hits = int((found.min(axis=1) == own).sum())
    assert found.shape == (20_000, 16)
    assert law.domain == 32
    assert float(law.p) == pytest.approx(exp(3) / (exp(3) + 31), rel=1e-9)
    assert binomtest(hits, len(QUERIES), float(law.p)).pvalue > 1e-6


def test_a_response_beats_a_walk_of_the_same_epsilon() -> None:
    """At epsilon 6, a response finds the own bucket over twice as often as a walk."""
    law, early = bucket_law(TREE.depth, 4, epsilon=6.0), Variant("early", 4)
    own = TREE.starts[buckets_of(TREE.splits, QUERIES, 5)]
    buckets = respond(TREE.splits, QUERIES, law, RNG)
    named = (points_of(TREE, 4, buckets).min(axis=1) == own).mean()
    step = Comparison(2 * 6.0 / early.compositions(TREE.depth))
    walked = (walk(TREE, QUERIES, step, early, RNG).found.min(axis=1) == own).mean()
    assert named > 2 * walked > 0


@pytest.mark.parametrize("dimensions", [1, 2])
def test_blurred_queries_stay_in_the_domain_and_near(dimensions: int) -> None:
    """Little noise leaves nearly every query nearest to its own point, and none outside."""
    tree = cKDTree(RNG.random((50, dimensions)))
    queries = RNG.random((5000, dimensions))
    by = Blur(1e4, (0.0,) * dimensions, (1.0,) * dimensions, step=1e-6)
    moved = blur(queries, by, RNG)
    assert ((moved >= 0) & (moved <= 1)).all()
    assert (tree.query(moved)[1] == tree.query(queries)[1]).mean() > 0.9
    far = blur(queries, Blur(0.1, by.low, by.high, step=1e-6), RNG)
    assert ((far == 0) | (far == 1)).any(axis=1).mean() > 0.5


def test_bad_parameters_are_named() -> None:
    """A parameter that is not allowed is refused with its name."""
    with pytest.raises(InputError, match="splits"):
        bucket_law(TREE.depth, TREE.depth, 1.0)
    with pytest.raises(InputError, match="high"):
        Blur(1.0, (0.0,), (0.0,), 0.1)
    with pytest.raises(InputError, match="step"):
        Blur(1.0, (0.0,), (1.0,), 0.0)
    with pytest.raises(InputError, match="queries"):
        blur(np.zeros((1, 3)), Blur(1.0, (0.0,), (1.0,), 0.1), RNG)
