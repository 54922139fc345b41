"""Mistakes in CSV files that look like data: refused with their place, or noted.

Each `require_…` function raises an `InputError` that names the file, and the column and line if
there is one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError

# A column of categories rarely contains this many numbers: it is rather a column of numbers in
# which a word stands for unknown values, and as categories each number would become a feature.
NUMBERS_MIN: Final = 0.9
# A file without a label ends in a column that measures or names something: it has many values, each
# in few rows.
CLASSES_SURE: Final = 20
CLASSES_MAX: Final = 100
ROWS_A_CLASS: Final = 10
# Words that differ in this many rows are ids. In fewer rows categories may differ by chance.
IDS_ROWS_MIN: Final = 11
# fewer rows are too little evidence about a column
ROWS_MIN: Final = 10
# Scaled by its extremes, the middle half of the rows lies within a hundredth of the range:
# distances ignore the column.
FAR: Final = 100.0
# Free text and names: each value becomes a feature shared by hardly two rows.
MANY_CATEGORIES: Final = 0.5
_SHOWN: Final = 40  # enough of a cell to find it in its file
_LABELS: Final = frozenset({"label", "class", "target", "outcome", "diagnosis"})
# A number as every CSV reader writes it, and the words for values that are not finite.
_NUMBER: Final = re.compile(
    r"[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|nan|inf|infinity)",
    re.ASCII | re.IGNORECASE,
)
_DECIMAL_COMMA: Final = re.compile(r"([+-]?\d+),(\d+)", re.ASCII)


@dataclass(frozen=True)
class TextColumn:
    """A column of a CSV file.

    Attributes:
        name: The header.
        cells: The cells as text, without blanks around them.
    """

    name: str
    cells: Sequence[str]

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def is_number(self) -> NDArray[np.bool_]:
        """Whether each cell is a number, shape (rows,)."""
        if self._all_numbers is not None:
            return np.ones(len(self), dtype=np.bool_)
        fits = _NUMBER.fullmatch
        return np.array([fits(cell) is not None for cell in self.cells], dtype=np.bool_)

    @cached_property
    def numbers(self) -> NDArray[np.float64]:
        """The cells as numbers, NaN where a cell is not a number, shape (rows,)."""
        if self._all_numbers is not None:
            return self._all_numbers
        pairs = zip(self.cells, self.is_number.tolist(), strict=True)
        return np.array([float(cell) if fits else np.nan for cell, fits in pairs], np.float64)

    @cached_property
    def _all_numbers(self) -> NDArray[np.float64] | None:
        """The cells as numbers if all of them are: the usual case, without a pattern."""
        try:
            numbers = np.fromiter(map(float, self.cells), np.float64, len(self))
        except ValueError:
            return None
        text = "".join(self.cells)  # `float` accepts underscores, and digits of all scripts
        return numbers if text.isascii() and "_" not in text else None

    @cached_property
    def different(self) -> int:
        """The number of different cells."""
        return len(set(self.cells))

    @property
    def are_numbers(self) -> bool:
        """Whether at least `NUMBERS_MIN` of the cells are numbers."""
        return len(self) > 0 and self.is_number.sum() >= NUMBERS_MIN * len(self)


def cell_at(file: str, column: str, row: int) -> str:
    """Describe the place of a cell; row 0 is line 2. Line breaks within cells are not counted."""
    return f"{file}, column {column!r}, line {row + 2}"


def require_header(file: str, columns: Sequence[TextColumn]) -> None:
    """Refuse a first line that has a number above each column of numbers: it contains data.

    Numbers that count columns from 0 or 1 are accepted as names.
    """
    if not any(_NUMBER.fullmatch(column.name) for column in columns):
        return  # and no cell needs a check, which takes long in a large file
    names = [column.name for column in columns if column.are_numbers]
    if not all(map(_NUMBER.fullmatch, names or [""])):
        return
    counted = [[str(number + first) for number in range(len(names))] for first in (0, 1)]
    if len(names) == 1 or names not in counted:
        raise InputError.because(
            f"{file}, line 1: all cells are numbers ({', '.join(names)[:_SHOWN]}), but "
            "the header must name the columns",
            field=f"{file}, line 1",
        )


def require_names(file: str, header: Sequence[str]) -> None:
    """Refuse a header with the same name twice, or with a column that has no name."""
    where = f"{file}, line 1"
    first: dict[str, int] = {}
    for position, name in enumerate(header, start=1):
        if not name:
            raise InputError.because(
                f"{where}: column {position} has no name; name it, or leave out a column "
                "that numbers the rows",
                field=where,
            )
        if name in first:
            raise InputError.because(
                f"{where}: columns {first[name]} and {position} are both named "
                f"{name[:_SHOWN]!r}; each column needs a different name",
                field=where,
            )
        first[name] = position


def require_points(file: str, column: TextColumn) -> None:
    """Refuse numbers with decimal commas, which would be categories."""
    points = [_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in column.cells]
    if TextColumn(column.name, points).are_numbers and not column.are_numbers:
        raise InputError.because(
            f"{file}, column {column.name!r}: numbers have a decimal comma; write a decimal "
            "point, such as 1.5",
            field=f"{file}, column {column.name!r}",
        )


def require_no_ids(file: str, column: TextColumn) -> None:
    """Refuse a column of words that differ in each row, because each would become a feature."""
    if column.different == len(column) >= IDS_ROWS_MIN:
        raise InputError.because(
            f"{file}, column {column.name!r}: each of the {len(column)} rows has a different"
            " value, as if they were ids or names; remove the column from the file, or group the"
            " values into categories",
            field=f"{file}, column {column.name!r}",
        )


def require_full(file: str, columns: Sequence[TextColumn]) -> None:
    """Refuse empty cells, and say how to fill them in."""
    for column in columns:
        if "" in column.cells:
            full = [cell for cell in column.cells if cell]
            is_number = TextColumn(column.name, full).are_numbers
            unknown = "fill it in; write '?' for an unknown category"
            advice = "drop the row or fill in a number" if is_number else unknown
            raise InputError.because(
                f"{cell_at(file, column.name, column.cells.index(''))} is empty; {advice}",
                field=cell_at(file, column.name, column.cells.index("")),
            )


def require_one_kind(file: str, column: TextColumn) -> None:
    """Refuse a column in which at least `NUMBERS_MIN` of the cells are numbers, but not all."""
    count = int(column.is_number.sum())
    if count < len(column) and column.are_numbers:
        other = int(column.is_number.argmin())
        line, cell = other + 2, column.cells[other][:_SHOWN]
        raise InputError.because(
            f"{file}, column {column.name!r}: {count} of {len(column)} cells are numbers, "
            f"but line {line} is {cell!r}; drop or correct the other cells, or use "
            f"categories of which fewer than {NUMBERS_MIN:.0%} are numbers",
            field=f"{file}, column {column.name!r}",
        )


def require_classes(file: str, column: TextColumn, *, is_chosen: bool = False) -> None:
    """Refuse a label that looks like a measurement or a name.

    Up to `CLASSES_SURE` classes are always accepted. Beyond that, numbers need `ROWS_A_CLASS` rows
    per class on average, up to `CLASSES_MAX` classes; words may form at most one class per two
    rows. By default the label is the last column.
    """
    where, rows = f"{file}, column {column.name!r}", len(column)
    are_numbers = bool(column.is_number.all())
    most = max(CLASSES_SURE, rows // 2)
    if are_numbers:
        most = max(CLASSES_SURE, min(CLASSES_MAX, rows // ROWS_A_CLASS))
    allowed = f"with {rows} rows, a label may have at most {most} classes (whole numbers or words)"
    if not is_chosen:
        allowed += " (the last column is taken as the label; run, compare and deploy take --label)"
    if are_numbers and not (column.numbers % 1 == 0).all():
        raise InputError.because(
            f"{where}: not all of its numbers are whole; {allowed}", field=where
        )
    if column.different > most:
        kind = "numbers" if are_numbers else "words"
        raise InputError.because(
            f"{where}: it has {column.different} different {kind}; {allowed}", field=where
        )


def require_features(file: str, columns: Sequence[TextColumn]) -> None:
    """Refuse a table with a label and no other column."""
    if len(columns) == 1:
        raise InputError.because(
            f"{file} has no features: its only column, {columns[0].name!r}, is taken as the label;"
            " add a column, or ask for this one in a survey with veilring deploy survey --kind"
            " frequency or means",
            field=file,
        )


def notes_of(
    columns: Sequence[TextColumn], label: TextColumn | None = None, *, is_chosen: bool = False
) -> tuple[str, ...]:
    """Return a sentence for each possible mistake; without a label, none is about the label."""
    notes = [] if is_chosen or label is None else list(_on_label(columns, label))
    if label is not None and label.different == 1:
        found = f"column {label.name!r}, the label, has one class"
        notes.append(f"{found}: nothing can be classified")
    for column in columns:
        if column is not label and len(column) >= ROWS_MIN:
            notes += _on_feature(column)
    return tuple(notes)


def _on_label(columns: Sequence[TextColumn], label: TextColumn) -> Iterator[str]:
    """Question whether the last column is the label, unless it is named like one."""
    if label.name.lower() in _LABELS:
        return
    taken = f"the last column, {label.name!r}, is taken as the label"
    called = [column.name for column in columns if column.name.lower() in _LABELS]
    if called:
        there = f"although there is a column {called[0]!r}"
        yield f"{taken}, {there}: choose it with --label {called[0]}"
    elif label.is_number.all() and label.different > CLASSES_SURE:
        yield f"{taken}: it has {label.different} classes, all numbers; choose another with --label"


def _on_feature(column: TextColumn) -> Iterator[str]:
    rows = len(column)
    if not column.is_number.all():
        different = column.different
        if different > max(CLASSES_SURE, MANY_CATEGORIES * rows):
            found = f"column {column.name!r} has {different} categories in {rows} rows"
            yield f"{found}, each a feature of its own: leave the column out if they are names"
        return
    values = column.numbers
    if np.array_equal(np.diff(values), np.ones(rows - 1)):
        yield f"column {column.name!r} numbers the rows but would be a feature: leave it out"
    low, early, middle, late, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
    spread = late - early or np.ptp(np.quantile(values, [0.05, 0.95]))
    if 0 < FAR * spread < high - low:
        line = int(np.argmax(np.abs(values - middle))) + 2
        found = f"column {column.name!r}, line {line}, is far from all other values"
        yield f"{found}: after scaling, the other values hardly differ"
