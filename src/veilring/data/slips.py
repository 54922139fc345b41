"""Slips in CSV files that would pass for data: each is refused, and told with its place."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from veilring.errors import InputError

if TYPE_CHECKING:
    import polars as pl

# A column of categories rarely has so many numbers among them: it is a column of numbers in which
# a word stands for what is not known, and as categories each number would become a feature.
NUMBERS_MIN: Final = 0.9
# A file without a label ends in a column that measures or names something: its values are many, and
# each of them is that of few rows.
CLASSES_SURE: Final = 20
CLASSES_MAX: Final = 100
ROWS_A_CLASS: Final = 10
# Words that differ in each of so many rows are ids. In fewer rows categories may differ by chance.
IDS_ROWS_MIN: Final = 11

_SHOWN: Final = 40  # enough of a cell to find it in its file


def cell_at(file: str, column: str, row: int) -> str:
    """Say where a cell is.

    Args:
        file: The file's name.
        column: The column's header.
        row: From 0, below the header, which is line 1. Line breaks within cells do not count.
    """
    return f"{file}, column {column!r}, line {row + 2}"


def require_header(file: str, header: Sequence[str], frame: "pl.DataFrame") -> None:
    """Refuse a first line of data: one that has a number over each column of numbers.

    Numbers that count columns from 0 or 1 are names.

    Raises:
        InputError: If it is one.
    """
    names = [name for name, column in zip(header, frame, strict=True) if _are_numbers(column)]
    if not names or not all(map(_is_number, names)):
        return
    counted = [[str(number + first) for number in range(len(names))] for first in (0, 1)]
    if len(names) == 1 or names not in counted:
        found = f"of numbers ({', '.join(names)[:_SHOWN]})"
        raise InputError(f"{file}, line 1", found, "names: the first line has to name the columns")


def require_names(file: str, header: Sequence[str]) -> None:
    """Refuse a header with the same name twice, or with a column that has no name.

    Raises:
        InputError: If there is one; it names the columns by their positions, from 1.
    """
    where, allowed = f"{file}, line 1", "a header with a different name for each column"
    first: dict[str, int] = {}
    for position, name in enumerate(header, start=1):
        if not name:
            unnamed = f"{allowed}; leave out a column that numbers the rows"
            raise InputError(where, f"without a name for column {position}", unnamed)
        if name in first:
            found = f"a header with {name[:_SHOWN]!r} in columns {first[name]} and {position}"
            raise InputError(where, found, allowed)
        first[name] = position


def require_points(file: str, column: "pl.Series") -> None:
    """Refuse numbers with decimal commas, which would be categories.

    Raises:
        InputError: If at least `NUMBERS_MIN` of the cells are such numbers or other numbers.
    """
    written = column.str.replace(r"^([+-]?\d+),(\d+)$", "$1.$2")
    if _are_numbers(written) and not _are_numbers(column):
        allowed = "numbers with a decimal point, such as 1.5"
        raise InputError(f"{file}, column {column.name!r}", "of numbers with commas", allowed)


def require_no_ids(file: str, column: "pl.Series") -> None:
    """Refuse a column of words that differ in each row: each would become a feature.

    Raises:
        InputError: If there are at least `IDS_ROWS_MIN` rows, and as many different words.
    """
    if len(column) >= IDS_ROWS_MIN and column.n_unique() == len(column):
        found = f"of a different word in each of {len(column)} rows, as ids and names are"
        allowed = "numbers or categories that rows share; leave the column out"
        raise InputError(f"{file}, column {column.name!r}", found, allowed)


def require_full(file: str, frame: "pl.DataFrame") -> None:
    """Refuse empty cells.

    Raises:
        InputError: If there is one; it says what may stand there.
    """
    for column in frame:
        empty = (column == "").arg_true()
        if len(empty):
            is_number = _are_numbers(column.filter(column != ""))
            category = "a value; write '?' for a category that is not known"
            allowed = "a number; drop the row or fill it in" if is_number else category
            raise InputError(cell_at(file, column.name, empty[0]), "empty", allowed)


def require_one_kind(file: str, column: "pl.Series") -> None:
    """Refuse a column in which at least `NUMBERS_MIN` of the cells are numbers, but not all.

    Raises:
        InputError: If it is one; it shows the first other cell.
    """
    numbers = numbers_in(column)
    count, others = numbers.count(), numbers.is_null().arg_true()
    if len(others) and _are_numbers(column):
        line, cell = others[0] + 2, column[others[0]][:_SHOWN]
        found = f"mixed: {count} of {len(column)} cells are numbers; line {line} is {cell!r}"
        allowed = (
            "numbers alone (drop the row or fill it in), or categories of which fewer than "
            f"{NUMBERS_MIN:.0%} are numbers"
        )
        raise InputError(f"{file}, column {column.name!r}", found, allowed)


def require_classes(file: str, column: "pl.Series", *, is_chosen: bool = False) -> None:
    """Refuse a label that measures or names something.

    Up to `CLASSES_SURE` classes are always as many as there may be. Numbers may be so many that a
    class has `ROWS_A_CLASS` rows on average, up to `CLASSES_MAX`; words, half as many as rows.

    Args:
        file: The name of the file.
        column: The label.
        is_chosen: Whether it was asked for; if not, it is the last column.

    Raises:
        InputError: If there are more, or all cells are numbers and some are not whole.
    """
    numbers, where, rows = numbers_in(column), f"{file}, column {column.name!r}", len(column)
    are_numbers = not numbers.has_nulls()
    most = max(CLASSES_SURE, rows // 2)
    if are_numbers:
        most = max(CLASSES_SURE, min(CLASSES_MAX, rows // ROWS_A_CLASS))
    allowed = f"at most {most} classes, which are whole numbers or words, for {rows} rows"
    if not is_chosen:
        allowed += " (the last column is taken as the label; run, compare and deploy take --label)"
    if are_numbers and not (numbers % 1 == 0).all():
        raise InputError(where, "of numbers that are not whole", allowed)
    if (different := column.n_unique()) > most:
        kind = "numbers" if are_numbers else "words"
        raise InputError(where, f"of {different} different {kind}", allowed)


def numbers_in(column: "pl.Series") -> "pl.Series":
    """Return a column of texts as numbers, with nothing where there is none."""
    import polars as pl  # noqa: PLC0415  (0.3 s, and the built-in sets do not need it)

    return column.cast(pl.Float64, strict=False)


def _are_numbers(column: "pl.Series") -> bool:
    """Say whether at least `NUMBERS_MIN` of the cells are numbers."""
    return len(column) > 0 and numbers_in(column).count() >= NUMBERS_MIN * len(column)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
