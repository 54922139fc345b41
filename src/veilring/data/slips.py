"""Slips in CSV files that would pass for data: each is refused, and told with its place."""

import re
from typing import TYPE_CHECKING, Final

from veilring.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = (
    "CLASSES_MAX",
    "CLASSES_SURE",
    "NUMBERS_MIN",
    "ROWS_A_CLASS",
    "cell_at",
    "numbers_in",
    "require_classes",
    "require_full",
    "require_header",
    "require_one_kind",
)

# A column of categories rarely has so many numbers among them: it is a column of numbers in which
# a word stands for what is not known, and as categories each number would become a feature.
NUMBERS_MIN: Final = 0.9
# A file without a label ends in a column that measures or names something: its values are many, and
# each of them is that of few rows.
CLASSES_SURE: Final = 20
CLASSES_MAX: Final = 100
ROWS_A_CLASS: Final = 10

_COPY = re.compile(r"_duplicated_\d+$")  # what Polars adds to a name that came before
_SHOWN: Final = 40  # enough of a cell to find it in its file


def cell_at(file: str, column: str, row: int) -> str:
    """Say where a cell is.

    Args:
        file: The file's name.
        column: The column's header.
        row: From 0, below the header, which is line 1. Line breaks within cells do not count.
    """
    return f"{file}, column {column!r}, line {row + 2}"


def require_header(file: str, frame: "pl.DataFrame") -> None:
    """Refuse a first line of data: one that has a number over each column of numbers.

    Numbers that count columns from 0 or 1 are names.

    Raises:
        InputError: If it is one.
    """
    names = [_COPY.sub("", column.name) for column in frame if _are_numbers(column)]
    if not names or not all(map(_is_number, names)):
        return
    counted = [[str(number + first) for number in range(len(names))] for first in (0, 1)]
    if len(names) == 1 or names not in counted:
        found = f"of numbers ({', '.join(names)[:_SHOWN]})"
        raise InputError(f"{file}, line 1", found, "names: the first line has to name the columns")


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


def require_classes(file: str, column: "pl.Series") -> None:
    """Refuse a label that measures or names something.

    Up to `CLASSES_SURE` classes are always as many as there may be. Numbers may be so many that a
    class has `ROWS_A_CLASS` rows on average, up to `CLASSES_MAX`; words, half as many as rows.

    Raises:
        InputError: If there are more, or all cells are numbers and some are not whole.
    """
    numbers, where, rows = numbers_in(column), f"{file}, column {column.name!r}", len(column)
    are_numbers = not numbers.has_nulls()
    most = max(CLASSES_SURE, rows // 2)
    if are_numbers:
        most = max(CLASSES_SURE, min(CLASSES_MAX, rows // ROWS_A_CLASS))
    allowed = f"at most {most} classes, which are whole numbers or words, for {rows} rows (the last"
    allowed += " column is taken as the label)"
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
