"""The file of a plan: its columns and statistics, in TOML.

::

    small = 5
    [[columns]]
    name = "age"
    high = 120
    edges = [0, 18, 65, 120]
    [[columns]]
    name = "smokes"
    categories = ["no", "yes"]
    [[statistics]]
    kind = "cross-table"
    first = "age"
    second = "smokes"
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from inspect import isabstract, isclass
from math import nan
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from veilring.config import (
    Agreed,
    Section,
    as_scenario_errors,
    read_tables,
    require_key,
    require_key_that,
    scenario_error,
)
from veilring.data.cells import Cells, Reading, Words
from veilring.data.columns import FeatureTerms, check_features, look_up, numbers_of, read_categories
from veilring.data.schema import matched, read_file
from veilring.errors import ScenarioError
from veilring.protocols.statistics.algorithm import counts, moments, quantiles, survival
from veilring.protocols.statistics.algorithm.columns import Bins, Category, Column, Grouping, Number
from veilring.protocols.statistics.algorithm.quantiles import QUARTILES
from veilring.protocols.statistics.algorithm.tallies import Statistic
from veilring.protocols.statistics.plan import DELTA, ROWS_MAX, Plan

KINDS: Final[Mapping[str, type[Statistic[Any]]]] = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower(): each
    for module in (moments, counts, quantiles, survival)
    for name, each in vars(module).items()
    if isclass(each) and issubclass(each, Statistic) and not isabstract(each)
}
"""The classes of statistics by their kinds, such as `cross-table`."""
_GROUPINGS: Final = frozenset({"by", "first", "second"})
_RANGE: Final = ("low", "high", "step")
_Numbers = Annotated[tuple[float, ...], Field(strict=False)]


class ColumnTerms(FeatureTerms):
    """A column of a plan.

    Attributes:
        step: The resolution of a number.
        edges: The edges of the intervals into which a number is divided where it forms cells.
        clip: Whether numbers outside of the range are moved to its nearest end.
        skip: Whether statistics of the column leave out rows without a value.
    """

    step: float = Field(1.0, gt=0)
    edges: _Numbers = Field((), description="a list of increasing numbers, or none")
    clip: bool = False
    skip: bool = False

    @property
    def column(self) -> Column:
        """The declared column."""
        if self.categories:
            return Category(self.name, self.categories, self.skip)
        return Number(self.name, self.low, self.high, self.step, self.clip, self.skip)

    def read(self, cells: Cells) -> NDArray[Any]:
        """Return the column of a file, whose errors name the line."""
        if self.categories:
            missing = len(self.categories)
            places = (
                look_up(cells, self.name, self.categories, missing=missing)
                if self.skip
                else read_categories(self, cells)
            )
            return np.array([*self.categories, ""])[places]
        return numbers_of(self.model_copy(update={"missing": nan}) if self.skip else self, cells)


class StatisticTerms(Section):
    """A statistic of a plan: its kind, and the names of its columns.

    Attributes:
        column: The number that is summarised, searched or fitted.
        on: The numbers that are correlated, or on which another one is fitted.
        by: The column that forms groups, intervals or categories.
        first: The column that forms the rows of a cross table.
        second: The column that forms its columns.
        time: The time until the event, or the end of observation.
        event: The column that tells which of them it was.
        at: The shares of quantiles.
    """

    kind: str = Field(description=", ".join(KINDS))
    column: str = ""
    on: Words = Field((), description="a list of names of columns")
    by: str = ""
    first: str = ""
    second: str = ""
    time: str = ""
    event: str = ""
    at: _Numbers = Field(QUARTILES, description="a list of numbers from 0 to 1")

    def bind(self, key: str, columns: Mapping[str, ColumnTerms]) -> Statistic[Any]:
        """Return the statistic of declared columns; errors name the key of this table."""
        require_key(self.kind in KINDS, f"{key}.kind", self.kind, ", ".join(KINDS))
        needed = {each.name: each for each in fields(KINDS[self.kind])}  # type: ignore[arg-type]  # each is a dataclass
        given = self.model_fields_set - {"kind"}
        for name in sorted(given - set(needed)):
            allowed = f"left out: a {self.kind} has {', '.join(needed) or 'no columns'}"
            require_key(name in needed, f"{key}.{name}", getattr(self, name), allowed)
        for name, each in needed.items():
            optional = each.default is not MISSING
            require_key_that(
                name in given or optional, f"{key}.{name}", f"a {self.kind} needs the key `{name}`"
            )
        with as_scenario_errors({}, key):
            found = {name: self._value(f"{key}.{name}", name, columns) for name in given}
            return KINDS[self.kind](**found)

    def _value(self, key: str, name: str, columns: Mapping[str, ColumnTerms]) -> Any:  # noqa: ANN401  (of any field)
        value = getattr(self, name)
        if name == "at":
            return value
        names = value if name == "on" else (value,)
        for each in names:
            require_key(each in columns, key, each, f"one of {', '.join(columns)}")
        if name in _GROUPINGS:
            return _grouping(key, columns[value])
        found = tuple(columns[each].column for each in names)
        wanted = Category if name == "event" else Number
        word = "categories" if name == "event" else "numbers, without categories"
        for column in found:
            require_key(isinstance(column, wanted), key, column.name, f"a column of {word}")
        return found if name == "on" else found[0]


def _grouping(key: str, terms: ColumnTerms) -> Grouping:
    column = terms.column
    if isinstance(column, Category):
        return column
    require_key_that(
        bool(terms.edges),
        key,
        f"the column {terms.name!r} has numbers; give `edges` to divide it into intervals",
    )
    return Bins(column, terms.edges)


def _quick_column(text: str) -> dict[str, Any]:
    """Return the table of a column such as `age=0:120` or `smokes=no,yes`."""
    name, _, values = text.partition("=")
    if ":" not in values:
        return {"name": name, "categories": values.split(",")}
    found = _floats("--column", text, values.split(":"))
    require_key(len(found) <= len(_RANGE), "--column", text, "NAME=LOW:HIGH or NAME=LOW:HIGH:STEP")
    return {"name": name, **dict(zip(_RANGE, found, strict=False))}


def _floats(option: str, text: str, words: Sequence[str]) -> list[float]:
    with suppress(ValueError):
        return [float(word) for word in words]
    raise ScenarioError(option, text, "numbers where they belong")


class PlanTerms(Agreed):
    """The file of a plan. Its keys are those of `Plan`."""

    columns: Annotated[tuple[ColumnTerms, ...], Field(strict=False)] = Field(
        (), description="a list of tables with the keys name, and low and high or categories"
    )
    statistics: Annotated[tuple[StatisticTerms, ...], Field(strict=False)] = Field(
        min_length=1, description="a list of one or more tables with the key kind"
    )
    rows_max: int = Field(ROWS_MAX, ge=1)
    small: int = Field(0, ge=0)
    epsilon: float | None = Field(None, gt=0)
    delta: float = Field(DELTA, ge=0, lt=1)
    tolerated: Literal["auto"] | Annotated[int, Field(ge=0)] = "auto"
    person_rows: int = Field(1, ge=1)

    @classmethod
    def of(cls, **tables: Any) -> Self:
        """Return the plan of these tables, as of a file.

        Raises:
            ScenarioError: If a key is missing, unknown, or has a value that is not allowed.
        """
        try:
            return cls.model_validate(tables).checked()
        except ValidationError as error:
            raise scenario_error(error, cls) from None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file of a plan; errors as in `of`."""
        return cls.of(**read_tables(path, "plan"))

    def checked(self, parties: int | None = None) -> Self:
        """Return these terms after checking them, among a number of parties if it is known."""
        check_features(self.columns)
        for each in self.columns:
            require_key(each.is_feature, f"columns.{each.name}.kind", each.kind, "left out")
        if parties is not None:
            self.bind(parties)
        return self

    @classmethod
    def quick(cls, statistic: str, columns: Sequence[str], **options: Any) -> Self:
        """Return the plan of one statistic in words.

        Args:
            statistic: Its kind, and the names of its columns or the shares of quantiles: `mean age`
                or `cross-table smokes sex`.
            columns: The ranges or the categories of its columns: `age=0:120`, `weight=0:30:0.5`
                with a step, or `smokes=no,yes`.
        """
        kind, *words = statistic.split() or [""]
        require_key(kind in KINDS, "--statistic", statistic, f"{', '.join(KINDS)}, with columns")
        table: dict[str, Any] = {"kind": kind}
        for field in fields(KINDS[kind]):  # type: ignore[arg-type]  # each is a dataclass
            if words and field.name == "on":
                table["on"], words = words, []
            elif words and field.name == "at":
                table["at"], words = _floats("--statistic", statistic, words), []
            elif words:
                table[field.name], *words = words
        require_key(not words, "--statistic", statistic, f"a {kind} of fewer columns")
        found = [_quick_column(each) for each in columns]
        return cls.of(columns=found, statistics=[table], **options)

    def bind(self, parties: int) -> Plan:
        """Return the plan for a number of parties."""
        options = {
            each.name: getattr(self, each.name)
            for each in fields(Plan)
            if each.name not in {"statistics", "parties"}
        }
        return Plan(self.bound, parties, **options)

    @property
    def bound(self) -> tuple[Statistic[Any], ...]:
        """The statistics of the declared columns."""
        columns = {each.name: each for each in self.columns}
        return tuple(
            each.bind(f"statistics.{place}", columns) for place, each in enumerate(self.statistics)
        )

    def read(self, path: Path, reading: Reading | None = None) -> dict[str, NDArray[Any]]:
        """Return the declared columns of a CSV or Parquet file.

        The reading may be that of a schema with more columns.
        """
        own = None if reading is None else reading.about([each.name for each in self.columns])
        cells = matched(read_file(path, own), self.columns)
        return {each.name: each.read(cells) for each in self.columns} or dict(cells)
