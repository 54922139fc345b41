"""The leakage of rank search's opened totals, the only values that it reveals.

No message reveals anything about one party: a simulator can produce every view of up to n - 2
parties from the totals. This module measures the leakage of the totals themselves. They
reveal an interval for the distance of the k-th nearest row, and totals above k reveal how nearby
rows are spread over parties.

Two attacks locate a row and isolate one party's counts. They need only answers: published intervals
and totals for queries that the adversary may choose. A participant's view does not help, because it
can be simulated from the totals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import Rows
from veilring.protocols.ranksearch.algorithm.search import (
    Asked,
    End,
    Found,
    TotalsSearch,
    run_search,
)
from veilring.protocols.ranksearch.algorithm.votes import Nearest, count_rows, nearest_rows


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """The values that the search for the radii of a batch opens."""

    found: Found
    asked: tuple[Asked, ...]
    totals: tuple[Ints, ...]

    @property
    def thresholds(self) -> Mapping[tuple[int, int], int]:
        """The total at each query and bit pattern of a threshold."""
        return {
            (int(query), int(pattern)): int(total)
            for asked, totals in zip(self.asked, self.totals, strict=True)
            for query, pattern, total in zip(
                asked.queries[asked.owner], asked.patterns, totals, strict=True
            )
        }


def open_totals(
    queries: Floats, parts: Sequence[Rows], *, k: int, upper: float, arity: int
) -> Opened:
    """Search the rows of parties with the parties' own steps, and keep the opened totals."""
    near = [nearest_rows(queries, rows, k) for rows in parts]
    return open_nearest(near, k=k, upper=upper, arity=arity)


def open_nearest(near: Sequence[Nearest], *, k: int, upper: float, arity: int) -> Opened:
    """Search as `open_totals` does, given the k + 1 nearest rows of each party."""
    steps: list[tuple[Asked, Ints]] = []

    def count(asked: Asked) -> Ints:
        steps.append((asked, count_rows(near, asked)))
        return steps[-1][1]

    queries = len(near[0].distances)
    search = TotalsSearch(queries, k=k, upper=upper, arity=arity, parties=len(near))
    found = run_search(search, count)
    asked, totals = zip(*steps, strict=True)
    return Opened(found, asked, totals)


def interval_widths(found: Found, upper: float) -> Floats:
    """Return the width of each k-th smallest distance's published interval, as a fraction.

    It is 0 for ties: the search ends at their exact distance. With fewer than k rows it is 1,
    because there is no such distance.
    """
    width = (found.radii - np.maximum(found.lower, 0.0)) / upper
    return np.select([found.ends == End.TIED, found.ends == End.FEW], [0.0, 1.0], width)


def leakage_of_totals(opened: Opened, k: int, upper: float) -> dict[str, Floats]:
    """Return the leakage of a batch's totals about each query, as arrays of shape (Q,).

    `radius` is the result of `interval_widths`, `tied` is 1 if the k-th distance is known exactly,
    and `above` is the fraction of opened totals that exceed k.
    """
    found = opened.found
    owner = np.concatenate([asked.queries[asked.owner] for asked in opened.asked])
    above = np.bincount(owner, np.concatenate(opened.totals) > k, len(found.radii))
    return {
        "radius": interval_widths(found, upper),
        "tied": found.tied.astype(np.float64),
        "above": above / np.bincount(owner, minlength=len(found.radii)),
    }


@dataclass(frozen=True, slots=True)
class LeakageOfOne:
    """The leakage of one threshold about one honest party, in bits."""

    whole: float
    by_total: float
    by_reaching: float


def leakage_of_one(honest: int, k: int, rows: float) -> LeakageOfOne:
    """Return the exact leakage of a threshold about one party, for Poisson counts.

    A coalition subtracts its own counts, so the total is that of the parties outside it. Counts
    are clipped at k + 1.
    """
    from scipy.stats import poisson

    one = poisson.pmf(np.arange(k + 2), rows)
    one[-1] = poisson.sf(k, rows)
    others = np.ones(1)
    for _ in range(honest - 1):
        others = np.convolve(others, one)
    joint = np.zeros((k + 2, honest * (k + 1) + 1))  # of the party's count and the total
    for count, share in enumerate(one):
        joint[count, count : count + len(others)] = share * others
    reached = np.stack([joint[:, :k].sum(axis=1), joint[:, k:].sum(axis=1)], axis=1)
    return LeakageOfOne(_entropy(one), _information(joint), _information(reached))


def _entropy(pmf: Floats) -> float:
    likely = pmf[pmf > 0]
    return float(-(likely * np.log2(likely)).sum())


def _information(joint: Floats) -> float:
    marginals = _entropy(joint.sum(axis=0)) + _entropy(joint.sum(axis=1))
    return max(0.0, marginals - _entropy(joint.ravel()))


_Points = Floats  # of shape (points, features)
Within = Callable[[_Points], Bools]
"""Maps queries, shape (Q, features), to whether a row is within the radius of each."""


def locate(queries: _Points, distances: Floats) -> _Points:
    """Return the point with given distances to f + 1 or more queries, not all in a plane."""
    first, others = queries[0], queries[1:]
    squares = (others**2).sum(axis=1) - (first**2).sum()
    sides = squares - distances[1:] ** 2 + distances[0] ** 2
    solved, *_ = np.linalg.lstsq(2 * (others - first), sides)
    return np.asarray(solved)


def intersect_shells(
    queries: _Points, inner: Floats, outer: Floats, start: _Points, steps: int = 8
) -> _Points:
    """Return a central point of the set whose distances to the queries are in the given intervals.

    It is the centre of the largest ball inside, found by linear programs around the previous
    centre, beginning with a point nearby.
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


def distances_by_weight(radii: Floats, weights: Floats) -> Floats:
    """Return the distances of rows that are the only ones of their class within the radius."""
    return radii / weights


def counts_of_missing(everyone: Opened, fewer: Opened) -> dict[tuple[int, int], int]:
    """Return the counts of a party that is absent from a second search for the same queries.

    The keys are the queries and the bit patterns of thresholds that both searches asked.
    """
    left = fewer.thresholds
    return {
        place: total - left[place] for place, total in everyone.thresholds.items() if place in left
    }
