"""What all figures of the family begin with: a split into an owner's rows and an analyst's batch.

The paper cuts each table into five parts, four of them private. It sets the radius "so that on
average, a test instance would have between 5 and 20 training instances" in its ball: chosen here is
20, over all held-out rows. Features are scaled by the table's own bounds, which count as public,
and so does the number of rows.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data import Table, split
from veilring.protocols.radius.algorithm import distances
from veilring.protocols.rows import Rows

TEST_SHARE: Final = 0.2
PER_BALL: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """One random split.

    Attributes:
        rows: The owner's.
        queries: The analyst's, shape (Q, f).
        truth: Their classes, shape (Q,).
        classes: The number of classes.
        radius: Within which a query has `PER_BALL` rows on average.
    """

    rows: Rows
    queries: NDArray[np.float64]
    truth: NDArray[np.int64]
    classes: int
    radius: float

    def radii(self, queries: int) -> NDArray[np.float64]:
        """Return the radius of each of the first so many queries."""
        return np.full(queries, self.radius)

    def accuracy(self, labels: NDArray[np.int64]) -> float:
        """Return the share of right labels, for the first so many queries."""
        return float((labels == self.truth[: len(labels)]).mean())

    def majority(self, queries: int) -> float:
        """Return the accuracy of always answering the owner's most common class."""
        return self.accuracy(np.full(queries, np.bincount(self.rows.labels).argmax()))


def deal(table: Table, rng: Generator) -> Dealt:
    """Split a table at random, four fifths to one.

    Args:
        table: Scaled into [0, 1].
        rng: Source of the split.
    """
    train, held_out = split(table, TEST_SHARE, rng)
    pairs = distances(held_out.features, train.features).ravel()
    inside = min(PER_BALL * len(held_out), pairs.size) - 1
    radius = float(np.partition(pairs, inside)[inside])
    rows = Rows(train.features, train.labels)
    return Dealt(rows, held_out.features, held_out.labels, len(table.class_names), radius)


def queries_dealt(table: Table) -> int:
    """Return how many queries a split has."""
    return min(max(1, round(TEST_SHARE * len(table))), len(table) - 1)
