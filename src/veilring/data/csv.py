"""Data sets from CSV files."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilring.data.columns import encode
from veilring.data.slips import (
    cell_at,
    numbers_in,
    require_classes,
    require_full,
    require_header,
    require_one_kind,
)
from veilring.data.table import Table
from veilring.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ("read_cells", "read_csv")


def read_csv(path: Path) -> Table:
    """Read a CSV file with a header, in UTF-8, whose last column is the label.

    A column is numbers if each of its cells is a number; else it is categories, and one-hot
    encoded. `?` and `NA` are categories like any other: nothing stands for a missing value, and
    an empty cell is refused. So is a column that is numbers but for a few cells, and a label that
    is no class: see `veilring.data.slips`. Spaces around a cell do not count.

    Raises:
        InputError: If the file cannot be read, is not such a table, or has an empty cell; it names
            the file, and the column and the line (that of the header is 1) where there is one.
    """
    frame = _read(path)
    *features, label = frame.columns
    columns = {name: _typed(path.name, frame[name]) for name in features}
    require_classes(path.name, frame[label])
    table = encode(path.name, columns, frame[label].to_numpy().astype(np.str_))
    return replace(table, label_name=label)


def read_cells(path: Path) -> dict[str, NDArray[np.str_]]:
    """Read a CSV file with a header, in UTF-8, as columns of text, by their names.

    Raises:
        InputError: As `read_csv`.
    """
    frame = _read(path)
    return {column.name: column.to_numpy().astype(np.str_) for column in frame}


def _read(path: Path) -> "pl.DataFrame":
    import polars as pl  # noqa: PLC0415  (0.3 s, and the built-in sets do not need it)

    if not path.is_file():
        raise InputError("source", path, "the path of a CSV file that exists")
    try:
        frame = pl.read_csv(path, infer_schema=False).rename(str.strip)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).partition("\n")[0]
        allowed = f"a CSV file in UTF-8 with a header and as many cells in each row ({reason})"
        raise InputError("source", path, allowed) from None
    frame = frame.select(pl.all().fill_null("").str.strip_chars())
    require_full(path.name, frame)
    require_header(path.name, frame)
    return frame


def _typed(file: str, column: "pl.Series") -> NDArray[np.float64] | NDArray[np.str_]:
    require_one_kind(file, column)
    numbers = numbers_in(column)
    if numbers.has_nulls():
        return column.to_numpy().astype(np.str_)
    infinite = (~numbers.is_finite()).arg_true()
    if len(infinite):
        where = cell_at(file, column.name, infinite[0])
        raise InputError(where, "not finite", "a finite number")
    return numbers.to_numpy()
