"""The files of a sweep: results, timings beside them, and the journal until both are written."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veilring.errors import InputError
from veilring.scenarios.sweep.cells import Cell, Outcome, Row
from veilring.scenarios.sweep.grid import Value

if TYPE_CHECKING:
    import polars as pl

_SUFFIX: Final = ".parquet"


class Files:
    """Where a sweep keeps what.

    Attributes:
        results: One row a cell; the same bytes wherever and however the sweep was run.
        timing: Wall seconds of each cell.
        journal: What is finished, while the sweep is not.
    """

    def __init__(self, out: Path) -> None:
        self.results = out
        self.timing = out.with_suffix(f".timing{_SUFFIX}")
        self.journal = out.with_name(f"{out.name}.journal")


def open_files(out: Path) -> Files:
    """Return the files of a sweep, their folder made if need be, before anything is run.

    Raises:
        InputError: If that cannot be, or the results are there already.
    """
    allowed = f"a path that ends in {_SUFFIX}, where no results are yet"
    if out.suffix != _SUFFIX:
        raise InputError("out", out, allowed)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("out", out, f"{allowed} ({error})") from error
    files = Files(out)
    # With a journal beside them they are those of a sweep that died before it could remove it.
    if out.exists() and not files.journal.exists():
        raise InputError("out", f"{out}, which exists", allowed)
    return files


def write_results(files: Files, cells: Sequence[Cell], outcomes: Mapping[str, Outcome]) -> None:
    """Write results and timings in the cells' order, each file whole or not at all.

    Args:
        files: Where to.
        cells: All of them.
        outcomes: By the cell's name.

    Raises:
        OSError: If the disk does not take them.
    """
    each = [(cell, outcomes[cell.name]) for cell in cells]
    timing = [{**cell.point, "trial": cell.trial, **outcome.timing} for cell, outcome in each]
    _write(files.timing, timing)
    _write(files.results, [{**cell.key, **outcome.results} for cell, outcome in each])


def _write(path: Path, rows: Sequence[Row]) -> None:
    import polars as pl  # noqa: PLC0415  (0.3 s, and workers write no table)

    names = dict.fromkeys(name for row in rows for name in row)
    frame = pl.DataFrame([_column(name, [row.get(name) for row in rows]) for name in names])
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        # All that decides the bytes is said, so that no default of another day changes them.
        frame.write_parquet(file, compression="zstd", compression_level=3, statistics=True)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _column(name: str, values: Sequence[Value | None]) -> "pl.Series":
    import polars as pl  # noqa: PLC0415  (as above)

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pl.Series(name, values, dtype=pl.Boolean)
    if kinds == {int}:
        return pl.Series(name, values, dtype=pl.Int64)
    if kinds <= {int, float}:
        numbers = (None if value is None else float(value) for value in values)
        return pl.Series(name, list(numbers), dtype=pl.Float64)
    texts = (None if value is None else _text(value) for value in values)
    return pl.Series(name, list(texts), dtype=pl.String)


def _text(value: Value) -> str:
    """Return a value of a column that holds strings too, as a scenario would write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
