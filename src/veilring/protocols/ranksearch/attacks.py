"""Attacks on the results of rank search: locating a row, and isolating one party's counts.

They need only answers: published intervals and totals for queries that the adversary may choose. A
participant's view does not help, because it can be simulated from the totals.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ranksearch.leakage import Opened

_Points = NDArray[np.float64]
Within = Callable[[_Points], NDArray[np.bool_]]
"""Maps queries, shape (Q, features), to whether a row is within the radius of each."""


def locate(queries: _Points, distances: NDArray[np.float64]) -> _Points:
    """Return the point with given distances to f + 1 or more queries, by least squares.

    Args:
        queries: Shape (Q, features), not all in a plane.
        distances: Shape (Q,).
    """
    first, others = queries[0], queries[1:]
    squares = (others**2).sum(axis=1) - (first**2).sum()
    sides = squares - distances[1:] ** 2 + distances[0] ** 2
    solved, *_ = np.linalg.lstsq(2 * (others - first), sides)
    return np.asarray(solved)


def intersect_shells(
    queries: _Points,
    inner: NDArray[np.float64],
    outer: NDArray[np.float64],
    start: _Points,
    steps: int = 8,
) -> _Points:
    """Return a central point of the set whose distances to the queries are in the given intervals.

    It is the centre of the largest ball inside, found by linear programs around the previous
    centre.

    Args:
        queries: Shape (Q, features).
        inner: The lower ends, shape (Q,).
        outer: The upper ends, shape (Q,).
        start: A point nearby, shape (features,).
        steps: The number of linear programs.
    """
    from scipy.optimize import linprog

    features, centre = queries.shape[1], start
    for _ in range(steps):
        away = centre - queries
        distances = np.linalg.norm(away, axis=1)
        towards = away / distances[:, None]
        one, at = np.ones((len(queries), 1)), distances - towards @ centre
        found = linprog(
            [*[0.0] * features, -1.0],
            A_ub=np.block([[towards, one], [-towards, one]]),
            b_ub=np.concatenate([outer - at, at - inner]),
            bounds=[*[(0.0, 1.0)] * features, (None, None)],
        )
        centre = np.asarray(found.x)[:features]
    return centre


def find_crossings(
    within: Within, start: _Points, directions: _Points, reach: float, *, steps: int, arity: int = 2
) -> _Points:
    """Return the points at which lines leave the ball around a row, by dividing intervals.

    Each step asks all lines at once. Each point is at the distance from the row that `within`
    tests, up to reach/arity^steps; f + 1 points locate the row.

    Args:
        within: The test of one step's queries.
        start: A point inside the ball, shape (features,).
        directions: Shape (lines, features), of length 1.
        reach: A length at which all lines are outside the ball, such as twice the radius.
        arity: The number of parts into which a step divides an interval; a step asks `arity` - 1
            points.
    """
    lines = np.arange(len(directions))
    low, high = np.zeros(len(lines)), np.full(len(lines), reach)
    for _ in range(steps):
        cuts = np.linspace(low, high, arity + 1, axis=1)
        asked = start + cuts[:, 1:-1, None] * directions[:, None]
        inside = within(asked.reshape(-1, len(start))).reshape(len(lines), -1)
        left = inside.sum(axis=1)
        low, high = cuts[lines, left], cuts[lines, left + 1]
    return np.asarray(start + ((low + high) / 2)[:, None] * directions)


def distances_by_weight(
    radii: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the distances of rows that are the only ones of their class within the radius.

    Args:
        radii: The published radii, shape (Q,).
        weights: The total of weighted votes of such a class, shape (Q,).
    """
    return radii / weights


def counts_of_missing(everyone: Opened, fewer: Opened) -> dict[tuple[int, int], int]:
    """Return the counts of a party that is absent from a second search for the same queries.

    Args:
        everyone: The totals of all parties.
        fewer: The totals of all parties but one.

    Returns:
        The party's clipped count at each query and threshold bit pattern that both searches asked.
    """
    left = fewer.thresholds
    return {
        place: total - left[place] for place, total in everyone.thresholds.items() if place in left
    }
