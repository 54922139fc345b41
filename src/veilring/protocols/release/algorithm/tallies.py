"""Counts of rows by class: in bins of columns, in the cells of a grid, in the leaves of trees.

Counts are whole numbers. A row adds 1 at a fixed number of positions, so the same sum has an L1
bound, for pure epsilon, and a smaller L2 bound. A scale above 1 multiplies the counts: noise of a
small deviation may need it to stay exact if several parties draw shares.

Decoders use the known amount of noise, in units of a row. Without noise, they are naive Bayes and
the majority of a cell or of leaves.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import sqrt
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Features
from veilring.privacy.checks import require, require_that
from veilring.protocols.release.algorithm.classifiers import (
    Bins,
    CountsClassifier,
    GridClassifier,
    Trees,
    TreesClassifier,
    cell_of,
)
from veilring.protocols.release.algorithm.noise import Norm
from veilring.protocols.release.algorithm.statistic import (
    Decoded_co,
    Entries,
    ScaledStatistic,
    require_labels,
)

GRID_COLUMNS_MAX: Final = 4
"""With more columns, even 3 cells per side give more cells than most tables have rows."""
SIDE_MIN: Final = 3
"""With fewer cells per side, a class in the middle is split."""
SIDE_MAX: Final = 32
"""With four columns this gives a million cells; a sum of more would be too large to send."""
# Added to each count of naive Bayes, relative to the noise: values up to 0.3 are equally good, and
# 1 costs two points.
SMOOTHING: Final = 0.1
# Without noise, this keeps a count of 0 from excluding a class.
SMOOTHING_MIN: Final = 1e-3
# The decay of counts with the distance from a cell of a grid, from the cell alone to all cells.
DECAYS: Final = tuple(tenths / 10 for tenths in range(11))
# The standard deviations by which a class must lead. Accuracy is flat between 1 and 2.
LEAD: Final = 1.5
# The minimum noise to assume, in rows: without any, an empty cell still has no leader.
QUIET: Final = 0.01
# Numbers that are spread over a grid at once: all decays of a small grid, and one of a large grid,
# so that memory grows with the counts only.
_SPREAD_MAX: Final = 2**16
# Added to each count of a leaf, relative to the noise: twice or half of it is no better.
LEAF_SMOOTHING: Final = 0.5


@dataclass(frozen=True, slots=True)
class Tally(ScaledStatistic[Decoded_co]):
    """Counts of rows: a row adds 1 at `support` positions."""

    norm: Norm = field(default="l1", kw_only=True)
    scale: int = field(default=1, kw_only=True)

    @property
    @override
    def largest(self) -> int:
        return self.support


@dataclass(frozen=True, slots=True)
class ClassCounts(Tally[CountsClassifier]):
    """The number of rows of each class in each bin of each column, for naive Bayes."""

    @property
    @override
    def length(self) -> int:
        return len(self.features.classes) * sum(Bins.of(self.features).sizes)

    @property
    @override
    def support(self) -> int:
        return len(Bins.of(self.features).sizes)

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        require_labels(labels, self.features)
        bins = Bins.of(self.features)
        placed = bins.place(rows)
        starts = np.cumsum((0, *bins.sizes))
        positions = labels[:, None] * starts[-1] + starts[:-1] + np.maximum(placed, 0)
        return Entries(positions, np.where(placed >= 0, self.scale, 0))

    @override
    def decode(self, noisy: Ints, deviation: float) -> CountsClassifier:
        """Return naive Bayes: bin frequencies by class, smoothed towards those of all classes."""
        classes, bins = self.features.classes, Bins.of(self.features)
        sums, noise = self.read(noisy, deviation)
        alpha = max(SMOOTHING * noise, SMOOTHING_MIN)
        counts = sums.reshape(len(classes), -1)
        blocks = np.split(counts, np.cumsum(bins.sizes)[:-1], axis=1)
        sizes = np.mean([block.sum(axis=1) for block in blocks], axis=0)
        sizes = np.maximum(sizes, max(noise, 1.0))
        shares = []
        for block in blocks:
            pooled = np.maximum(block.sum(axis=0), 0.0) + alpha * sqrt(len(classes))
            kept = np.maximum(block, 0.0) + alpha * block.shape[1] * pooled / pooled.sum()
            shares.append(np.log(kept / kept.sum(axis=1, keepdims=True)))
        firsts, values = np.array(bins.categories, dtype=np.int64).reshape(-1, 2).T
        return CountsClassifier(
            classes,
            len(self.features),
            np.array(bins.numbers, dtype=np.int64),
            bins.cuts,
            firsts,
            values,
            np.log(sizes / sizes.sum()),
            np.hstack(shares),
        )


@dataclass(frozen=True, slots=True)
class LabelledGrid(Tally[GridClassifier]):
    """The number of rows of each class in each cell of a grid over numeric columns.

    Attributes:
        side: The number of cells per side, from 1 to `SIDE_MAX`.
    """

    support: ClassVar[int] = 1

    side: int

    def __post_init__(self) -> None:
        ScaledStatistic.__post_init__(self)
        require_that(
            fits_grid(self.features),
            "features",
            f"a labelled grid needs up to {GRID_COLUMNS_MAX} columns, all of them numbers",
        )
        require(
            1 <= self.side <= SIDE_MAX, "side", self.side, f"a whole number from 1 to {SIDE_MAX}"
        )

    @property
    def cells(self) -> int:
        """The number of cells."""
        return int(self.side ** len(self.features))

    @property
    @override
    def length(self) -> int:
        return self.cells * len(self.features.classes)

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        require_labels(labels, self.features)
        place = cell_of(rows, self.side)
        cells = np.ravel_multi_index(tuple(place.T), (self.side,) * place.shape[1])
        positions = labels * self.cells + cells
        return Entries(positions[:, None], np.full((len(rows), 1), self.scale))

    @override
    def decode(self, noisy: Ints, deviation: float) -> GridClassifier:
        """Return the class frequencies around each cell, as local as the noise allows.

        Counts around a cell are added with the weight `decay ** distance`, for increasing decays,
        until the largest class leads the second by `LEAD` standard deviations of the noise on their
        difference. If no decay reaches this, the one with the largest lead relative to its noise is
        used.
        """
        classes, columns = self.features.classes, len(self.features)
        sums, noise = self.read(noisy, deviation)
        shares, best = np.zeros((len(classes), self.cells)), np.full(self.cells, -np.inf)
        for around, squares in _around_cells(sums.reshape(-1, *(self.side,) * columns)):
            spread = np.maximum(noise, QUIET) * np.sqrt(2 * squares)
            leads = _leads(around) / spread
            better = (best <= LEAD) & (leads > best)
            kept = np.maximum(around[:, better], 0.0) + spread[better] / 2
            shares[:, better] = kept / kept.sum(axis=0)
            best[better] = leads[better]
        return GridClassifier(classes, columns, self.side, np.log(shares.T))


def fits_grid(features: Features) -> bool:
    """Return whether all columns are numbers, at least one and few enough for a grid."""
    return not features.categories and 1 <= len(features) <= GRID_COLUMNS_MAX


def grid_side(rows: int, columns: int, epsilon: float, factor: float = 1.0) -> int:
    """Return the number of cells per side, as Su et al. (2016) with a smaller constant.

    It is `clip((rows epsilon / (3 sqrt(f))) ** (2 / (2 + d)), 3, 32)`, rounded, for d columns and
    f, the variance of all noise relative to that required by epsilon, at least 1.
    """
    side = (rows * epsilon / (3 * factor**0.5)) ** (2 / (2 + columns))
    return int(np.clip(round(side), SIDE_MIN, SIDE_MAX))


def _around_cells(counts: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Yield, for each decay, the weighted counts around each cell and the sum of squared weights.

    Their shapes are (classes, cells) and (cells,).
    """
    side = counts.shape[1]
    apart = np.abs(np.subtract.outer(np.arange(side), np.arange(side)))
    weights = np.stack([float(decay) ** apart for decay in DECAYS])
    at_once = max(1, _SPREAD_MAX // counts.size)
    for start in range(0, len(DECAYS), at_once):
        some = weights[start : start + at_once]
        sums = _spread(counts, some, 1).reshape(len(some), len(counts), -1)
        squares = _spread(np.ones(counts.shape[1:]), some**2, 0).reshape(len(some), -1)
        yield from zip(sums, squares, strict=True)


def _spread(values: Floats, weights: Floats, first: int) -> Floats:
    """Return the weighted sums around each cell, after an axis of decays.

    Weights have the shape (decays, side, side) and multiply along the grid's axes, the first of
    which is given.
    """
    sums = np.broadcast_to(values, (len(weights), *values.shape))
    for axis in range(first + 1, sums.ndim):
        moved = np.moveaxis(sums, axis, 1)
        flat = moved.reshape(*moved.shape[:2], -1)
        sums = np.moveaxis((weights @ flat).reshape(moved.shape), 1, axis)
    return sums


def _leads(sums: Floats) -> Floats:
    """Return the lead of the largest class over the second; with one class, its whole count."""
    if len(sums) == 1:
        return np.asarray(sums[0])
    second, first = np.partition(sums, -2, axis=0)[-2:]
    return np.asarray(first - second)


@dataclass(frozen=True, slots=True)
class RandomTrees(Tally[TreesClassifier]):
    """The number of rows of each class that reach each leaf of several public trees."""

    trees: Trees

    @property
    @override
    def length(self) -> int:
        return self.support * self.trees.leaves * len(self.features.classes)

    @property
    @override
    def support(self) -> int:
        return len(self.trees.tested)

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        require_labels(labels, self.features)
        starts = np.arange(self.support) * self.trees.leaves
        leaves = starts + self.trees.place(rows)
        positions = leaves * len(self.features.classes) + labels[:, None]
        return Entries(positions, np.full(positions.shape, self.scale))

    @override
    def decode(self, noisy: Ints, deviation: float) -> TreesClassifier:
        """Return the class frequencies in each leaf, smoothed according to the noise."""
        sums, noise = self.read(noisy, deviation)
        counts = sums.reshape(self.support, self.trees.leaves, -1)
        kept = np.maximum(counts, 0.0) + max(LEAF_SMOOTHING * noise, SMOOTHING_MIN)
        shares = np.log(kept / kept.sum(axis=2, keepdims=True))
        classes, width = self.features.classes, len(self.features)
        return TreesClassifier(classes, width, self.trees.tested, self.trees.cuts, shares)
