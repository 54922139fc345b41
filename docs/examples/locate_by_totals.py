"""The location of a row by chosen queries to rank search.

All parties learn an interval for the distance of the k-th nearest row to each query. Intervals of
queries around a row intersect. Queries that are chosen by the answers to earlier ones halve what is
left of the row's place, each time. Ties and weighted votes reveal the distances themselves.
"""

import numpy as np
from numpy.typing import NDArray

import veilring as vr
from veilring.protocols.ranksearch.algorithm.search import first_cuts
from veilring.protocols.ranksearch.algorithm.votes import Ranked
from veilring.protocols.ranksearch.leakage import (
    distances_by_weight,
    find_crossings,
    intersect_shells,
    locate,
)
from veilring.protocols.ring.algorithm.classify import Weights

Points = NDArray[np.float64]
QUERIES = np.array([[0.30, 0.40, 0.50], [0.31, 0.40, 0.50], [0.30, 0.41, 0.50], [0.30, 0.40, 0.51]])
UPPER, ARITY = 3**0.5, 16
RADIUS = 6  # of the thresholds of a first step: 0.015, less than half way to the next row


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
    radius = first_cuts(UPPER, ARITY).view(np.float64)[RADIUS]
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
