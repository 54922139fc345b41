"""The paper's r-N and k-N where the package differs: its allocations, mechanisms and conversion.

Source: Gursoy, Inan, Nergiz and Saygin, "Differentially private nearest neighbor classification",
Data Mining and Knowledge Discovery 31 (2017).
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil
from typing import Final, Literal, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.privacy.checks import require, require_that
from veilring.privacy.draws import UniformBits
from veilring.privacy.exact import FractionBounds, exp_bounds
from veilring.privacy.noise import discrete_laplace, discrete_laplace_pmf
from veilring.privacy.selection import exponents
from veilring.protocols.radius.algorithm.allocation import allocate_budget, largest_cliques
from veilring.protocols.radius.algorithm.balls import (
    count_votes,
    overlap_graph,
    require_queries,
    require_width,
)
from veilring.protocols.radius.algorithm.conversion import (
    ByGrid,
    candidate_qualities,
    convert_to_radii,
    uniform_radius,
)

CANDIDATES: Final = 10
# Discrete Laplace noise of scale s exceeds this multiple of s with probability below 1e-19.
_TAIL: Final = 44
# the maximum error of a computed share of the probability mass, per candidate
_SLACK: Final = 2.0**-46
_HALF: Final = 0.5  # w, the share of a budget for the conversion

Allocation = Literal["clique", "component", "batch"]
"""The divisor of a query's share: the package's largest clique; the largest one of its component
(Algorithm 3); or the size of the batch (the baseline)."""


@dataclass(frozen=True, slots=True)
class PaperVotes:
    """A batch with radii, labelled by the greatest count with Laplace noise (Algorithm 1).

    Attributes:
        epsilon: The budget of the batch, above 0.
    """

    epsilon: float
    classes: int
    allocation: Allocation

    @classmethod
    def proposed(cls, epsilon: float, classes: int) -> Self:
        """Return the paper's solution: the largest clique of each component."""
        return cls(epsilon, classes, "component")

    @classmethod
    def baseline(cls, epsilon: float, classes: int) -> Self:
        """Return the paper's baseline: every query gets `epsilon / |X|`."""
        return cls(epsilon, classes, "batch")

    def label(self, queries: Floats, radii: Floats, rows: Rows, rng: Generator) -> Ints:
        """Release a label for each query, shape (Q,)."""
        shares = paper_shares(overlap_graph(queries, radii), self.epsilon, self.allocation)
        counts = count_votes(queries, radii, rows, self.classes)
        for epsilon in np.unique(shares):
            those = np.flatnonzero(shares == epsilon)
            scale = 1 / Fraction(float(epsilon))
            counts[those] += discrete_laplace(scale, (len(those), self.classes), rng)
        return np.asarray(counts.argmax(axis=1), dtype=np.int64)


def paper_shares(graph: Bools, epsilon: float, rule: Allocation) -> Floats:
    """Return the share of the budget of each query, shape (Q,)."""
    if rule == "clique":
        return allocate_budget(graph, epsilon).epsilons
    sizes = largest_cliques(graph).sizes if rule == "component" else np.ones(1, dtype=np.int64)
    crowds = _by_component(graph, sizes) if rule == "component" else np.full(len(graph), len(graph))
    return np.asarray(np.nextafter(epsilon / crowds, 0))


def _by_component(graph: Bools, sizes: Ints) -> Ints:
    """Return for each vertex the greatest size in its connected component."""
    from scipy.sparse import csgraph

    count, component = csgraph.connected_components(graph, directed=False)
    greatest = np.zeros(count, dtype=np.int64)
    np.maximum.at(greatest, component, sizes)
    return greatest[component]


def laplace_probabilities(counts: Ints, epsilons: Floats) -> Floats:
    """Return the probability of each label under `PaperVotes`, shape (Q, classes).

    Args:
        counts: The votes for each class, shape (Q, classes).
        epsilons: The ε of each query, shape (Q,), above 0.
    """
    return np.array([_of_winner(own, eps) for own, eps in zip(counts, epsilons, strict=True)])


def _of_winner(counts: Ints, epsilon: float) -> Floats:
    """Sum the probability over the winner's noisy count; the lowest label wins ties."""
    scale = 1 / Fraction(float(epsilon))
    beyond = ceil(_TAIL * float(scale))
    values = np.arange(counts.min() - beyond, counts.max() + beyond + 1)
    mass = discrete_laplace_pmf(values - counts[:, None], scale)
    at_most = np.cumsum(mass, axis=1)
    probabilities = np.empty(len(counts))
    for label in range(len(counts)):
        lower = (at_most - mass)[:label].prod(axis=0)
        higher = at_most[label + 1 :].prod(axis=0)
        probabilities[label] = (mass[label] * lower * higher).sum()
    return probabilities


def convert_as_paper(
    queries: Floats, rows: Rows, k: int, rng: Generator, *, epsilon: float
) -> Floats:
    """Return radii by Algorithm 6: equal steps, equal shares, and the exponential mechanism.

    Args:
        queries: The queries, shape (Q, f), in [0, 1].
    """
    r_unif = uniform_radius(k, len(rows), queries.shape[1])
    candidates = 2 * np.arange(1, CANDIDATES + 1) * r_unif / CANDIDATES
    qualities = candidate_qualities(queries, candidates, rows, k)
    shares = np.full(len(queries), np.nextafter(epsilon / max(1, len(queries)), 0))
    return np.asarray(candidates[exponential_mechanism(qualities, shares, rng)])


def label_as_paper(  # noqa: PLR0917  (a query, a data set, a classifier and its budget)
    queries: Floats, rows: Rows, k: int, classes: int, epsilon: float, rng: Generator, *, grid: bool
) -> Ints:
    """Release a label for each query by about k neighbours (Algorithm 5 with w = 1/2).

    Args:
        grid: Whether to convert k by a noisy grid instead of candidates.
    """
    half = epsilon * _HALF
    if grid:
        radii = convert_to_radii(
            queries, rows, k, ByGrid(), rng, epsilon=half, known_rows=len(rows)
        )
    else:
        radii = convert_as_paper(queries, rows, k, rng, epsilon=half)
    return PaperVotes.proposed(half, classes).label(queries, radii, rows, rng)


def label_openly(queries: Floats, radii: Floats, rows: Rows, classes: int, rng: Generator) -> Ints:
    """Return the labels of a classifier without privacy, shape (Q,) (Definition 9).

    Args:
        queries: The queries, shape (Q, f), in [0, 1].
        radii: The radii, shape (Q,), finite, at least 0.
        rng: The randomness that breaks ties, including those of balls without rows.
    """
    counts = count_votes(queries, radii, rows, classes)
    return np.asarray((counts + rng.random(counts.shape)).argmax(axis=1), dtype=np.int64)


def true_radii(queries: Floats, features: Floats, k: int) -> Floats:
    """Return the distance of each query to its k-th nearest row, shape (Q,), without privacy.

    Args:
        queries: The queries, shape (Q, f).
        features: The features of the rows, shape (N, f), N at least k.
        k: The number of neighbours, at least 1.
    """
    require(1 <= k <= len(features), "k", k, f"a whole number from 1 to {len(features)}")
    return np.partition(pairwise_distances(queries, features), k - 1, axis=1)[:, k - 1]


def label_nearest_baseline(  # noqa: PLR0917  (a query, a data set, a classifier and its budget)
    queries: Floats, rows: Rows, k: int, classes: int, epsilon: float, rng: Generator
) -> Ints:
    """Release a label for each query by the paper's baseline, shape (Q,) (Algorithm 4).

    It applies the exponential mechanism to the votes of the true neighbours, with `epsilon / |X|`
    for each query. An additional row changes each count by at most one, but may raise one count and
    lower another, so the factor 2 is needed.

    Args:
        queries: The queries, shape (Q, f), in [0, 1].
        rows: The secret table with f features.
        k: The number of neighbours, at least 1.
        epsilon: The budget of the batch, above 0.
        rng: The secret source of randomness.
    """
    votes = nearest_votes(queries, rows, k, classes)
    share = np.full(len(queries), np.nextafter(epsilon / max(1, len(queries)), 0))
    return exponential_mechanism(votes, share, rng)


def nearest_votes(queries: Floats, rows: Rows, k: int, classes: int) -> Ints:
    """Return the votes of the k nearest rows of each query, shape (Q, classes) (Definition 11).

    The first of equally distant rows vote; with fewer than k rows, all vote. The votes are secret.

    Args:
        queries: The queries, shape (Q, f), in [0, 1].
        k: The number of neighbours, at least 1.
    """
    require_queries(queries)
    require_width(queries, rows)
    require(k >= 1, "k", k, "a whole number of at least 1")
    known = rows.labels.size == 0 or int(rows.labels.max()) < classes
    require_that(known, "rows.labels", f"labels must be below {classes}, the number of classes")
    order = np.argsort(pairwise_distances(queries, rows.features), axis=1, kind="stable")[:, :k]
    return np.asarray(np.eye(classes, dtype=np.int64)[rows.labels[order]].sum(axis=1))


def exponential_mechanism(
    scores: Ints,
    epsilon: ArrayLike,
    rng: np.random.Generator,
    *,
    sensitivity: int = 1,
    monotone: bool = False,
) -> Ints:
    """Choose candidates with probability proportional to `e**(epsilon * score / (2 D))`, exactly.

    Source: McSherry and Talwar, FOCS 2007. By inversion: a uniform number falls into one of the
    intervals of [0, 1) that belong to the candidates.

    The arguments and the result are those of `permute_and_flip`.
    """
    gamma, exact = exponents(scores, epsilon, sensitivity, monotone=monotone)
    ends = np.cumsum(np.exp(-gamma), axis=1)
    draws = rng.random(len(gamma))
    distances = draws[:, None] - ends / ends[:, -1:]
    chosen = np.asarray((distances[:, :-1] >= 0).sum(axis=1))
    doubtful = (np.abs(distances[:, :-1]) < _SLACK * gamma.shape[1]).any(axis=1)
    for run in np.flatnonzero(doubtful):
        gammas = [exact(int(run) * gamma.shape[1] + i) for i in range(gamma.shape[1])]
        number = UniformBits(float(draws[run]))
        chosen[run] = number.settle(partial(_holder, number, gammas), rng)
    return chosen


def _holder(number: UniformBits, gammas: list[Fraction]) -> int | None:
    """Return the candidate whose interval a uniform number is in, if its known bits tell."""
    intervals = _intervals([exp_bounds(-gamma, number.digits) for gamma in gammas])
    inside = (low <= number.low and number.high <= high for low, high in intervals)
    return next((candidate for candidate, holds in enumerate(inside) if holds), None)


def _intervals(weights: list[FractionBounds]) -> list[FractionBounds]:
    """Return the part of each candidate's interval that certainly belongs to it."""
    least, most = (sum(side, Fraction(0)) for side in zip(*weights, strict=True))
    intervals, low_before, high_before = [], Fraction(0), Fraction(0)
    for low, high in weights:
        # The start a / (a + rest) is largest for the largest a and the smallest rest.
        start = high_before / (high_before + least - low_before)
        low_before, high_before = low_before + low, high_before + high
        end = low_before / (low_before + most - high_before)
        intervals.append((start, end))
    return intervals


def exponential_probabilities(
    scores: Ints, epsilon: ArrayLike, *, sensitivity: int = 1, monotone: bool = False
) -> Floats:
    """Return the probabilities of `exponential_mechanism`, shape (runs, candidates)."""
    gamma, _ = exponents(scores, epsilon, sensitivity, monotone=monotone)
    weights = np.exp(-gamma)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
