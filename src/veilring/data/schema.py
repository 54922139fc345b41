"""The public schema of rows, and how a party's file is read and checked by it.

The terms of a deployment contain a schema, and a file of its own has the same keys. A party that
serves, a scenario and `veilring schema check` read a table by either in the same way.

A value outside of its range is clipped, which no protocol notices: rows in another unit only make
labels wrong. Each role that reads a file of its own therefore counts such values first. The counts
depend on private rows, so they are written only to the party's own log. A refusal is noticeable,
because the party does not start: peers may conclude that its rows do not fit. `outside_max = 1` in
the configuration starts the party whatever its rows are.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from veilring.arrays import Floats, Ints
from veilring.config import (
    Section,
    did_you_mean,
    read_tables,
    require_key_that,
    scenario_error,
    unknown_key,
)
from veilring.data.cells import Cells, Reading, Words
from veilring.data.columns import (
    FeatureList,
    FeatureTerms,
    Target,
    all_of,
    check_features,
    features_of,
    look_up,
    numbers_of,
    require_different,
)
from veilring.data.csv import read_cells
from veilring.data.frames import PARQUET, Frame, cells_of_frame, read_parquet
from veilring.data.table import Categories, Features, Ranges, Rows, Table
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
# A header such as `crp [mg/l]` or `weight (kg)`: a name with its unit.
_WITH_UNIT: Final = re.compile(r"(.+?)\s*[\[(]([^\])]+)[\])]")
_Column = TypeVar("_Column")
_ANSWER: Final = "label"  # the column of the answers
OutsideMax = Annotated[float, Field(ge=0, le=1, description="a number from 0 to 1")]
"""The maximum share of a column's values outside of its range."""


def read_file(path: Path, reading: Reading | None = None) -> Cells:
    """Read the cells of a CSV or Parquet file, some of which may be empty."""
    reading = Reading() if reading is None else reading
    if path.suffix.lower() == PARQUET:
        return read_parquet(path, reading)
    return read_cells(path, reading, may_have_gaps=True)


def parts_of_header(header: str) -> tuple[str, str]:
    """Return the name and the unit of a header such as `crp [mg/l]`; the unit may be empty."""
    found = _WITH_UNIT.fullmatch(header)
    return (found[1], found[2].strip()) if found else (header, "")


def matched(cells: Cells, features: Sequence[FeatureTerms], label: str = "") -> Cells:
    """Return the cells with the names of the schema in place of the headers of the file.

    A header may be the name itself, the one that the reading gives for it, or the name with its
    unit in brackets. Columns that are no features may be absent, and others stay as they are.

    Args:
        label: The name of the label, if it is needed.
    """
    require_known(cells, [*(feature.name for feature in features), label])
    wanted = [*features, *([FeatureTerms(name=label)] if label else [])]
    headers = all_of(partial(header_of, feature, cells) for feature in wanted)
    named = zip(headers, (feature.name for feature in wanted), strict=True)
    return cells.renamed({header: name for header, name in named if header})


def require_known(cells: Cells, names: Sequence[str]) -> None:
    """Refuse a reading with columns that the schema does not have."""
    for name in sorted(cells.reading.columns - {*names}):
        near = did_you_mean(name, names)
        if name in cells and cells.reading.names.get(name) in names:
            near = f" (names are written as {cells.reading.names[name]} = {name!r})"
        raise InputError("a column of the reading", name, f"a column of the schema{near}")


def header_of(feature: FeatureTerms, cells: Cells) -> str:
    """Return the header of a column in a file; it is empty for an absent one that is no feature."""
    name = feature.name
    given = cells.reading.names.get(name, name)
    if given in cells:
        return given
    headers = [header for header in cells if parts_of_header(header)[0] == given]
    if len(headers) == 1:
        _require_unit(feature, headers[0], cells)
        return headers[0]
    if not feature.is_feature:
        return ""
    near = did_you_mean(given, [*cells])
    found = f"has two columns {given!r}" if headers else f"lacks the column {given!r}{near}"
    raise InputError.because(
        f"{cells.source} {found}; all columns of the schema are needed: add the column, or name its"
        f" header in the reading of this file, as names.{name}",
        field=cells.source,
    )


def _require_unit(feature: FeatureTerms, header: str, cells: Cells) -> None:
    """Refuse a header with another unit than that of the schema, unless the reading converts it."""
    unit = parts_of_header(header)[1]
    if not feature.unit or unit.casefold() == feature.unit.casefold():
        return
    if feature.name not in {*cells.reading.factors, *cells.reading.offsets}:
        raise InputError.because(
            f"{cells.source}, column {header!r} is in {unit}, but the schema is in {feature.unit};"
            f" convert it, or give the factor in the reading of this file: factors."
            f"{feature.name} = 1.0 if both mean the same",
            field=cells.source,
        )


def read_labels(
    cells: Cells, classes: Sequence[str], label: str = "", target: Target | None = None
) -> Ints:
    """Return the number of each row's class, or of its steps in a target.

    Args:
        label: The column with the label; by default the last one.
    """
    name = label or [*cells][-1]
    if target is not None:
        return target.labels_of(numbers_of(label_terms(name, classes, target), cells))
    note = "" if label else " (the last column is taken as the label; move the label there)"
    return look_up(cells, name, classes, note=note)


def label_terms(name: str, classes: Sequence[str], target: Target | None) -> FeatureTerms:
    """Return the label as a column, for the functions that read and check columns."""
    if target is None:
        return FeatureTerms(name=name, categories=tuple(classes))
    return FeatureTerms(name=name, low=target.low, high=target.high, agreed=target.agreed)


class Fit(NamedTuple):
    """The fit of one column's values to its range."""

    feature: FeatureTerms
    rows: int
    outside: int
    narrow: bool

    @property
    def found(self) -> str:
        """How the values fit, in words."""
        if not self.outside:
            return f"all values are within {NARROW:.0%} of its range; check their unit"
        return f"{self.outside} of {self.rows} values are outside of its range"

    def __str__(self) -> str:
        return f"column {self.feature.name!r}: {self.found}"

    def is_refused(self, outside_max: float) -> bool:
        """Whether a party with such a column does not start."""
        return self.outside >= OUTSIDE_SURE and self.outside > outside_max * self.rows


def check_ranges(
    features: Sequence[FeatureTerms],
    cells: Cells,
    outside_max: float,
    log: logging.Logger,
    *,
    may_be_empty: bool = False,
) -> int:
    """Count the values outside of their public ranges, and log the counts; return the rows."""
    if not cells.rows and may_be_empty:
        log.warning("%s has no rows: this party takes part without any", cells.source)
        return 0
    if not cells.rows:
        raise InputError.because(
            f"{cells.source} has no rows; add at least one below the header", field=cells.source
        )
    fits = list(fits_of(features, cells))
    counted = f"{cells.source}: {cells.rows} {'row' if cells.rows == 1 else 'rows'}"
    for remark in cells.remarks:
        log.info("%s is %s", cells.source, remark)
    if drafted := [feature.name for feature in features if not feature.agreed]:
        log.warning("not yet agreed (`agreed = false`): %s", _listed(drafted))
    if fits:
        log.warning("%s; %s", counted, _listed(fits))
    else:
        log.info("%s; all values are in their ranges", counted)
    refused = [fit for fit in fits if fit.is_refused(outside_max)]
    if refused:
        first, *others = (_refusal(cells.source, fit, outside_max) for fit in refused)
        raise first.with_others(others)
    return cells.rows


def _listed(columns: Sequence[object]) -> str:
    more = len(columns) - _COLUMNS_SHOWN
    shown = "; ".join(map(str, columns[:_COLUMNS_SHOWN]))
    return shown + (f"; {more} more columns" if more > 0 else "")


def fits_of(features: Sequence[FeatureTerms], cells: Cells) -> Iterator[Fit]:
    """Yield the columns whose values fit their ranges badly."""
    for feature in features:
        if not feature.is_numeric:
            continue
        numbers = numbers_of(feature, cells)
        outside = int(((numbers < feature.low) | (numbers > feature.high)).sum())
        spread = float(np.ptp(numbers)) if len(numbers) else 0.0
        narrow = 0 < spread < NARROW * (feature.high - feature.low)
        if outside or narrow:
            yield Fit(feature, len(numbers), outside, narrow)


def _refusal(source: str, fit: Fit, outside_max: float) -> ScenarioError:
    low, high = fit.feature.low, fit.feature.high
    return ScenarioError.because(
        f"{fit.outside} of {fit.rows} rows are outside of the range ({low:g} to {high:g}); "
        "allowed: "
        f"at most {outside_max:.0%} of the rows; correct the unit or the column, or accept them by "
        "a larger outside_max in the configuration",
        field=f"{source}, column {fit.feature.name!r}",
    )


class RowSchema(Section):
    """The schema of a row: the label with its classes or its range, and all other columns.

    Attributes:
        label: The column with the label of each row; by default the last one of a file.
        classes: The names of all classes, if the label is a class.
        target: The range and the resolution of the label, if it is a number.
        features: All other columns.
    """

    label: str = Field(
        "", description="the header of a column, or nothing", exclude_if=lambda label: not label
    )
    classes: Words = Field(
        (),
        description="a list of different names of classes",
        exclude_if=lambda classes: not classes,
    )
    target: Target | None = Field(
        None,
        description="a table with low, high and resolution",
        exclude_if=lambda target: target is None,
    )
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
            if each.meaning == "category":
                categories.append(Categories(each.name, len(names), each.categories))
                names += [f"{each.name}={value}" for value in each.categories]
                # a single category is constant, and becomes 0 like a constant number
                ranges += [(float(each.width == 1), 1.0)] * each.width
            elif each.is_feature:
                names.append(each.name)
                ranges.append(
                    (each.low, each.high) if each.is_numeric else (0.0, len(each.categories) - 1.0)
                )
        lows, highs = zip(*ranges, strict=True)
        return Features(
            tuple(names),
            Ranges(lows, highs),
            self.classes,
            tuple(categories),
            self.features,
            self.target,
        )

    def require_sound(self) -> None:
        """Refuse incompatible classes and columns."""
        require_key_that(
            bool(self.classes) == (self.target is None),
            "classes",
            "give the names of all classes; or, if the label is a number, its range as `target = {"
            " low = …, high = …, resolution = … }` instead",
        )
        require_different("classes", self.classes)
        if self.target is not None:
            self.target.require_sound()
        check_features(self.features)
        require_key_that(
            not self.features or self.width > 0,
            "features",
            "no column is a feature; give at least one of another kind than identifier or ignored",
        )
        require_key_that(
            self.label not in {feature.name for feature in self.features},
            "label",
            f"the label {self.label!r} is also among the features; leave it out there",
        )

    def read(
        self, path: Path, reading: Reading | None = None, *, with_label: bool = False
    ) -> Cells:
        """Return the cells of a file with the names of the schema."""
        label = self.label if with_label else ""
        return matched(read_file(path, reading), self.features, label)

    def read_rows(
        self,
        path: Path,
        outside_max: float = 1.0,
        log: logging.Logger = _log,
        reading: Reading | None = None,
        *,
        may_be_empty: bool = False,
    ) -> Rows:
        """Read a party's own rows, and log how they fit the public ranges.

        The file has all columns of the schema. If that names no label, it is the last column.

        Args:
            may_be_empty: Whether a party may have no rows, because others have some.
        """
        cells = self.read(path, reading, with_label=True)
        rows = self.rows_of(cells)
        if (
            check_ranges(self._ranged(cells), cells, outside_max, log, may_be_empty=may_be_empty)
            == 1
        ):
            log.warning("%s has only 1 row; check that the file is complete", path.name)
        return rows

    def rows_of(self, cells: Cells) -> Rows:
        """Return rows from the cells of a file that was already read, like `read_rows`."""
        features, labels = self._columns(cells, with_label=True)
        return Rows(self.encoded.ranges.to_unit(features, constant=0.0), labels)

    def table_of(self, cells: Cells) -> Table:
        """Return the rows as a table in the units of the schema, with its identifiers."""
        features, labels = self._columns(cells, with_label=True)
        return Table(
            Path(cells.source).stem,
            features,
            labels,
            self.encoded,
            self.label or [*cells][-1],
            notes=tuple(map(str, fits_of(self._ranged(cells), cells))),
            ids=self.identifiers(cells),
        )

    def _ranged(self, cells: Cells) -> tuple[FeatureTerms, ...]:
        """Return the columns whose ranges clip values, the label included if it is a number."""
        if self.target is None:
            return self.features
        return (*self.features, label_terms(self.label or [*cells][-1], (), self.target))

    def identifiers(self, cells: Cells) -> dict[str, NDArray[np.str_]]:
        """Return the columns that identify rows and stay with their party."""
        names = (each.name for each in self.features if each.meaning == "identifier")
        return {name: cells[name] for name in names if name in cells}

    def read_queries(
        self,
        path: Path,
        outside_max: float = 1.0,
        log: logging.Logger = _log,
        reading: Reading | None = None,
    ) -> Floats:
        """Read queries like `read_rows`; other columns, such as a label, are ignored."""
        return self.queries_of(self.read(path, reading), outside_max, log)

    def queries_of(
        self, cells: Cells, outside_max: float = 1.0, log: logging.Logger = _log
    ) -> Floats:
        """Return queries from the cells of a file that was already read, like `read_queries`."""
        features = self.numbers_of(cells)
        check_ranges(self.features, cells, outside_max, log)
        return self.encoded.ranges.to_unit(features, constant=0.0)

    def of_frame(self, frame: Frame) -> Floats:
        """Return the rows of a data frame, scaled into [0, 1]: shape (rows, features).

        Columns, in the units of their ranges, are found by name, in any order; other columns, such
        as a label, are ignored.
        """
        return self.of_array(self.numbers_of(matched(cells_of_frame(frame), self.features)))

    def numbers_of(self, cells: Cells) -> Floats:
        """Return features in the units of their ranges, with categories as several 0 and 1."""
        return self._columns(cells, with_label=False)[0]

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

    def _columns(self, cells: Cells, *, with_label: bool) -> tuple[Floats, Ints]:
        """Return the features of rows, not scaled, and their labels, with all errors together."""
        reads: list[Callable[[], NDArray[Any]]] = [
            partial(features_of, feature, cells) for feature in self.features
        ]
        if not with_label:
            return np.hstack(all_of(reads)), np.zeros(cells.rows, np.int64)
        reads.append(partial(read_labels, cells, self.classes, self.label, self.target))
        *columns, labels = all_of(reads)
        return np.hstack(columns), labels


def read_schema(path: Path) -> RowSchema:
    """Read a schema from a file of its own, or from the terms of a deployment.

    Raises:
        ScenarioError: If the file is no such file, or the schema has a mistake.
    """
    tables, keys = read_tables(path, "schema"), RowSchema.model_fields
    for key in tables.keys() - keys:
        if did_you_mean(key, keys):
            raise unknown_key(key, keys)
    try:
        schema = RowSchema.model_validate({key: tables[key] for key in keys if key in tables})
    except ValidationError as error:
        raise scenario_error(error, RowSchema) from None
    schema.require_sound()
    return schema


def beside(columns: Mapping[str, _Column], *own: str) -> dict[str, _Column]:
    """Return identifiers for a file of answers with columns of its own, of other names than those.

    Args:
        own: The names of the answers' own columns.
    """
    return {
        f"{name} of the file" if name in own else name: cells for name, cells in columns.items()
    }


def kept_columns(schema: RowSchema, cells: Cells, keep: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns to put beside the labels of rows: identifiers, and others by name."""
    kept = beside({name: cells.texts[name] for name in schema.identifiers(cells)}, _ANSWER)
    for name in keep:
        if name not in cells or name == _ANSWER:
            others = ", ".join(each for each in cells if each != _ANSWER)
            raise InputError("keep", name, f"a column of {cells.source}: {others}")
        kept[name] = cells.texts[name]
    return {name: list(texts) for name, texts in kept.items()}


def schema_of(features: Features) -> RowSchema:
    """Return the schema of rows with these features and labels; the column of the label is open."""
    if features.target is None:
        return RowSchema(classes=features.classes, features=feature_terms(features))
    return RowSchema(target=features.target, features=feature_terms(features))


def feature_terms(features: Features) -> tuple[FeatureTerms, ...]:
    """Return the columns of a schema of features, with one-hot features merged into their column.

    The ranges of a table without a schema are its own. In production they are those that a column
    *can* have, because ranges or categories taken from private rows reveal the rows.
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
    return _as_declared(tuple(columns[number] for number in sorted(columns)), features.declared)


def drafted(features: Features) -> tuple[FeatureTerms, ...]:
    """Return the columns of a schema of features, marked as not agreed unless they are declared."""
    columns = feature_terms(features)
    if features.declared:
        return columns
    return tuple(each.model_copy(update={"agreed": False}) for each in columns)


def _as_declared(
    columns: Iterable[FeatureTerms], declared: Sequence[FeatureTerms]
) -> tuple[FeatureTerms, ...]:
    """Return columns as a schema declares them, except those that were scaled since."""
    if not declared:
        return tuple(columns)
    rest = iter(columns)
    return tuple(
        _scaled(feature, next(rest)) if feature.is_feature else feature for feature in declared
    )


def _scaled(feature: FeatureTerms, column: FeatureTerms) -> FeatureTerms:
    last = len(feature.categories) - 1.0
    ends = (0.0, last) if feature.meaning == "ordinal" else (feature.low, feature.high)
    return feature if ends == (column.low, column.high) or column.categories else column
