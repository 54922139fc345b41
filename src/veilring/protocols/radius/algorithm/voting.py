"""Labels by noisy votes within radii: private r-N (Algorithms 1 to 3), and a filter for streams.

Each row has one label, so a row changes one count by one, and the budget of a query covers all its
labels. Adding a row never decreases a count, so neither permute-and-flip nor the exponential
mechanism needs the paper's factor of 2.

Queries, radii, parameters and functions of them, such as each query's share of the budget, are
public. Rows, counts and the generator are secret. Labels are released.

Queries that arrive one at a time have no overlap graph (`answer_next`; not in the paper). But the
queries determine which balls a row is in, so each row can have its own account: it votes while it
can pay, and pays for every ball in which it votes. Adding a row changes no other row's account.
However queries depend on earlier answers, the distributions of the answers with and without a row
therefore differ by a factor of at most `e ** paid`, where `paid` never exceeds the row's budget.
The remaining budgets are secret, because they reveal which rows exist.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.table import Rows, pairwise_distances
from veilring.privacy.checks import require_choice, require_that
from veilring.privacy.noise import discrete_laplace, discrete_laplace_pmf
from veilring.privacy.selection import (
    exponential_mechanism,
    exponential_probabilities,
    permute_and_flip,
    permute_and_flip_probabilities,
)
from veilring.protocols.radius.algorithm.allocation import (
    WORK_MAX,
    Allocation,
    AllocationRule,
    allocate_budget,
)
from veilring.protocols.radius.algorithm.balls import (
    count_labels,
    count_votes,
    overlap_graph,
    require_radii,
    require_width,
    row_chunks,
)

Mechanism = Literal["permute-and-flip", "exponential", "laplace"]
"""The mechanism that chooses a label. The default is permute-and-flip. The exponential mechanism is
Algorithm 2, at twice its rate for the same budget. Laplace takes the greatest count with discrete
Laplace noise, because the float noise of Algorithm 1 would reveal counts in its low bits."""
# Discrete Laplace noise of scale s exceeds this multiple of s with probability below 1e-19.
_TAIL: Final = 44


@dataclass(frozen=True, slots=True)
class RNParameters:
    """The public parameters of a batch with radii.

    Attributes:
        epsilon: The budget of the batch, above 0, if a row is added or removed; twice as much if a
            row is replaced.
    """

    epsilon: float
    classes: int
    allocation: AllocationRule = "clique"
    mechanism: Mechanism = "permute-and-flip"
    work: int = WORK_MAX

    @classmethod
    def paper(cls, epsilon: float, classes: int) -> Self:
        """Return the paper's solution: largest clique of each component, Laplace noise."""
        return cls(epsilon, classes, "component", "laplace")

    @classmethod
    def baseline(cls, epsilon: float, classes: int) -> Self:
        """Return the paper's baseline: every query gets `epsilon / |X|`."""
        return cls(epsilon, classes, "batch", "laplace")


def label_within(
    queries: NDArray[np.float64],
    radii: NDArray[np.float64],
    rows: Rows,
    parameters: RNParameters,
    rng: Generator,
) -> NDArray[np.int64]:
    """Release a label for each query, shape (Q,), all under `parameters.epsilon` (Algorithm 3).

    For a ball without rows, the label is random.

    Args:
        queries: The queries, shape (Q, f), in [0, 1].
        radii: The radii, shape (Q,), finite, at least 0.
        rows: The secret table with f features.
        rng: The secret source of randomness.
    """
    require_width(queries, rows)
    shares = plan_batch(queries, radii, parameters).epsilons
    counts = count_votes(queries, radii, rows, parameters.classes)
    return draw_labels(counts, shares, parameters.mechanism, rng)


def label_openly(
    queries: NDArray[np.float64],
    radii: NDArray[np.float64],
    rows: Rows,
    classes: int,
    rng: Generator,
) -> NDArray[np.int64]:
    """Return the labels of a classifier without privacy, shape (Q,) (Definition 9).

    Args:
        queries: The queries, shape (Q, f), in [0, 1].
        radii: The radii, shape (Q,), finite, at least 0.
        rng: The randomness that breaks ties, including those of balls without rows.
    """
    counts = count_votes(queries, radii, rows, classes)
    return np.asarray((counts + rng.random(counts.shape)).argmax(axis=1), dtype=np.int64)


def plan_batch(
    queries: NDArray[np.float64], radii: NDArray[np.float64], parameters: RNParameters
) -> Allocation:
    """Return the share of the budget of each query, from public values alone.

    Args:
        queries: The queries, shape (Q, f), in [0, 1].
        radii: The radii, shape (Q,), finite, at least 0.
    """
    graph = overlap_graph(queries, radii)
    return allocate_budget(graph, parameters.epsilon, parameters.allocation, work=parameters.work)


class FilteredLabels(NamedTuple):
    """The labels of queries whose cost was charged to the rows that voted.

    Attributes:
        labels: The public labels, shape (Q,).
        left: The secret remaining budget of each row, shape (N,).
    """

    labels: NDArray[np.int64]
    left: NDArray[Any]


def answer_next(  # noqa: PLR0913, PLR0917  (queries and what they may cost, a table and its accounts)
    queries: NDArray[np.float64],
    radii: NDArray[np.float64],
    epsilons: NDArray[np.float64],
    rows: Rows,
    left: NDArray[Any],
    rng: Generator,
    *,
    classes: int,
    prices: NDArray[Any] | None = None,
    mechanism: Mechanism = "permute-and-flip",
) -> FilteredLabels:
    """Release labels, one query after another, and charge them to the rows that vote.

    Args:
        queries: The queries, shape (Q, f), in [0, 1].
        radii: The radii, shape (Q,), finite, at least 0.
        epsilons: The cost of each query to a row, shape (Q,), above 0.
        rows: The secret table of N rows with f features.
        left: The secret remaining budget of each row, shape (N,); initially the full budget. Whole
            units, as in a ledger, are charged exactly; other numbers are rounded down.
        rng: The secret source of randomness.
        prices: The `epsilons` in the unit of `left`, shape (Q,), if that unit is not ε.

    Returns:
        The labels and the remaining budgets. Store the budgets durably *before* you release labels.
    """
    require_radii(queries, radii)
    require_that(
        left.shape == (len(rows),),
        "left",
        f"left has the shape {left.shape}; it must be ({len(rows)},)",
    )
    right = epsilons.shape == radii.shape and bool((epsilons > 0).all())
    require_that(
        right,
        "epsilons",
        f"epsilons has the shape {epsilons.shape}; give a number above 0 for each query",
    )
    costs = epsilons if prices is None else prices
    counts, after = np.zeros((len(queries), classes), dtype=np.int64), np.empty_like(left)
    # Rows pay independently. A chunk has an entry for each query, and one for each class.
    for chunk in row_chunks(len(rows), max(len(queries), classes)):
        inside = pairwise_distances(queries, rows.features[chunk]) <= radii[:, None]
        voting, after[chunk] = charge_rows(inside, costs, left[chunk])
        counts += count_labels(voting, rows.labels[chunk], classes)
    return FilteredLabels(draw_labels(counts, epsilons, mechanism, rng), after)


def charge_rows(
    inside: NDArray[np.bool_], epsilons: NDArray[Any], left: NDArray[Any]
) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Charge rows for the balls that they are in, in the order of the queries.

    Args:
        inside: Whether each row is in each ball, shape (Q, N).
        epsilons: The cost of each ball, shape (Q,).
        left: The remaining budget of each row in the same unit, shape (N,). If both are whole
            numbers, the result is exact.

    Returns:
        Whether each row paid for each ball, shape (Q, N), and the remaining budgets, rounded down.
    """
    exact = np.issubdtype(np.result_type(epsilons, left), np.integer)
    paying = np.zeros_like(inside)
    for place, epsilon in enumerate(epsilons):
        paying[place] = inside[place] & (left >= epsilon)
        rest = left - epsilon if exact else np.maximum(np.nextafter(left - epsilon, -np.inf), 0)
        left = np.where(paying[place], rest, left)
    return paying, left


def draw_labels(
    counts: NDArray[np.int64], epsilons: NDArray[np.float64], mechanism: Mechanism, rng: Generator
) -> NDArray[np.int64]:
    """Release the label of each query, shape (Q,), query i under `epsilons[i]`.

    Args:
        counts: The secret votes for each class, shape (Q, classes).
        epsilons: The ε of each query, shape (Q,), above 0.
        rng: The secret source of randomness.
    """
    require_choice("mechanism", mechanism, Mechanism)
    if mechanism == "permute-and-flip":
        return permute_and_flip(counts, epsilons, rng, monotone=True)
    if mechanism == "exponential":
        return exponential_mechanism(counts, epsilons, rng, monotone=True)
    noisy = counts.copy()
    for epsilon in np.unique(epsilons):
        those = np.flatnonzero(epsilons == epsilon)
        noisy[those] += discrete_laplace(_scale(epsilon), (len(those), counts.shape[1]), rng)
    return np.asarray(noisy.argmax(axis=1), dtype=np.int64)


def label_probabilities(
    counts: NDArray[np.int64], epsilons: NDArray[np.float64], mechanism: Mechanism
) -> NDArray[np.float64]:
    """Return the probability of releasing each label, shape (Q, classes).

    Args:
        counts: The votes for each class, shape (Q, classes).
        epsilons: The ε of each query, shape (Q,), above 0.
    """
    require_choice("mechanism", mechanism, Mechanism)
    if mechanism == "permute-and-flip":
        return permute_and_flip_probabilities(counts, epsilons, monotone=True)
    if mechanism == "exponential":
        return exponential_probabilities(counts, epsilons, monotone=True)
    probabilities = [
        _laplace_probabilities(own, eps) for own, eps in zip(counts, epsilons, strict=True)
    ]
    return np.array(probabilities).reshape(counts.shape)


def _laplace_probabilities(counts: NDArray[np.int64], epsilon: float) -> NDArray[np.float64]:
    """Sum the probability over the winner's noisy count; the lowest label wins ties."""
    beyond = ceil(_TAIL * float(_scale(epsilon)))
    values = np.arange(counts.min() - beyond, counts.max() + beyond + 1)
    mass = discrete_laplace_pmf(values - counts[:, None], _scale(epsilon))
    at_most = np.cumsum(mass, axis=1)
    probabilities = np.empty(len(counts))
    for label in range(len(counts)):
        lower = (at_most - mass)[:label].prod(axis=0)
        higher = at_most[label + 1 :].prod(axis=0)
        probabilities[label] = (mass[label] * lower * higher).sum()
    return probabilities


def _scale(epsilon: float) -> Fraction:
    return 1 / Fraction(float(epsilon))
