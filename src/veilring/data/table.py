"""Tables of numbers: their public schema, their rows, and how rows are split and dealt."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from veilring.data.partition import PartitionKind, partition
from veilring.errors import InputError
from veilring.privacy.checks import floats, require
from veilring.randomness import Streams


@dataclass(frozen=True, slots=True)
class Ranges:
    """Public ranges of features, by which rows are scaled.

    Where parties hold the rows, ranges must be known without looking at the data, as the range of
    a sensor or of a form's field is. Ranges computed from private rows give their extremes away.

    Attributes:
        lows: The least value of each feature.
        highs: The greatest value of each feature.

    Raises:
        InputError: If they are not as many, or a range is not finite or upside down.
    """

    lows: tuple[float, ...]
    highs: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.lows) != len(self.highs):
            raise InputError("highs", f"{len(self.highs)} of them", f"{len(self.lows)}, as lows")
        widths = np.subtract(self.highs, self.lows)
        if not (np.isfinite(widths) & (widths >= 0)).all():
            raise InputError("ranges", "not one in some place", "finite, each low <= high")

    def __len__(self) -> int:
        return len(self.lows)

    @classmethod
    def of(cls, rows: NDArray[np.floating]) -> Self:
        """Return the least and the greatest values of public rows, at least one."""
        return cls(tuple(rows.min(axis=0).tolist()), tuple(rows.max(axis=0).tolist()))

    @classmethod
    def unit(cls, features: int) -> Self:
        """Return the range [0, 1] for each of the given number of features."""
        return cls((0.0,) * features, (1.0,) * features)

    def to_unit(self, rows: NDArray[Any], *, constant: float = 0.5) -> NDArray[np.float64]:
        """Scale rows into [0, 1]: `(x - low) / (high - low)`, clipped to the nearest end.

        Args:
            rows: Shape (rows, features).
            constant: The value of a feature with `low == high`.

        Raises:
            InputError: If there are not as many features, or a value is not a number.
        """
        if rows.ndim != 2 or rows.shape[1] != len(self):  # noqa: PLR2004  (rows by features)
            raise InputError("rows", f"of shape {rows.shape}", f"of shape (rows, {len(self)})")
        values = floats("rows", rows)
        if np.isnan(values).any():
            raise InputError("rows", "not a number in some place", "numbers")
        lows, highs = np.array(self.lows), np.array(self.highs)
        widths = highs - lows
        is_wide = widths > 0
        scaled = (np.clip(values, lows, highs) - lows) / np.where(is_wide, widths, 1.0)
        return np.where(is_wide, scaled, constant)


class Categories(NamedTuple):
    """The features that one column of categories became: 1 where a row has the value, else 0.

    Attributes:
        column: What the column is called.
        first: The position of its first feature.
        values: One a feature, in their order.
    """

    column: str
    first: int
    values: tuple[str, ...]

    @property
    def features(self) -> slice:
        """The positions of its features."""
        return slice(self.first, self.first + len(self.values))


@dataclass(frozen=True, slots=True)
class Features:
    """What is public about the rows of a table: all parties know it.

    Attributes:
        names: One a feature.
        ranges: The least and the greatest value of each feature.
        classes: The names of the classes, at least one; labels are positions in it.
        categories: The columns that were categories before they became features of 0 and 1, by
            position; all other features were numbers.

    Raises:
        InputError: If there are not as many ranges as names.
    """

    names: tuple[str, ...]
    ranges: Ranges
    classes: tuple[str, ...]
    categories: tuple[Categories, ...] = ()

    def __post_init__(self) -> None:
        if len(self.ranges) != len(self.names):
            allowed = f"{len(self.names)}, one for each named feature"
            raise InputError("ranges", f"{len(self.ranges)} of them", allowed)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def is_categorical(self) -> bool:
        """Whether all columns were categories, so that no feature was a number."""
        return sum(len(each.values) for each in self.categories) == len(self)


@dataclass(frozen=True, slots=True, repr=False)
class Rows:
    """Rows of a common schema, as one party holds them. Their values are never shown.

    Attributes:
        features: Shape (rows, features), scaled by public ranges into [0, 1].
        labels: Shape (rows,), class numbers from 0.

    Raises:
        InputError: If the shapes do not fit, a feature is outside [0, 1] or a label is negative.
    """

    features: NDArray[np.float64]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.labels.shape != self.features.shape[:1]:  # noqa: PLR2004 (a table has two axes)
            shapes = f"of shape {self.features.shape} with labels {self.labels.shape}"
            raise InputError("rows", shapes, "features (rows, features) and labels (rows,)")
        if not in_unit_cube(self.features):
            raise InputError("rows.features", "a table with others", "numbers from 0 to 1")
        if self.labels.size and self.labels.min() < 0:
            raise InputError("rows.labels", "a negative class", "class numbers from 0")

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Rows({len(self)} rows of {self.features.shape[1]} features)"


def in_unit_cube(features: NDArray[np.float64]) -> bool:
    """Return whether all values are numbers from 0 to 1."""
    return bool(np.all((features >= 0.0) & (features <= 1.0)))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Table:
    """A data set for classification. Its values are never shown.

    Attributes:
        name: Where it came from.
        X: Shape (rows, features), finite.
        y: Shape (rows,), positions in `features.classes`.
        features: The public schema; parts of a table keep that of the whole.
        label_name: What the column of the labels is called.
        notes: What may be a mistake in its file, one sentence each.

    Raises:
        InputError: If the shapes do not fit, a value is not finite or a label has no name.
    """

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    features: Features
    label_name: str = "label"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require_values(self.X, len(self.y), len(self.features))
        if not np.isin(self.y, np.arange(len(self.features.classes))).all():
            raise InputError("labels", "without a name in some place", "positions in classes")

    @classmethod
    def of(
        cls,
        name: str,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        names: tuple[str, ...],
        classes: tuple[str, ...],
        *,
        categories: tuple[Categories, ...] = (),
    ) -> Self:
        """Return a table of at least one row, whose ranges are those of its own rows.

        Args:
            name: Where it came from.
            X: Shape (rows, features), finite.
            y: Shape (rows,), positions in `classes`.
            names: The names of the features.
            classes: The names of the classes.
            categories: The columns that were categories.

        Raises:
            InputError: If the shapes do not fit, a value is not finite or a label has no name.
        """
        _require_values(X, len(y), len(names))
        return cls(name, X, y, Features(names, Ranges.of(X), classes, categories))

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        shape = f"{len(self)} rows, {len(self.features)} features"
        return f"Table({self.name!r}: {shape}, {len(self.features.classes)} classes)"

    def describe(self) -> str:
        """Say in one line which columns are numbers, categories and the label."""
        categories = self.features.categories
        numbers = len(self.features) - sum(len(each.values) for each in categories)
        columns = [f"{numbers} of numbers"] if numbers else []
        if categories:
            sizes = [f"{each.column} {len(each.values)}" for each in categories]
            columns.append(f"{len(sizes)} of categories ({', '.join(sizes)})")
        label = f"label {self.label_name!r} ({len(self.features.classes)} classes)"
        return f"{self.name}: columns: {', '.join(columns)}; {label}"

    def take(self, rows: NDArray[np.int64]) -> "Table":
        """Return the table of these rows, in this order; the schema stays."""
        return replace(self, X=self.X[rows], y=self.y[rows])

    def split(self, test_share: float = 0.25, seed: int | None = 1) -> "Split":
        """Hold out a random share of the rows, as a scenario of this seed does.

        Args:
            test_share: As `split` takes it.
            seed: Of the draw; with none it is cryptographic.

        Raises:
            InputError: As `split` and `Streams` do.
        """
        return split(self, test_share, Streams(seed).generator("split"))

    def deal(
        self,
        parties: int,
        *,
        seed: int | None,
        kind: PartitionKind = "iid",
        alpha: float = 1.0,
    ) -> list["Table"]:
        """Deal the rows to parties, as a scenario of this seed does; a party may have none.

        Args:
            parties: The number of parties, at least 1.
            seed: Of the draw; with none it is cryptographic.
            kind: As `partition` takes it.
            alpha: As `partition` takes it.

        Raises:
            InputError: As `partition` and `Streams` do.
        """
        rng = Streams(seed).generator("partition")
        return [self.take(rows) for rows in partition(self.y, parties, rng, kind=kind, alpha=alpha)]


def _require_values(X: NDArray[np.float64], rows: int, features: int) -> None:
    if X.shape != (rows, features):
        fitting = f"({rows} rows, {features} named features)"
        raise InputError("features", f"of shape {X.shape}", fitting)
    if not np.isfinite(X).all():
        raise InputError("features", "not finite in some place", "finite numbers only")


def scale_to_unit(table: Table, ranges: Ranges | None = None) -> Table:
    """Scale each feature by public ranges into [0, 1]; columns of categories stay as they are.

    What lies outside is clipped to the nearest end, and a feature with `low == high` becomes 0,
    which a column of one category is too.

    Args:
        table: What to scale.
        ranges: Public; by default those of the table's schema.

    Raises:
        InputError: If there are not as many ranges as features.
    """
    scaled = (table.features.ranges if ranges is None else ranges).to_unit(table.X, constant=0.0)
    features = replace(table.features, ranges=Ranges.unit(len(table.features)))
    return replace(table, X=scaled, features=features)


class Split(NamedTuple):
    """Two tables that have all rows of a third between them."""

    train: Table
    held_out: Table


def split(table: Table, test_share: float, rng: np.random.Generator) -> Split:
    """Hold out a random share of the rows, whatever their labels (not stratified).

    Both tables are in random order, so that the first rows of either are a fair sample of it.

    Args:
        table: At least two rows.
        test_share: In (0, 1). The held-out rows are the nearest whole number to this share, at
            least one, and at least one row is left.
        rng: Source of the choice.

    Raises:
        InputError: If the share is outside (0, 1) or the table has fewer than two rows.
    """
    if not 0 < test_share < 1:
        raise InputError("test_share", test_share, "a number above 0 and below 1")
    if len(table) < 2:  # noqa: PLR2004 (one row on either side)
        raise InputError("table", f"of {len(table)} rows", "at least 2 rows")
    held_out = min(max(1, round(test_share * len(table))), len(table) - 1)
    order = rng.permutation(len(table))
    return Split(table.take(order[held_out:]), table.take(order[:held_out]))


def pairwise_distances(
    queries: NDArray[np.float64], rows: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the Euclidean distance of every query to every row, shape (Q, N).

    Each entry is computed from its own pair alone, so that a party's distances are bit for bit
    those of the pooled computation. The matrix-product form is faster, but its rounding depends on
    which other rows are there, and no derivation of privacy bounds it.

    Args:
        queries: Shape (Q, f).
        rows: Shape (N, f); N may be 0.

    Raises:
        InputError: If the two are not two-dimensional with the same number of features.
    """
    same = queries.ndim == rows.ndim == 2 and queries.shape[1] == rows.shape[1]  # noqa: PLR2004  (points by features)
    given = f"of shape {rows.shape} for queries of shape {queries.shape}"
    require(same, "rows", given, "shape (N, f) for queries of shape (Q, f)")
    from scipy.spatial.distance import cdist  # noqa: PLC0415  (0.6 s; who launches needs none)

    return np.asarray(cdist(queries, rows, metric="euclidean"), dtype=np.float64)
