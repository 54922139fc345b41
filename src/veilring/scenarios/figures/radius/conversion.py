"""Figures 10 and 11: how far private radii are from the true ones, and counts from k."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.random import Generator

from veilring.data import Table
from veilring.protocols.radius.algorithm import (
    ByCandidates,
    ByGrid,
    Conversion,
    convert,
    count_votes,
    true_radii,
)
from veilring.scenarios.figures.measured import Key
from veilring.scenarios.figures.model import Observe
from veilring.scenarios.figures.radius.accuracy import GRID, INTERACTIVE, QUERIES
from veilring.scenarios.figures.radius.dealt import deal

RADIUS_ERROR: Final = "AvRE"
ROWS_ERROR: Final = "RMSE"
ALLOCATED: Final = "veilring's interactive"
K: Final = 30

_CONVERSIONS: Final[Mapping[str, Conversion]] = {
    INTERACTIVE: ByCandidates.paper(),
    GRID: ByGrid(),
    ALLOCATED: ByCandidates(),
}


def conversion_over_epsilon(measure: str) -> Observe:
    """Return what measures one of the two errors of each conversion over its budget.

    Args:
        measure: `RADIUS_ERROR`: the mean of |r' - r| / r in per cent; or `ROWS_ERROR`: the root of
            the mean of (k' - k)^2, where k' rows are within r'.
    """

    def observe(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
        dealt = deal(table, rng)
        queries = dealt.queries[:QUERIES]
        k = min(K, len(dealt.rows))
        true = true_radii(queries, dealt.rows.features, k)
        curves: dict[Key, list[float]] = {}
        for epsilon in x:
            for name, how in _CONVERSIONS.items():
                found = convert(
                    queries, dealt.rows, k, how, rng, epsilon=epsilon, known_rows=len(dealt.rows)
                )
                if measure == RADIUS_ERROR:
                    # A query that k rows equal has a true radius of 0, and no relative error.
                    far = true > 0
                    error = 100 * (np.abs(found - true)[far] / true[far]).mean()
                else:
                    rows = count_votes(queries, found, dealt.rows, dealt.classes).sum(axis=1)
                    error = np.sqrt(((rows - k) ** 2).mean())
                curves.setdefault(Key(measure, name), []).append(float(error))
        return curves

    return observe
