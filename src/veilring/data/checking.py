"""Checking one party's file by the public schema, before anything is sent.

What is found depends on private rows, and is for the party alone.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from veilring.data.cells import Cells, place_of
from veilring.data.columns import CATEGORY, FeatureTerms, features_of, numbers_of
from veilring.data.schema import (
    OUTSIDE_MAX,
    RowSchema,
    fits_of,
    header_of,
    label_terms,
    parts_of_header,
    read_labels,
    require_known,
)
from veilring.errors import InputError

# Factors of the metric system that a wrong unit may differ by.
_FACTORS: Final = (10.0, 0.1, 100.0, 0.01, 1000.0, 0.001)
_LISTED_MAX: Final = 20


class Finding(NamedTuple):
    """One difference between a file and the schema.

    Attributes:
        column: The column concerned; empty for the file.
        text: The difference with its place, and the remedy if it is wrong.
        is_wrong: Whether the file cannot be used until it is mended; otherwise it is read rightly.
    """

    column: str
    text: str
    is_wrong: bool


def check_file(schema: RowSchema, cells: Cells) -> list[Finding]:
    """Return all differences between a party's file and the schema, those that are wrong first."""
    label = schema.label or [*cells][-1]
    columns = (*schema.features, label_terms(label, schema.classes, schema.target))
    found, headers = list[Finding](), dict[str, str]()
    try:
        require_known(cells, [column.name for column in columns])
    except InputError as error:
        found.append(Finding("", error.sentence, is_wrong=True))
    for column in columns:
        try:
            headers[header_of(column, cells)] = column.name
        except InputError as error:
            found.append(Finding(column.name, error.sentence, is_wrong=True))
    headers.pop("", None)
    if not cells.rows:
        text = "there are no rows; a party may have none if others have some"
        found.append(Finding("", text, is_wrong=False))
    found += _about_file(schema, cells, headers)
    read = cells.renamed(headers)
    present = [column for column in columns if column.name in read]
    for column in present:
        found += _about_column(column, read, schema, is_label=column.name == label)
    return sorted(found, key=lambda each: not each.is_wrong)


def _about_file(schema: RowSchema, cells: Cells, headers: dict[str, str]) -> Iterator[Finding]:
    for remark in cells.remarks:
        yield Finding("", f"it is {remark}, and read so", is_wrong=False)
    names = [feature.name for feature in schema.features]
    here = [headers[header] for header in cells if headers.get(header) in names]
    there = [name for name in names if name in here]
    for name, other in zip(here, there, strict=True):
        if name != other:
            text = f"the order of columns differs, from {name!r} on; they are found by name"
            yield Finding("", text, is_wrong=False)
            break
    for header, name in headers.items():
        if header != name:
            yield Finding(name, f"its header is {header!r} here", is_wrong=False)
    known = {*headers, *names}  # also a column that is wrong, by its name without the unit
    others = [each for each in cells if not {each, parts_of_header(each)[0]} & known]
    if others:
        more = f" and {len(others) - _LISTED_MAX} more" if len(others) > _LISTED_MAX else ""
        listed = ", ".join(map(repr, others[:_LISTED_MAX])) + more
        yield Finding("", f"not in the schema, and ignored: {listed}", is_wrong=False)


def _about_column(
    column: FeatureTerms, cells: Cells, schema: RowSchema, *, is_label: bool
) -> Iterator[Finding]:
    """Yield the findings about one column's cells."""
    name = column.name
    try:
        if is_label and schema.target is None:
            yield from _absent_classes(schema, cells, name)
            return
        features_of(column, cells)
    except InputError as error:
        yield Finding(name, error.sentence, is_wrong=True)
        return
    if not column.agreed:
        yield Finding(name, "its range or categories are not yet agreed", is_wrong=False)
    texts = cells.texts[name]
    gaps = sum(map(cells.is_gap, texts)) if column.filler is not None else 0
    if gaps:
        filler = column.filler if column.missing == CATEGORY else column.missing
        text = f"{gaps:,} of {len(texts):,} cells are empty, and count as {filler!r}"
        yield Finding(name, text, is_wrong=False)
    if column.meaning == "number" and any("," in cell for cell in texts):
        yield Finding(name, "its numbers have commas, and are read so", is_wrong=False)
    for fit in fits_of((column,), cells):
        is_wrong = fit.is_refused(OUTSIDE_MAX)
        hint = _hint(column, cells) if is_wrong else ""
        example = _example(column, cells) if fit.outside else ""
        yield Finding(name, f"{fit.found}: {column.range_text}{example}{hint}", is_wrong)


def _absent_classes(schema: RowSchema, cells: Cells, label: str) -> Iterator[Finding]:
    counts = np.bincount(
        read_labels(cells, schema.classes, label), minlength=len(schema.classes)
    ).tolist()
    for name, count in zip(schema.classes, counts, strict=True):
        if not count:
            yield Finding(label, f"no row has the class {name!r}", is_wrong=False)


def _example(column: FeatureTerms, cells: Cells) -> str:
    """Show the most frequent value outside of the range, which may be a code for a missing one."""
    numbers = numbers_of(column, cells)
    outside = np.flatnonzero((numbers < column.low) | (numbers > column.high))
    values, counts = np.unique(numbers[outside], return_counts=True)
    row = int(outside[numbers[outside] == values[counts.argmax()]][0])
    shown = f"; {place_of(row, cells.lines)} has {cells.texts[column.name][row]}"
    if 2 * len(outside) > len(numbers):  # a matter of units
        return shown
    return (
        f"{shown}; if that stands for a missing value, write it into `missing` of the reading,"
        " otherwise it is clipped"
    )


def _hint(column: FeatureTerms, cells: Cells) -> str:
    """Name the unit as a cause, if the values fit the range after a change of their size."""
    numbers = numbers_of(column, cells)
    for factor in _FACTORS:
        scaled = numbers * factor
        if np.mean((scaled >= column.low) & (scaled <= column.high)) >= 1 - OUTSIDE_MAX:
            return (
                "; the unit may differ: if so, write the number by which this file's numbers are"
                f" multiplied to be in {column.unit or 'the unit of the schema'}, as"
                f" factors.{column.name} in the reading"
            )
    return "; correct the unit or the column, or agree on a wider range"
