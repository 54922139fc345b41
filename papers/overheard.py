"""Leakage of a query to the server: exact likelihoods, and the optimal attack based on them.

The server knows the tree and sees the bits. Its knowledge of a query, beyond its prior, is the
likelihood of the bits under each candidate query. `walk_log_likelihood` computes it from the same
steps that clients take.

`attack_queries` guesses queries by Bayes' rule, with a prior. No server does better, since the
likelihoods are the exact distributions of the clients' answers. The attack simulates clients with
the vectorised step of each mechanism.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from veilring.arrays import Bools, Floats
from veilring.errors import InputError
from veilring.privacy.selection import ResponseDistribution
from veilring.protocols.treewalk.algorithm.mechanisms import Comparison, buckets_of, respond, walk
from veilring.protocols.treewalk.algorithm.tree import Tree, check_queries

_COIN_BITS = 64
_TIED = 9  # decimal places that rounding errors do not reach


def walk_log_likelihood(
    tree: Tree, steps: Comparison, splits: int, bits: Bools, candidates: Floats
) -> Floats:
    """Return ln P(bits | query) for each walk and each candidate query.

    Args:
        bits: The client's bits, shape (walks, L - s).

    Returns:
        The log-likelihoods, shape (walks, candidates). Sum those of several walks for one query.
    """
    check_queries(tree, candidates)
    if bits.shape[1] != tree.depth - splits:
        raise InputError.because(
            f"bits has {bits.shape[1]} bits for each walk; its steps take {tree.depth - splits}",
            field="bits",
        )
    slip = np.ldexp(float(steps.slip), -_COIN_BITS)
    lies, obeys = np.log(slip), np.log1p(-slip)
    total = np.zeros((len(bits), len(candidates)))
    nodes = np.ones(len(bits), dtype=np.int64)
    for level, went_right in enumerate(bits.T):
        right = tree.splits[nodes][:, None] <= candidates[:, level % candidates.shape[1]]
        total += np.where(right == went_right[:, None], obeys, lies)
        nodes = 2 * nodes + went_right
    return total


def posterior(likelihood: Floats, prior: Floats | None = None) -> Floats:
    """Return P(query | bits) for each walk.

    Args:
        prior: The server's prior, shape (candidates,); uniform by default.
    """
    weights = likelihood if prior is None else likelihood + np.log(prior)
    weights = np.exp(weights - weights.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True, slots=True, eq=False)
class Guess:
    """The success of an optimal server at guessing queries.

    Attributes:
        error: The distance between the guess and the query, shape (walks,).
        within: Whether the query is within the radius of the candidate with most probability around
            it, shape (walks,).
    """

    error: Floats
    within: Bools


def guess(beliefs: Floats, candidates: Floats, truth: Floats, radius: float) -> Guess:
    """Return the guesses of an optimal server: one of least expected error, one most often near."""
    apart = np.sqrt(np.square(candidates[:, None] - candidates[None]).sum(axis=2))
    # On a grid, candidates tie; rounded, the first is taken whatever order a machine adds in.
    nearest = (beliefs @ apart).round(_TIED).argmin(axis=1)
    likeliest = (beliefs @ (apart <= radius)).round(_TIED).argmax(axis=1)
    error = np.sqrt(np.square(candidates[nearest] - truth).sum(axis=1))
    off = np.sqrt(np.square(candidates[likeliest] - truth).sum(axis=1))
    return Guess(error, off <= radius)


Overheard = Callable[[Floats, Floats, Generator], Floats]
"""A simulation that asks queries once, shape (runs, dimensions), and returns ln P(view of the
server | candidate), shape (runs, candidates)."""


@dataclass(frozen=True, slots=True)
class QueryAttack:
    """The accuracy of a server's guesses of queries that are drawn from its own prior.

    Attributes:
        error: The mean distance between guess and query, in the unit of the coordinates.
        blind_error: The error of the best guess from the prior alone.
        blind_within: The share of queries within the radius of the best guess from the prior alone.
    """

    error: float
    within: float
    blind_error: float
    blind_within: float
    runs: int


def overheard_walk(tree: Tree, steps: Comparison, splits: int) -> Overheard:
    """Return the simulation of a walk, whose view is its bits."""

    def ask(queries: Floats, candidates: Floats, rng: Generator) -> Floats:
        bits = walk(tree, queries, steps, splits, rng).bits
        return walk_log_likelihood(tree, steps, splits, bits, candidates)

    return ask


def overheard_response(tree: Tree, distribution: ResponseDistribution) -> Overheard:
    """Return the simulation of a response, whose view is the bucket named."""
    level = distribution.domain.bit_length() - 1

    def ask(queries: Floats, candidates: Floats, rng: Generator) -> Floats:
        named = respond(tree.splits, queries, distribution, rng)
        own = buckets_of(tree.splits, candidates, level) - distribution.domain
        chances = np.array([float(distribution.q), float(distribution.p)])
        return np.asarray(np.log(chances)[(named[:, None] == own).astype(np.intp)])

    return ask


def attack_queries(
    overheard: Overheard,
    candidates: Floats,
    radius: float,
    *,
    runs: int,
    rng: Generator,
    prior: Floats | None = None,
    times: int = 1,
) -> QueryAttack:
    """Draw queries from the prior, simulate the clients and score the server's guesses.

    Args:
        prior: The server's prior, shape (candidates,), positive and summing to 1; uniform by
            default.
        times: The number of times that each query is asked with fresh coins. A client with a memory
            asks once.
    """
    for name, value in (("runs", runs), ("times", times)):
        if value < 1:
            raise InputError(name, value, "at least 1")
    held = np.full(len(candidates), 1 / len(candidates)) if prior is None else prior
    if held.shape != (len(candidates),) or not (held > 0).all() or not np.isclose(held.sum(), 1):
        raise InputError.because(
            f"prior has the shape {held.shape}; give a probability above 0 for each candidate",
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
