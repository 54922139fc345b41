"""What the bits of a walk tell about the query: likelihoods, and the attack that is best with them.

The server knows the tree and sees the bits. All that it can know of a query beyond its prior is in
the likelihood of the bits under each query that it deems possible, and `log_likelihood` is exactly
that, from the very steps that clients take.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm.steps import Utility
from veilring.protocols.treewalk.algorithm.tree import Tree
from veilring.protocols.treewalk.algorithm.walks import Variant, begin, check_queries, proceed

_COIN_BITS = 64


def log_likelihood(
    tree: Tree,
    utility: Utility,
    variant: Variant,
    bits: NDArray[np.bool_],
    candidates: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return ln P(bits | query) for each walk and each query that may have been asked.

    Args:
        tree: The server's.
        utility: Of a child.
        variant: How the walks split.
        bits: What the server saw, shape (walks, compositions); those of several walks for one query
            add up.
        candidates: The queries, shape (candidates, dimensions).

    Returns:
        Shape (walks, candidates).

    Raises:
        InputError: If the candidates or the number of bits do not fit the tree.
    """
    check_queries(tree, candidates)
    variant.check(tree.depth)
    if bits.shape[1] != variant.compositions(tree.depth):
        allowed = f"{variant.compositions(tree.depth)}, the compositions of this walk"
        raise InputError("bits", f"{bits.shape[1]} bits a walk", allowed)
    total = np.zeros((len(bits), len(candidates)))
    nodes, first = begin(variant, len(bits)), 0
    for level in variant.levels(tree.depth):
        seen = bits[:, first : first + nodes.shape[1]]
        for thread, went_right in zip(nodes.T, seen.T, strict=True):
            stops, which = np.unique(thread, return_inverse=True)
            left, right = _of_answers(tree, utility, level, stops, candidates)
            total += np.where(went_right[:, None], right[which], left[which])
        nodes, first = proceed(variant, nodes, seen), first + nodes.shape[1]
    return total


def _of_answers(
    tree: Tree,
    utility: Utility,
    level: int,
    nodes: NDArray[np.int64],
    candidates: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ln P of either answer at each node for each query, shape (nodes, candidates)."""
    asked = np.tile(candidates, (len(nodes), 1))
    exposed = utility.expose(tree, level, nodes).repeat(len(candidates), axis=0)
    step = utility.judge(exposed, asked, level)
    slip = np.ldexp(np.broadcast_to(step.slip, step.right.shape).astype(np.float64), -_COIN_BITS)
    lies, obeys = np.log(slip), np.log1p(-slip)
    left, right = np.where(step.right, (lies, obeys), (obeys, lies))
    shape = (len(nodes), len(candidates))
    return left.reshape(shape), right.reshape(shape)


def posterior(
    likelihood: NDArray[np.float64], prior: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return P(query | bits) for each walk.

    Args:
        likelihood: From `log_likelihood`, summed over all walks that are known to be for one query.
        prior: What the server holds each candidate for beforehand, shape (candidates,); uniform
            unless given.
    """
    weights = likelihood if prior is None else likelihood + np.log(prior)
    weights = np.exp(weights - weights.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True, slots=True, eq=False)
class Guess:
    """How near an optimal server comes to queries.

    Attributes:
        error: The distance of its guess to the truth, shape (walks,).
        within: Whether the candidate around which the query is likeliest is within the radius of
            it, shape (walks,).
    """

    error: NDArray[np.float64]
    within: NDArray[np.bool_]


def guess(
    beliefs: NDArray[np.float64],
    candidates: NDArray[np.float64],
    truth: NDArray[np.float64],
    radius: float,
) -> Guess:
    """Let an optimal server guess: what is nearest on average, and what is likeliest to be near.

    Args:
        beliefs: From `posterior`, shape (walks, candidates).
        candidates: Shape (candidates, dimensions).
        truth: What was asked, shape (walks, dimensions).
        radius: What counts as near.
    """
    apart = np.sqrt(np.square(candidates[:, None] - candidates[None]).sum(axis=2))
    nearest = (beliefs @ apart).argmin(axis=1)
    likeliest = (beliefs @ (apart <= radius)).argmax(axis=1)
    error = np.sqrt(np.square(candidates[nearest] - truth).sum(axis=1))
    off = np.sqrt(np.square(candidates[likeliest] - truth).sum(axis=1))
    return Guess(error, off <= radius)
