"""A server that guesses where a query is: Bayes' rule on all that it was told, with a prior.

It is the best that any server can do which knows the mechanism: the likelihoods are the exact laws
by which clients answer. Each mechanism is asked through its own vectorised step.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.response import ResponseLaw
from veilring.protocols.treewalk.algorithm.rivals import (
    Blur,
    blur,
    buckets_of,
    on_grid,
    respond,
)
from veilring.protocols.treewalk.algorithm.steps import Utility
from veilring.protocols.treewalk.algorithm.tree import Tree
from veilring.protocols.treewalk.algorithm.walks import Variant, walk
from veilring.protocols.treewalk.leakage import guess, log_likelihood, posterior

Overheard = Callable[[NDArray[np.float64], NDArray[np.float64], Generator], NDArray[np.float64]]
"""Asks queries once, shape (runs, dimensions), and returns ln P(what the server sees | candidate)
for each run and candidate, shape (runs, candidates)."""


@dataclass(frozen=True, slots=True)
class Attack:
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
        return log_likelihood(tree, utility, variant, bits, candidates)

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


def attack(
    overheard: Overheard,
    candidates: NDArray[np.float64],
    radius: float,
    *,
    runs: int,
    rng: Generator,
    prior: NDArray[np.float64] | None = None,
    times: int = 1,
) -> Attack:
    """Let queries be asked, and the server guess each.

    Args:
        overheard: What it is told.
        candidates: Where a query may be, shape (candidates, dimensions).
        radius: What counts as near.
        runs: How many queries; each is drawn from the prior.
        rng: Of the queries and of the clients.
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
        raise InputError("prior", f"of shape {held.shape}", "a share above 0 for each candidate")
    truth = candidates[rng.choice(len(candidates), runs, p=held)]
    told = np.zeros((runs, len(candidates)))
    for _ in range(times):
        told += overheard(truth, candidates, rng)
    guessed = guess(posterior(told, held), candidates, truth, radius)
    apart = np.sqrt(np.square(candidates[:, None] - candidates[None]).sum(axis=2))
    return Attack(
        error=float(guessed.error.mean()),
        within=float(guessed.within.mean()),
        blind_error=float((held @ apart).min()),
        blind_within=float((held @ (apart <= radius)).max()),
        runs=runs,
    )
