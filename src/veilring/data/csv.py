"""Data sets from CSV files."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from veilring.data.columns import encode
from veilring.data.csv_notes import notes_of
from veilring.data.csv_text import decode, require_separator
from veilring.data.slips import (
    cell_at,
    numbers_in,
    require_classes,
    require_full,
    require_header,
    require_names,
    require_no_ids,
    require_one_kind,
    require_points,
)
from veilring.data.table import Table
from veilring.errors import InputError

if TYPE_CHECKING:
    import polars as pl

Separator = Literal[",", ";", "|", "tab"]
"""What stands between the cells of a line."""
SEPARATORS_ALLOWED: Final = "a comma, a semicolon, | or the word tab"


def read_csv(path: Path, *, label: str | None = None, separator: Separator = ",") -> Table:
    """Read a CSV file with a header, in UTF-8.

    A column is numbers if each of its cells is a number; else it is categories, and one-hot
    encoded. `?` and `NA` are categories like any other: nothing stands for a missing value, and
    an empty cell is refused. So is a column that is numbers but for a few cells, a column of words
    that differ in each row, and a label that is no class: see `veilring.data.slips`. Spaces around
    a cell do not count, nor do empty lines at the end. What may be a mistake and may be meant is in
    the table's `notes`: see `veilring.data.csv_notes`.

    Args:
        path: The file; a pipe is read once.
        label: The column with the class of each row; the last one if left out.
        separator: What stands between cells.

    Raises:
        InputError: If the file cannot be read, is not such a table, or has an empty cell; it names
            the file, and the column and the line (that of the header is 1) where there is one.
    """
    frame = _read(path, separator, offered=True)
    names = frame.columns
    chosen = names[-1] if label is None else label
    if chosen not in names:
        raise InputError("label", chosen, f"a column of {path.name}: {', '.join(names)}")
    features = [name for name in names if name != chosen]
    columns = {name: _typed(path.name, frame[name]) for name in features}
    require_classes(path.name, frame[chosen], is_chosen=label is not None)
    table = encode(path.name, columns, frame[chosen].to_numpy().astype(np.str_))
    notes = notes_of(frame, chosen, is_chosen=label is not None)
    return replace(table, label_name=chosen, notes=notes)


def read_cells(path: Path) -> dict[str, NDArray[np.str_]]:
    """Read a CSV file with a header, in UTF-8, as columns of text, by their names.

    Args:
        path: The file; a pipe is read once.

    Raises:
        InputError: As `read_csv`.
    """
    frame = _read(path, ",", offered=False)
    return {column.name: column.to_numpy().astype(np.str_) for column in frame}


def _read(path: Path, separator: Separator, *, offered: bool) -> "pl.DataFrame":
    import polars as pl  # noqa: PLC0415  (0.3 s, and the built-in sets do not need it)

    text = _text(path)
    mark = "\t" if separator == "tab" else separator
    names = _names(path.name, text, mark)
    require_separator(path.name, names, mark, offered=offered)
    try:
        frame = pl.read_csv(text.encode(), infer_schema=False, separator=mark)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).partition("\n")[0]
        allowed = f"a CSV file in UTF-8 with a header and as many cells in each row ({reason})"
        raise InputError("source", path, allowed) from None
    if len(names) != frame.width:
        found = f"no header ({len(names)} names over {frame.width} columns)"
        raise InputError(f"{path.name}, line 1", found, "a name for each column; check its quotes")
    frame = frame.select(pl.all().fill_null("").str.strip_chars())
    require_header(path.name, names, frame)
    require_names(path.name, names)
    frame.columns = list(names)
    require_full(path.name, frame)
    return frame


def _text(path: Path) -> str:
    """Return the text of a file, without empty lines at its end."""
    if not path.exists() or path.is_dir():
        raise InputError("source", path, "the path of a CSV file that exists")
    try:
        content = path.read_bytes()
    except OSError as error:
        allowed = f"a file that can be read ({error.strerror})"
        raise InputError("source", path, allowed) from None
    return decode(path.name, content).rstrip(" \r\n")


def _names(file: str, text: str, separator: str) -> Sequence[str]:
    """Return the cells of the header."""
    try:
        header = next(csv.reader(StringIO(text), delimiter=separator), [])
    except csv.Error as error:
        raise InputError(f"{file}, line 1", f"no header ({error})", "names of columns") from None
    return [name.strip() for name in header]


def _typed(file: str, column: "pl.Series") -> NDArray[np.float64] | NDArray[np.str_]:
    require_one_kind(file, column)
    numbers = numbers_in(column)
    if numbers.has_nulls():
        require_points(file, column)
        require_no_ids(file, column)
        return column.to_numpy().astype(np.str_)
    infinite = (~numbers.is_finite()).arg_true()
    if len(infinite):
        where = cell_at(file, column.name, infinite[0])
        raise InputError(where, "not finite", "a finite number")
    return numbers.to_numpy()
