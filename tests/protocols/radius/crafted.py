"""Queries crafted by an analyst in the owner's floats, where a careless test fails."""

from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from veilring.arrays import Bools, Floats
from veilring.data.table import pairwise_distances


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
