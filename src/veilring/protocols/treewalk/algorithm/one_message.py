"""Mechanisms with one private message in place of many steps: the alternatives to a walk.

`respond` names one bucket of the tree's leaves by randomised response. `blur` moves the query by
planar Laplace noise, as geo-indistinguishability does, and searches there. Both take one round
trip.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.checks import require, require_positive
from veilring.privacy.exact import float_ceil
from veilring.privacy.noise import ROOT_OF_TWO, discrete_laplace, planar_laplace
from veilring.privacy.tables import ResponseDistribution, randomised_response
from veilring.protocols.treewalk.algorithm.tree import Tree
from veilring.protocols.treewalk.algorithm.walks import Variant, leaves_below

_PLANE: Final = 2
# The greatest scale in steps of the grid for which planar noise can be drawn exactly.
_SCALE_MAX: Final = 1 << 39
# The greatest distance of a domain's border from 0, in steps. Up to here, rounding to the grid and
# sums with noise are exact.
_STEPS_MAX: Final = 1 << 50


def buckets_of(
    splits: NDArray[np.float64], queries: NDArray[np.float64], level: int
) -> NDArray[np.int64]:
    """Return the node that each query reaches at a level by a walk that never slips.

    Args:
        splits: The splits of a tree, at least down to that level, shape (at least 2**level,).
        queries: The queries, shape (queries, dimensions).
        level: The level, from 0 to the depth of the tree.
    """
    nodes = np.ones(len(queries), dtype=np.int64)
    for above in range(level):
        nodes = 2 * nodes + (splits[nodes] <= queries[:, above % queries.shape[1]])
    return nodes


def bucket_distribution(depth: int, splits: int, epsilon: float) -> ResponseDistribution:
    """Return the exact probabilities of randomised response over the 2**(L - s) buckets.

    Args:
        splits: s; a bucket has at most 2**s points.
        epsilon: The ε of a response, at δ = 0.
    """
    if not 0 <= splits < depth:
        raise InputError(
            "splits", splits, f"0 to {depth - 1}, so that there are at least two buckets"
        )
    return ResponseDistribution.spending(epsilon, 1 << (depth - splits))


def respond(
    splits: NDArray[np.float64],
    queries: NDArray[np.float64],
    distribution: ResponseDistribution,
    rng: Generator,
) -> NDArray[np.int64]:
    """Name one bucket for each query by randomised response.

    Args:
        splits: The splits of the levels above the buckets, shape (at least distribution.domain,).
        queries: The queries, shape (queries, dimensions), finite.
        distribution: The result of `bucket_distribution`; a response spends `distribution.epsilon`
            at δ = 0.
        rng: The client's secret randomness.

    Returns:
        The numbers of the buckets from 0, shape (queries,).
    """
    own = buckets_of(splits, queries, distribution.domain.bit_length() - 1) - distribution.domain
    return randomised_response(own, distribution, rng)


def bucket_points(tree: Tree, splits: int, buckets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the positions of all points of the given buckets.

    Args:
        buckets: The numbers of the buckets, shape (queries,), from 0 to 2**(L - s) - 1.

    Returns:
        The positions, shape (queries, 2**splits); a point whose leaf is one level early appears
        twice.
    """
    nodes = buckets[:, None] + (1 << (tree.depth - splits))
    return leaves_below(tree, Variant("early", splits), nodes)


@dataclass(frozen=True, slots=True)
class Blur:
    """Planar Laplace noise (in one dimension, Laplace noise) on a grid over the domain.

    The privacy loss of the noise between two queries at distance s is exactly `epsilon * s`.
    Rounding queries to the grid can increase their distance by the diagonal of a cell: see `loss`.

    Attributes:
        epsilon: The privacy loss per unit of distance, above 0.
        step: The step of the grid; at most 1 / epsilon, because a coarser grid would reveal more
            than the noise hides.
    """

    epsilon: float
    low: tuple[float, ...]
    high: tuple[float, ...]
    step: float

    def __post_init__(self) -> None:
        if not 1 <= len(self.low) == len(self.high) <= _PLANE:
            raise InputError("low", self.low, "one or two coordinates, as for high")
        if not all(low < high for low, high in zip(self.low, self.high, strict=True)):
            raise InputError("high", self.high, "above low in each coordinate")
        epsilon = require_positive("epsilon", self.epsilon)
        require_positive("step", self.step)
        drawn = 1 <= 1 / (epsilon * Fraction(self.step)) <= _SCALE_MAX
        allowed = f"from 1 / ({_SCALE_MAX} epsilon) to 1 / epsilon"
        require(drawn, "step", self.step, allowed)
        for name, corner in (("low", self.low), ("high", self.high)):
            fits = all(abs(each) <= _STEPS_MAX * self.step for each in corner)
            require(
                fits, name, corner, f"a corner at most {_STEPS_MAX:.0e} steps of the grid from 0"
            )

    @property
    def scale(self) -> Fraction:
        """The exact scale of the noise in steps of the grid; a float could underflow."""
        return 1 / (Fraction(self.epsilon) * Fraction(self.step))

    def loss(self, distance: float) -> float:
        """Return the greatest privacy loss between two queries: ε · (s + √dimensions · step).

        It is the greatest log of the ratio of two probabilities of the same released point, rounded
        up. Some queries that are as close as floats can be reach √dimensions · step · ε.

        Args:
            distance: s, between the two queries, at least 0.
        """
        require(distance >= 0, "distance", distance, "a number of at least 0")
        if distance == inf:
            return inf
        diagonal = Fraction(self.step) * (ROOT_OF_TWO if len(self.low) == _PLANE else 1)
        return float_ceil(Fraction(self.epsilon) * (Fraction(distance) + diagonal))


def on_grid(queries: NDArray[np.float64], by: Blur) -> NDArray[np.int64]:
    """Return the point of the grid that is nearest to each query, in steps, without noise.

    A query outside of the domain is moved to its border first, which brings no two further apart.
    Nearest is exact: a quotient of floats may be rounded to the middle between two points.

    Args:
        queries: Finite, shape (queries, dimensions).
        by: The noise; only its grid and its domain are used.
    """
    inside = np.clip(queries, by.low, by.high)
    rest = np.fmod(inside, by.step)
    below = np.rint((inside - rest) / by.step)
    nearest: NDArray[np.float64] = below + np.sign(rest) * (2 * np.abs(rest) > by.step)
    return nearest.astype(np.int64)


def blur(queries: NDArray[np.float64], by: Blur, rng: Generator) -> NDArray[np.float64]:
    """Round each query to the grid, add noise and clip the result to the domain.

    Clipping is post-processing and free. Rounding is not: see `Blur.loss`.

    Args:
        queries: The queries, finite, shape (queries, dimensions).
        rng: The client's secret randomness.
    """
    dimensions = len(by.low)
    if queries.shape[1:] != (dimensions,):
        raise InputError.because(
            f"queries has the shape {queries.shape}; it must be (queries, {dimensions})",
            field="queries",
        )
    if not np.isfinite(queries).all():
        raise InputError.because("queries must be finite", field="queries")
    if dimensions == _PLANE:
        noise = planar_laplace(by.scale, len(queries), rng)
    else:
        noise = discrete_laplace(by.scale, queries.shape, rng)
    # Integers are added: the rounding of a float sum could reveal more than its value.
    return np.clip((on_grid(queries, by) + noise) * by.step, by.low, by.high)
