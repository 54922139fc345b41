"""Tables for rank search: real ones, integers with many ties, and partitions of rows."""

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest

from veilring.arrays import Floats, Ints
from veilring.data.sources import load
from veilring.data.table import Rows, pairwise_distances, partition, scale_to_unit

INTEGERS = "integers"
"""200 rows of three whole numbers from 0 to 3: each place has three rows in the mean."""
TABLES = (
    "wine",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("breast-cancer", "digits", INTEGERS)),
)


@cache
def table(name: str) -> tuple[Rows, Floats, int]:
    """Return every other row of a table, the queries, and the number of classes.

    All rows of a table are queries, except for digits with its 1,797 rows, where every third is.
    """
    if name == INTEGERS:
        rng = np.random.default_rng(8)
        X, y, classes = rng.integers(0, 4, (400, 3)) / 3, rng.integers(0, 3, 400), 3
    else:
        loaded = scale_to_unit(load(name))
        X, y, classes = loaded.X, loaded.y, len(loaded.features.classes)
    return Rows(X[::2], y[::2]), X[::3] if name == "digits" else X, classes


def dealings(rows: Rows, sizes: Sequence[int] = (3, 8, 30)) -> Iterator[tuple[str, list[Rows]]]:
    """Yield partitions of rows: even, skewed, by class, and with all rows at the last party."""
    rng = np.random.default_rng(9)
    for parties in sizes:
        for kind in ("iid", "by-label"):
            dealt = partition(rows.labels, parties, rng, kind=kind)
            yield f"{kind} among {parties}", _deal(rows, dealt)
        skewed = partition(rows.labels, parties, rng, kind="dirichlet", alpha=0.1)
        yield f"skewed among {parties}", _deal(rows, skewed)
    nobody = [np.zeros(0, np.int64)] * 3
    yield "all at one", _deal(rows, [*nobody, np.arange(len(rows))])


def votes_within(queries: Floats, rows: Rows, classes: int, k: int) -> Floats:
    """Count rows by class up to the distance of the k-th nearest, by sorting all distances."""
    distances = pairwise_distances(queries, rows.features)
    radius = np.sort(distances, axis=1)[:, min(k, len(rows)) - 1]
    return votes_at(distances, rows.labels, classes, radius, np.ones_like(distances))


def votes_at(
    distances: Floats, labels: Ints, classes: int, radius: Floats, weights: Floats
) -> Floats:
    """Add up the weights of the rows within each radius by class, shape (queries, classes)."""
    voting = np.where(distances <= radius[:, None], weights, 0.0)
    return np.stack([voting[:, labels == each].sum(axis=1) for each in range(classes)], axis=1)


def _deal(rows: Rows, dealt: list[Ints]) -> list[Rows]:
    return [Rows(rows.features[part], rows.labels[part]) for part in dealt]
