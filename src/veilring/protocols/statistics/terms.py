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
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal

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
from veilring.data.cells import Cells, Words
from veilring.data.columns import FeatureTerms, check_features, numbers_of
from veilring.data.schema import matched, read_file
from veilring.protocols.statistics.algorithm.columns import Bins, Category, Column, Grouping, Number
from veilring.protocols.statistics.algorithm.counts import CrossTable, Histogram
from veilring.protocols.statistics.algorithm.moments import (
    Correlation,
    Count,
    GroupMeans,
    LeastSquares,
    Mean,
    Sum,
    Variance,
)
from veilring.protocols.statistics.algorithm.quantiles import QUARTILES, Quantiles
from veilring.protocols.statistics.algorithm.survival import KaplanMeier
from veilring.protocols.statistics.algorithm.tallies import Statistic
from veilring.protocols.statistics.plan import DELTA, ROWS_MAX, Plan

_STATISTICS: Final[tuple[type[Statistic[Any]], ...]] = (
    Count,
    Sum,
    Mean,
    Variance,
    Histogram,
    CrossTable,
    Quantiles,
    Correlation,
    GroupMeans,
    LeastSquares,
    KaplanMeier,
)
KINDS: Final = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "-", each.__name__).lower(): each for each in _STATISTICS
}
"""The classes of statistics by their kinds, such as `cross-table`."""
_GROUPINGS: Final = frozenset({"by", "first", "second"})
_Numbers = Annotated[tuple[float, ...], Field(strict=False)]


class ColumnTerms(FeatureTerms):
    """A column of a plan.

    Attributes:
        step: The resolution of a number.
        edges: The edges of the intervals into which a number is divided where it forms cells.
        clip: Whether numbers outside of the range are moved to its nearest end.
    """

    step: float = Field(1.0, gt=0)
    edges: _Numbers = Field((), description="a list of increasing numbers, or none")
    clip: bool = False

    @property
    def column(self) -> Column:
        """The declared column."""
        if self.categories:
            return Category(self.name, self.categories)
        return Number(self.name, self.low, self.high, self.step, self.clip)

    def read(self, cells: Cells) -> NDArray[Any]:
        """Return the column of a file, whose errors name the line."""
        return cells[self.name] if self.categories else numbers_of(self, cells)


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
    on: Words = ()
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
    def load(cls, path: Path) -> "PlanTerms":
        """Read the file of a plan.

        Raises:
            ScenarioError: If a key is missing, unknown, or has a value that is not allowed.
        """
        try:
            terms = cls.model_validate(read_tables(path, "plan"))
        except ValidationError as error:
            raise scenario_error(error, cls) from None
        check_features(terms.columns)
        return terms

    def bind(self, parties: int) -> Plan:
        """Return the plan for a number of parties."""
        columns = {each.name: each for each in self.columns}
        statistics = tuple(
            each.bind(f"statistics.{place}", columns) for place, each in enumerate(self.statistics)
        )
        options = {
            each.name: getattr(self, each.name)
            for each in fields(Plan)
            if each.name not in {"statistics", "parties"}
        }
        return Plan(statistics, parties, **options)

    def read(self, path: Path) -> dict[str, NDArray[Any]]:
        """Return the declared columns of a CSV or Parquet file."""
        cells = matched(read_file(path), self.columns)
        return {each.name: each.read(cells) for each in self.columns} or dict(cells)
