"""Columns of a table with their public values, as whole numbers; and factors, which form cells.

A number is a count of public steps from the middle of its public range, so that sums of numbers,
squares and products are exact, and one row's part in them is as small as possible.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil, nan, prod
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilring.arrays import Ints
from veilring.data.table import CATEGORIES_MAX
from veilring.errors import InputError
from veilring.privacy.checks import floats, require, require_that

STEPS_MAX: Final = 2**40
"""Floats represent all whole numbers of steps exactly, and differences of them."""
SIZE_MAX: Final = 1e100
"""Squares of such numbers, and sums of them, are floats, so no result fails because of its rows."""
MISSING: Final = -1
"""The step or position of a missing value."""


class Encoded(NamedTuple):
    """One party's columns as whole numbers. Secret.

    Attributes:
        rows: The number of rows.
        columns: The steps or positions of each column, shape (rows,); `MISSING` without a value.
    """

    rows: int
    columns: Mapping[str, Ints]


@dataclass(frozen=True)
class Number:
    """A column of numbers, with its public range and resolution.

    Attributes:
        name: The name of the column.
        low: The minimum.
        high: The maximum, above `low`.
        step: The resolution: values are rounded to `low` plus a whole number of steps.
        clip: Whether values outside of the range are moved to its nearest end; otherwise they are
            refused.
        skip: Whether statistics of the column leave out rows without a value; otherwise such rows
            are refused.
    """

    name: str
    low: float
    high: float
    step: float = 1.0
    clip: bool = False
    skip: bool = False

    def __post_init__(self) -> None:
        for field in ("low", "high", "step"):  # parties compare them as text
            object.__setattr__(self, field, float(getattr(self, field)))
        ends = abs(self.low) <= SIZE_MAX and abs(self.high) <= SIZE_MAX
        allowed = f"finite, from {1 / SIZE_MAX:g}, with a range within ±{SIZE_MAX:g}"
        require(ends and 1 / SIZE_MAX <= self.step <= SIZE_MAX, "step", self.step, allowed)
        require(self.low < self.high, "high", self.high, f"above low, {self.low:g}")
        require(
            self.steps <= STEPS_MAX,
            "step",
            self.step,
            f"at least a {STEPS_MAX:.2g}th part of the range",
        )

    @cached_property
    def steps(self) -> int:
        """The number of steps from the minimum to the maximum, at least 1."""
        return ceil((_exact(self.high) - _exact(self.low)) / _exact(self.step))

    @property
    def middle(self) -> int:
        """The step from which values are counted."""
        return self.steps // 2

    @property
    def reach(self) -> int:
        """The maximum distance from the middle, in steps."""
        return self.steps - self.middle

    @cached_property
    def origin(self) -> Fraction:
        """The value of the middle."""
        return _exact(self.low) + self.unit * self.middle

    @cached_property
    def unit(self) -> Fraction:
        """The value of a step, as the decimal number that was declared."""
        return _exact(self.step)

    def encode(self, values: NDArray[Any]) -> Ints:
        """Return the step of each value, from 0, shape (rows,)."""
        numbers = floats(self.name, values, "numbers, without gaps")
        gaps = np.isnan(numbers)
        require_that(
            self.skip or not gaps.any(),
            self.name,
            f"the column {self.name!r} has gaps; leave out these rows, fill them in, or declare"
            " `skip`",
        )
        if self.clip:
            numbers = np.clip(numbers, self.low, self.high)
        inside = (numbers >= self.low) & (numbers <= self.high)
        require_that(
            bool((inside | gaps).all()),
            self.name,
            f"the column {self.name!r} has values outside of its range ({self.low:g} to"
            f" {self.high:g}); correct them, declare a wider range, or declare `clip`",
        )
        steps = np.rint((np.where(gaps, self.low, numbers) - self.low) / self.step)
        return np.where(gaps, MISSING, steps).astype(np.int64)


@dataclass(frozen=True)
class Category:
    """A column of words, with its public values.

    Attributes:
        name: The name of the column.
        values: The allowed values. Numbers and truth values are compared by their whole numbers.
        skip: As in `Number`. A value is missing if it is empty, and not among the allowed ones.
    """

    name: str
    values: tuple[str, ...]
    skip: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(map(str, self.values)))
        different = len(set(self.values)) == len(self.values)
        allowed = f"1 to {CATEGORIES_MAX} different values"
        good = different and 1 <= len(self.values) <= CATEGORIES_MAX
        require(good, "values", len(self.values), allowed)

    @property
    def names(self) -> tuple[str, ...]:
        """The categories in words."""
        return self.values

    def encode(self, values: NDArray[Any]) -> Ints:
        """Return the position of each value, shape (rows,)."""
        order = np.argsort(self.values)
        known, texts = np.array(self.values)[order], _texts(self.name, values)
        found = np.minimum(np.searchsorted(known, texts), len(known) - 1)
        declared = known[found] == texts
        require_that(
            bool((declared | (self.skip & (texts == ""))).all()),
            self.name,
            f"the column {self.name!r} has values that are not declared: only"
            f" {', '.join(self.values[:_SHOWN])}{', …' * (len(self.values) > _SHOWN)} are",
        )
        return np.where(declared, order[found], MISSING)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def column(self) -> "Category":
        """The column from which cells are formed."""
        return self

    def place(self, encoded: Ints) -> Ints:
        """Return the cell of each value."""
        return encoded


@dataclass(frozen=True)
class Bins:
    """Public intervals of a number: each includes its lower edge, and the last one both edges.

    Attributes:
        edges: Increasing numbers, at least two, that include the whole range of the number.
    """

    column: Number
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(map(float, self.edges)))
        rising = len(self.edges) > 1 and bool((np.diff(self.edges) > 0).all())
        low, high = self.column.low, self.column.high
        require(
            rising and self.edges[0] <= low and self.edges[-1] >= high,
            "edges",
            self.edges,
            f"increasing numbers, from at most {low:g} to at least {high:g}",
        )

    @classmethod
    def equal(cls, column: Number, number: int = 10) -> "Bins":
        """Return intervals of equal width."""
        require(number >= 1, "number", number, "a whole number of at least 1")
        return cls(column, tuple(np.linspace(column.low, column.high, number + 1).tolist()))

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def names(self) -> tuple[str, ...]:
        """The intervals in words."""
        return tuple(f"{low:g} to {high:g}" for low, high in pairwise(self.edges))

    @cached_property
    def _starts(self) -> Ints:
        low, unit = _exact(self.column.low), self.column.unit
        steps = [ceil((_exact(edge) - low) / unit) for edge in self.edges[:-1]]
        return np.array(steps, np.int64)

    def place(self, encoded: Ints) -> Ints:
        """Return the interval of each value, given in steps."""
        return np.searchsorted(self._starts, encoded, side="right") - 1


@dataclass(frozen=True)
class Steps:
    """Some successive parts of a number, each of the same number of steps.

    Attributes:
        number: The number of parts.
        start: The first step of the first part.
        width: The number of steps of a part.
    """

    column: Number
    number: int
    start: int = 0
    width: int = 1

    @classmethod
    def each(cls, column: Number) -> "Steps":
        """Return each step as a part."""
        return cls(column, column.steps + 1)

    def __len__(self) -> int:
        return self.number

    def place(self, encoded: Ints) -> Ints:
        """Return the part of each value, given in steps; -1 outside of all parts."""
        parts = (encoded - self.start) // self.width
        return np.where((parts >= 0) & (parts < self.number), parts, -1)


Column: TypeAlias = Number | Category
Factor: TypeAlias = Category | Bins | Steps
"""A division of rows into cells by one column."""
Grouping: TypeAlias = Category | Bins

_SHOWN: Final = 8  # enough to recognise the column
# What is no text, and stands for a missing value in Python, NumPy and data frames.
_NO_VALUES: Final = frozenset({"None", "nan", "NaT", "<NA>"})


def cells_of(factors: Sequence[Factor]) -> int:
    """Return the number of cells that several factors form."""
    return prod(map(len, factors))


def encode_table(
    table: Mapping[str, ArrayLike], columns: Iterable[Column], rows_max: int
) -> Encoded:
    """Return one party's columns as whole numbers, or refuse them without showing a value.

    Args:
        table: The columns by name, each of shape (rows,); other columns only have to be as long.
        rows_max: The public maximum number of rows.
    """
    read = tuple(columns)
    for column in read:
        if column.name not in table:
            raise InputError.because(
                f"the table lacks the column {column.name!r}, which the plan names",
                field=column.name,
            )
    arrays = {name: _array(name, values) for name, values in table.items()}
    shapes = {values.shape for values in arrays.values()}
    require_that(
        len(shapes) == 1 and len(next(iter(shapes))) == 1,
        "table",
        "the columns of the table must be one or more arrays of one shape, (rows,)",
    )
    ((rows,),) = shapes
    require_that(
        rows <= rows_max,
        "table",
        f"the table has more rows than the plan allows each party, {rows_max:,}; raise `rows_max`",
    )
    return Encoded(rows, {column.name: column.encode(arrays[column.name]) for column in read})


def _array(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return a column as an array, in which values under a mask are missing."""
    if isinstance(values, np.ma.MaskedArray):
        return np.asarray(np.ma.filled(values.astype(np.object_), nan))
    with suppress(ValueError):  # whose message may describe rows
        return np.asarray(values)
    raise InputError.because(f"the column {name!r} must be an array of one axis", field=name)


def _texts(name: str, values: NDArray[Any]) -> NDArray[np.str_]:
    """Return the values of a category as text, empty where missing."""
    kind = values.dtype.kind
    require_that(kind not in "SVc", name, f"the column {name!r} must have texts or numbers")
    if kind not in "bfO":
        return values.astype(np.str_)
    return np.array([_text(value) for value in values.tolist()], np.str_)


def _text(value: object) -> str:
    if isinstance(value, bool | float) and value == value // 1:
        value = int(value)
    text = str(value)
    return "" if text in _NO_VALUES and not isinstance(value, str) else text


def _exact(number: float) -> Fraction:
    return Fraction(repr(number))
