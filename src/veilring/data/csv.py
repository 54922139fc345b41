"""Tables from CSV files, read with the standard library: columns of numbers and of categories.

Mistakes that look like data are refused with their place, or noted. Each `require_…` function
raises an `InputError` that names the file, and the column and line if there is one.
"""

import codecs
import csv
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import cached_property, partial
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Floats
from veilring.data.cells import AUTO, FIRST_LINE, Cells, Reading, Separator, place_of
from veilring.data.columns import Target, all_of, day_of
from veilring.data.table import Table, encode_columns
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
# Whole numbers that are all different, although chance would have repeated this many of them.
_REPEATS_EXPECTED: Final = 10.0
_IS_ID: Final = re.compile(r"(.*[\W_])?(id|nr|no|key|uuid|number|patient|case|mrn)", re.IGNORECASE)
# fewer rows are too little evidence about a column
ROWS_MIN: Final = 10
# Scaled by its extremes, the middle half of the rows lies within a hundredth of the range:
# distances ignore the column.
FAR: Final = 100.0
# Free text and names: each value becomes a feature shared by hardly two rows.
MANY_CATEGORIES: Final = 0.5
_SHOWN: Final = 40  # enough of a cell to find it in its file
# Rounding to a thousandth of the range changes no prediction by more than its error.
TARGET_STEPS_MIN: Final = 10**3
# More digits than this reveal nothing that a mean of noisy numbers keeps.
TARGET_STEPS_MAX: Final = 10**6
_NUMBERS_ARE: Final = (
    "; a number is predicted by --protocol rank-search or release, if it is chosen with --label or"
    " a schema has its range as `target`, and by RankSearchRegressor and ReleasedRegressor"
)
LABELS: Final = frozenset({"label", "class", "target", "outcome", "diagnosis"})
# A number as every CSV reader writes it, and the words for values that are not finite.
_NUMBER: Final = re.compile(
    r"[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|nan|inf|infinity)",
    re.ASCII | re.IGNORECASE,
)
_DECIMAL_COMMA: Final = re.compile(r"([+-]?\d+),(\d+)", re.ASCII)


@dataclass(frozen=True)
class TextColumn:
    """A column of a CSV file: its cells as text, without blanks around them."""

    name: str
    cells: Sequence[str]
    lines: Sequence[int] | None = range(FIRST_LINE, sys.maxsize)

    def place(self, row: int) -> str:
        """Describe the place of a row."""
        return place_of(row, self.lines)

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def is_number(self) -> Bools:
        """Whether each cell is a number, shape (rows,)."""
        if self._all_numbers is not None:
            return np.ones(len(self), dtype=np.bool_)
        fits = _NUMBER.fullmatch
        return np.array([fits(cell) is not None for cell in self.cells], dtype=np.bool_)

    @cached_property
    def numbers(self) -> Floats:
        """The cells as numbers, NaN where a cell is not a number, shape (rows,)."""
        if self._all_numbers is not None:
            return self._all_numbers
        pairs = zip(self.cells, self.is_number.tolist(), strict=True)
        return np.array([float(cell) if fits else np.nan for cell, fits in pairs], np.float64)

    @cached_property
    def _all_numbers(self) -> Floats | None:
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


def _mistake(where: str, message: str) -> InputError:
    return InputError.because(f"{where}: {message}", field=where)


def _in_column(file: str, column: TextColumn, message: str) -> InputError:
    return _mistake(f"{file}, column {column.name!r}", message)


def _cell_at(file: str, column: TextColumn, row: int) -> str:
    return f"{file}, column {column.name!r}, {column.place(row)}"


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
        raise _mistake(
            f"{file}, line 1",
            f"all cells are numbers ({', '.join(names)[:_SHOWN]}), but the header must name the"
            " columns",
        )


def require_names(file: str, header: Sequence[str]) -> None:
    """Refuse a header with the same name twice, or with a column that has no name."""
    where = f"{file}, line 1"
    first: dict[str, int] = {}
    for position, name in enumerate(header, start=1):
        if not name:
            raise _mistake(
                where,
                f"column {position} has no name; name it, or leave out a column that numbers the"
                " rows",
            )
        if name in first:
            raise _mistake(
                where,
                f"columns {first[name]} and {position} are both named {name[:_SHOWN]!r}; each"
                " column needs a different name",
            )
        first[name] = position


def require_points(file: str, column: TextColumn) -> None:
    """Refuse numbers with decimal commas, which would be categories."""
    points = [_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in column.cells]
    if TextColumn(column.name, points).are_numbers and not column.are_numbers:
        asked = (
            "numbers have a decimal comma; write a decimal point, such as 1.5, or read the file by"
            " a schema (`veilring schema make`)"
        )
        raise _in_column(file, column, asked)


def require_no_ids(file: str, column: TextColumn) -> None:
    """Refuse a column of words that differ in each row, because each would become a feature."""
    if column.different == len(column) >= IDS_ROWS_MIN:
        raise _in_column(
            file,
            column,
            f"each of the {len(column)} rows has a different value, as if they were ids or names;"
            " remove the column from the file, group the values into categories, or declare it in a"
            " schema (`veilring schema make`)",
        )


def require_full(file: str, columns: Sequence[TextColumn], label: str = "") -> None:
    """Refuse empty cells of all columns together, and say how to fill them in."""
    all_of(
        partial(_require_full, file, column, is_label=column.name == label) for column in columns
    )


def _require_full(file: str, column: TextColumn, *, is_label: bool) -> None:
    if "" not in column.cells:
        return
    if is_label:
        count, where = column.cells.count(""), _cell_at(file, column, column.cells.index(""))
        raise InputError.because(
            f"{where} is empty; fill in the label, or drop the row ({count} of {len(column)} rows"
            " have none)",
            field=where,
        )
    full = [cell for cell in column.cells if cell]
    is_number = TextColumn(column.name, full).are_numbers
    unknown = "fill it in; write '?' for an unknown category"
    fill = "drop the row or fill in a number" if is_number else unknown
    advice = (
        f"{fill}, or declare a value for empty cells ({column.cells.count('')} here) in a schema"
    )
    where = _cell_at(file, column, column.cells.index(""))
    raise InputError.because(f"{where} is empty; {advice}", field=where)


def require_one_kind(file: str, column: TextColumn) -> None:
    """Refuse a column in which at least `NUMBERS_MIN` of the cells are numbers, but not all."""
    count = int(column.is_number.sum())
    if count < len(column) and column.are_numbers:
        other = int(column.is_number.argmin())
        place, cell = column.place(other), column.cells[other][:_SHOWN]
        raise _in_column(
            file,
            column,
            f"{count} of {len(column)} cells are numbers, but {place} is {cell!r}; drop or"
            " correct the other cells, or use categories of which fewer than"
            f" {NUMBERS_MIN:.0%} are numbers",
        )


def require_classes(file: str, column: TextColumn, *, is_chosen: bool = False) -> None:
    """Refuse a label that looks like a measurement or a name.

    Up to `CLASSES_SURE` classes are always accepted. Beyond that, numbers need `ROWS_A_CLASS` rows
    per class on average, up to `CLASSES_MAX` classes; words may form at most one class per two
    rows. By default the label is the last column.
    """
    rows = len(column)
    are_numbers = bool(column.is_number.all())
    most = max(CLASSES_SURE, rows // 2)
    if are_numbers:
        most = max(CLASSES_SURE, min(CLASSES_MAX, rows // ROWS_A_CLASS))
    allowed = f"with {rows} rows, a label may have at most {most} classes (whole numbers or words)"
    if not is_chosen:
        allowed += " (the last column is taken as the label; run, compare and deploy take --label)"
    if are_numbers:
        allowed += _NUMBERS_ARE
    is_finite = are_numbers and bool(np.isfinite(column.numbers).all())
    if are_numbers and not (is_finite and (column.numbers % 1 == 0).all()):
        raise _in_column(file, column, f"not all of its numbers are whole; {allowed}")
    if column.different > CLASSES_SURE and not np.isnan([*map(day_of, column.cells)]).any():
        raise _in_column(file, column, f"it has {column.different} different dates; {allowed}")
    if column.different > most:
        kind = "numbers" if are_numbers else "words"
        raise _in_column(file, column, f"it has {column.different} different {kind}; {allowed}")


def target_of(file: str, column: TextColumn) -> Target | None:
    """Return the range of a label whose cells are numbers but no classes, from its rows.

    Its resolution is that of the cells, but from 1 / `TARGET_STEPS_MAX` to 1 / `TARGET_STEPS_MIN`
    of the range: a mean is finer than whole numbers, and more digits say nothing.
    """
    try:
        require_classes(file, column, is_chosen=True)
    except InputError:
        if not column.are_numbers:
            raise
    else:
        return None
    require_one_kind(file, column)
    _require_finite(file, column)
    if column.different == 1:
        found = "all its numbers are equal, so there is nothing to predict; choose another label"
        raise _in_column(file, column, found)
    numbers = [Decimal(cell) for cell in column.cells]
    low, high = min(numbers), max(numbers)
    finest, coarsest = ((high - low) / steps for steps in (TARGET_STEPS_MAX, TARGET_STEPS_MIN))
    place = min(int(each.as_tuple().exponent) for each in numbers)
    place = min(max(place, finest.adjusted() + 1), coarsest.adjusted())
    step = Decimal(1).scaleb(place)
    low = (low / step).to_integral_value(ROUND_FLOOR) * step
    high = (high / step).to_integral_value(ROUND_CEILING) * step
    return Target(low=float(low), high=float(high), resolution=float(step))


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
    if label is not None:
        notes += _alike(label)
    for column in columns:
        if column is not label and len(column) >= ROWS_MIN:
            notes += _on_feature(column)
    return tuple(notes)


def _alike(label: TextColumn) -> Iterator[str]:
    """Question classes that differ only in capitals."""
    names = dict[str, str]()
    for name in sorted(set(label.cells)):
        other = names.setdefault(name.casefold(), name)
        if other != name:
            yield f"column {label.name!r}, the label, has the classes {other!r} and {name!r}"


def _on_label(columns: Sequence[TextColumn], label: TextColumn) -> Iterator[str]:
    """Question whether the last column is the label, unless it is named like one."""
    if label.name.lower() in LABELS:
        return
    taken = f"the last column, {label.name!r}, is taken as the label"
    called = [column.name for column in columns if column.name.lower() in LABELS]
    if called:
        there = f"although there is a column {called[0]!r}"
        yield f"{taken}, {there}: choose it with --label {called[0]}"
    elif label.is_number.all() and label.different > CLASSES_SURE:
        yield f"{taken}: it has {label.different} classes, all numbers; choose another with --label"


def are_keys(name: str, numbers: Floats) -> bool:
    """Whether numbers identify rows: whole, all different, and named so or denser than chance."""
    rows = len(numbers)
    if rows < IDS_ROWS_MIN or (numbers % 1).any() or len(np.unique(numbers)) < rows:
        return False
    repeats = rows * (rows - 1) / 2 / (np.ptp(numbers) + 1)
    return bool(repeats > _REPEATS_EXPECTED or _IS_ID.fullmatch(name))


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
    elif are_keys(column.name, values):
        yield (
            f"column {column.name!r} looks like an identifier but would be a feature: leave it out,"
            " or declare it in a schema (`veilring schema make`)"
        )
    low, early, middle, late, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
    spread = late - early or np.ptp(np.quantile(values, [0.05, 0.95]))
    if 0 < FAR * spread < high - low:
        place = column.place(int(np.argmax(np.abs(values - middle))))
        found = f"column {column.name!r}, {place}, is far from all other values"
        yield f"{found}: after scaling, the other values hardly differ"


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
_MARK: Final = {",": ",", ";": ";", "|": "|", "tab": "\t"}
_HEADER: Final = "the first line must name the columns; check its quotes"
_ROWS: Final = 1 << 12  # at a time: each row is a list, and each column one more
_SAVE: Final = "save it in UTF-8"
_UTF_8: Final = "utf-8"
_PLAIN: Final = Reading(separator=",", encoding=_UTF_8)


def read_csv(
    path: Path, *, label: str | None = None, separator: Separator = ",", needs_label: bool = True
) -> Table:
    """Read a CSV file with a header, in UTF-8.

    A column contains numbers if each of its cells is a number; otherwise categories, which are
    one-hot encoded. `?` and `NA` are ordinary categories: there is no symbol for a missing value,
    and an empty cell is refused. Also refused are a column with numbers in all but a few cells, a
    column of words that differ in each row, and a label that is not a class. Spaces around a cell
    and empty lines at the end are ignored. Possible mistakes are recorded in the table's `notes`.
    See `veilring.data.csv`.

    Args:
        path: The file; a pipe is read once.
        label: The column with the label of each row; by default the last one. If it is chosen and
            its numbers are no classes, it is a number to predict, with the range of the rows.
        needs_label: Whether to refuse a file of one column. If not, this column is a feature, and
            all rows have one class with an empty name.
    """
    cells = _read(path, Reading(separator=separator, encoding=_UTF_8), offered=True)
    return read_columns(cells, label=label, needs_label=needs_label)


def read_columns(cells: Cells, *, label: str | None = None, needs_label: bool = True) -> Table:
    """Return the cells of a file or a data frame as a table, like `read_csv`."""
    file, columns = cells.source, columns_of(cells)
    require_full(file, columns, columns[-1].name if label is None else label)
    if label is None and not needs_label and len(columns) == 1:
        return _without_label(file, columns[0])
    by_name = {column.name: column for column in columns}
    chosen = columns[-1].name if label is None else label
    if chosen not in by_name:
        raise InputError("label", chosen, f"a column of {file}: {', '.join(by_name)}")
    labels = by_name[chosen]
    require_features(file, columns)
    others = [column for column in columns if column is not labels]
    typed = all_of(partial(_typed, file, column) for column in others)
    features = {column.name: cells for column, cells in zip(others, typed, strict=True)}
    target = None if label is None else target_of(file, labels)
    if target is None:
        require_classes(file, labels, is_chosen=label is not None)
    table = encode_columns(file, features, np.array(labels.cells, np.str_), target)
    notes = notes_of(columns, labels, is_chosen=label is not None)
    return replace(table, label_name=chosen, notes=notes)


def _without_label(file: str, column: TextColumn) -> Table:
    features = {column.name: _typed(file, column)}
    table = encode_columns(file, features, np.full(len(column), ""))
    return replace(table, label_name="", notes=notes_of([column]))


def read_cells(path: Path, reading: Reading = _PLAIN, *, may_have_gaps: bool = False) -> Cells:
    """Read a CSV file or pipe with a header as columns of text, by their names.

    Args:
        path: The file; a pipe is read once.
        reading: How it is written; by default with commas, in UTF-8.
        may_have_gaps: Whether cells may be empty.
    """
    cells = _read(path, reading, offered=False)
    if not may_have_gaps:
        require_full(cells.source, columns_of(cells))
    return cells


def columns_of(cells: Cells) -> list[TextColumn]:
    """Return the columns of a file, for the checks of this module."""
    return [TextColumn(name, texts, cells.lines) for name, texts in cells.texts.items()]


def _read(path: Path, reading: Reading, *, offered: bool) -> Cells:
    text, encoding = _text(path, reading.encoding)
    mark = _mark_of(text) if reading.separator == AUTO else _MARK[reading.separator]
    try:
        header = next(csv.reader(StringIO(text, newline=""), delimiter=mark), [])
    except csv.Error as error:
        found = f"there is no header ({error}); {_HEADER}"
        raise _mistake(f"{path.name}, line 1", found) from None
    names = [name.strip() for name in header]
    _require_separator(path.name, names, mark, offered=offered)
    if not names:
        raise _mistake(f"{path.name}, line 1", f"there is no header; {_HEADER}")
    columns, lines = _cells(path, text, mark)
    require_header(path.name, [TextColumn(*each) for each in zip(names, columns, strict=True)])
    require_names(path.name, names)
    remarks = [] if mark == "," else [f"separated by {_SEPARATORS[mark][0]}"]
    remarks += [f"in {encoding}"] if encoding else []
    texts = dict(zip(names, columns, strict=True))
    return Cells(path.name, texts, lines, reading, tuple(remarks))


def _mark_of(text: str) -> str:
    """Return the separator that divides the header into the most cells."""
    header, _, _ = text.partition("\n")
    return max(_SEPARATORS, key=header.count)  # the first one, a comma, if there is only one cell


def _first_lines(text: str, mark: str) -> list[int]:
    """Return the line at which each row starts, with that of the header."""
    reader = csv.reader(StringIO(text, newline=""), delimiter=mark)
    return [1, *(reader.line_num + 1 for _ in reader)][:-1]


def _text(path: Path, encoding: str) -> tuple[str, str]:
    """Return a file's text without empty lines at its end, and its encoding if that was guessed."""
    if not path.exists() or path.is_dir():
        raise InputError("source", path, "the path of an existing CSV file")
    try:
        content = path.read_bytes()
    except OSError as error:
        allowed = f"a file that can be read ({error.strerror})"
        raise InputError("source", path, allowed) from None
    text, guessed = _decode(path.name, content, encoding)
    return text.rstrip(" \r\n"), guessed


def _decode(file: str, content: bytes, encoding: str) -> tuple[str, str]:
    """Return the text of a file without a byte order mark, and an encoding that was guessed."""
    known = next((name for mark, name in _MARKS if content.startswith(mark)), None)
    if encoding == AUTO and known is not None:
        return content.decode(known.lower()), known
    if known is None and b"\0" in content:
        known = "UTF-16, or is not text"  # UTF-8 has a zero byte only for the character 0
    if known is not None:
        raise InputError.because(f"{file} is in {known}; {_SAVE}", field=file)
    if encoding not in {AUTO, _UTF_8}:
        return content.decode(encoding, errors="replace"), ""
    try:
        return content.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        if encoding == AUTO:
            return content.decode("cp1252", errors="replace"), "Windows-1252"
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
            found = f"the cells are separated by {word}, not by {chosen}{choose}"
            raise _mistake(f"{file}, line 1", found)


def _cells(path: Path, text: str, mark: str) -> tuple[list[list[str]], Sequence[int]]:
    """Return the cells of each column, without blanks around them, and the line of each row.

    Cells that are missing at the end of a row are empty.
    """
    # A text may exceed the limit, which is meant for files that are not CSV files.
    limit = csv.field_size_limit(max(len(text), 1))
    try:
        reader = csv.reader(StringIO(text, newline=""), delimiter=mark, strict=True)
        width = len(next(reader))
        columns: list[list[str]] = [[] for _ in range(width)]
        while rows := list(islice(reader, _ROWS)):
            for row in rows:
                if len(row) > width:
                    line = _first_lines(text, mark)[1 + len(columns[0]) + rows.index(row)]
                    raise _ragged(path, f"line {line} has {len(row)} of {width} cells")
                if len(row) < width:
                    row.extend([""] * (width - len(row)))
            for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
                column.extend(map(str.strip, cells))
        if text.count("\n") <= len(columns[0]):  # otherwise some cells have several lines
            return columns, range(FIRST_LINE, FIRST_LINE + len(columns[0]))
        return columns, _first_lines(text, mark)[1:]
    except csv.Error as error:
        raise _ragged(path, str(error)) from None
    finally:
        csv.field_size_limit(limit)


def _ragged(path: Path, reason: str) -> InputError:
    return InputError.because(
        f"{path}: each row must have as many cells as the header: {reason}", field="source"
    )


def _typed(file: str, column: TextColumn) -> Floats | NDArray[np.str_]:
    require_one_kind(file, column)
    if not column.is_number.all():
        require_points(file, column)
        require_no_ids(file, column)
        return np.array(column.cells, np.str_)
    _require_finite(file, column)
    return column.numbers


def _require_finite(file: str, column: TextColumn) -> None:
    finite = np.isfinite(column.numbers)
    if not finite.all():
        where = _cell_at(file, column, int(finite.argmin()))
        raise _mistake(where, "the number is not finite; correct it, or drop the row")
