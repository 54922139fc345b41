"""Tallies: the numbers of rows of each class with a value, in a cell or in a leaf.

Counts are whole numbers. A row adds 1 at a fixed number of positions, so the same sum has an L1
bound, for pure epsilon, and a smaller L2 bound. A scale above 1 multiplies the counts: noise of a
small deviation may need it to stay exact if several parties draw shares.

Trees are drawn independently of the rows, so only the counts in their leaves cost privacy.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.data.table import Features
from veilring.privacy.checks import require, require_that
from veilring.protocols.release.algorithm.classifiers import (
    CountsClassifier,
    GridClassifier,
    TreesClassifier,
)
from veilring.protocols.release.algorithm.columns import Bins, Trees, cell_of
from veilring.protocols.release.algorithm.decoders import (
    decode_counts,
    decode_grid,
    decode_trees,
)
from veilring.protocols.release.algorithm.directions import require_labels
from veilring.protocols.release.algorithm.noise import Norm
from veilring.protocols.release.algorithm.statistic import (
    Bound,
    Entries,
    Statistic,
    require_released,
    require_scale,
)

GRID_COLUMNS_MAX: Final = 4
"""With more columns, even 3 cells per side give more cells than most tables have rows."""
SIDE_MIN: Final = 3
"""With fewer cells per side, a class in the middle is split."""
SIDE_MAX: Final = 32
"""With four columns this gives a million cells; a sum of more would be too large to send."""


@dataclass(frozen=True, slots=True)
class ClassCounts(Statistic[CountsClassifier]):
    """The number of rows of each class in each bin of each column, for naive Bayes.

    Attributes:
        norm: The norm of the bound: d (`"l1"`) or its root (`"l2"`), for d columns.
    """

    features: Features
    norm: Norm = "l1"
    scale: int = 1

    def __post_init__(self) -> None:
        require_scale(self.scale)

    @property
    @override
    def length(self) -> int:
        return len(self.features.classes) * sum(Bins.of(self.features).sizes)

    @property
    @override
    def bound(self) -> Bound:
        return Bound.scaled(self.norm, self.scale, len(Bins.of(self.features).sizes))

    @property
    @override
    def support(self) -> int:
        return len(Bins.of(self.features).sizes)

    @override
    def entries(self, rows: NDArray[np.float64], labels: NDArray[np.int64]) -> Entries:
        require_labels(labels, self.features)
        bins = Bins.of(self.features)
        placed = bins.place(rows)
        starts = np.cumsum((0, *bins.sizes))
        positions = labels[:, None] * starts[-1] + starts[:-1] + np.maximum(placed, 0)
        return Entries(positions, np.where(placed >= 0, self.scale, 0))

    @override
    def decode(self, noisy: NDArray[np.int64], deviation: float) -> CountsClassifier:
        require_released(noisy, deviation, self.length)
        counts = noisy.reshape(len(self.features.classes), -1) / self.scale
        bins = Bins.of(self.features)
        return decode_counts(counts, bins, self.features.classes, deviation / self.scale)


@dataclass(frozen=True, slots=True)
class LabelledGrid(Statistic[GridClassifier]):
    """The number of rows of each class in each cell of a grid over numeric columns.

    Attributes:
        side: The number of cells per side, from 1 to `SIDE_MAX`.
        norm: The norm of the bound, which is 1 in either norm.
    """

    features: Features
    side: int
    norm: Norm = "l1"
    scale: int = 1

    def __post_init__(self) -> None:
        require_scale(self.scale)
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

    @property
    @override
    def bound(self) -> Bound:
        return Bound.scaled(self.norm, self.scale, 1)

    @property
    @override
    def support(self) -> int:
        return 1

    @override
    def entries(self, rows: NDArray[np.float64], labels: NDArray[np.int64]) -> Entries:
        require_labels(labels, self.features)
        place = cell_of(rows, self.side)
        cells = np.ravel_multi_index(tuple(place.T), (self.side,) * place.shape[1])
        positions = labels * self.cells + cells
        return Entries(positions[:, None], np.full((len(rows), 1), self.scale))

    @override
    def decode(self, noisy: NDArray[np.int64], deviation: float) -> GridClassifier:
        require_released(noisy, deviation, self.length)
        classes = self.features.classes
        shape = (len(classes), *(self.side,) * len(self.features))
        return decode_grid((noisy / self.scale).reshape(shape), classes, deviation / self.scale)


def fits_grid(features: Features) -> bool:
    """Return whether all columns are numbers, at least one and few enough for a grid."""
    return not features.categories and 1 <= len(features) <= GRID_COLUMNS_MAX


def grid_side(rows: int, columns: int, epsilon: float, factor: float = 1.0) -> int:
    """Return the number of cells per side, as Su et al. (2016) with a smaller constant.

    It is `clip((rows epsilon / (3 sqrt(f))) ** (2 / (2 + d)), 3, 32)`, rounded.

    Args:
        rows: The declared number of rows, at least 1.
        columns: d, at least 1.
        epsilon: The epsilon of the grid, above 0.
        factor: f, the variance of all noise relative to that required by epsilon, at least 1.
    """
    side = (rows * epsilon / (3 * factor**0.5)) ** (2 / (2 + columns))
    return int(np.clip(round(side), SIDE_MIN, SIDE_MAX))


@dataclass(frozen=True, slots=True)
class RandomTrees(Statistic[TreesClassifier]):
    """The number of rows of each class that reach each leaf of several public trees.

    Attributes:
        norm: The norm of the bound: the number of trees (`"l1"`), or its root (`"l2"`).
    """

    features: Features
    trees: Trees
    norm: Norm = "l1"
    scale: int = 1

    def __post_init__(self) -> None:
        require_scale(self.scale)

    @property
    @override
    def length(self) -> int:
        return self.support * self.trees.leaves * len(self.features.classes)

    @property
    @override
    def bound(self) -> Bound:
        return Bound.scaled(self.norm, self.scale, self.support)

    @property
    @override
    def support(self) -> int:
        return len(self.trees.tested)

    @override
    def entries(self, rows: NDArray[np.float64], labels: NDArray[np.int64]) -> Entries:
        require_labels(labels, self.features)
        starts = np.arange(self.support) * self.trees.leaves
        leaves = starts + self.trees.place(rows)
        positions = leaves * len(self.features.classes) + labels[:, None]
        return Entries(positions, np.full(positions.shape, self.scale))

    @override
    def decode(self, noisy: NDArray[np.int64], deviation: float) -> TreesClassifier:
        require_released(noisy, deviation, self.length)
        counts = noisy.reshape(self.support, self.trees.leaves, -1) / self.scale
        classes = self.features.classes
        return decode_trees(counts, self.trees, len(self.features), classes, deviation / self.scale)
