"""Transformations of rows by their public schema: frames, bins of columns, and leaves of trees.

A number in [0, 1] becomes `x - 1/2`, and a category of k values becomes `(one-hot - 1/k) / 2`. So
the block of each column has a squared L2 norm of at most 1/4, and no column outweighs another.

Trees are drawn from a public seed, independently of all rows: extremely randomised trees (Geurts,
Ernst and Wehenkel 2006) that do not choose among cuts.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.random import Generator

from veilring.arrays import Floats, Ints
from veilring.data.table import Features
from veilring.privacy.checks import require_that

# Equal bins of a numeric column, and the number of columns above which there are only two: with
# more columns, each gets a smaller part of the budget, so more bins would contain mostly noise.
BINS: Final = 4
BINS_OF_MANY: Final = 2
MANY_COLUMNS: Final = 40
# More trees would split the budget further, and deeper trees the rows.
TREES: Final = 8
DEPTH: Final = 7


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """The public reference frame of rows: an origin, and a unit for each feature.

    Attributes:
        origin: Shape (features,), in [0, 1]: the features of a row without a direction.
        units: Shape (features,), above 0: the factor of each feature.
    """

    origin: Floats
    units: Floats

    def __post_init__(self) -> None:
        require_that(
            self.origin.shape == self.units.shape and self.origin.ndim == 1,
            "frame",
            f"origin has the shape {self.origin.shape} and units has {self.units.shape}; both must "
            "be (features,)",
        )
        require_that(
            bool(np.isfinite(self.origin).all() and np.isfinite(self.units).all()),
            "frame",
            "the origin and the units of a frame must be finite",
        )
        require_that(bool((self.units > 0).all()), "frame", "the units of a frame must be above 0")

    @classmethod
    def middle(cls, features: Features) -> Self:
        """Return the frame at the middle of each column: 1/2 for numbers, 1/k for k categories."""
        origin, units = np.full(len(features), 0.5), np.ones(len(features))
        for each in features.categories:
            origin[each.features] = 1 / len(each.values)
            units[each.features] = 0.5
        return cls(origin, units)

    def about(self, centre: Floats, spread: Floats | None = None) -> "Frame":
        """Return the frame around a point of this frame.

        Args:
            centre: Shape (features,), in the coordinates of this frame.
            spread: Shape (features,), above 0: the values that become 1; by default units are
                unchanged.
        """
        units = self.units if spread is None else self.units / spread
        return Frame(self.origin + centre / self.units, units)

    def place(self, rows: Floats) -> Floats:
        """Return rows in the coordinates of this frame.

        Args:
            rows: Shape (rows, features), in [0, 1].
        """
        require_that(
            rows.shape[1:] == self.origin.shape,
            "rows",
            f"rows has the shape {rows.shape}; it must be (rows, {len(self.origin)})",
        )
        return np.asarray((rows - self.origin) * self.units)

    def directions(self, rows: Floats) -> Floats:
        """Return the unit vector from the origin to each row; 0 for a row at the origin.

        Args:
            rows: Shape (rows, features), in [0, 1].
        """
        placed = self.place(rows)
        # Dividing by the largest entry first keeps the squares of tiny entries from vanishing.
        largest = np.abs(placed).max(axis=1, initial=0.0, keepdims=True)
        placed = np.divide(placed, largest, out=np.zeros_like(placed), where=largest > 0)
        lengths = np.linalg.norm(placed, axis=1, keepdims=True)
        return np.asarray(np.divide(placed, lengths, out=np.zeros_like(placed), where=lengths > 0))


def count_columns(features: Features) -> int:
    """Return the number of columns d: a column of categories counts once."""
    return len(features) - sum(len(each.values) - 1 for each in features.categories)


def numeric_features(features: Features) -> Ints:
    """Return the positions of the features that are numbers, ascending."""
    is_number = np.ones(len(features), dtype=bool)
    for each in features.categories:
        is_number[each.features] = False
    return np.flatnonzero(is_number)


@dataclass(frozen=True, slots=True)
class Bins:
    """The bins of each column: numbers first, then categories, in the table's order."""

    numbers: tuple[int, ...]
    cuts: int
    categories: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, features: Features) -> Self:
        """Return the bins of a schema, given by its number of columns and its categories."""
        cuts = BINS_OF_MANY if count_columns(features) >= MANY_COLUMNS else BINS
        categories = tuple((each.first, len(each.values)) for each in features.categories)
        return cls(tuple(numeric_features(features).tolist()), cuts, categories)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of bins of each column."""
        return (self.cuts,) * len(self.numbers) + tuple(values for _, values in self.categories)

    def place(self, rows: Floats) -> Ints:
        """Return the bin of each column of each row, shape (rows, columns), or -1 without a bin.

        A row has no bin in a column of categories if its features there are all 0: the value is not
        public.

        Args:
            rows: Shape (rows, features), in [0, 1].
        """
        placed = np.empty((len(rows), len(self.sizes)), dtype=np.int64)
        placed[:, : len(self.numbers)] = cell_of(rows[:, list(self.numbers)], self.cuts)
        for column, (first, values) in enumerate(self.categories, len(self.numbers)):
            block = rows[:, first : first + values]
            placed[:, column] = np.where(block.any(axis=1), block.argmax(axis=1), -1)
        return placed


def cell_of(values: Floats, cuts: int) -> Ints:
    """Return the bin of each value among the given number of equal bins of [0, 1]."""
    return np.minimum((values * cuts).astype(np.int64), cuts - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """Complete binary trees of one depth, drawn independently of all rows. Public.

    Attributes:
        tested: The feature that each inner node tests, shape (trees, 2 ** depth - 1); the children
            of node i are 2 i + 1 and 2 i + 2.
        cuts: The thresholds, same shape: a row goes to the second child if its value is at least
            the threshold.
    """

    tested: Ints
    cuts: Floats

    def __post_init__(self) -> None:
        fits = self.tested.ndim == 2 and self.tested.shape == self.cuts.shape  # noqa: PLR2004  (trees by nodes)
        require_that(
            fits and self.tested.size > 0 and not self.leaves & (self.leaves - 1),
            "trees",
            f"tested has the shape {self.tested.shape} and cuts has {self.cuts.shape}; both must "
            "be (trees, 2 ** depth - 1)",
        )
        require_that(bool(np.isfinite(self.cuts).all()), "cuts", "the cuts of trees must be finite")

    @classmethod
    def draw(
        cls, features: Features, rng: Generator, trees: int = TREES, depth: int = DEPTH
    ) -> Self:
        """Draw trees: a column at random for each node, and a cut through it.

        A number is cut in the middle of the range left by the nodes above; a category is separated
        from the others of its column.

        Args:
            trees: The number of trees, at least 1.
            depth: The number of tests from the root to a leaf, at least 1.
        """
        columns = [np.array([each]) for each in numeric_features(features)]
        columns += [np.arange(len(features))[each.features] for each in features.categories]
        tested = np.zeros((trees, 2**depth - 1), dtype=np.int64)
        cuts = np.zeros(tested.shape)
        for tree in range(trees):
            ranges = {0: (np.zeros(len(features)), np.ones(len(features)))}
            for node in range(2**depth - 1):
                lows, highs = ranges.pop(node)
                feature = rng.choice(columns[rng.integers(len(columns))])
                cut = (lows[feature] + highs[feature]) / 2
                below, above = highs.copy(), lows.copy()
                below[feature] = above[feature] = cut
                tested[tree, node], cuts[tree, node] = feature, cut
                ranges[2 * node + 1], ranges[2 * node + 2] = (lows, below), (above, highs)
        return cls(tested, cuts)

    @property
    def depth(self) -> int:
        """The number of tests from the root to a leaf."""
        return self.leaves.bit_length() - 1

    @property
    def leaves(self) -> int:
        """The number of leaves of one tree."""
        return int(self.tested.shape[1]) + 1

    def place(self, rows: Floats) -> Ints:
        """Return the leaf of each row in each tree, shape (rows, trees)."""
        inner, each = self.tested.shape[1], np.arange(len(self.tested))
        nodes = np.zeros((len(rows), len(self.tested)), dtype=np.int64)
        index = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            values = rows[index, self.tested[each, nodes]]
            nodes = 2 * nodes + 1 + (values >= self.cuts[each, nodes])
        return np.asarray(nodes - inner)
