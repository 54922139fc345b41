"""The exact leakage of walks and responses, compared with the charges."""

from itertools import product
from math import exp, log

import numpy as np
import pytest
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm.one_message import bucket_distribution, buckets_of
from veilring.protocols.treewalk.algorithm.tree import Splits, Tree, build_tree
from veilring.protocols.treewalk.algorithm.walks import (
    BASIC,
    Comparison,
    Distance,
    Utility,
    Variant,
    spending,
)
from veilring.protocols.treewalk.leakage import walk_log_likelihood
from veilring.randomness import Streams

Floats = NDArray[np.float64]

SQUARE = 2**0.5
# Charges are rounded up by less than this, relative to themselves.
ROUNDING = 1e-9
VARIANTS = [
    BASIC,
    Variant("parallel", 1),
    Variant("parallel", 3),
    Variant("early", 2),
    Variant("greedy"),
]
UTILITIES: list[Utility] = [
    Comparison(0.7),
    Comparison(4.0),
    Comparison(1.0, paper=True),
    Distance(0.7, SQUARE, SQUARE),
    Distance(4.0, SQUARE, SQUARE),
]


def _points(count: int, dimensions: int) -> Floats:
    """Return points, an eighth of which coincide."""
    points = Streams(3).generator("points", count, dimensions).random((count, dimensions))
    points[: count // 8] = points[0]
    return points


def _queries(tree: Tree) -> Floats:
    """Return all points, all corners of the domain, and others at random."""
    corners = np.array(list(product((0.0, 1.0), repeat=tree.dimensions)))
    others = Streams(4).generator("queries").random((24, tree.dimensions))
    return np.vstack([tree.points, corners, others])


class Losses:
    """The greatest loss over all transcripts, for each ordered pair of queries.

    Given the query, threads answer independently, and any combination of their answers is a
    transcript. So the greatest loss of a walk is the sum of the greatest losses of its threads, and
    that of a thread is found from the leaves up.
    """

    def __init__(self, tree: Tree, utility: Utility, queries: Floats) -> None:
        self._tree, self._utility, self._queries = tree, utility, queries

    def _of_bits(self, node: int) -> tuple[Floats, Floats]:
        """Return ln P(bit | query) - ln P(bit | other) for the bits 0 and 1 at a node."""
        level, nodes = node.bit_length() - 1, np.full(len(self._queries), node)
        exposed = self._utility.expose(self._tree, level, nodes)
        step = self._utility.judge(exposed, self._queries, level)
        slip = np.broadcast_to(step.slip, step.right.shape) / 2.0**64
        left = np.log(np.where(step.right, slip, 1 - slip))
        right = np.log(np.where(step.right, 1 - slip, slip))
        return left[:, None] - left, right[:, None] - right

    def thread(self, node: int, levels: int) -> Floats:
        """Return the greatest loss of one thread from a node down."""
        if not levels:
            return np.zeros((len(self._queries),) * 2)
        bits = self._of_bits(node)
        below = [self.thread(2 * node + bit, levels - 1) for bit in (0, 1)]
        return np.maximum(bits[0] + below[0], bits[1] + below[1])

    def greedy(self, node: int, levels: int) -> Floats:
        """Return the greatest loss of a thread that sends another down each child it leaves."""
        if not levels:
            return np.zeros((len(self._queries),) * 2)
        bits = self._of_bits(node)
        ways = [
            bits[bit]
            + self.greedy(2 * node + bit, levels - 1)
            + self.thread(2 * node + 1 - bit, levels - 1)
            for bit in (0, 1)
        ]
        return np.maximum(*ways)

    def walk(self, variant: Variant) -> Floats:
        """Return the greatest loss of a walk."""
        depth = self._tree.depth
        if variant.kind == "greedy":
            return self.greedy(1, depth)
        levels, first = len(variant.levels(depth)), variant.levels(depth).start
        starts = range(1 << first, 2 << first)
        return sum((self.thread(node, levels) for node in starts), np.zeros(1))


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: f"{each.kind}-{each.splits}")
@pytest.mark.parametrize("utility", UTILITIES[:1] + UTILITIES[-1:], ids=repr)
def test_the_greatest_loss_agrees_with_enumeration(utility: Utility, variant: Variant) -> None:
    """On 16 points, the sum over threads equals the enumeration of all transcripts."""
    tree = build_tree(_points(16, 2))
    queries = _queries(tree)
    steps = variant.compositions(tree.depth)
    bits = np.array(list(product((False, True), repeat=steps)))
    likelihood = walk_log_likelihood(tree, utility, variant, bits, queries)
    expected = [(likelihood[:, [each]] - likelihood).max(axis=0) for each in range(len(queries))]
    found = Losses(tree, utility, queries).walk(variant)
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: f"{each.kind}-{each.splits}")
@pytest.mark.parametrize("utility", UTILITIES, ids=repr)
@pytest.mark.parametrize(("points", "dimensions"), [(64, 1), (64, 2), (37, 2), (50, 3)])
def test_no_walk_leaks_more_than_its_charge(
    points: int, dimensions: int, utility: Utility, variant: Variant
) -> None:
    """The greatest loss between any two queries is at most ε at δ = 0."""
    if isinstance(utility, Distance):
        side = dimensions**0.5
        utility = Distance(utility.epsilon, side, side)
    tree = build_tree(_points(points, dimensions))
    losses = Losses(tree, utility, _queries(tree)).walk(variant)
    charged = spending(utility, variant, tree.depth, 0.0).epsilon
    assert 0 < losses.max() <= charged * (1 + ROUNDING)


@pytest.mark.parametrize("splits", ["least-right", "midpoint"])
def test_a_basic_comparing_walk_leaks_its_whole_charge(splits: Splits) -> None:
    """Two opposite corners differ at each step of some path: the charge is not merely a bound."""
    tree = build_tree(_points(64, 2), splits)
    losses = Losses(tree, Comparison(1.0), np.array([[-1.0, -1.0], [2.0, 2.0]])).walk(BASIC)
    charged = spending(Comparison(1.0), BASIC, tree.depth, 0.0).epsilon
    assert losses.max() == pytest.approx(charged, rel=ROUNDING)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: f"{each.kind}-{each.splits}")
@pytest.mark.parametrize("radius", [0.02, 0.3])
def test_a_radius_bounds_the_loss_by_the_distance(radius: float, variant: Variant) -> None:
    """For all pairs of 64 points, the loss is at most the epsilon per distance times distance."""
    tree, utility = build_tree(_points(64, 2)), Distance(1.0, radius)
    queries = _queries(tree)
    losses = Losses(tree, utility, queries).walk(variant)
    apart = np.sqrt(np.square(queries[:, None] - queries[None]).sum(axis=2))
    charged = spending(utility, variant, tree.depth, 0.0)
    assert all(
        loss <= charged.loss(distance)
        for loss, distance in zip(losses.ravel(), apart.ravel(), strict=True)
    )


@pytest.mark.parametrize("dimensions", [1, 2, 16])
@pytest.mark.parametrize("far", [1e3, 1e9, 1e11, 1e300, 1e308])
def test_a_server_with_invented_nodes_learns_no_more_than_the_loss(
    far: float, dimensions: int
) -> None:
    """For any nodes, float rounding for two near queries stays within the loss's allowance."""
    steps, rng = Distance(1.0, 100.0), Streams(5).generator("far", dimensions)
    queries = rng.random((2000, dimensions))
    others = queries + 7e-9 / dimensions**0.5
    nodes = np.hstack([far * rng.uniform(-1, 1, queries.shape)] * 2)
    nodes += np.hstack([np.zeros_like(queries), 50 * rng.standard_normal(queries.shape)])
    found = np.abs(np.log(_right(steps, nodes, queries) / _right(steps, nodes, others))).max()
    assert found <= steps.loss(7.1e-9)
    assert steps.loss(7e-9) == pytest.approx(2.0**-16, rel=1e-3)


def _right(steps: Utility, nodes: Floats, queries: Floats) -> Floats:
    """Return the exact probability of the answer that names the right child."""
    step = steps.judge(nodes, queries, 0)
    slip = np.broadcast_to(step.slip, step.right.shape) / 2.0**64
    return np.where(step.right, 1 - slip, slip)


@pytest.mark.parametrize("far", [1e154, 1e300, 1e308])
def test_nodes_with_infinite_distances_keep_the_noise(far: float) -> None:
    """Steps that hide all queries slip at the stated rate, without a warning."""
    steps = Distance(3.0, SQUARE, SQUARE)
    nodes = far * Streams(5).generator("overflow").uniform(-1, 1, (500, 4))
    chances = _right(steps, nodes, np.full((500, 2), 0.5))
    assert np.abs(np.log(chances / (1 - chances))).max() <= steps.step_loss
    assert steps.loss(1e-9) == steps.step_loss


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 1.0, 40.0])
def test_steps_that_hide_a_radius_spend_at_most_their_budget(epsilon: float) -> None:
    """With float rounding the loss of a radius is the requested one, or slightly less."""
    steps = Distance.hiding(epsilon, 0.1, 1.0)
    assert epsilon * (1 - 1e-11) <= steps.loss(0.1) <= epsilon
    assert steps.epsilon < epsilon
    with pytest.raises(InputError, match="2\\*\\*-31"):
        Distance.hiding(1e-12, 0.1)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: f"{each.kind}-{each.splits}")
@pytest.mark.parametrize("utility", UTILITIES, ids=repr)
@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.05])
def test_the_exact_delta_is_at_most_the_claimed_one(
    delta: float, utility: Utility, variant: Variant
) -> None:
    """For all pairs, the mass of transcripts beyond e**epsilon is at most delta."""
    tree = build_tree(_points(16, 2))
    queries = _queries(tree)
    steps = variant.compositions(tree.depth)
    bits = np.array(list(product((False, True), repeat=steps)))
    likelihood = np.exp(walk_log_likelihood(tree, utility, variant, bits, queries))
    factor = exp(spending(utility, variant, tree.depth, delta).epsilon)
    beyond = [
        np.maximum(likelihood[:, [each]] - factor * likelihood, 0).sum(axis=0)
        for each in range(len(queries))
    ]
    assert np.max(beyond) <= delta * (1 + ROUNDING) + 1e-12


@pytest.mark.parametrize("points", [16, 37, 64])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_a_response_leaks_exactly_its_epsilon(points: int, epsilon: float) -> None:
    """The exact distribution of the named bucket differs by e**epsilon between any two queries."""
    tree = build_tree(_points(points, 2))
    queries = _queries(tree)
    for splits in range(tree.depth):
        distribution = bucket_distribution(tree.depth, splits, epsilon)
        level = tree.depth - splits
        own = buckets_of(tree.splits, queries, level) - distribution.domain
        chances = np.where(
            own[:, None] == np.arange(distribution.domain), distribution.own, distribution.other
        )
        assert (chances.sum(axis=1) == distribution.total).all()
        # In logs of whole numbers the ratios are exact to the last bits of a float.
        assert log(int(chances.max())) - log(int(chances.min())) <= distribution.epsilon + 1e-12
        assert distribution.epsilon <= epsilon * (1 + ROUNDING)
        assert distribution.epsilon == pytest.approx(epsilon, rel=1e-6)
