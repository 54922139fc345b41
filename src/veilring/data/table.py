"""A data set as numbers, its public bounds, and the rows that are held out of it."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError


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


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Table:
    """A data set for classification. Its values are never shown.

    Attributes:
        name: Where it came from.
        features: Shape (rows, features), finite.
        labels: Shape (rows,), positions in `class_names`.
        feature_names: One a column of `features`.
        class_names: At least one.
        categories: The columns that were categories before they became features of 0 and 1, by
            position; all other features were numbers. Scaling into [0, 1] leaves them as they are,
            but for a column of one category, which becomes 0.
        label_name: What the column of the labels is called.
        notes: What may be a mistake in its file, one sentence each.

    Raises:
        InputError: If the shapes do not fit, a feature is not finite or a label has no name.
    """

    name: str
    features: NDArray[np.float64]
    labels: NDArray[np.int64]
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]
    categories: tuple[Categories, ...] = ()
    label_name: str = "label"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.features.shape != (len(self.labels), len(self.feature_names)):
            fitting = f"({len(self.labels)} rows, {len(self.feature_names)} named features)"
            raise InputError("features", f"of shape {self.features.shape}", fitting)
        if not np.isfinite(self.features).all():
            raise InputError("features", "not finite in some place", "finite numbers only")
        if not np.isin(self.labels, np.arange(len(self.class_names))).all():
            raise InputError("labels", "without a name in some place", "positions in class_names")

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shape = f"{len(self)} rows, {len(self.feature_names)} features"
        return f"Table({self.name!r}: {shape}, {len(self.class_names)} classes)"

    @property
    def is_categorical(self) -> bool:
        """Whether all columns are categories, so that no feature was a number."""
        return sum(len(each.values) for each in self.categories) == len(self.feature_names)

    def describe(self) -> str:
        """Say in one line which columns are numbers, categories and the label."""
        numbers = len(self.feature_names) - sum(len(each.values) for each in self.categories)
        columns = [f"{numbers} of numbers"] if numbers else []
        if self.categories:
            sizes = [f"{each.column} {len(each.values)}" for each in self.categories]
            columns.append(f"{len(sizes)} of categories ({', '.join(sizes)})")
        label = f"label {self.label_name!r} ({len(self.class_names)} classes)"
        return f"{self.name}: columns: {', '.join(columns)}; {label}"

    def take(self, rows: NDArray[np.int64]) -> "Table":
        """Return the table of these rows, in this order; names and classes stay."""
        return replace(self, features=self.features[rows], labels=self.labels[rows])


class Bounds(NamedTuple):
    """The least and the greatest value of each feature, each of shape (features,)."""

    lows: NDArray[np.float64]
    highs: NDArray[np.float64]


def bounds_of(table: Table) -> Bounds:
    """Return the bounds of all rows of a table of at least one row.

    Where parties hold the rows, these bounds count as public schema: they must be known without
    looking at the data, as the range of a sensor or of a form's field is. A party that computed
    them from private rows would give its extreme values away.
    """
    return Bounds(table.features.min(axis=0), table.features.max(axis=0))


def scale_to_unit(table: Table, bounds: Bounds | None = None) -> Table:
    """Scale each feature by public bounds into [0, 1]: `(x - low) / (high - low)`.

    What lies outside is clipped to the nearest bound, and a feature with `low == high` becomes 0.

    Args:
        table: What to scale.
        bounds: Public; by default those of the table itself.

    Raises:
        InputError: If the bounds have another shape, are not finite, or a low one is above its
            high one.
    """
    lows, highs = bounds_of(table) if bounds is None else bounds
    fitting = (len(table.feature_names),)
    if lows.shape != fitting or highs.shape != fitting:
        raise InputError("bounds", f"of shapes {lows.shape} and {highs.shape}", f"{fitting} each")
    ranges = highs - lows
    if not (np.isfinite(ranges) & (ranges >= 0)).all():
        raise InputError("bounds", "not a finite range in some place", "finite, each low <= high")
    # The range of a constant is replaced, so that nothing is divided by 0; its numerator is 0.
    scaled = (np.clip(table.features, lows, highs) - lows) / np.where(ranges > 0, ranges, 1.0)
    return replace(table, features=scaled)


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
