"""Randomised response over buckets, and blurred queries."""

from fractions import Fraction
from itertools import product
from math import dist, exp, inf, sqrt

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import binomtest

from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm import one_message as rivals
from veilring.protocols.treewalk.algorithm.one_message import (
    Blur,
    blur,
    bucket_distribution,
    bucket_points,
    buckets_of,
    on_grid,
    respond,
)
from veilring.protocols.treewalk.algorithm.tree import build_tree
from veilring.protocols.treewalk.algorithm.walks import BASIC, Comparison, Variant, walk
from veilring.randomness import Streams

RNG = Streams(9).generator("rivals")
TREE = build_tree(RNG.random((500, 2)))
QUERIES = RNG.random((20_000, 2))
Floats = NDArray[np.float64]
# Of all noise of an exact distribution, beyond which there is less than e**-60 of it.
REACH = 60
# Logs of a sum of exponentials err by less.
ROUNDING = 1e-12


def test_a_bucket_is_where_a_walk_without_noise_ends() -> None:
    """The bucket of a query is the node that a walk with almost no noise reaches."""
    found = walk(TREE, QUERIES, Comparison(80.0), BASIC, RNG).found[:, 0]
    leaves = buckets_of(TREE.splits, QUERIES, TREE.depth)
    np.testing.assert_array_equal(TREE.starts[leaves], found)


def test_a_response_names_its_own_bucket_at_the_stated_rate() -> None:
    """The fraction of 20,000 responses in their own bucket is that of the distribution.

    The false-alarm rate is 1e-6; the seed is fixed.
    """
    distribution = bucket_distribution(TREE.depth, 4, epsilon=3.0)
    found = bucket_points(TREE, 4, respond(TREE.splits, QUERIES, distribution, RNG))
    own = TREE.starts[buckets_of(TREE.splits, QUERIES, 5)]
    hits = int((found.min(axis=1) == own).sum())
    assert found.shape == (20_000, 16)
    assert distribution.domain == 32
    assert float(distribution.p) == pytest.approx(exp(3) / (exp(3) + 31), rel=1e-9)
    assert binomtest(hits, len(QUERIES), float(distribution.p)).pvalue > 1e-6


def test_a_response_beats_a_walk_of_the_same_epsilon() -> None:
    """At epsilon 6, a response finds the own bucket over twice as often as a walk."""
    distribution, early = bucket_distribution(TREE.depth, 4, epsilon=6.0), Variant("early", 4)
    own = TREE.starts[buckets_of(TREE.splits, QUERIES, 5)]
    buckets = respond(TREE.splits, QUERIES, distribution, RNG)
    named = (bucket_points(TREE, 4, buckets).min(axis=1) == own).mean()
    step = Comparison(2 * 6.0 / early.compositions(TREE.depth))
    walked = (walk(TREE, QUERIES, step, early, RNG).found.min(axis=1) == own).mean()
    assert named > 2 * walked > 0


@pytest.mark.parametrize("dimensions", [1, 2])
def test_blurred_queries_stay_in_the_domain_and_near(dimensions: int) -> None:
    """With little noise nearly every query stays nearest to its own point, and none is outside."""
    tree = cKDTree(RNG.random((50, dimensions)))
    queries = RNG.random((5000, dimensions))
    by = Blur(1e4, (0.0,) * dimensions, (1.0,) * dimensions, step=1e-6)
    moved = blur(queries, by, RNG)
    assert ((moved >= 0) & (moved <= 1)).all()
    assert (tree.query(moved)[1] == tree.query(queries)[1]).mean() > 0.9
    far = blur(queries, Blur(0.1, by.low, by.high, step=1e-6), RNG)
    assert ((far == 0) | (far == 1)).any(axis=1).mean() > 0.5


class Distributions:
    """The exact distribution of the point to which a blurred query is moved, for any query."""

    def __init__(self, by: Blur, patch: pytest.MonkeyPatch) -> None:
        axis = range(-REACH, REACH + 1)
        self._by, self._noise = by, np.array(list(product(axis, repeat=len(by.low))))
        self._weights = np.exp(-np.sqrt(np.square(self._noise).sum(axis=1)) / float(by.scale))
        for name in ("planar_laplace", "discrete_laplace"):
            patch.setattr(rivals, name, lambda *_: self._noise)

    def of(self, query: Floats) -> dict[tuple[float, ...], float]:
        """Return the probability of each point, up to a factor shared by all queries."""
        points = blur(np.tile(query, (len(self._noise), 1)), self._by, RNG)
        places, which = np.unique(points, axis=0, return_inverse=True)
        weights = np.bincount(which.ravel(), weights=self._weights)
        return dict(zip(map(tuple, places.tolist()), weights.tolist(), strict=True))

    def loss(self, query: Floats, other: Floats) -> float:
        """Return the loss between two queries over all points that both can produce."""
        one, two = self.of(query), self.of(other)
        ratios = np.log([one[point] / two[point] for point in one.keys() & two.keys()])
        return float(np.abs(ratios).max())


@pytest.mark.parametrize("step", [0.1, 0.7, 1.0])
@pytest.mark.parametrize("dimensions", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_neighbours_across_a_grid_corner_have_the_stated_loss(
    dimensions: int, step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the exact distribution, two queries that barely differ have exactly the stated loss."""
    by = Blur(1.0, (-200.0,) * dimensions, (200.0,) * dimensions, step)
    low, high = (np.full(dimensions, step * (0.5 + side * 1e-9)) for side in (-1, 1))
    found = Distributions(by, monkeypatch).loss(low, high)
    assert found <= by.loss(dist(low, high)) + ROUNDING
    assert found == pytest.approx(sqrt(dimensions) * step, rel=1e-9)
    assert found > 1e6 * by.epsilon * dist(low, high)


@pytest.mark.parametrize("side", [3.0, 200.0])
@pytest.mark.parametrize("dimensions", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_two_queries_exceed_the_loss(
    dimensions: int, side: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds for pairs near and far, within the domain, beyond it and at its border."""
    by = Blur(0.7, (-side,) * dimensions, (side,) * dimensions, 1.3)
    distributions, draws = Distributions(by, monkeypatch), Streams(6).generator("pairs")
    for apart in (1e-12, 0.01, 1.0, 5.0, 20.0):
        for query in draws.uniform(-10.0, 10.0, (3, dimensions)).round(1):
            other = query + draws.normal(0.0, apart, dimensions)
            assert distributions.loss(query, other) <= by.loss(dist(query, other)) + ROUNDING


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1.0))
@example(26978.75, 0.1)  # the float quotient is in the middle of two points, and this is not
@example(0.15, 0.1)
def test_the_point_of_the_grid_is_the_nearest(query: float, step: float) -> None:
    """It is at most half a step away, exactly, for any rounding of the quotient."""
    by = Blur(1.0, (-1e6,), (1e6,), step)
    (((point,),)) = on_grid(np.array([[query]]), by).tolist()
    assert abs(point * Fraction(step) - Fraction(query)) <= Fraction(step) / 2


@given(st.floats(1e-3, 1e3), st.floats(1e-6, 1.0), st.floats(0, 1e3))
def test_scale_and_loss_are_rounded_to_the_safe_side(
    epsilon: float, share: float, distance: float
) -> None:
    """The scale is an exact quotient, and the loss is at least that of the exact distribution."""
    by = Blur(epsilon, (0.0,), (1.0,), share / epsilon * 0.99)
    assert by.scale * Fraction(by.epsilon) * Fraction(by.step) == 1
    assert by.loss(distance) >= Fraction(epsilon) * (Fraction(distance) + Fraction(by.step))
    assert by.loss(inf) == inf


def test_bad_parameters_are_named() -> None:
    """An invalid parameter is refused by name."""
    with pytest.raises(InputError, match="splits"):
        bucket_distribution(TREE.depth, TREE.depth, 1.0)
    with pytest.raises(InputError, match="high"):
        Blur(1.0, (0.0,), (0.0,), 0.1)
    with pytest.raises(InputError, match="step"):
        Blur(1.0, (0.0,), (1.0,), 0.0)
    with pytest.raises(InputError, match=r"step is 0\.6; allowed: from 1 / .* to 1 / epsilon"):
        Blur(2.0, (0.0,), (1.0,), 0.6)
    with pytest.raises(InputError, match="step"):
        Blur(1e-6, (0.0,), (1.0,), 1e-6)
    with pytest.raises(InputError, match="high"):
        Blur(1.0, (0.0,), (inf,), 0.1)
    with pytest.raises(InputError, match="distance"):
        Blur(1.0, (0.0,), (1.0,), 0.1).loss(-1.0)
    for wrong in (np.zeros((1, 3)), np.full((1, 1), np.nan)):
        with pytest.raises(InputError, match="queries"):
            blur(wrong, Blur(1.0, (0.0,), (1.0,), 0.1), RNG)
