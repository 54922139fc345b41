"""Data frames of pandas, polars and Arrow, and Parquet files, as cells like those of a CSV file."""

from collections.abc import Iterable
from datetime import date, datetime, time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

from veilring.data.cells import Cells, Reading
from veilring.errors import InputError
from veilring.extras import require_extra

if TYPE_CHECKING:
    import narwhals as nw

    from veilring.data.table import Table

PARQUET: Final = ".parquet"
_LIBRARIES: Final = ("polars", "pandas", "pyarrow")


@runtime_checkable
class Frame(Protocol):
    """A data frame of pandas, polars or Arrow: columns with names."""

    @property
    def columns(self) -> Iterable[Any]:
        """The names of the columns; the columns themselves in Arrow, which has `column_names`."""

    def __getitem__(self, name: str, /) -> Any:  # noqa: ANN401  (a column is of the library's type)
        """Return the column of a name."""


def cells_of_frame(frame: Frame, source: str = "rows", reading: Reading | None = None) -> Cells:
    """Return the cells of a data frame as text: a missing value is empty, and 1.0 is 1.

    Args:
        frame: A frame of pandas, polars or Arrow in memory.
        source: The name of the frame for errors, which count its rows from 1.
        reading: The particulars of its cells.
    """
    import narwhals as nw  # it takes time that a party without frames is spared

    try:
        known: nw.DataFrame[Any] = nw.from_native(frame, eager_only=True)
        columns = {str(column.name): _texts(column) for column in known.iter_columns()}
    except (TypeError, ValueError) as error:  # of narwhals, whose duplicates are a ValueError
        reason = str(error).partition("\n")[0]
        raise InputError.because(
            f"{source} cannot be read as a data frame of pandas, polars or Arrow in memory, with a"
            f" different name for each column ({reason})",
            field=source,
        ) from error
    return Cells(source, columns, reading=Reading() if reading is None else reading)


def cells_of_table(table: "Table") -> dict[str, list[object]]:
    """Return the cells of each column except the label, by its header, as in the table's source."""
    by_first = {each.first: each for each in table.features.categories}
    declared = {each.name: each for each in table.features.declared}
    found, position = dict[str, list[object]](), 0
    while position < len(table.features):
        if position in by_first:
            column = by_first[position]
            held = table.X[:, column.features].argmax(axis=1)
            found[column.column] = [column.values[value] for value in held.tolist()]
            position = column.features.stop
        else:
            name, values = table.features.names[position], table.X[:, position].tolist()
            cell_of = declared[name].cell_of if name in declared else float
            found[name] = list(map(cell_of, values))
            position += 1
    return found


def frame_of_table(table: "Table", library: str) -> Any:  # noqa: ANN401  (of any library)
    """Return a table as a data frame: its identifiers, its columns, and the label."""
    import narwhals as nw

    labels = list(table.features.named(table.y))
    ids = {name: values.tolist() for name, values in table.ids.items()}
    cells = {**ids, **cells_of_table(table), table.label_name or "label": labels}
    columns = {name: _of_one_type(column) for name, column in cells.items()}
    if library not in _LIBRARIES or find_spec(library) is None:
        allowed = f"{', '.join(_LIBRARIES)}, if it is installed"
        raise InputError("library", library, allowed)
    return nw.from_dict(columns, backend=cast("Any", library)).to_native()


def _of_one_type(cells: list[object]) -> list[object]:
    """Return cells with dates as moments, if any is a moment."""
    if not any(isinstance(cell, datetime) for cell in cells):
        return cells
    return [
        cell if isinstance(cell, datetime) else datetime.combine(cast("date", cell), time())
        for cell in cells
    ]


def has_words(frame: Frame) -> bool:
    """Whether a data frame has a column that is neither of numbers nor of truth values."""
    import narwhals as nw

    try:
        known: nw.DataFrame[Any] = nw.from_native(frame, eager_only=True)
    except (TypeError, ValueError):  # of no known library
        return False
    types = known.schema.values()
    return not all(each.is_numeric() or each == nw.Boolean for each in types)


def read_parquet(path: Path, reading: Reading | None = None) -> Cells:
    """Read a Parquet file as cells; it needs the extra `parquet`."""
    require_extra("polars")
    import polars as pl

    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError("source", path, f"an existing Parquet file ({reason})") from error
    return cells_of_frame(frame, path.name, reading)


def _texts(column: "nw.Series[Any]") -> list[str]:
    pairs = zip(column.to_list(), column.is_null().to_list(), strict=True)
    return ["" if is_missing else _text(cell) for cell, is_missing in pairs]


def _text(cell: object) -> str:
    text = str(cell).strip()
    return text.removesuffix(".0") if isinstance(cell, float) else text
