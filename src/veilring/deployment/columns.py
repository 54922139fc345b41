"""The columns of everybody's rows, as terms describe them and as a CSV file holds them.

An error names the column and the line, and no value but an unknown category's first characters, so
that it can be found.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.config import Section
from veilring.data.npz import NPZ
from veilring.data.slips import cell_at
from veilring.errors import InputError, ScenarioError

Words = Annotated[tuple[str, ...], Field(strict=False)]
Cells: TypeAlias = Mapping[str, NDArray[np.str_]]
"""The cells of each column, by its header."""
_UNKNOWN_SHOWN: Final = 40  # enough of a cell to find it in its file


class FeatureTerms(Section):
    """One column of everybody's rows: a number in a public range, or one of public categories.

    Attributes:
        name: Its header.
        low: The least value; a lower one counts as this one.
        high: The greatest value; a higher one counts as this one.
        categories: Instead of a range, all that a cell may hold.
    """

    name: str = Field(description="the header of a column")
    low: float = Field(0.0, description="a number")
    high: float = Field(1.0, description="a number, at least low")
    categories: Words = Field((), description="a list of different words, or none")

    @property
    def width(self) -> int:
        """How many features the column becomes where a category is one of several 0 and 1."""
        return len(self.categories) or 1


Features = Annotated[tuple[FeatureTerms, ...], Field(strict=False, min_length=1)]
FEATURES_ALLOWED: Final = "a list of tables with the keys name, and low and high or categories"


def check_features(features: Sequence[FeatureTerms]) -> None:
    """Refuse columns that do not go together.

    Raises:
        ScenarioError: It names the key, its value and what is allowed.
    """
    require_different("features", tuple(feature.name for feature in features))
    for feature in features:
        require_different(f"features.{feature.name}.categories", feature.categories)
        if feature.low > feature.high:
            raise ScenarioError(f"features.{feature.name}.high", feature.high, "at least low")


def require_different(key: str, names: Sequence[str]) -> None:
    """Refuse names that occur twice.

    Raises:
        ScenarioError: It names the key.
    """
    if len(set(names)) != len(names):
        raise ScenarioError(key, list(names), "each once")


def read_categories(path: Path, feature: FeatureTerms, cells: Cells) -> NDArray[np.int64]:
    """Return the number of each cell's category.

    Raises:
        InputError: If the column is missing or a cell is none of them.
    """
    return look_up(path, feature.name, _column(path, feature, cells), feature.categories)


def read_numbers(path: Path, feature: FeatureTerms, cells: Cells) -> NDArray[np.float64]:
    """Return the cells as numbers; a value outside of the range becomes the nearest bound.

    Raises:
        InputError: As `numbers_of`.
    """
    return np.clip(numbers_of(path, feature, cells), feature.low, feature.high)


def numbers_of(path: Path, feature: FeatureTerms, cells: Cells) -> NDArray[np.float64]:
    """Return the cells as numbers, also those outside of the range.

    Raises:
        InputError: If the column is missing or a cell is not a finite number.
    """
    column = _column(path, feature, cells)
    numbers = np.array([_number(cell) for cell in column.tolist()], dtype=np.float64)
    if not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers)))
        where = cell_at(path.name, feature.name, row)
        allowed = f"a number ({feature.low} to {feature.high})"
        raise InputError(where, "not a finite number", allowed)
    return numbers


def read_labels(path: Path, cells: Cells, classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the number of each row's class: the label is the last column.

    Raises:
        InputError: If a cell is none of them.
    """
    label = list(cells)[-1]
    note = " (the last column is taken as the label)"
    return look_up(path, label, cells[label], classes, note=note)


def look_up(
    path: Path, column: str, cells: NDArray[np.str_], names: Sequence[str], *, note: str = ""
) -> NDArray[np.int64]:
    """Return the place of each cell among some names.

    Args:
        path: The file.
        column: The header.
        cells: Shape (rows,).
        names: What a cell may be.
        note: What an error adds.

    Raises:
        InputError: If a cell is none of them.
    """
    numbers = {name: number for number, name in enumerate(names)}
    found = np.array([numbers.get(cell, -1) for cell in cells.tolist()], dtype=np.int64)
    if (found < 0).any():
        row = int(np.argmax(found < 0))
        where = cell_at(path.name, column, row)
        if path.suffix.lower() == NPZ:  # where there are no lines
            where = f"{path.name}, {column}, row {row + 1}"
        cell = str(cells[row])[:_UNKNOWN_SHOWN]
        raise InputError(where, repr(cell), f"one of {', '.join(names)}{note}")
    return found


def _column(path: Path, feature: FeatureTerms, cells: Cells) -> NDArray[np.str_]:
    if feature.name not in cells:
        raise InputError(f"{path.name}", f"without {feature.name!r}", "all columns of the terms")
    return cells[feature.name]


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")
