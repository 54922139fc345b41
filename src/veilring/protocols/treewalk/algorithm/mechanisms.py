"""Two ways to name a bucket of the tree's leaves: one private message, or a private walk.

`respond` names a bucket by randomised response. A **walk** goes down the tree (Algorithms 11, 14
and 16): at each node the query wants the child on its side of the split, and a step names the other
child with a probability of at most one half, the *slip*. The slip is an exact multiple of 2**-64,
drawn exactly by a coin of 64 bits. All walks take their steps at a level together.

A bucket is what lies below a node s levels above the leaves: up to 2**s points.
"""

from dataclasses import dataclass
from math import exp, log1p
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.accounting import PureSteps
from veilring.privacy.checks import require
from veilring.privacy.selection import ResponseDistribution, randomised_response
from veilring.protocols.treewalk.algorithm.tree import Tree, check_queries

# With a greater ε the slip would be less than 2**-64, and the walk would not be private at all.
STEP_EPSILON_MAX: Final = 80.0
# Buckets of more points cost more than their privacy is worth.
SPLITS_MAX: Final = 16
_COIN: Final = 2.0**64
# The relative error of a slip from the exponential function and other arithmetic is below this.
_ROUNDING: Final = 2.0**-48


def buckets_of(splits: Floats, queries: Floats, level: int) -> Ints:
    """Return the node that each query reaches at a level by a walk that never slips.

    Args:
        splits: The splits of a tree, at least down to that level, shape (at least 2**level,).
    """
    nodes = np.ones(len(queries), dtype=np.int64)
    for above in range(level):
        nodes = 2 * nodes + (splits[nodes] <= queries[:, above % queries.shape[1]])
    return nodes


def bucket_distribution(depth: int, splits: int, epsilon: float) -> ResponseDistribution:
    """Return the exact probabilities of randomised response over the 2**(L - s) buckets."""
    if not 0 <= splits < depth:
        raise InputError(
            "splits", splits, f"0 to {depth - 1}, so that there are at least two buckets"
        )
    return ResponseDistribution.spending(epsilon, 1 << (depth - splits))


def respond(
    splits: Floats, queries: Floats, distribution: ResponseDistribution, rng: Generator
) -> Ints:
    """Name one bucket for each query by randomised response.

    Args:
        splits: The splits of the levels above the buckets, shape (at least distribution.domain,).
        distribution: The result of `bucket_distribution`; a response spends `distribution.epsilon`
            at δ = 0.
    """
    own = buckets_of(splits, queries, distribution.domain.bit_length() - 1) - distribution.domain
    return randomised_response(own, distribution, rng)


def bucket_points(tree: Tree, splits: int, buckets: Ints) -> NDArray[np.int32]:
    """Return the positions of all points of the given buckets.

    Args:
        buckets: The numbers of the buckets, shape (queries,), from 0 to 2**(L - s) - 1.

    Returns:
        The positions, shape (queries, 2**splits); a point whose leaf is one level early appears
        twice.
    """
    nodes = buckets[:, None] + (1 << (tree.depth - splits))
    found: NDArray[np.int32] = tree.starts[(nodes << splits) + np.arange(1 << splits)]
    return found


class WalkStep(NamedTuple):
    """The preferred child and the slip of a step, for each walk.

    Attributes:
        right: Whether the query wants the right child, shape (walks,).
        slip: The slip in units of 2**-64, shape (walks,) or a single number.
    """

    right: Bools
    slip: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Comparison:
    """CMP (Algorithm 14): utility 1 for the child on the query's side of the split, otherwise 0.

    This utility has sensitivity 1, so each step is exactly randomised response at ε_i / 2.

    Attributes:
        epsilon: ε_i of one step of the exponential mechanism, above 0 and up to `STEP_EPSILON_MAX`.
    """

    epsilon: float

    def __post_init__(self) -> None:
        allowed = f"a number above 0 and up to {STEP_EPSILON_MAX:g}"
        require(0 < self.epsilon <= STEP_EPSILON_MAX, "epsilon", self.epsilon, allowed)

    def judge(self, exposed: Floats, queries: Floats, level: int) -> WalkStep:
        """Return the step of each walk."""
        # A `least-right` split is the coordinate of a point in the right half.
        right = exposed <= queries[:, level % queries.shape[1]]
        return WalkStep(right, np.array(self.slip, dtype=np.uint64))

    @property
    def odds(self) -> float:
        """The log of the odds against a slip."""
        return self.epsilon / 2

    @property
    def slip(self) -> int:
        """The slip in units of 2**-64, rounded up so that the noise is never too small."""
        slip = 1.0 / (1.0 + exp(self.odds))
        return min(int(slip * (1 + _ROUNDING) * _COIN) + 1, 1 << 63)

    @property
    def step_loss(self) -> float:
        """The pure ε of one step for any two queries, rounded up."""
        return loss_of(self.slip)


def loss_of(slip: int) -> float:
    """Return ln((1 - s) / s) for a slip of s = slip / 2**64, rounded up."""
    return log1p(((1 << 64) - 2 * slip) / slip) * (1 + _ROUNDING)


def answer_bits(step: WalkStep, rng: Generator) -> Bools:
    """Return each walk's answer, true for the right child. The server sees nothing else."""
    coins = rng.integers(0, 2**64, size=step.right.shape, dtype=np.uint64)
    return step.right ^ (coins < step.slip)


def walk_loss(steps: Comparison, count: int) -> float:
    """Return the pure ε of a walk of some steps, equal for all queries: exact composition."""
    return PureSteps(steps.step_loss, count).epsilon(0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Walks:
    """The result of walks.

    Attributes:
        found: The positions of the points found, shape (queries, 2**s).
        bits: The server's view, shape (queries, L - s).
    """

    found: NDArray[np.int32]
    bits: Bools


def walk(tree: Tree, queries: Floats, steps: Comparison, splits: int, rng: Generator) -> Walks:
    """Walk once for each query, down to a bucket.

    Args:
        splits: s, from 0 to L: the number of levels above the leaves at which walks stop.
    """
    check_queries(tree, queries)
    nodes, seen = np.ones(len(queries), dtype=np.int64), [np.zeros((len(queries), 0), np.bool_)]
    for level in range(tree.depth - splits):
        bits = answer_bits(steps.judge(tree.splits[nodes], queries, level), rng)
        nodes = 2 * nodes + bits
        seen.append(bits[:, None])
    buckets = nodes - (1 << (tree.depth - splits))
    return Walks(bucket_points(tree, splits, buckets), np.hstack(seen))
