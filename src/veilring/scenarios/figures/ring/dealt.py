"""What all figures of the ring begin with: a random split, its rows dealt to parties.

The paper leaves open how many parties there are, how rows are dealt to them, how votes are weighted
and the least range `delta` of the noise. Chosen here: 10 parties, equal numbers of rows at random,
weights of 1 / distance (its Algorithm 1 is the distance-weighted classifier), and a `delta` of 0.01
where each feature is scaled into [0, 1]: small beside most distances, so that it is the protocol
that is judged and not this constant.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data import Table, partition, split
from veilring.protocols.ring import KNNParameters
from veilring.protocols.ring.algorithm import distances

PARTIES: Final = 10
DELTA: Final = 0.01
TEST_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """One random split, and who holds which of its rows.

    Attributes:
        train: The rows of all parties.
        held_out: The queries.
        to_rows: The distances of the queries to each party's rows, shape (queries, its rows).
        labels: The classes of each party's rows.
    """

    train: Table
    held_out: Table
    to_rows: tuple[NDArray[np.float64], ...]
    labels: tuple[NDArray[np.int64], ...]


def deal(table: Table, rng: Generator, parties: int = PARTIES, queries: int | None = None) -> Dealt:
    """Split a table at random, three quarters to one, and deal the larger part.

    Args:
        table: Scaled into [0, 1].
        rng: Source of the split and of the partition.
        parties: How many.
        queries: How many held-out rows to keep; all of them by default.
    """
    train, held_out = split(table, TEST_SHARE, rng)
    if queries is not None:
        held_out = held_out.take(np.arange(min(queries, len(held_out))))
    parts = [train.take(rows) for rows in partition(train.labels, parties, rng)]
    to_rows = tuple(distances(held_out.features, part.features) for part in parts)
    return Dealt(train, held_out, to_rows, tuple(part.labels for part in parts))


def rows_dealt(table: Table) -> int:
    """Return how many rows all parties of a split hold together."""
    return len(table) - min(max(1, round(TEST_SHARE * len(table))), len(table) - 1)


def parameters_for(table: Table, k: int, d: float, rounds: int) -> KNNParameters:
    """Return the parameters of PP-kNN with P0 = 1, which all of the paper's figures have."""
    return KNNParameters(
        features=len(table.feature_names),
        classes=len(table.class_names),
        k=k,
        P0=1.0,
        d=d,
        rounds=rounds,
        delta=DELTA,
        weights="distance",
    )
