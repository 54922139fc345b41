"""The cells of a party's own file as text, and the ways in which such a file may be written.

A `Reading` describes what is particular to one party's file. It stays with the party: the schema
that all parties share describes the columns, and no file.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from veilring.arrays import Floats
from veilring.config import Section, read_toml

Separator = Annotated[
    Literal[",", ";", "|", "tab"], Field(description="a comma, a semicolon, | or the word tab")
]
"""The separator between the cells of a line."""
Words = Annotated[tuple[str, ...], Field(strict=False)]
AUTO: Final = "auto"
FIRST_LINE: Final = 2  # of a row: the header is line 1
# The words for a missing value of spreadsheets, statistics packages and databases.
_GAPS: Final = frozenset({"", "?", "-", "na", "n/a", "#n/a", "nan", "nat", "null", "none"})


class Reading(Section):
    """The particulars of one party's file, so that it can be read by the schema of all.

    Attributes:
        separator: The separator between cells; by default the one that divides the header.
        decimal: The decimal mark, of which the other mark divides thousands. By default, commas
            are decimal marks if no other meaning is possible.
        encoding: The encoding; by default UTF-8, or Windows-1252 if the file is not in UTF-8.
        dates: The format of dates, such as `%m/%d/%Y`. By default 2024-01-31 and 31.01.2024, with
            or without a time.
        missing: Cells that stand for a missing value, besides empty ones and `NA`.
        names: The header in this file of a column of the schema, if different.
        factors: The factor that converts a column's numbers to the unit of the schema.
        offsets: The number to add afterwards.
        values: For a column of categories, the category that each differing cell stands for.
    """

    separator: Separator | Literal["auto"] = Field(
        AUTO, description="a comma, a semicolon, |, or the word tab or auto"
    )
    decimal: Literal["auto", ".", ","] = AUTO
    encoding: Literal["auto", "utf-8", "cp1252", "latin-1"] = AUTO
    dates: str = Field("", description="a format such as %d/%m/%Y, or nothing")
    missing: Words = Field((), description="a list of texts")
    names: Mapping[str, str] = Field({}, description="a table of names and headers")
    factors: Mapping[str, float] = Field({}, description="a table of names and numbers")
    offsets: Mapping[str, float] = Field({}, description="a table of names and numbers")
    values: Mapping[str, Mapping[str, str]] = Field(
        {}, description="a table of names, each with a table of cells and categories"
    )

    @property
    def columns(self) -> set[str]:
        """The names of all columns of the schema that it mentions."""
        return {*self.names, *self.factors, *self.offsets, *self.values}

    def about(self, columns: Collection[str]) -> "Reading":
        """Return the particulars of some columns, for a file of which no others are read."""
        tables = ("names", "factors", "offsets", "values")
        kept = {
            key: {name: each for name, each in getattr(self, key).items() if name in columns}
            for key in tables
        }
        return self.model_copy(update=kept)


def place_of(row: int, lines: Sequence[int] | None) -> str:
    """Describe the place of a row: its line in a file, or its number in a data frame."""
    return f"row {row + 1}" if lines is None else f"line {lines[row]}"


def read_particulars(path: Path | None, key: str = "reading") -> Reading:
    """Read the particulars of a file; without a path, return those of a usual file.

    Args:
        path: The TOML file.
        key: The key or option that names it.
    """
    return Reading() if path is None else read_toml(path, Reading, key)


@dataclass(frozen=True, eq=False, repr=False)
class Cells(Mapping[str, NDArray[np.str_]]):
    """The cells of each column as text, by its header. They are never shown.

    Attributes:
        source: The name of the file, or of the argument with a data frame.
        texts: The cells of each column, without blanks around them.
        lines: The line of each row in its file; None for a source without lines.
        reading: The particulars of the file.
        remarks: How the file is written, if that is unusual.
        numbers: The columns that were already read as numbers.
    """

    source: str
    texts: Mapping[str, Sequence[str]]
    lines: Sequence[int] | None = None
    reading: Reading = field(default_factory=Reading)
    remarks: tuple[str, ...] = ()
    numbers: dict[str, Floats] = field(default_factory=dict)

    @override
    def __getitem__(self, name: str) -> NDArray[np.str_]:
        return np.array(self.texts[name], np.str_)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    @override
    def __len__(self) -> int:
        return len(self.texts)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.texts.values()), ()))

    def at(self, column: str, row: int) -> str:
        """Describe the place of a cell."""
        return f"{self.source}, column {column!r}, {place_of(row, self.lines)}"

    def is_gap(self, cell: str) -> bool:
        """Whether a cell that is no value of its column stands for a missing value."""
        return cell.casefold() in _GAPS or cell in self.reading.missing

    def renamed(self, headers: Mapping[str, str]) -> "Cells":
        """Return the same cells with other names for some headers; codes for gaps become empty."""
        codes = set(self.reading.missing)
        texts = {
            headers.get(header, header): ["" if cell in codes else cell for cell in column]
            if codes
            else column
            for header, column in self.texts.items()
        }
        return replace(self, texts=texts, numbers={})
