"""Queries that come one at a time: a filter keeps what each row has left (not in the paper).

Without the whole batch there is no overlap graph to plan by. But which balls a row was in follows
from the queries, so each row can have an account of its own: it votes while it can pay, and pays
for every ball that it votes in. Adding a row changes no other row's account; so whoever asks, and
however queries depend on earlier answers, the answers' laws with the row and without it differ by
at most `e ** (what it paid)`, and it never pays more than it began with.

What is left is secret: it tells which rows are there.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.privacy.checks import require
from veilring.protocols.radius.algorithm.balls import (
    chunks,
    count_labels,
    distances,
    require_radii,
)
from veilring.protocols.radius.algorithm.voting import Mechanism, vote
from veilring.protocols.rows import Rows


class Answered(NamedTuple):
    """What came of some queries.

    Attributes:
        labels: Shape (Q,). Public.
        left: Shape (N,): what each row has left. Secret.
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
) -> Answered:
    """Release labels, one query after another, to be charged to the rows that voted.

    Args:
        queries: Shape (Q, f), in [0, 1].
        radii: Shape (Q,), finite, at least 0.
        epsilons: Shape (Q,): what each query may cost a row, above 0.
        rows: N rows of f features. Secret.
        left: Shape (N,): what each row may still pay; at first the budget, for each. Secret. Whole
            units, as a ledger counts, are charged exactly; other numbers are rounded down.
        rng: Secret.
        classes: The number of classes.
        mechanism: How a label is chosen.
        prices: Shape (Q,): `epsilons` in what `left` is counted in, if that is something else.

    Returns:
        The labels, and what is left. It has to be kept durably *before* the labels leave.

    Raises:
        InputError: If a shape or a value does not fit.
    """
    require_radii(queries, radii)
    require(left.shape == (len(rows),), "left", f"of shape {left.shape}", f"({len(rows)},)")
    right = epsilons.shape == radii.shape and bool((epsilons > 0).all())
    require(right, "epsilons", f"of shape {epsilons.shape}", "a number above 0 for each query")
    costs = epsilons if prices is None else prices
    counts, after = np.zeros((len(queries), classes), dtype=np.int64), np.empty_like(left)
    # Rows pay each for itself. A chunk has an entry for each query, and one for each class.
    for chunk in chunks(len(rows), max(len(queries), classes)):
        inside = distances(queries, rows.features[chunk]) <= radii[:, None]
        voting, after[chunk] = pay(inside, costs, left[chunk])
        counts += count_labels(voting, rows.labels[chunk], classes)
    return Answered(vote(counts, epsilons, mechanism, rng), after)


def pay(
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
