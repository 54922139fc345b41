"""Tiny tables and all their neighbours, and queries on which a careless test of floats fails."""

from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import Rows, pairwise_distances

# Losses are sums of a few logarithms of probabilities: rounding is far below this.
ROUNDING = 1e-11

Kind = tuple[tuple[float, ...], int]


def rows_of(kinds: tuple[Kind, ...], features: int) -> Rows:
    """Return a table of rows, given as places and labels."""
    places = np.array([place for place, _ in kinds], dtype=np.float64).reshape(-1, features)
    return Rows(places, np.array([label for _, label in kinds], dtype=np.int64))


def some_rows(rows: int, features: int, seed: int, classes: int = 3) -> Rows:
    """Return uniform rows."""
    rng = np.random.default_rng(seed)
    return Rows(rng.random((rows, features)), rng.integers(classes, size=rows))


def all_tables(
    places: tuple[tuple[float, ...], ...], classes: int, most: int
) -> Iterator[tuple[tuple[Kind, ...], tuple[Kind, ...]]]:
    """Yield each table of at most `most` rows with each table of one more row."""
    kinds = [(place, label) for place in places for label in range(classes)]
    for size in range(most + 1):
        for table in combinations_with_replacement(kinds, size):
            for one in kinds:
                yield table, tuple(sorted((*table, one)))


def banana(rows: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Return two interlocking crescents in the unit square, with their classes."""
    labels = rng.integers(2, size=rows)
    turn = rng.random(rows) * np.pi
    x = np.where(labels == 0, np.cos(turn), 1 - np.cos(turn))
    y = np.where(labels == 0, np.sin(turn), 0.5 - np.sin(turn))
    noisy = np.column_stack([x, y]) + rng.normal(0, 0.2, (rows, 2))
    lows, ranges = np.array([-1.7, -1.2]), np.array([4.4, 3.0])
    return np.clip((noisy - lows) / ranges, 0.0, 1.0), labels


class Crafted(NamedTuple):
    """Pairs of queries with a point on the line between them.

    Attributes:
        first: Shape (P, f).
        second: Shape (P, f).
        target: Shape (P, f): a place that a row may have.
        radii: Shape (P, 2): the computed distances to the target, so that both balls contain it.
    """

    first: Floats
    second: Floats
    target: Floats
    radii: Floats


def collinear(pairs: int, features: int, rng: Generator) -> Crafted:
    """Return pairs of queries whose balls meet in exactly one point, in real numbers.

    Args:
        pairs: P, the number of pairs.
        features: The number of features.
        rng: The source of the places.
    """
    first, second = rng.random((2, pairs, features))
    share = rng.random((pairs, 1))
    target = np.clip(first + share * (second - first), 0.0, 1.0)
    radii = np.column_stack([_paired(first, target), _paired(second, target)])
    return Crafted(first, second, target, radii)


def broken_by_plain_test(crafted: Crafted) -> Bools:
    """Return whether `dist <= r + s` misses the edge of each pair, shape (P,).

    Each of the two queries would then be answered with the whole budget.
    """
    apart = _paired(crafted.first, crafted.second)
    return np.asarray(apart > crafted.radii.sum(axis=1))


def _paired(points: Floats, others: Floats) -> Floats:
    """Return the distance of each point to its partner, in the floats used for counting."""
    pairs = zip(points[:, None], others[:, None], strict=True)
    return np.array([pairwise_distances(point, other)[0, 0] for point, other in pairs])
