"""Labels voted for within given radii: private r-N (Algorithms 1 to 3), and a filter for streams.

The labels of rows are disjoint, so a row changes one count by one: the budget of a query serves
all its labels. Adding a row moves no count down, so that neither permute-and-flip nor the
exponential mechanism needs the factor of 2 that the paper has.

Public are queries, radii, parameters, and all that follows from them, such as each query's share of
the budget. Secret are rows, counts, and the generator. Labels are released.

Queries that come one at a time have no overlap graph to plan by (`answer_next`; not in the paper).
But which balls a row was in follows from the queries, so each row can have an account of its own:
it votes while it can pay, and pays for every ball that it votes in. Adding a row changes no other
row's account. So however queries depend on earlier answers, the answers' laws with the row and
without it differ by at most `e ** (what it paid)`, and it never pays more than it began with. What
is left of the accounts is secret: it reveals which rows are there.
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
"""How a label is chosen: permute-and-flip, the default; the exponential mechanism (Algorithm 2, at
twice its rate for the same budget); or the greatest count plus discrete Laplace noise (Algorithm 1,
whose Laplace noise on floats would give counts away in its low bits)."""
# Discrete Laplace noise of scale s exceeds this multiple of s with probability below 1e-19.
_TAIL: Final = 44


@dataclass(frozen=True, slots=True)
class RNParameters:
    """How a batch is labelled. Public.

    Attributes:
        epsilon: The budget of the batch, above 0, for neighbours that differ by one row more or
            less; under the replacement of a row it is twice that.
        classes: The number of classes.
        allocation: The divisor of a query's share.
        mechanism: How a label is chosen.
        work: The limit of the clique search.
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

    A ball without rows is answered like any other: with a label at random.

    Args:
        queries: Shape (Q, f), in [0, 1].
        radii: Shape (Q,), finite, at least 0.
        rows: The table, of f features. Secret.
        parameters: How the batch is labelled.
        rng: The source of randomness. Secret.

    Raises:
        InputError: As `plan_batch`, `count_votes` and `draw_labels` do.
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
    """Return what a classifier without privacy answers, shape (Q,) (Definition 9): to compare with.

    Args:
        queries: Shape (Q, f), in [0, 1].
        radii: Shape (Q,), finite, at least 0.
        rows: The table, of f features.
        classes: The number of classes.
        rng: Breaks ties, as among the labels of a ball without rows.

    Raises:
        InputError: See `count_votes`.
    """
    counts = count_votes(queries, radii, rows, classes)
    return np.asarray((counts + rng.random(counts.shape)).argmax(axis=1), dtype=np.int64)


def plan_batch(
    queries: NDArray[np.float64], radii: NDArray[np.float64], parameters: RNParameters
) -> Allocation:
    """Return what each query may spend: a function of public values alone.

    Args:
        queries: Shape (Q, f), in [0, 1].
        radii: Shape (Q,), finite, at least 0.
        parameters: How the batch is labelled.

    Raises:
        InputError: As `overlap_graph` and `allocate_budget` do.
    """
    graph = overlap_graph(queries, radii)
    return allocate_budget(graph, parameters.epsilon, parameters.allocation, work=parameters.work)


class FilteredLabels(NamedTuple):
    """The labels of queries that were charged to the rows that voted.

    Attributes:
        labels: The labels, shape (Q,). Public.
        left: The rest of each row's account, shape (N,). Secret.
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
    """Release labels, one query after another, to be charged to the rows that voted.

    Args:
        queries: Shape (Q, f), in [0, 1].
        radii: Shape (Q,), finite, at least 0.
        epsilons: Shape (Q,): what each query may cost a row, above 0.
        rows: N rows of f features. Secret.
        left: Shape (N,): what each row may still pay; at first the budget, for each. Secret. Whole
            units, as a ledger counts, are charged exactly; other numbers are rounded down.
        rng: The source of randomness. Secret.
        classes: The number of classes.
        mechanism: How a label is chosen.
        prices: Shape (Q,): `epsilons` in what `left` is counted in, if that is something else.

    Returns:
        The labels, and what is left. It has to be kept durably *before* the labels leave.

    Raises:
        InputError: If a shape or a value does not fit.
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
    # Rows pay each for itself. A chunk has an entry for each query, and one for each class.
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
        inside: Shape (Q, N): whether a row is in a ball.
        epsilons: Shape (Q,): what a ball costs.
        left: Shape (N,): what rows have, in the same unit. If both are whole numbers, all is exact.

    Returns:
        Which rows could pay for which ball, shape (Q, N), and what they have left, rounded down.
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
        counts: The votes for each class, shape (Q, classes). Secret.
        epsilons: Shape (Q,), above 0.
        mechanism: How a label is chosen.
        rng: The source of randomness. Secret.

    Raises:
        InputError: If `mechanism` is unknown, or as the mechanisms do.
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


def label_law(
    counts: NDArray[np.int64], epsilons: NDArray[np.float64], mechanism: Mechanism
) -> NDArray[np.float64]:
    """Return the probability with which each label is released, shape (Q, classes).

    Args:
        counts: The votes for each class, shape (Q, classes).
        epsilons: Shape (Q,), above 0.
        mechanism: How a label is chosen.

    Raises:
        InputError: See `draw_labels`.
    """
    require_choice("mechanism", mechanism, Mechanism)
    if mechanism == "permute-and-flip":
        return permute_and_flip_probabilities(counts, epsilons, monotone=True)
    if mechanism == "exponential":
        return exponential_probabilities(counts, epsilons, monotone=True)
    laws = [_laplace_law(own, eps) for own, eps in zip(counts, epsilons, strict=True)]
    return np.array(laws).reshape(counts.shape)


def _laplace_law(counts: NDArray[np.int64], epsilon: float) -> NDArray[np.float64]:
    """Sum over the winner's noisy count; ties go to the lowest label."""
    beyond = ceil(_TAIL * float(_scale(epsilon)))
    values = np.arange(counts.min() - beyond, counts.max() + beyond + 1)
    mass = discrete_laplace_pmf(values - counts[:, None], _scale(epsilon))
    at_most = np.cumsum(mass, axis=1)
    law = np.empty(len(counts))
    for label in range(len(counts)):
        lower = (at_most - mass)[:label].prod(axis=0)
        higher = at_most[label + 1 :].prod(axis=0)
        law[label] = (mass[label] * lower * higher).sum()
    return law


def _scale(epsilon: float) -> Fraction:
    return 1 / Fraction(float(epsilon))
