"""Tables from CSV files, read with the standard library: columns of numbers and of categories."""

import codecs
import csv
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from veilring.data.csv_checks import (
    TextColumn,
    cell_at,
    notes_of,
    require_classes,
    require_features,
    require_full,
    require_header,
    require_names,
    require_no_ids,
    require_one_kind,
    require_points,
)
from veilring.data.table import Table, encode_columns
from veilring.errors import InputError

Separator = Literal[",", ";", "|", "tab"]
"""The separator between the cells of a line."""
SEPARATORS_ALLOWED: Final = "a comma, a semicolon, | or the word tab"
# The longer marks come first: that of UTF-32 starts with that of UTF-16.
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_SEPARATORS: Final = {
    ",": ("commas", ","),
    ";": ("semicolons", "';'"),
    "\t": ("tabs", "tab"),
    "|": ("vertical bars", "'|'"),
}
_HEADER: Final = "the first line must name the columns; check its quotes"
_ROWS: Final = 1 << 12  # at a time: each row is a list, and each column one more
_SAVE: Final = "save it in UTF-8"


def read_csv(
    path: Path, *, label: str | None = None, separator: Separator = ",", needs_label: bool = True
) -> Table:
    """Read a CSV file with a header, in UTF-8.

    A column contains numbers if each of its cells is a number; otherwise categories, which are
    one-hot encoded. `?` and `NA` are ordinary categories: there is no symbol for a missing value,
    and an empty cell is refused. Also refused are a column with numbers in all but a few cells, a
    column of words that differ in each row, and a label that is not a class. Spaces around a cell
    and empty lines at the end are ignored. Possible mistakes are recorded in the table's `notes`.
    See `veilring.data.csv_checks`.

    Args:
        path: The file; a pipe is read once.
        label: The column with the class of each row; by default the last one.
        separator: The separator between cells.
        needs_label: Whether to refuse a file of one column. If not, this column is a feature, and
            all rows have one class with an empty name.

    Raises:
        InputError: If the file cannot be read, is not such a table, or has an empty cell; it names
            the file, and the column and the line (the header is line 1) if there is one.
    """
    columns = _read(path, separator, offered=True)
    if label is None and not needs_label and len(columns) == 1:
        return _without_label(path.name, columns[0])
    by_name = {column.name: column for column in columns}
    chosen = columns[-1].name if label is None else label
    if chosen not in by_name:
        raise InputError("label", chosen, f"a column of {path.name}: {', '.join(by_name)}")
    labels = by_name[chosen]
    require_features(path.name, columns)
    features = {
        column.name: _typed(path.name, column) for column in columns if column is not labels
    }
    require_classes(path.name, labels, is_chosen=label is not None)
    table = encode_columns(path.name, features, np.array(labels.cells, np.str_))
    notes = notes_of(columns, labels, is_chosen=label is not None)
    return replace(table, label_name=chosen, notes=notes)


def _without_label(file: str, column: TextColumn) -> Table:
    features = {column.name: _typed(file, column)}
    table = encode_columns(file, features, np.full(len(column), ""))
    return replace(table, label_name="", notes=notes_of([column]))


def read_cells(path: Path) -> dict[str, NDArray[np.str_]]:
    """Read a CSV file with a header, in UTF-8, as columns of text, by their names.

    Args:
        path: The file; a pipe is read once.

    Raises:
        InputError: As in `read_csv`.
    """
    return {
        column.name: np.array(column.cells, np.str_) for column in _read(path, ",", offered=False)
    }


def _read(path: Path, separator: Separator, *, offered: bool) -> list[TextColumn]:
    text = _text(path)
    mark = "\t" if separator == "tab" else separator
    try:
        header = next(csv.reader(StringIO(text, newline=""), delimiter=mark), [])
    except csv.Error as error:
        raise InputError.because(
            f"{path.name}, line 1: there is no header ({error}); {_HEADER}",
            field=f"{path.name}, line 1",
        ) from None
    names = [name.strip() for name in header]
    _require_separator(path.name, names, mark, offered=offered)
    if not names:
        raise InputError.because(
            f"{path.name}, line 1: there is no header; {_HEADER}", field=f"{path.name}, line 1"
        )
    columns = [TextColumn(*each) for each in zip(names, _cells(path, text, mark), strict=True)]
    require_header(path.name, columns)
    require_names(path.name, names)
    require_full(path.name, columns)
    return columns


def _text(path: Path) -> str:
    """Return the text of a file, without empty lines at its end."""
    if not path.exists() or path.is_dir():
        raise InputError("source", path, "the path of an existing CSV file")
    try:
        content = path.read_bytes()
    except OSError as error:
        allowed = f"a file that can be read ({error.strerror})"
        raise InputError("source", path, allowed) from None
    return _decode(path.name, content).rstrip(" \r\n")


def _decode(file: str, content: bytes) -> str:
    """Return the text of a file in UTF-8, without a byte order mark."""
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), None)
    if encoding is None and b"\0" in content:
        encoding = "UTF-16, or is not text"  # UTF-8 has a zero byte only for the character 0
    if encoding is not None:
        raise InputError.because(f"{file} is in {encoding}; {_SAVE}", field=file)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        where = f"{file}, line {line}"
        raise InputError.because(
            f"{where} is not in UTF-8, but perhaps in Latin-1 "
            f"(byte 0x{content[error.start]:02x}); {_SAVE}",
            field=where,
        ) from None


def _require_separator(file: str, names: Sequence[str], separator: str, *, offered: bool) -> None:
    """Refuse a header of one cell that contains another separator, and name both separators."""
    if len(names) != 1:
        return
    for other, (word, option) in _SEPARATORS.items():
        if other != separator and other in names[0]:
            chosen = _SEPARATORS[separator][0]
            choose = f"; use --separator {option} with run, compare or deploy" if offered else ""
            raise InputError.because(
                f"{file}, line 1: the cells are separated by {word}, not by {chosen}{choose}",
                field=f"{file}, line 1",
            )


def _cells(path: Path, text: str, mark: str) -> list[list[str]]:
    """Return the cells of each column, without blanks around them; missing ones are empty."""
    # A text may exceed the limit, which is meant for files that are not CSV files.
    limit = csv.field_size_limit(max(len(text), 1))
    try:
        reader = csv.reader(StringIO(text, newline=""), delimiter=mark, strict=True)
        width = len(next(reader))
        columns: list[list[str]] = [[] for _ in range(width)]
        while rows := list(islice(reader, _ROWS)):
            for row in rows:
                if len(row) != width:
                    _fill(path, row, width, 2 + len(columns[0]) + rows.index(row))
            for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
                column.extend(map(str.strip, cells))
    except csv.Error as error:
        raise _ragged(path, str(error)) from None
    finally:
        csv.field_size_limit(limit)
    return columns


def _fill(path: Path, row: list[str], width: int, line: int) -> None:
    if len(row) > width:
        raise _ragged(path, f"line {line} has {len(row)} of {width} cells")
    row.extend([""] * (width - len(row)))


def _ragged(path: Path, reason: str) -> InputError:
    return InputError.because(
        f"{path}: each row must have as many cells as the header: {reason}", field="source"
    )


def _typed(file: str, column: TextColumn) -> NDArray[np.float64] | NDArray[np.str_]:
    require_one_kind(file, column)
    if not column.is_number.all():
        require_points(file, column)
        require_no_ids(file, column)
        return np.array(column.cells, np.str_)
    finite = np.isfinite(column.numbers)
    if not finite.all():
        where = cell_at(file, column.name, int(finite.argmin()))
        raise InputError.because(f"{where}: the number is not finite", field=where)
    return column.numbers
