"""Tables of numbers: public schema and rows, with scaling, splits, partitions and encoding."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.data.columns import FeatureTerms, Target
from veilring.errors import InputError
from veilring.privacy.checks import floats, require_that
from veilring.randomness import Streams

PartitionKind = Literal["iid", "dirichlet", "by-label", "sizes"]
PARTITIONS: Final[tuple[PartitionKind, ...]] = ("iid", "dirichlet", "by-label", "sizes")

# Below, one party has all rows of a class except for rounding errors; above, all have equal shares.
ALPHA_MIN: Final = 1e-3
ALPHA_MAX: Final = 1e6
# Each category becomes a feature of every query, and each class an entry of every vote. A column
# with more values than this is an identifier or a number with a mistake in it.
CATEGORIES_MAX: Final = 1000
TEST_SHARE: Final = 0.25
"""The default share of rows that are held out."""

ColumnValues = Floats | NDArray[np.str_]
OPTIONAL: Final = "optional"
"""Marks a field that hashes leave out while it is None: values without it keep their hash."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Public ranges of features, used to scale rows.

    If parties hold the rows, ranges must be known without looking at the data, like the range of a
    sensor or of a form's field. Ranges computed from private rows reveal their extremes.

    Attributes:
        lows: The minimum of each feature.
        highs: The maximum of each feature.

    Raises:
        InputError: If their lengths differ, or a range is not finite or empty.
    """

    lows: tuple[float, ...]
    highs: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.lows) != len(self.highs):
            raise InputError.because(
                f"there are {len(self.highs)} highs but {len(self.lows)} lows", field="highs"
            )
        widths = np.subtract(self.highs, self.lows)
        if not (np.isfinite(widths) & (widths >= 0)).all():
            raise InputError.because("ranges must be finite, each with low <= high", field="ranges")

    def __len__(self) -> int:
        return len(self.lows)

    @classmethod
    def of(cls, rows: NDArray[np.floating]) -> Self:
        """Return the minima and maxima of public rows, at least one."""
        return cls(tuple(rows.min(axis=0).tolist()), tuple(rows.max(axis=0).tolist()))

    @classmethod
    def unit(cls, features: int) -> Self:
        """Return the range [0, 1] for each of the given number of features."""
        return cls((0.0,) * features, (1.0,) * features)

    def to_unit(self, rows: NDArray[Any], *, constant: float = 0.5) -> Floats:
        """Scale rows into [0, 1]: `(x - low) / (high - low)`, clipped to the nearest end.

        Args:
            rows: Shape (rows, features).
            constant: The value of a feature with `low == high`.

        Raises:
            InputError: If the number of features differs, or a value is not a number.
        """
        if rows.shape[1:] != (len(self),):
            raise InputError.because(
                f"rows has the shape {rows.shape}; it must be (rows, {len(self)})", field="rows"
            )
        values = floats("rows", rows)
        if np.isnan(values).any():
            raise InputError.because("rows must hold only numbers", field="rows")
        lows, highs = np.array(self.lows), np.array(self.highs)
        widths = highs - lows
        is_wide = widths > 0
        scaled = (np.clip(values, lows, highs) - lows) / np.where(is_wide, widths, 1.0)
        return np.where(is_wide, scaled, constant)


class Categories(NamedTuple):
    """The features of a column of categories: 1 if a row has the value, otherwise 0."""

    column: str
    first: int
    values: tuple[str, ...]

    @property
    def features(self) -> slice:
        """The positions of its features."""
        return slice(self.first, self.first + len(self.values))


@dataclass(frozen=True, slots=True)
class Features:
    """The public schema of a table's rows, known to all parties.

    Attributes:
        names: The names of the features.
        ranges: The range of each feature.
        classes: The names of the classes, of which labels are positions; none if the label is a
            number.
        categories: The columns of categories that became features of 0 and 1, by position; all
            other features were numbers.
        declared: The columns as a schema declares them; none if the table has no schema.
        target: The range of the label, if that is a number; labels are then steps in it.

    Raises:
        InputError: If the numbers of ranges and names differ, or the target has no whole steps.
    """

    names: tuple[str, ...]
    ranges: Ranges
    classes: tuple[str, ...]
    categories: tuple[Categories, ...] = ()
    declared: tuple[FeatureTerms, ...] = ()
    target: Target | None = field(default=None, metadata={OPTIONAL: True})

    def __post_init__(self) -> None:
        if len(self.ranges) != len(self.names):
            raise InputError.because(
                f"there are {len(self.ranges)} ranges for {len(self.names)} named features",
                field="ranges",
            )
        if self.target is not None:
            self.target.require_sound()

    @classmethod
    def of_numbers(cls, features: int, classes: int | tuple[str, ...]) -> Self:
        """Return a schema of numbers in [0, 1] whose names are their positions.

        Args:
            classes: The number of classes, or their names.
        """
        names = classes if isinstance(classes, tuple) else tuple(map(str, range(classes)))
        return cls(tuple(map(str, range(features))), Ranges.unit(features), names)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def label_count(self) -> int:
        """The number of possible labels, which are whole numbers from 0."""
        return len(self.classes) if self.target is None else self.target.steps + 1

    @property
    def joint_width(self) -> int:
        """The number of features, and of the target if the label is a number."""
        return len(self) + (self.target is not None)

    def with_target(self, rows: Floats, labels: Ints) -> Floats:
        """Return rows with the target, scaled into [0, 1], as one more column, if there is one."""
        if self.target is None:
            return rows
        return np.column_stack([rows, labels / self.target.steps])

    @property
    def label_text(self) -> str:
        """The possible labels, in a few words."""
        return f"{len(self.classes)} classes" if self.target is None else str(self.target)

    def named(self, labels: Ints) -> tuple[str, ...] | tuple[float, ...]:
        """Return the names of the classes that are labels, or the numbers, of shape (labels,)."""
        if self.target is None:
            return tuple(self.classes[label] for label in labels)
        return tuple(self.target.values_of(labels).tolist())

    @property
    def is_categorical(self) -> bool:
        """Whether all columns were categories, so no feature was a number."""
        return sum(len(each.values) for each in self.categories) == len(self)


@dataclass(frozen=True, slots=True, repr=False)
class Rows:
    """Rows of a common schema, held by one party. Their values are never shown.

    Attributes:
        features: Shape (rows, features), scaled by public ranges into [0, 1].
        labels: Shape (rows,), class numbers from 0, or steps of a target.

    Raises:
        InputError: If the shapes do not match, a feature is outside [0, 1] or a label is negative.
    """

    features: Floats
    labels: Ints

    def __post_init__(self) -> None:
        if not is_table(self.features) or self.labels.shape != self.features.shape[:1]:
            raise InputError.because(
                f"features has the shape {self.features.shape} and labels has "
                f"{self.labels.shape}; they must be (rows, features) and (rows,)",
                field="rows",
            )
        if not in_unit_cube(self.features):
            raise InputError.because(
                "features must be in [0, 1]; scale them with the public ranges first",
                field="rows.features",
            )
        if self.labels.size and self.labels.min() < 0:
            raise InputError.because(
                "labels must be class numbers from 0; one is negative", field="rows.labels"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Rows({len(self)} rows of {self.features.shape[1]} features)"


def check_rows(rows: Rows, features: int, classes: int) -> None:
    """Refuse rows of another schema.

    Args:
        classes: The number of possible labels.
    """
    if rows.features.shape[1] != features:
        raise InputError.because(
            f"the rows have {rows.features.shape[1]} features; the parameters have {features}",
            field="rows",
        )
    if len(rows) and rows.labels.max() >= classes:
        raise InputError.because(
            f"labels must be below {classes}, the number of classes", field="rows.labels"
        )


def is_table(values: NDArray[Any]) -> bool:
    """Return whether an array has two axes, such as rows and features."""
    return values.ndim == 2  # noqa: PLR2004  (what a table is)


def in_unit_cube(features: Floats) -> bool:
    """Return whether all values are numbers from 0 to 1."""
    return bool(((features >= 0.0) & (features <= 1.0)).all())


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Table:
    """A data set with labels: classes, or numbers. Its values are never shown.

    Attributes:
        name: The source of the table.
        X: Shape (rows, features), finite.
        y: Shape (rows,), positions in `features.classes`, or steps of `features.target`.
        features: The public schema; parts of a table keep that of the whole.
        label_name: The name of the label's column.
        notes: Possible mistakes in its file, one sentence each.
        ids: The columns that identify rows, by name. They stay with the party and are never sent.

    Raises:
        InputError: If the shapes do not match, a value is not finite or a label has no name.
    """

    name: str
    X: Floats
    y: Ints
    features: Features
    label_name: str = "label"
    notes: tuple[str, ...] = ()
    ids: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_values(self.X, len(self.y), len(self.features))
        if not ((self.y >= 0) & (self.y < self.features.label_count)).all():
            raise InputError.because(
                "every label must be an index into `classes`, or a step of the target",
                field="labels",
            )

    @classmethod
    def of(
        cls,
        name: str,
        X: Floats,
        y: Ints,
        names: tuple[str, ...],
        classes: tuple[str, ...],
        *,
        categories: tuple[Categories, ...] = (),
        target: Target | None = None,
    ) -> Self:
        """Return a table of at least one row, with ranges computed from its rows.

        Args:
            name: The source of the table.
            X: Shape (rows, features), finite.
            y: Shape (rows,), positions in `classes`, or steps of the target.
            categories: The columns that were categories.
            target: The range of the label, if that is a number.

        Raises:
            InputError: If the shapes do not match, a value is not finite or a label has no name.
        """
        _require_values(X, len(y), len(names))
        features = Features(names, Ranges.of(X), classes, categories, target=target)
        return cls(name, X, y, features)

    @classmethod
    def from_frame(cls, frame: Any, **given: Any) -> "Table":  # noqa: ANN401  (of any library)
        """Return a data frame of pandas, polars or Arrow as a table.

        Args:
            frame: The frame, in memory.
            given: `label`, `schema` and `reading`, as in `veilring.data.sources.load`.
        """
        from veilring.data import sources  # noqa: PLC0415  (it imports this module)

        return sources.load(frame, **given)

    def to_frame(self, library: str = "polars") -> Any:  # noqa: ANN401  (of any library)
        """Return a data frame with the identifiers, the columns of the source, and the label.

        Args:
            library: `polars`, `pandas` or `pyarrow`, which has to be installed.
        """
        from veilring.data.frames import frame_of_table  # noqa: PLC0415  (it imports this module)

        return frame_of_table(self, library)

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        shape = f"{len(self)} rows, {len(self.features)} features"
        return f"Table({self.name!r}: {shape}, {self.features.label_text})"

    def describe(self) -> str:
        """Describe in one line which columns are numbers, categories and the label."""
        categories = self.features.categories
        numbers = len(self.features) - sum(len(each.values) for each in categories)
        columns = [f"{numbers} of numbers"] if numbers else []
        if categories:
            sizes = [f"{each.column} {len(each.values)}" for each in categories]
            columns.append(f"{len(sizes)} of categories ({', '.join(sizes)})")
        label = f"label {self.label_name!r} ({self.features.label_text})"
        return f"{self.name}: columns: {', '.join(columns)}; {label}"

    def take(self, rows: Ints) -> "Table":
        """Return the table of these rows, in this order, with the same schema."""
        ids = {name: values[rows] for name, values in self.ids.items()}
        return replace(self, X=self.X[rows], y=self.y[rows], ids=ids)

    def split(self, test_share: float = TEST_SHARE, seed: int | None = 1) -> "TrainTestSplit":
        """Hold out a random share of the rows, like a scenario with this seed.

        Args:
            test_share: As in `split`.
            seed: The random seed; by default the draw is cryptographic.

        Raises:
            InputError: As in `split` and `Streams`.
        """
        return split(self, test_share, Streams(seed).generator("split"))

    def partition(
        self, parties: int, *, seed: int | None, kind: PartitionKind = "iid", alpha: float = 1.0
    ) -> list["Table"]:
        """Partition the rows among parties, like a scenario with this seed; a party may have none.

        Args:
            parties: The number of parties, at least 1.
            seed: The random seed; by default the draw is cryptographic.
            kind: As in `partition`.
            alpha: As in `partition`.

        Raises:
            InputError: As in `partition` and `Streams`.
        """
        rng = Streams(seed).generator("partition")
        return [self.take(rows) for rows in partition(self.y, parties, rng, kind=kind, alpha=alpha)]


def _require_values(X: Floats, rows: int, features: int) -> None:
    if X.shape != (rows, features):
        raise InputError.because(
            f"features has the shape {X.shape}; {rows} rows of {features} features are needed",
            field="features",
        )
    if not np.isfinite(X).all():
        raise InputError.because("features must be finite numbers", field="features")


def scale_to_unit(table: Table, ranges: Ranges | None = None) -> Table:
    """Scale each feature by public ranges into [0, 1]; columns of categories are unchanged.

    Values outside are clipped to the nearest end. A feature with `low == high` becomes 0, like a
    column with a single category.

    Args:
        ranges: The public ranges; by default those of the table's schema.
    """
    scaled = (table.features.ranges if ranges is None else ranges).to_unit(table.X, constant=0.0)
    features = replace(table.features, ranges=Ranges.unit(len(table.features)))
    return replace(table, X=scaled, features=features)


class TrainTestSplit(NamedTuple):
    """Two tables that together have all rows of a third."""

    train: Table
    held_out: Table


def split(table: Table, test_share: float, rng: np.random.Generator) -> TrainTestSplit:
    """Hold out a random share of the rows, regardless of labels (not stratified).

    Both tables are in random order, so the first rows of either are a fair sample.

    Args:
        test_share: In (0, 1). The held-out rows are the nearest whole number to this share, at
            least one, and at least one row is left.
    """
    if not 0 < test_share < 1:
        raise InputError("test_share", test_share, "a number above 0 and below 1")
    if len(table) < 2:  # noqa: PLR2004  (a split has a row on either side)
        raise InputError.because("a table needs at least 2 rows to be split", field="table")
    held_out = min(max(1, round(test_share * len(table))), len(table) - 1)
    order = rng.permutation(len(table))
    return TrainTestSplit(table.take(order[held_out:]), table.take(order[:held_out]))


def pairwise_distances(queries: Floats, rows: Floats) -> Floats:
    """Return the Euclidean distance of every query to every row, shape (Q, N).

    Each entry is computed from its own pair alone, so a party's distances are bit for bit those of
    the pooled computation. The matrix-product form is faster, but its rounding depends on the other
    rows, and no derivation of privacy bounds that.

    Args:
        queries: Shape (Q, f).
        rows: Shape (N, f); N may be 0.
    """
    same = is_table(rows) and queries.shape[1:] == rows.shape[1:]
    require_that(
        same,
        "rows",
        f"rows has the shape {rows.shape} but queries has {queries.shape}; both must be "
        "two-dimensional with the same number of features",
    )
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(queries, rows, metric="euclidean"), dtype=np.float64)


def partition(
    labels: Ints,
    parties: int,
    rng: np.random.Generator,
    *,
    kind: PartitionKind = "iid",
    alpha: float = 1.0,
    sizes: Sequence[int] = (),
) -> list[Ints]:
    """Return each party's rows as ascending positions; a party may have none.

    `iid` shuffles all rows and gives each party the same number, up to one row. `dirichlet` divides
    each class separately, by proportions drawn from a symmetric Dirichlet distribution (Hsu, Qi and
    Brown, "Measuring the effects of non-identical data distribution", 2019): the smaller `alpha`,
    the fewer parties hold most of a class. `by-label` also gives equal numbers, but of rows in the
    order of their labels, so a party has as few classes as possible. `sizes` shuffles all rows and
    gives the requested numbers.

    Args:
        labels: Shape (rows,).
        parties: The number of parties, at least 1.
    """
    if parties < 1:
        raise InputError("parties", parties, "at least 1")
    shuffled = rng.permutation(len(labels))
    match kind:
        case "iid":
            dealt = np.array_split(shuffled, parties)
        case "by-label":
            by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
            dealt = np.array_split(by_label, parties)
        case "sizes":
            _check_sizes(sizes, parties, len(labels))
            dealt = np.split(shuffled, np.cumsum(sizes)[:-1])
        case "dirichlet":
            dealt = _by_dirichlet(labels, shuffled, parties, alpha, rng)
        case _:
            raise InputError("kind", kind, ", ".join(PARTITIONS))
    return [np.sort(rows) for rows in dealt]


def _check_sizes(sizes: Sequence[int], parties: int, rows: int) -> None:
    if len(sizes) != parties or min(sizes) < 0 or sum(sizes) != rows:
        allowed = f"{parties} whole numbers of at least 0 whose sum is {rows}, the number of rows"
        raise InputError("sizes", list(sizes), allowed)


def _by_dirichlet(
    labels: Ints, shuffled: Ints, parties: int, alpha: float, rng: np.random.Generator
) -> list[Ints]:
    if not ALPHA_MIN <= alpha <= ALPHA_MAX:
        raise InputError("alpha", alpha, f"a number from {ALPHA_MIN:g} to {ALPHA_MAX:g}")
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = shuffled[labels[shuffled] == label]
        shares = rng.dirichlet(np.full(parties, alpha))
        counts = rng.multinomial(len(rows), shares)
        owner[rows] = np.repeat(np.arange(parties), counts)
    return [np.flatnonzero(owner == party) for party in range(parties)]


def encode_columns(
    name: str,
    columns: Mapping[str, ColumnValues],
    labels: NDArray[np.str_],
    target: Target | None = None,
) -> Table:
    """Return a table with unchanged numbers, one-hot categories and numbered labels.

    A column of categories becomes one feature for each of its values, 1 if a row has it and 0
    otherwise, named `column=value`, in the order of the values. Classes are in numerical order if
    all their names are numbers, otherwise in alphabetical order.

    Args:
        columns: At least one, each of shape (rows,).
        labels: Shape (rows,).
        target: The range of the labels, if they are numbers.
    """
    if not len(labels):
        raise InputError.because(
            f"{name} has no rows; add at least one below the header", field=name
        )
    if not columns:
        raise InputError.because(
            f"{name} has no features; add at least one column besides the label", field=name
        )
    blocks: list[Floats] = []
    feature_names: list[str] = []
    categories: list[Categories] = []
    for column, values in columns.items():
        block, found = _encode_column(name, column, values)
        if found is not None:
            categories.append(Categories(column, len(feature_names), found))
        blocks.append(block)
        feature_names += [column] if found is None else [f"{column}={value}" for value in found]
    if target is None:
        numbers, classes = number_classes(name, labels)
    else:
        numbers, classes = target.labels_of(labels.astype(np.float64)), ()
    X, names, kept = np.hstack(blocks), tuple(feature_names), tuple(categories)
    return Table.of(name, X, numbers, names, classes, categories=kept, target=target)


def number_classes(table: str, labels: NDArray[np.str_]) -> tuple[Ints, tuple[str, ...]]:
    """Return the number of each label's class, shape (rows,), and the names of all classes.

    They are in numerical order if all names are numbers, otherwise in alphabetical order.

    Args:
        labels: Shape (rows,).
    """
    names: list[str] = np.unique(labels).tolist()
    _require_few(table, "label", len(names))
    with suppress(ValueError):
        names = sorted(names, key=float)
    numbers = {label: number for number, label in enumerate(names)}
    return np.array([numbers[label] for label in labels.tolist()], dtype=np.int64), tuple(names)


def _encode_column(
    table: str, column: str, values: NDArray[Any]
) -> tuple[Floats, tuple[str, ...] | None]:
    """Return the features of a column, and the categories that they stand for, if any."""
    if values.dtype == np.float64:
        finite = np.isfinite(values)
        if not finite.all():
            where = f"{table}, column {column!r}, row {int(np.argmin(finite)) + 1}"
            raise InputError.because(f"{where}: the number is not finite", field=where)
        return values[:, None], None
    categories, positions = np.unique(values, return_inverse=True)
    _require_few(table, column, len(categories))
    one_hot = np.eye(len(categories))[positions]
    return one_hot, tuple(categories.tolist())


def _require_few(table: str, column: str, values: int) -> None:
    if values > CATEGORIES_MAX:
        raise InputError.because(
            f"{table}, column {column!r} has {values} different categories; at most "
            f"{CATEGORIES_MAX} are allowed, and a column counts as numbers only if each of "
            "its cells is a number",
            field=f"{table}, column {column!r}",
        )
