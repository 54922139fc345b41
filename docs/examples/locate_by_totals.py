"""The location of a row by chosen queries to rank search.

All parties learn an interval for the distance of the k-th nearest row to each query. Intervals of
queries around a row intersect. Queries that are chosen by the answers to earlier ones halve what is
left of the row's place, each time. Ties and weighted votes reveal the distances themselves.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

import veilring as vr
from veilring.protocols.ranksearch.algorithm.search import Spacing, first_cuts
from veilring.protocols.ranksearch.algorithm.votes import Ranked
from veilring.protocols.ring.algorithm.classify import Weights

Points = NDArray[np.float64]
QUERIES = np.array([[0.30, 0.40, 0.50], [0.31, 0.40, 0.50], [0.30, 0.41, 0.50], [0.30, 0.40, 0.51]])
UPPER, ARITY = 3**0.5, 16
RADIUS = 6  # of the thresholds of a first step: 0.015, less than half way to the next row

Within = Callable[[Points], NDArray[np.bool_]]
"""Maps queries, shape (Q, features), to whether a row is within the radius of each."""


def locate(queries: Points, distances: Points) -> Points:
    """Return the point with given distances to f + 1 or more queries, not all in a plane."""
    first, others = queries[0], queries[1:]
    squares = (others**2).sum(axis=1) - (first**2).sum()
    sides = squares - distances[1:] ** 2 + distances[0] ** 2
    solved, *_ = np.linalg.lstsq(2 * (others - first), sides)
    return np.asarray(solved)


def intersect_shells(
    queries: Points, inner: Points, outer: Points, start: Points, steps: int = 8
) -> Points:
    """Return a central point of the set whose distances to the queries are in the given intervals.

    It is the centre of the largest ball inside, found by linear programs around the previous
    centre, beginning with a point nearby.
    """
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
    within: Within, start: Points, directions: Points, reach: float, *, steps: int, arity: int = 2
) -> Points:
    """Return the points at which lines leave the ball around a row, by dividing intervals.

    Each step asks all lines at once. Each point is at the distance from the row that `within`
    tests, up to reach/arity^steps; f + 1 points locate the row. The start is inside the ball, and
    lines of length `reach`, such as twice the radius, in directions of length 1 end outside.
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


def distances_by_weight(radii: Points, weights: Points) -> Points:
    """Return the distances of rows that are the only ones of their class within the radius."""
    return radii / weights


def search(rows: Points, queries: Points, weights: Weights = "uniform") -> Ranked:
    """Return the answer that every party learns about the nearest of all rows to each query."""
    system = vr.RankSearch(k=1, arity=ARITY, weights=weights)
    parts = {f"party-{n}": vr.Rows(rows[n::3], np.zeros(len(rows[n::3]), int)) for n in range(3)}
    setup = system.setup(parts, vr.Facts(parties=3, features=3, classes=2))
    return setup.search(np.clip(queries, 0, 1), list(parts.values()))


def intersect(rows: Points, queries: Points, start: Points) -> Points:
    """Return the middle of all points that the intervals of some queries leave."""
    found = search(rows, queries).found
    return intersect_shells(queries, np.maximum(found.lower, 0), found.radii, start)


def around(place: Points, count: int, reach: float, rng: np.random.Generator) -> Points:
    """Return queries in all directions from a point."""
    ways = rng.normal(size=(count, 3))
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    return place + reach * rng.random((count, 1)) * ways


def main() -> None:
    """Locate a row in four ways."""
    rng = np.random.default_rng(1)
    rows = rng.random((120, 3))
    row = rows[np.linalg.norm(rows - QUERIES[0], axis=1).argmin()]
    lines = np.vstack([np.eye(3), -np.ones(3) / 3**0.5])

    def tell(queries: int, place: Points) -> None:
        print(f"{queries:>9,}   {np.linalg.norm(place - row):.0e}")

    found = search(rows, QUERIES).found
    nearest = np.linalg.norm(row - QUERIES[0])
    print(f"The nearest row to the first query is at distance {nearest:.6f}.")
    print(f"All parties learn the interval {found.lower[0]:.6f} to {found.radii[0]:.6f}.")

    print("\n  queries   error of the location, by intersecting intervals")
    place = intersect(rows, QUERIES, QUERIES.mean(axis=0) + 0.01)
    tell(4, place)
    for count in (16, 64, 256, 1000):
        queries = around(place, count, 0.05, rng)
        tell(4 + count, intersect(rows, queries, place))

    print("\n  queries   error of the location, by adaptive queries along four lines")
    radius = first_cuts(Spacing(UPPER, ARITY)).view(np.float64)[RADIUS]
    near = intersect(rows, around(place, 16, 0.05, rng), place)

    def within(queries: Points) -> NDArray[np.bool_]:
        return np.asarray(search(rows, queries).found.radii <= radius)

    for steps in (10, 20, 30, 40):
        crossings = find_crossings(within, near, lines, 2 * radius, steps=steps)
        tell(20 + 4 * steps, locate(crossings, np.full(4, radius)))

    print("\n  queries   error of the location, if two parties hold the row")
    twice = search(np.vstack([rows, row]), QUERIES).found
    tell(4, locate(QUERIES, twice.radii))

    print("\n  queries   error of the location, if votes are weighted by distance")
    answer = search(rows, QUERIES, weights="distance")
    weight = answer.votes.values[:, 0]
    tell(4, locate(QUERIES, distances_by_weight(answer.found.radii, weight)))


if __name__ == "__main__":
    main()
