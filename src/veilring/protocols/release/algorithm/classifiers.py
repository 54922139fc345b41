"""Released classifiers, and the transformations of rows by their public schema that they use.

A classifier is plain arrays and names, and labels any number of rows at no cost. Rows are encoded
and scaled into [0, 1] by the public schema of the release. Each classifier returns a score for each
class, and the label with the highest score. `as_document` converts a classifier to values that JSON
can express, and `from_document` reads them back and rejects invalid ones.

In a frame, a number in [0, 1] becomes `x - 1/2`, and a category of k values `(one-hot - 1/k) / 2`.
So the block of each column has a squared L2 norm of at most 1/4, and no column outweighs another.

Trees are drawn from a public seed, independently of all rows: extremely randomised trees (Geurts,
Ernst and Wehenkel 2006) that do not choose among cuts.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Features, is_table
from veilring.errors import InputError
from veilring.privacy.checks import require_that

# The numbers in the rows scored at once: half a MiB, which stays in the cache of a core.
_BLOCK: Final = 2**16
# A grid of more features has more cells than a machine has bytes, even at two cells per side.
_GRID_FEATURES_MAX: Final = 63
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
        """Return the frame at the middle of each column: 1/2 for numbers, 1/k for k categories.

        A target is one more column, the last.
        """
        origin, units = np.full(features.joint_width, 0.5), np.ones(features.joint_width)
        for each in features.categories:
            origin[each.features] = 1 / len(each.values)
            units[each.features] = 0.5
        return cls(origin, units)

    def about(self, centre: Floats, spread: Floats | None = None) -> "Frame":
        """Return the frame around a point in the coordinates of this frame, shape (features,).

        The values of `spread`, above 0, become 1; by default units are unchanged.
        """
        units = self.units if spread is None else self.units / spread
        return Frame(self.origin + centre / self.units, units)

    def place(self, rows: Floats) -> Floats:
        """Return rows, of shape (rows, features), in the coordinates of this frame."""
        require_that(
            rows.shape[1:] == self.origin.shape,
            "rows",
            f"rows has the shape {rows.shape}; it must be (rows, {len(self.origin)})",
        )
        return np.asarray((rows - self.origin) * self.units)

    def directions(self, rows: Floats) -> Floats:
        """Return the unit vector from the origin to each row; 0 for a row at the origin."""
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
        """
        columns = [range(each, each + 1) for each in numeric_features(features)]
        columns += [range(len(features))[each.features] for each in features.categories]
        tested = np.zeros((trees, 2**depth - 1), dtype=np.int64)
        cuts = np.zeros(tested.shape)
        for tree in range(trees):
            ranges = {0: ([0.0] * len(features), [1.0] * len(features))}
            for node in range(2**depth - 1):
                lows, highs = ranges.pop(node)
                column = columns[rng.integers(len(columns))]
                feature = column[rng.integers(len(column))]
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


@dataclass(frozen=True, slots=True, eq=False)
class Classifier(ABC):
    """A classifier made from a released sum. Public.

    Attributes:
        classes: The names of the classes; labels are positions among them.
    """

    KIND: ClassVar[str]

    classes: tuple[str, ...]

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of features of a row; rows may have more if only some are used."""

    @property
    def has_probabilities(self) -> bool:
        """Whether scores are estimates of log-probabilities, up to a constant for each row."""
        return True

    @abstractmethod
    def _score(self, rows: Floats) -> Floats: ...

    def scores(self, rows: Floats) -> Floats:
        """Return a score for each row and class, shape (rows, classes); the highest score wins.

        Rows have the shape (rows, features), in [0, 1], and are encoded by the public schema.
        """
        _require_width(rows, self.width)
        step = max(1, _BLOCK // max(1, self.width, len(self.classes)))
        blocks = [self._score(rows[i : i + step]) for i in range(0, len(rows), step)]
        return np.vstack(blocks) if blocks else np.zeros((0, len(self.classes)))

    def predict(self, rows: Floats) -> Ints:
        """Return the label of each row, shape (rows,); ties go to the first class."""
        return np.asarray(self.scores(rows).argmax(axis=1))

    def predict_proba(self, rows: Floats) -> Floats:
        """Return estimated probabilities, shape (rows, classes), where each row adds up to 1."""
        require_that(
            self.has_probabilities,
            "predict_proba",
            "this model has no probabilities, because its scores are no logarithms; use `scores`",
        )
        found = self.scores(rows)
        odds = np.exp(found - found.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def best_scores(self, rows: Floats) -> Floats:
        """Return probabilities if there are any, otherwise scores; shape (rows, classes)."""
        return self.predict_proba(rows) if self.has_probabilities else self.scores(rows)


@dataclass(frozen=True, slots=True, eq=False)
class DirectionClassifier(Classifier):
    """A linear classifier of the direction of a row from the origin of a frame.

    Attributes:
        origin: As in `Frame`, like `units`.
        weights: Shape (classes, features).
        biases: Shape (classes,).
        calibrated: Whether scores estimate log-probabilities, as those of a discriminant do.
    """

    KIND: ClassVar[str] = "directions"

    origin: Floats
    units: Floats
    weights: Floats
    biases: Floats
    calibrated: bool

    def __post_init__(self) -> None:
        Frame(self.origin, self.units)
        _require_shape("weights", self.weights, (len(self.classes), len(self.origin)))
        _require_shape("biases", self.biases, (len(self.classes),))

    @property
    @override
    def width(self) -> int:
        return len(self.origin)

    @property
    @override
    def has_probabilities(self) -> bool:
        return self.calibrated

    @override
    def _score(self, rows: Floats) -> Floats:
        directions = Frame(self.origin, self.units).directions(rows)
        return np.asarray(directions @ self.weights.T + self.biases)


@dataclass(frozen=True, slots=True, eq=False)
class _RowClassifier(Classifier):
    """A classifier of the features of a row, rather than of its direction."""

    features: int

    @property
    @override
    def width(self) -> int:
        return self.features


@dataclass(frozen=True, slots=True, eq=False)
class CountsClassifier(_RowClassifier):
    """Naive Bayes on the bins of columns.

    Attributes:
        log_priors: Shape (classes,).
        log_shares: Shape (classes, bins of all columns).
    """

    KIND: ClassVar[str] = "counts"

    numbers: Ints
    cuts: int
    firsts: Ints
    values: Ints
    log_priors: Floats
    log_shares: Floats

    def __post_init__(self) -> None:
        for name in ("numbers", "firsts"):
            _require_shape(name, getattr(self, name), (getattr(self, name).size,))
        _require_shape("values", self.values, self.firsts.shape)
        starts, ends = (
            np.append(self.numbers, self.firsts),
            np.append(self.numbers + 1, self.firsts + self.values),
        )
        inside = bool(((starts >= 0) & (starts < ends) & (ends <= self.features)).all())
        require_that(inside, "features", "each column must lie within the features of a row")
        require_that(self.cuts >= 1, "cuts", f"cuts is {self.cuts}; it must be at least 1")
        _require_shape("log_priors", self.log_priors, (len(self.classes),))
        bins = (len(self.classes), sum(self._bins.sizes))
        _require_shape("log_shares", self.log_shares, bins)

    @property
    def _bins(self) -> Bins:
        categories = zip(self.firsts.tolist(), self.values.tolist(), strict=True)
        return Bins(tuple(self.numbers.tolist()), self.cuts, tuple(categories))

    @override
    def _score(self, rows: Floats) -> Floats:
        bins = self._bins
        placed = bins.place(rows)
        starts = np.cumsum((0, *bins.sizes))
        # One matrix product replaces a look-up per column; the last bin means no bin.
        chosen = np.where(placed >= 0, placed + starts[:-1], starts[-1])
        one_hot = np.zeros((len(rows), starts[-1] + 1))
        one_hot[np.arange(len(rows))[:, None], chosen] = 1.0
        return np.asarray(one_hot[:, :-1] @ self.log_shares.T + self.log_priors)


@dataclass(frozen=True, slots=True, eq=False)
class GridClassifier(_RowClassifier):
    """A classifier by the class frequencies in each cell of a grid.

    Attributes:
        log_shares: Shape (side ** features, classes).
    """

    KIND: ClassVar[str] = "grid"

    side: int
    log_shares: Floats

    def __post_init__(self) -> None:
        sane = self.features >= 1 and self.side >= 1
        require_that(sane, "side", "a grid needs at least one feature and one cell per side")
        # A file may contain any numbers: powers too large for any array are not computed.
        small = self.side <= len(self.log_shares) and self.features <= _GRID_FEATURES_MAX
        require_that(small, "side", "a grid has fewer cells than its sides imply")
        shape = (self.side**self.features, len(self.classes))
        _require_shape("log_shares", self.log_shares, shape)

    @override
    def _score(self, rows: Floats) -> Floats:
        place = cell_of(rows, self.side)
        cells = np.ravel_multi_index(tuple(place.T), (self.side,) * self.features)
        return np.asarray(self.log_shares[cells])


@dataclass(frozen=True, slots=True, eq=False)
class TreesClassifier(_RowClassifier):
    """A classifier by the mean of the leaves' distributions over several trees.

    Attributes:
        tested: As in `Trees`, like `cuts`.
        log_shares: Shape (trees, leaves, classes).
    """

    KIND: ClassVar[str] = "trees"

    tested: Ints
    cuts: Floats
    log_shares: Floats

    def __post_init__(self) -> None:
        trees = Trees(self.tested, self.cuts)
        inside = bool(((self.tested >= 0) & (self.tested < self.features)).all())
        require_that(inside, "tested", "each node must test a feature of a row")
        shape = (len(self.tested), trees.leaves, len(self.classes))
        _require_shape("log_shares", self.log_shares, shape)

    @override
    def _score(self, rows: Floats) -> Floats:
        leaves = Trees(self.tested, self.cuts).place(rows)
        return np.asarray(self.log_shares[np.arange(leaves.shape[1]), leaves].mean(axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class LinearRegressor:
    """A linear function of the features of a row. Public.

    Attributes:
        weights: Shape (features,).
        bias: The prediction for a row of zeros; 0 is the minimum of the target, and 1 its maximum.
        steps: The largest label: a prediction is a whole number from 0.
    """

    KIND: ClassVar[str] = "linear"

    weights: Floats
    bias: float
    steps: int

    def __post_init__(self) -> None:
        _require_shape("weights", self.weights, (self.weights.size,))
        _require_shape("bias", np.array(self.bias), ())

    @property
    def width(self) -> int:
        """The number of features of a row."""
        return len(self.weights)

    def predict(self, rows: Floats) -> Ints:
        """Return the prediction for each row in whole steps, clipped to the range, shape (rows,).

        Rows have the shape (rows, features), in [0, 1], and are encoded by the public schema.
        """
        _require_width(rows, self.width)
        # Each row is added up by itself: a product of matrices may round it by its neighbours.
        found = np.einsum("ij,j->i", rows, self.weights) + self.bias
        return np.asarray(np.rint(np.clip(found, 0.0, 1.0) * self.steps), dtype=np.int64)


Predictor = Classifier | LinearRegressor
"""The function that a release results in."""


def _require_width(rows: Floats, width: int) -> None:
    require_that(
        is_table(rows) and rows.shape[1] == width,
        "rows",
        f"rows has the shape {rows.shape}; it must be (rows, {width})",
    )


def _require_shape(field: str, values: NDArray[Any], shape: tuple[int, ...]) -> None:
    require_that(
        values.shape == shape, field, f"{field} has the shape {values.shape}; it must be {shape}"
    )
    require_that(bool(np.isfinite(values).all()), field, f"{field} must hold finite numbers")


_KINDS: Final[Mapping[str, type[Predictor]]] = {
    each.KIND: each
    for each in (
        DirectionClassifier,
        CountsClassifier,
        GridClassifier,
        TreesClassifier,
        LinearRegressor,
    )
}


def as_document(classifier: Predictor) -> dict[str, Any]:
    """Return a classifier as values that JSON can express: its kind and its fields by name."""
    require_that(
        _KINDS.get(getattr(classifier, "KIND", "")) is type(classifier),
        "classifier",
        f"{type(classifier).__name__} has no document; only {', '.join(sorted(_KINDS))} have one",
    )
    document: dict[str, Any] = {"kind": classifier.KIND}
    for field in fields(classifier):
        value = getattr(classifier, field.name)
        plain = list(value) if isinstance(value, tuple) else value
        document[field.name] = value.tolist() if isinstance(value, np.ndarray) else plain
    return document


def from_document(document: Mapping[str, Any]) -> Predictor:
    """Return the classifier in a document of `as_document`."""
    kind = document.get("kind")
    found = _KINDS.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise InputError("kind", kind, ", ".join(sorted(_KINDS)))
    names = {field.name for field in fields(found)}
    odd = sorted(names ^ (set(document) - {"kind"}))
    require_that(
        not odd,
        "document",
        f"a released classifier of kind {kind!r} has exactly the fields "
        f"{', '.join(sorted(names))}; {', '.join(odd)} is missing or unknown",
    )
    return found(
        **{each.name: _read(each.name, each.type, document[each.name]) for each in fields(found)}
    )


def _read(name: str, kind: object, value: object) -> Any:  # noqa: ANN401  (of any field)
    if kind in (int, bool, float) and type(value) is kind:
        return value
    if kind == tuple[str, ...] and isinstance(value, list) and value:
        if all(isinstance(each, str) for each in value):
            return tuple(value)
    elif isinstance(value, list):
        with suppress(ValueError):  # NumPy's error for a ragged list
            found = np.array(value)
            if kind == Ints and (found.dtype.kind == "i" or not value):
                return found.astype(np.int64)
            if kind == Floats and found.dtype.kind in "if":
                return found.astype(np.float64)
    raise InputError.because(
        f"the field {name!r} of the released classifier is missing or has the wrong type",
        field=name,
    )
