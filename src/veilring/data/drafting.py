"""Drafting a public schema from one party's own file, with a mark on its own ranges and categories.

A draft is a start for the parties' discussion. Ranges and categories that come from rows reveal
something about them, so each such column is marked as not agreed until somebody replaces them by
what is possible.
"""

from calendar import monthrange
from collections.abc import Mapping
from dataclasses import replace
from math import ceil, floor, log10
from typing import Any, Final, NamedTuple

import numpy as np
import tomli_w

from veilring.arrays import Bools, Floats
from veilring.data.cells import Cells
from veilring.data.columns import CATEGORY, UNKNOWN, FeatureTerms, Kind, date_of, day_of, parsed
from veilring.data.csv import (
    CLASSES_SURE,
    IDS_ROWS_MIN,
    LABELS,
    MANY_CATEGORIES,
    NUMBERS_MIN,
    TextColumn,
    are_keys,
    require_classes,
    target_of,
)
from veilring.data.schema import RowSchema, parts_of_header
from veilring.data.table import CATEGORIES_MAX, number_classes
from veilring.errors import InputError

_SHOWN: Final = 40  # enough of a cell to find it in its file
_FROM_ROWS: Final = "from rows"
_LABEL: Final = {"label", "classes", "target"}
_HEADER: Final = """\
# Draft of a public schema, made from the rows of {source}.
#
# What is marked "{mark}" reveals something about these rows. Replace it by what is possible,
# such as the range of a device or the items of a form; then remove `agreed = false`, and give the
# file to all parties. Each of them checks its own rows by `veilring schema check`.

"""


class Draft(NamedTuple):
    """A drafted schema, and what was found about each column, in words."""

    source: str
    schema: RowSchema
    found: Mapping[str, str]

    @property
    def text(self) -> str:
        """The text of the schema file, with a comment for each column."""
        schema, label = self.schema, self.schema.label
        parts = [_HEADER.format(source=self.source, mark=_FROM_ROWS)]
        parts += [f"# {self.found[label]}\n"]
        parts += [tomli_w.dumps(schema.model_dump(mode="json", include=_LABEL))]
        for feature in schema.features:
            parts += [
                f"\n# {self.found[feature.name]}\n[[features]]\n",
                tomli_w.dumps(_keys(feature)),
            ]
        return "".join(parts)


def _keys(feature: FeatureTerms) -> dict[str, Any]:
    """Return the keys of a column as a person would write them, with both ends of its range."""
    keys: dict[str, Any] = {"name": feature.name, "kind": feature.meaning}
    keys |= feature.model_dump(exclude_defaults=True)
    if feature.is_numeric:
        keys |= {"low": feature.low, "high": feature.high}
    for key in {"low", "high", "missing"} & keys.keys():
        keys[key] = _plain(keys[key], feature)
    order = ("name", "kind", "unit", "low", "high", "categories", "missing", "agreed")
    return {key: keys[key] for key in order if key in keys}


def _plain(value: object, feature: FeatureTerms) -> object:
    """Return a bound or a filler as a file has it: a date, or a number without a needless point."""
    if isinstance(value, float):
        if feature.meaning == "date":
            return date_of(value)
        return int(value) if value.is_integer() else value
    return value


def draft_schema(cells: Cells, label: str | None = None) -> Draft:
    """Draft a schema from the rows of one party.

    Args:
        cells: The cells of its file.
        label: The header of the label; by default a column named like one, or the last one.

    Raises:
        InputError: If there are too few rows or columns, or the label is no class of rows.
    """
    if not cells.rows or len(cells) == 1:
        raise InputError.because(
            f"{cells.source} has {cells.rows} rows and {len(cells)} columns; a draft needs at least"
            " one row, a label and another column",
            field=cells.source,
        )
    chosen = _label_of(cells, label)
    labels, about_label = _labels(cells, chosen, is_chosen=label is not None)
    found, features = {chosen: about_label}, list[FeatureTerms]()
    names = _names_of(cells)
    for header in cells:
        if header != chosen:
            feature, found[names[header]] = _column(names[header], header, cells)
            features.append(feature)
    schema = RowSchema(label=chosen, features=tuple(features), **labels)
    schema.require_sound()
    return Draft(cells.source, schema, found)


def _names_of(cells: Cells) -> dict[str, str]:
    """Return the name of each header: without its unit, if that is unambiguous."""
    bare = {header: parts_of_header(header)[0] for header in cells}
    names = list(bare.values())
    return {each: name if names.count(name) == 1 else each for each, name in bare.items()}


def _label_of(cells: Cells, label: str | None) -> str:
    if label is None:
        named = [header for header in cells if header.lower() in LABELS]
        return named[0] if named else [*cells][-1]
    if label not in cells:
        raise InputError("label", label, f"a column of {cells.source}: {', '.join(cells)}")
    return label


def _labels(cells: Cells, label: str, *, is_chosen: bool) -> tuple[dict[str, Any], str]:
    """Return the classes or the target, with what was found about the label in words."""
    column, gaps = _without_gaps(label, cells)
    if not len(column):
        raise InputError.because(
            f"{cells.source}, column {label!r}, the label, is empty; choose another with --label",
            field="label",
        )
    without = f"; {gaps:,} of {cells.rows:,} rows have no label: remove them" if gaps else ""
    target = target_of(cells.source, column) if is_chosen else None
    if target is not None:
        about = f"{label!r}: the label, {target}; its range is {_FROM_ROWS}{without}"
        return {"target": target.model_copy(update={"agreed": False})}, about
    require_classes(cells.source, column, is_chosen=is_chosen)
    other = "; to predict it as a number, give a `target` instead" if column.are_numbers else ""
    _, classes = number_classes(cells.source, np.array(column.cells, np.str_))
    return (
        {"classes": classes},
        f"{label!r}: the label; its classes are {_FROM_ROWS}: add those missing{other}{without}",
    )


def _without_gaps(header: str, cells: Cells) -> tuple[TextColumn, int]:
    """Return a column without its missing cells, and their number."""
    texts = cells.texts[header]
    full = [row for row, cell in enumerate(texts) if not cells.is_gap(cell)]
    lines = None if cells.lines is None else [cells.lines[row] for row in full]
    column = TextColumn(header, [texts[row] for row in full], lines)
    return column, len(texts) - len(full)


def _column(name: str, header: str, cells: Cells) -> tuple[FeatureTerms, str]:
    """Return a drafted column, with what was found about it in words."""
    column, gaps = _without_gaps(header, cells)
    if column.different <= 1:
        return _no_feature(name, "ignored", "all cells are equal" if len(column) else "it is empty")
    full = replace(cells, texts={header: column.cells}, lines=column.lines, numbers={})
    numbers = parsed(column.cells, header, full)
    is_number = np.isfinite(numbers)
    if is_number.mean() >= NUMBERS_MIN:
        if is_number.all() and are_keys(name, numbers):
            return _no_feature(name, "identifier", "whole numbers that differ in every row")
        feature = _ranged(name, "number", numbers[is_number], gaps)
        unit = parts_of_header(header)[1]
        return feature.model_copy(update={"unit": unit}), _about(feature, gaps, column, is_number)
    days = np.array([day_of(cell, cells.reading.dates) for cell in column.cells])
    if np.isfinite(days).mean() >= NUMBERS_MIN:
        feature = _ranged(name, "date", days[np.isfinite(days)], gaps)
        return feature, _about(feature, gaps, column, np.isfinite(days))
    return _words(name, column, gaps)


def _words(name: str, column: TextColumn, gaps: int) -> tuple[FeatureTerms, str]:
    """Return a drafted column of words."""
    if column.different == len(column) >= IDS_ROWS_MIN:
        return _no_feature(name, "identifier", "words that differ in every row")
    if column.different > min(CATEGORIES_MAX, max(CLASSES_SURE, MANY_CATEGORIES * len(column))):
        return _no_feature(name, "ignored", f"{column.different:,} different words, like free text")
    categories = tuple(sorted(set(column.cells)))
    feature = FeatureTerms(
        name=name,
        kind="category",
        categories=(*categories, UNKNOWN) if gaps else categories,
        missing=CATEGORY if gaps else "refuse",
        agreed=False,
    )
    filled = f"; {gaps:,} empty cells become the category {UNKNOWN!r}" if gaps else ""
    return feature, f"{name!r}: its {len(categories)} categories are {_FROM_ROWS}{filled}"


def _no_feature(name: str, kind: Kind, why: str) -> tuple[FeatureTerms, str]:
    remark = (
        "not a feature, and kept beside the labels" if kind == "identifier" else "not a feature"
    )
    return FeatureTerms(name=name, kind=kind), f"{name!r}: {why}; {remark}"


def _ranged(name: str, kind: Kind, values: Floats, gaps: int) -> FeatureTerms:
    """Return a column whose range is rounded outward: to one digit of its width, or months."""
    low, high = float(values.min()), float(values.max())
    low, high = _whole_months(low, high) if kind == "date" else _one_digit(low, high)
    filler: float | str = "refuse"
    if gaps:
        middle = float(np.median(values))
        filler = str(date_of(floor(middle))) if kind == "date" else float(f"{middle:.2g}")
        if not isinstance(filler, str):
            filler = min(max(filler, low), high)
    return FeatureTerms(name=name, kind=kind, low=low, high=high, missing=filler, agreed=False)


def _whole_months(low: float, high: float) -> tuple[float, float]:
    """Return two days, the first moved to the start of its month, the last to the end of it."""
    low, high = floor(low), ceil(high)
    first, last = date_of(low), date_of(high)
    return low - first.day + 1, high - last.day + monthrange(last.year, last.month)[1]


def _one_digit(low: float, high: float) -> tuple[float, float]:
    """Return two ends of a range, rounded outward to one digit of its width."""
    step = 10.0 ** floor(log10(max(high - low, 1e-300)))
    digits = max(0, -floor(log10(step)))
    return round(floor(low / step) * step, digits), round(-floor(-high / step) * step, digits)


def _about(feature: FeatureTerms, gaps: int, column: TextColumn, is_read: Bools) -> str:
    """Describe a column of numbers or dates."""
    said = f"{feature.name!r}: its range is {_FROM_ROWS}, rounded outward"
    if gaps:
        said += f"; {gaps:,} empty cells become {feature.missing}, about the median, {_FROM_ROWS}"
    if not np.all(is_read):
        row, count = int(np.argmin(is_read)), int(np.sum(np.logical_not(is_read)))
        cell = column.cells[row][:_SHOWN]
        said += (
            f"; {count:,} cells are no {feature.meaning}, such as {cell!r} in"
            f" {column.place(row)}: correct them, or list them as `missing` in the reading"
        )
    return said
