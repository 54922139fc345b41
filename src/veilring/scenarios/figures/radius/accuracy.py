"""Figures 7 to 9 and 12 to 15: accuracy of private r-N and k-N beside what others reach."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data import Table
from veilring.protocols.radius.algorithm import (
    ByCandidates,
    ByGrid,
    Conversion,
    KNNParameters,
    RNParameters,
    label_batch,
    label_nearest,
    label_nearest_baseline,
    label_openly,
    nearest_votes,
)
from veilring.scenarios.figures.measured import Key
from veilring.scenarios.figures.model import Observe
from veilring.scenarios.figures.radius.dealt import Dealt, deal

ACCURACY: Final = "accuracy"
OPEN: Final = "non-private"
BASELINE: Final = "baseline"
PROPOSED: Final = "proposed"
INTERACTIVE: Final = "interactive"
GRID: Final = "non-interactive"
DEFAULT: Final = "veilring's default"
MAJORITY: Final = "majority class"

# The size of the batch where it is not the axis (Section 5.3).
QUERIES: Final = 100
# In which curves are drawn, so that one has the same colour in all but the last figure.
_ORDER: Final = (OPEN, BASELINE, PROPOSED, GRID, DEFAULT, MAJORITY, INTERACTIVE)
# How many queries of a split are asked in all, where batches are smaller.
_ASKED: Final = 400


def accuracy_over_batch(epsilon: float) -> Observe:
    """Return what measures the accuracy of r-N over the number of queries in a batch.

    Small batches are asked several of, each under a budget of its own, so that their accuracy is
    an average over as many queries as that of larger ones.

    Args:
        epsilon: The budget of a batch.
    """

    def observe(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
        dealt = deal(table, rng)
        modes = {
            BASELINE: RNParameters.baseline(epsilon, dealt.classes),
            PROPOSED: RNParameters.paper(epsilon, dealt.classes),
            DEFAULT: RNParameters(epsilon, dealt.classes),
        }
        curves: dict[Key, list[float]] = {}
        for size in map(int, x):
            asked = size * max(1, min(_ASKED, len(dealt.queries)) // size)
            queries, radii = dealt.queries[:asked], dealt.radii(asked)
            found = {OPEN: label_openly(queries, radii, dealt.rows, dealt.classes, rng)}
            for name, mode in modes.items():
                found[name] = _in_batches(dealt, asked, size, mode, rng)
            _add(curves, dealt, found, asked)
        return curves

    return observe


def accuracy_over_k(epsilon: float) -> Observe:
    """Return what measures the accuracy of k-N over k, for a batch of `QUERIES`.

    Args:
        epsilon: The budget of a batch.
    """

    def observe(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
        dealt = deal(table, rng)
        curves: dict[Key, list[float]] = {}
        for k in map(int, x):
            found = _nearest(dealt, epsilon, k, rng)
            queries = dealt.queries[:QUERIES]
            found[BASELINE] = label_nearest_baseline(
                queries, dealt.rows, k, dealt.classes, epsilon, rng
            )
            found[INTERACTIVE] = _paper(dealt, epsilon, k, ByCandidates.paper(), rng)
            _add(curves, dealt, found, len(queries))
        return curves

    return observe


def accuracy_over_epsilon(k: int) -> Observe:
    """Return what measures the accuracy of k-N over the budget, for a batch of `QUERIES`.

    Args:
        k: How many neighbours are wanted.
    """

    def observe(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
        dealt = deal(table, rng)
        curves: dict[Key, list[float]] = {}
        for epsilon in x:
            found = _nearest(dealt, epsilon, k, rng)
            _add(curves, dealt, found, len(found[OPEN]))
        return curves

    return observe


def _in_batches(
    dealt: Dealt, asked: int, size: int, mode: RNParameters, rng: Generator
) -> NDArray[np.int64]:
    """Return the labels of the first queries, asked in batches of this size."""
    batches = (dealt.queries[first : first + size] for first in range(0, asked, size))
    radii = dealt.radii(size)
    return np.concatenate([label_batch(each, radii, dealt.rows, mode, rng) for each in batches])


def _nearest(dealt: Dealt, epsilon: float, k: int, rng: Generator) -> dict[str, NDArray[np.int64]]:
    """Return the labels of k-N without privacy, by the paper's grid, and by the default."""
    queries, rows, classes = dealt.queries[:QUERIES], dealt.rows, dealt.classes
    mode = KNNParameters.halves(epsilon, k, classes, len(rows))
    return {
        OPEN: nearest_votes(queries, rows, k, classes).argmax(axis=1),
        GRID: _paper(dealt, epsilon, k, ByGrid(), rng),
        DEFAULT: label_nearest(queries, rows, mode, rng).labels,
    }


def _paper(
    dealt: Dealt, epsilon: float, k: int, conversion: Conversion, rng: Generator
) -> NDArray[np.int64]:
    mode = KNNParameters.paper(epsilon, k, dealt.classes, len(dealt.rows), conversion)
    return label_nearest(dealt.queries[:QUERIES], dealt.rows, mode, rng).labels


def _add(
    curves: dict[Key, list[float]],
    dealt: Dealt,
    found: Mapping[str, NDArray[np.int64]],
    queries: int,
) -> None:
    """Add a point to each curve, and to that of the majority class."""
    each = {name: dealt.accuracy(labels) for name, labels in found.items()}
    each[MAJORITY] = dealt.majority(queries)
    for name in filter(each.__contains__, _ORDER):
        curves.setdefault(Key(ACCURACY, name), []).append(each[name])
