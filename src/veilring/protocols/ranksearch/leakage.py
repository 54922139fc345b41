"""The leakage of rank search's opened totals, the only values that it reveals.

No message reveals anything about one party: a simulator can produce every view of up to n - 2
parties from the totals. This module measures the leakage of the totals themselves. They
reveal an interval for the distance of the k-th nearest row, and totals above k reveal how nearby
rows are spread over parties.

Attacks that locate a row or isolate one party's counts need only answers: published intervals and
totals for queries that the adversary may choose. A participant's view does not help, because it can
be simulated from the totals. `docs/examples` has them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.protocols.ranksearch.algorithm.search import (
    Asked,
    End,
    Found,
    Spacing,
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


def open_totals(queries: Floats, parts: Sequence[Rows], spacing: Spacing, *, k: int) -> Opened:
    """Search the rows of parties with the parties' own steps, and keep the opened totals."""
    near = [nearest_rows(queries, rows, k) for rows in parts]
    return open_nearest(near, spacing, k=k)


def open_nearest(near: Sequence[Nearest], spacing: Spacing, *, k: int) -> Opened:
    """Search as `open_totals` does, given the k + 1 nearest rows of each party."""
    steps: list[tuple[Asked, Ints]] = []

    def count(asked: Asked) -> Ints:
        steps.append((asked, count_rows(near, asked)))
        return steps[-1][1]

    queries = len(near[0].distances)
    search = TotalsSearch(queries, spacing, k=k, parties=len(near))
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
