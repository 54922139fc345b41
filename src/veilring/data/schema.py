"""The public schema of terms, and how CSV files of rows are read and checked with it.

An error names the column and the line, and no value except the first characters of an unknown
category, so that it can be found.

A value outside of its range is clipped, which no protocol notices: rows in another unit only make
labels wrong. Each role that reads a file of its own therefore counts such values first. The counts
depend on private rows, so they are written only to the party's own log. A refusal is noticeable,
because the party does not start: peers may conclude that its rows do not fit. `outside_max = 1` in
the configuration starts the party whatever its rows are.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from veilring.arrays import Bools, Floats, Ints
from veilring.config import Section, read_tables, scenario_error
from veilring.data.csv import cell_at, read_cells
from veilring.data.npz import NPZ
from veilring.data.table import Categories, Features, Ranges, Rows
from veilring.errors import InputError, ScenarioError

_log = logging.getLogger("veilring.rows")
# Ranges are meant to include all possible values of a column. Ranges from percentiles 1 and 99,
# which are in use, leave out 2 %. Beyond this, the unit, the column or the range is wrong.
OUTSIDE_MAX: Final = 0.05
# One value may be an outlier or a typing error, and a file may have only one row: a client's own
# report, or an added record. Refusing it would reveal something about that row alone.
OUTSIDE_SURE: Final = 2
# If the different values take up less of their range than this, distances hardly depend on the
# column: metres in a range of millimetres. Skewed columns look similar, so this is never refused.
NARROW: Final = 0.01
# A row of an image has hundreds of columns; the first ones are enough to find the mistake.
_COLUMNS_SHOWN: Final = 8
_UNKNOWN_SHOWN: Final = 40  # enough of a cell to find it in its file
Words = Annotated[tuple[str, ...], Field(strict=False)]
OutsideMax = Annotated[float, Field(ge=0, le=1, description="a number from 0 to 1")]
"""The maximum share of a column's values outside of its range."""
FileCells: TypeAlias = Mapping[str, NDArray[np.str_]]
"""The cells of each column, by its header."""


@runtime_checkable
class Frame(Protocol):
    """A data frame of pandas, polars or Arrow: columns with names."""

    @property
    def columns(self) -> Iterable[Any]:
        """The names of the columns; the columns themselves in Arrow, which has `column_names`."""

    def __getitem__(self, name: str, /) -> Any:  # noqa: ANN401  (a column is of the library's type)
        """Return the column of a name."""


class FeatureTerms(Section):
    """One column of all parties' rows: a number in a public range, or one of public categories.

    Attributes:
        name: The header of the column.
        low: The minimum; lower values are clipped to it.
        high: The maximum; higher values are clipped to it.
        categories: The allowed values, instead of a range.
    """

    name: str = Field(description="the header of a column")
    low: float = 0.0
    high: float = Field(1.0, description="a number, at least low")
    categories: Words = Field((), description="a list of different words, or none")

    @property
    def width(self) -> int:
        """The number of features of the column if a category becomes several of 0 and 1."""
        return len(self.categories) or 1


FeatureList = Annotated[
    tuple[FeatureTerms, ...],
    Field(
        strict=False,
        description="a list of tables with the keys name, and low and high or categories",
    ),
]


def check_features(features: Sequence[FeatureTerms]) -> None:
    """Refuse incompatible columns."""
    require_different("features", tuple(feature.name for feature in features))
    for feature in features:
        require_different(f"features.{feature.name}.categories", feature.categories)
        if feature.low > feature.high:
            raise ScenarioError(f"features.{feature.name}.high", feature.high, "at least low")


def require_different(key: str, names: Sequence[str]) -> None:
    """Refuse names that occur twice."""
    if len(set(names)) != len(names):
        raise ScenarioError(key, list(names), "a list without repeated names")


def read_categories(path: Path, feature: FeatureTerms, cells: FileCells) -> Ints:
    """Return the number of each cell's category."""
    return look_up(path, feature.name, _column(path, feature, cells), feature.categories)


def read_numbers(path: Path, feature: FeatureTerms, cells: FileCells) -> Floats:
    """Return the cells as numbers, clipped to the range."""
    return np.clip(numbers_of(path, feature, cells), feature.low, feature.high)


def numbers_of(path: Path, feature: FeatureTerms, cells: FileCells) -> Floats:
    """Return the cells as numbers, including those outside of the range."""
    column = _column(path, feature, cells)
    numbers = _numbers(column.tolist())
    if not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers)))
        where = cell_at(path.name, feature.name, row)
        allowed = f"a number ({feature.low} to {feature.high})"
        raise InputError.because(
            f"{where}: this is not a finite number; give {allowed}", field=where
        )
    return numbers


def read_labels(path: Path, cells: FileCells, classes: Sequence[str]) -> Ints:
    """Return the number of each row's class, which is the last column."""
    label = list(cells)[-1]
    note = " (the last column is taken as the label; move the label there)"
    return look_up(path, label, cells[label], classes, note=note)


def look_up(
    path: Path, column: str, cells: NDArray[np.str_], names: Sequence[str], *, note: str = ""
) -> Ints:
    """Return the position of each cell in a list of names."""
    numbers = {name: number for number, name in enumerate(names)}
    found = np.array([numbers.get(cell, -1) for cell in cells.tolist()], dtype=np.int64)
    if (found < 0).any():
        row = int(np.argmax(found < 0))
        where = cell_at(path.name, column, row)
        if path.suffix.lower() == NPZ:  # if lines are unknown
            where = f"{path.name}, {column}, row {row + 1}"
        cell = str(cells[row])[:_UNKNOWN_SHOWN]
        raise InputError(where, cell, f"one of {', '.join(names)}{note}")
    return found


def _column(path: Path, feature: FeatureTerms, cells: FileCells) -> NDArray[np.str_]:
    if feature.name not in cells:
        raise InputError.because(
            f"{path.name} lacks the column {feature.name!r}; all columns of the terms are needed",
            field=f"{path.name}",
        )
    return cells[feature.name]


def _numbers(cells: list[Any]) -> Floats:
    """Return cells as numbers, with NaN for a cell that is not one."""
    with suppress(ValueError, TypeError):  # the usual case, several times as fast
        return np.fromiter(map(float, cells), np.float64, len(cells))
    return np.fromiter(map(_number, cells), np.float64, len(cells))


def _number(cell: Any) -> float:  # noqa: ANN401  (a cell of a data frame may be of any type)
    try:
        return float(cell)
    except (ValueError, TypeError):
        return float("nan")


class _Fit(NamedTuple):
    """The fit of one column's values to its range."""

    feature: FeatureTerms
    rows: int
    outside: int
    narrow: bool

    def __str__(self) -> str:
        found = f"{self.outside} of {self.rows} values are outside of its range"
        if not self.outside:
            found = f"all values are within {NARROW:.0%} of its range; check their unit"
        return f"column {self.feature.name!r}: {found}"


def check_ranges(
    path: Path,
    features: Sequence[FeatureTerms],
    cells: FileCells,
    outside_max: float,
    log: logging.Logger,
) -> int:
    """Count the values outside of their public ranges, and log the counts; return the rows."""
    rows = len(next(iter(cells.values()), ()))
    if not rows:
        raise InputError.because(
            f"{path.name} has no rows; add at least one below the header", field=path.name
        )
    fits = list(_fits(path, features, cells))
    counted = f"{path.name}: {rows} {'row' if rows == 1 else 'rows'}"
    if fits:
        log.warning("%s; %s", counted, _listed(fits))
    else:
        log.info("%s; all values are in their ranges", counted)
    refused = [
        fit for fit in fits if fit.outside >= OUTSIDE_SURE and fit.outside > outside_max * rows
    ]
    if refused:
        first, *others = (_refusal(path, fit, outside_max) for fit in refused)
        raise first.with_others(others)
    return rows


def _listed(columns: Sequence[object]) -> str:
    more = len(columns) - _COLUMNS_SHOWN
    shown = "; ".join(map(str, columns[:_COLUMNS_SHOWN]))
    return shown + (f"; {more} more columns" if more > 0 else "")


def _fits(path: Path, features: Sequence[FeatureTerms], cells: FileCells) -> Iterator[_Fit]:
    """Yield the columns whose values fit their ranges badly."""
    for feature in features:
        if feature.categories:
            continue
        numbers = numbers_of(path, feature, cells)
        outside = int(((numbers < feature.low) | (numbers > feature.high)).sum())
        narrow = 0 < float(np.ptp(numbers)) < NARROW * (feature.high - feature.low)
        if outside or narrow:
            yield _Fit(feature, len(numbers), outside, narrow)


def _refusal(path: Path, fit: _Fit, outside_max: float) -> ScenarioError:
    low, high = fit.feature.low, fit.feature.high
    return ScenarioError.because(
        f"{fit.outside} of {fit.rows} rows are outside of the range ({low:g} to {high:g}); "
        "allowed: "
        f"at most {outside_max:.0%} of the rows; correct the unit or the column, or accept them by "
        "a larger outside_max in the configuration",
        field=f"{path.name}, column {fit.feature.name!r}",
    )


class RowSchema(Section):
    """The schema of a row: all classes, and all columns except the label."""

    classes: Words = Field(min_length=1, description="a list of different names of classes")
    features: FeatureList = Field(min_length=1)

    @property
    def width(self) -> int:
        """The number of features of a row, with categories as several 0 and 1."""
        return sum(feature.width for feature in self.features)

    @property
    def encoded(self) -> Features:
        """The schema of rows with categories as several 0 and 1."""
        names: list[str] = []
        ranges: list[tuple[float, float]] = []
        categories: list[Categories] = []
        for each in self.features:
            if each.categories:
                categories.append(Categories(each.name, len(names), each.categories))
                names += [f"{each.name}={value}" for value in each.categories]
                # a single category is constant, and becomes 0 like a constant number
                ranges += [(float(each.width == 1), 1.0)] * each.width
            else:
                names.append(each.name)
                ranges.append((each.low, each.high))
        lows, highs = zip(*ranges, strict=True)
        return Features(tuple(names), Ranges(lows, highs), self.classes, tuple(categories))

    def require_sound(self) -> None:
        """Refuse incompatible classes and columns."""
        require_different("classes", self.classes)
        check_features(self.features)

    def read_rows(self, path: Path, outside_max: float = 1.0, log: logging.Logger = _log) -> Rows:
        """Read a party's own rows, and log how they fit the public ranges.

        The file has all columns of the terms, and the label as the last column.
        """
        cells = read_cells(path)
        if check_ranges(path, self.features, cells, outside_max, log) == 1:
            log.warning("%s has only 1 row; check that the file is complete", path.name)
        return self.rows_of(path, cells)

    def rows_of(self, path: Path, cells: FileCells) -> Rows:
        """Return rows from the cells of a file that was already read, like `read_rows`."""
        labels = read_labels(path, cells, self.classes)
        return Rows(self._encode(path, cells), labels)

    def read_queries(
        self, path: Path, outside_max: float = 1.0, log: logging.Logger = _log
    ) -> Floats:
        """Read queries like `read_rows`; other columns, such as a label, are ignored."""
        cells = read_cells(path)
        check_ranges(path, self.features, cells, outside_max, log)
        return self._encode(path, cells)

    def of_frame(self, frame: Frame) -> Floats:
        """Return the rows of a data frame, scaled into [0, 1]: shape (rows, features).

        Columns, in the units of their ranges, are found by name, in any order; other columns, such
        as a label, are ignored.
        """
        columns = [_features_in(frame, feature) for feature in self.features]
        return self.of_array(np.hstack(columns))

    def of_array(self, rows: Floats) -> Floats:
        """Return features by position, scaled into [0, 1], and log counts outside of their ranges.

        Rows have the shape (rows, features), in the units of the ranges.
        """
        features = self.encoded
        scaled = features.ranges.to_unit(rows, constant=0.0)
        outside = ((rows < features.ranges.lows) | (rows > features.ranges.highs)).sum(axis=0)
        found = [
            f"column {name!r}: {count} of {len(rows)} values are outside of its range"
            for name, count in zip(features.names, outside, strict=True)
            if count
        ]
        if found:
            _log.warning("rows: %s", _listed(found))
        return scaled

    def _encode(self, path: Path, cells: FileCells) -> Floats:
        columns = [_features_of(path, feature, cells) for feature in self.features]
        return self.encoded.ranges.to_unit(np.hstack(columns), constant=0.0)


def feature_terms(features: Features) -> tuple[FeatureTerms, ...]:
    """Return the columns of a schema of features, with one-hot features merged into their column.

    The ranges of a table are its own. In production they are those that a column *can* have,
    because ranges or categories taken from private rows reveal the rows.
    """
    ranges = features.ranges
    columns: dict[int, FeatureTerms] = {
        number: FeatureTerms(name=name, low=low, high=high)
        for number, (name, low, high) in enumerate(
            zip(features.names, ranges.lows, ranges.highs, strict=True)
        )
    }
    for each in features.categories:
        for number in range(each.features.start, each.features.stop):
            del columns[number]
        columns[each.first] = FeatureTerms(name=each.column, categories=each.values)
    return tuple(columns[number] for number in sorted(columns))


class _Columns(Section):
    """The columns of a file of ranges or of terms."""

    features: FeatureList = Field(min_length=1)


def with_ranges(features: Features, path: Path) -> Features:
    """Return a schema of features with the public ranges of a file; categories keep theirs.

    It is a TOML file with the columns under `features`, as in terms; other keys are ignored.
    """
    try:
        columns = _Columns(features=read_tables(path, "ranges").get("features", ())).features
    except ValidationError as error:
        raise scenario_error(error, _Columns) from None
    ends = list(zip(features.ranges.lows, features.ranges.highs, strict=True))
    by_name = {each.name: (each.low, each.high) for each in columns}
    of_categories = {
        number
        for each in features.categories
        for number in range(each.features.start, each.features.stop)
    }
    for number, name in enumerate(features.names):
        if number in of_categories:
            continue
        if name not in by_name:
            raise InputError.because(
                f"the column {name!r} has no range in the file; give its minimum and maximum",
                field="ranges",
            )
        ends[number] = by_name[name]
    return replace(features, ranges=Ranges(*zip(*ends, strict=True)))


def _features_of(path: Path, feature: FeatureTerms, cells: FileCells) -> Floats:
    """Return a column as one feature of numbers, or as one of several 0 and 1."""
    if feature.categories:
        return np.eye(feature.width)[read_categories(path, feature, cells)]
    return numbers_of(path, feature, cells)[:, None]


def _features_in(frame: Frame, feature: FeatureTerms) -> Floats:
    """Return a column of a data frame as one feature of numbers, or as one of several 0 and 1."""
    names = [str(name) for name in getattr(frame, "column_names", frame.columns)]
    if names.count(feature.name) != 1:
        found = "two columns" if feature.name in names else "no column"
        raise InputError.because(
            f"rows has {found} {feature.name!r}; each column of the schema must occur once",
            field="rows",
        )
    column = np.asarray(frame[feature.name])
    if feature.categories:
        is_value = column.astype(np.str_)[:, None] == np.array(feature.categories)
        _require_cells(feature, is_value.any(axis=1), f"one of {', '.join(feature.categories)}")
        return np.asarray(is_value, np.float64)
    numbers = _numbers(column.tolist())
    _require_cells(
        feature, np.isfinite(numbers), f"a finite number ({feature.low} to {feature.high})"
    )
    return numbers[:, None]


def _require_cells(feature: FeatureTerms, is_right: Bools, allowed: str) -> None:
    if not is_right.all():
        where = f"rows, column {feature.name!r}, row {int(np.argmin(is_right)) + 1}"
        raise InputError.because(f"{where}: the cell must be {allowed}", field=where)
