"""What a walk competes with: one private message in place of many steps.

`respond` names one bucket of the tree's leaves by randomised response. `blur` moves the query by
planar Laplace noise, as geo-indistinguishability does, and searches there. Both are one round trip.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.laplace import discrete_laplace
from veilring.privacy.planar import planar_laplace
from veilring.privacy.response import ResponseLaw, randomised_response
from veilring.protocols.treewalk.algorithm.tree import Tree
from veilring.protocols.treewalk.algorithm.walks import Variant, leaves_below

__all__ = ("Blur", "blur", "bucket_law", "buckets_of", "points_of", "respond")

_PLANE: Final = 2


def buckets_of(
    splits: NDArray[np.float64], queries: NDArray[np.float64], level: int
) -> NDArray[np.int64]:
    """Return the node of a level on whose side of all splits each query lies.

    It is a walk that never slips.

    Args:
        splits: Of a tree, at least down to that level, shape (at least 2**level,).
        queries: Shape (queries, dimensions).
        level: From 0 to the depth of the tree.
    """
    nodes = np.ones(len(queries), dtype=np.int64)
    for above in range(level):
        nodes = 2 * nodes + (splits[nodes] <= queries[:, above % queries.shape[1]])
    return nodes


def bucket_law(depth: int, splits: int, epsilon: float) -> ResponseLaw:
    """Return the exact probabilities of randomised response over the 2**(L - s) buckets.

    Args:
        depth: L, of the tree.
        splits: s: a bucket has at most 2**s points.
        epsilon: What a response spends; δ = 0.

    Raises:
        InputError: If the tree has fewer than s + 1 levels, or epsilon is out of range.
    """
    if not 0 <= splits < depth:
        raise InputError("splits", splits, f"0 to {depth - 1}, so that there are two buckets")
    return ResponseLaw.spending(epsilon, 1 << (depth - splits))


def respond(
    splits: NDArray[np.float64], queries: NDArray[np.float64], law: ResponseLaw, rng: Generator
) -> NDArray[np.int64]:
    """Name one bucket for each query, its own or another.

    Args:
        splits: Those of the levels above the buckets, shape (at least law.domain,).
        queries: Shape (queries, dimensions), finite.
        law: From `bucket_law`; it spends `law.epsilon`, and δ = 0.
        rng: The client's secret randomness.

    Returns:
        Numbers of buckets from 0, shape (queries,).
    """
    own = buckets_of(splits, queries, law.domain.bit_length() - 1) - law.domain
    return randomised_response(own, law, rng)


def points_of(tree: Tree, splits: int, buckets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the positions of all points of the buckets that were named.

    Args:
        tree: The server's.
        splits: s.
        buckets: Shape (queries,), from 0 to 2**(L - s) - 1.

    Returns:
        Shape (queries, 2**splits); a point whose leaf stands early in the tree counts twice.
    """
    nodes = buckets[:, None] + (1 << (tree.depth - splits))
    return leaves_below(tree, Variant("early", splits), nodes)


@dataclass(frozen=True, slots=True)
class Blur:
    """Planar Laplace noise, in one dimension Laplace noise, on a grid over the domain.

    Attributes:
        epsilon: Per unit of distance, above 0: ε* / r for a level ε* within a radius r.
        low: The least value of each coordinate of the domain.
        high: The greatest.
        step: Of the grid; what two queries are apart counts up to one step more.

    Raises:
        InputError: If the domain is empty or not of one or two dimensions.
    """

    epsilon: float
    low: tuple[float, ...]
    high: tuple[float, ...]
    step: float

    def __post_init__(self) -> None:
        if not 1 <= len(self.low) == len(self.high) <= _PLANE:
            raise InputError("low", self.low, "one or two coordinates, as many as high")
        if not all(low < high for low, high in zip(self.low, self.high, strict=True)):
            raise InputError("high", self.high, "above low in each coordinate")
        for name in ("epsilon", "step"):
            if not getattr(self, name) > 0:
                raise InputError(name, getattr(self, name), "a number above 0")


def blur(queries: NDArray[np.float64], by: Blur, rng: Generator) -> NDArray[np.float64]:
    """Move each query by noise, and what lands outside of the domain back to its border.

    The second is post-processing and free, as is rounding to the grid before the noise.

    Args:
        queries: Shape (queries, dimensions).
        by: How far.
        rng: The client's secret randomness.

    Raises:
        InputError: If the queries have other dimensions than the domain, or the noise is out of
            the range of what can be drawn exactly.
    """
    dimensions = len(by.low)
    if queries.ndim != 2 or queries.shape[1] != dimensions:  # noqa: PLR2004 (a table has two axes)
        raise InputError("queries", f"of shape {queries.shape}", f"shape (queries, {dimensions})")
    scale = 1.0 / (by.epsilon * by.step)
    if dimensions == _PLANE:
        noise = planar_laplace(scale, len(queries), rng)
    else:
        noise = discrete_laplace(scale, queries.shape, rng)
    moved = (np.rint(queries / by.step) + noise) * by.step
    return np.clip(moved, by.low, by.high)
