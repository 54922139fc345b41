"""What a server learns of a query: exact likelihoods, and the attack that is best with them.

The server knows the tree and sees the bits. All that it can know of a query beyond its prior is in
the likelihood of the bits under each query that it deems possible. `walk_log_likelihood` is exactly
that, from the very steps that clients take.

`attack_queries` lets a server guess queries by Bayes' rule, with a prior. No server that knows the
mechanism can do better: the likelihoods are the exact laws by which clients answer. Each mechanism
is asked through its own vectorised step.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.tables import ResponseLaw
from veilring.protocols.treewalk.algorithm.one_message import (
    Blur,
    blur,
    buckets_of,
    on_grid,
    respond,
)
from veilring.protocols.treewalk.algorithm.tree import Tree, check_queries
from veilring.protocols.treewalk.algorithm.walks import (
    Utility,
    Variant,
    advance_threads,
    start_threads,
    walk,
)

_COIN_BITS = 64


def walk_log_likelihood(
    tree: Tree,
    utility: Utility,
    variant: Variant,
    bits: NDArray[np.bool_],
    candidates: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return ln P(bits | query) for each walk and each query that may have been asked.

    Args:
        tree: The server's tree.
        utility: What makes a child useful.
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
        raise InputError.because(
            f"there are {bits.shape[1]} bits a walk; its compositions need "
            f"{variant.compositions(tree.depth)}",
            field="bits",
        )
    total = np.zeros((len(bits), len(candidates)))
    nodes, first = start_threads(variant, len(bits)), 0
    for level in variant.levels(tree.depth):
        seen = bits[:, first : first + nodes.shape[1]]
        for thread, went_right in zip(nodes.T, seen.T, strict=True):
            stops, which = np.unique(thread, return_inverse=True)
            left, right = _of_answers(tree, utility, level, stops, candidates)
            total += np.where(went_right[:, None], right[which], left[which])
        nodes, first = advance_threads(variant, nodes, seen), first + nodes.shape[1]
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
        likelihood: From `walk_log_likelihood`, summed over all walks known to be for one query.
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


Overheard = Callable[[NDArray[np.float64], NDArray[np.float64], Generator], NDArray[np.float64]]
"""Asks queries once, shape (runs, dimensions), and returns ln P(what the server sees | candidate)
for each run and candidate, shape (runs, candidates)."""


@dataclass(frozen=True, slots=True)
class QueryAttack:
    """How well a server guesses queries that are drawn from its own prior.

    Attributes:
        error: Mean distance of its guess to the query, in the unit of the coordinates.
        within: Share of queries within the radius of where it holds a query to be likeliest.
        blind_error: The error of the best guess from the prior alone.
        blind_within: The share of the best guess from the prior alone.
        runs: Over how many queries the first two are means.
    """

    error: float
    within: float
    blind_error: float
    blind_within: float
    runs: int


def overheard_walk(tree: Tree, utility: Utility, variant: Variant) -> Overheard:
    """Return what a server overhears of a walk: all its bits."""

    def ask(
        queries: NDArray[np.float64], candidates: NDArray[np.float64], rng: Generator
    ) -> NDArray[np.float64]:
        bits = walk(tree, queries, utility, variant, rng).bits
        return walk_log_likelihood(tree, utility, variant, bits, candidates)

    return ask


def overheard_response(tree: Tree, law: ResponseLaw) -> Overheard:
    """Return what a server overhears of a response: the bucket that was named."""
    level = law.domain.bit_length() - 1

    def ask(
        queries: NDArray[np.float64], candidates: NDArray[np.float64], rng: Generator
    ) -> NDArray[np.float64]:
        named = respond(tree.splits, queries, law, rng)
        own = buckets_of(tree.splits, candidates, level) - law.domain
        chances = np.array([float(law.q), float(law.p)])
        return np.asarray(np.log(chances)[(named[:, None] == own).astype(np.intp)])

    return ask


def overheard_blur(by: Blur) -> Overheard:
    """Return what a server overhears of a blurred query: where it landed.

    The likelihood is that of the noise on its grid. It is exact where nothing was moved back to the
    border of the domain, so let the domain be wide.
    """

    def ask(
        queries: NDArray[np.float64], candidates: NDArray[np.float64], rng: Generator
    ) -> NDArray[np.float64]:
        moved = blur(queries, by, rng)
        snapped = on_grid(candidates, by) * by.step
        apart = np.sqrt(np.square(moved[:, None] - snapped[None]).sum(axis=2))
        return np.asarray(-by.epsilon * apart)

    return ask


def attack_queries(
    overheard: Overheard,
    candidates: NDArray[np.float64],
    radius: float,
    *,
    runs: int,
    rng: Generator,
    prior: NDArray[np.float64] | None = None,
    times: int = 1,
) -> QueryAttack:
    """Let queries be asked, and the server guess each.

    Args:
        overheard: What it is told.
        candidates: Where a query may be, shape (candidates, dimensions).
        radius: What counts as near.
        runs: How many queries; each is drawn from the prior.
        rng: The randomness of the queries and of the clients.
        prior: What the server holds each candidate for beforehand, shape (candidates,), summing to
            1; uniform unless given. Each is above 0.
        times: How often each query is asked with new coins. A client with a memory asks once.

    Raises:
        InputError: If `times` or `runs` is below 1, or the prior does not fit.
    """
    for name, value in (("runs", runs), ("times", times)):
        if value < 1:
            raise InputError(name, value, "at least 1")
    held = np.full(len(candidates), 1 / len(candidates)) if prior is None else prior
    if held.shape != (len(candidates),) or not (held > 0).all() or not np.isclose(held.sum(), 1):
        raise InputError.because(
            f"prior has the shape {held.shape}; give a share above 0 for each candidate",
            field="prior",
        )
    truth = candidates[rng.choice(len(candidates), runs, p=held)]
    told = np.zeros((runs, len(candidates)))
    for _ in range(times):
        told += overheard(truth, candidates, rng)
    guessed = guess(posterior(told, held), candidates, truth, radius)
    apart = np.sqrt(np.square(candidates[:, None] - candidates[None]).sum(axis=2))
    return QueryAttack(
        error=float(guessed.error.mean()),
        within=float(guessed.within.mean()),
        blind_error=float((held @ apart).min()),
        blind_within=float((held @ (apart <= radius)).max()),
        runs=runs,
    )
