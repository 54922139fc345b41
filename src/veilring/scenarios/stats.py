"""Statistics among peers in one call: `veilring.stats`.

::

    age = vr.stats.Number("age", 0, 120)
    sex = vr.stats.Category("sex", ("f", "m"))
    mean = vr.stats.mean(parts, age)
    both = vr.stats.ask(parts, vr.stats.Mean(age), vr.stats.Histogram(sex), epsilon=1.0)

Each function takes the tables of the parties, in order or by name: columns by name, or a data
frame. It runs the role `sum_statistics` among them and returns an `Answer` with the result, its
promise, and its cost. Ranges, resolutions and categories are public: do not take them from rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import Unpack, override

from veilring.arrays import Floats
from veilring.data.schema import Frame
from veilring.errors import InputError
from veilring.nodes.cluster import RuntimeName
from veilring.nodes.run import Run
from veilring.protocols.promise import SEED_TELLS, Promise
from veilring.protocols.statistics.algorithm.columns import Bins, Category, Grouping, Number
from veilring.protocols.statistics.algorithm.counts import CrossTable, CrossTableResult, Histogram
from veilring.protocols.statistics.algorithm.moments import (
    Correlation,
    Count,
    FitResult,
    GroupMeans,
    GroupsResult,
    LeastSquares,
    Mean,
    Sum,
    Variance,
)
from veilring.protocols.statistics.algorithm.quantiles import QUARTILES, Quantiles
from veilring.protocols.statistics.algorithm.survival import KaplanMeier, SurvivalResult
from veilring.protocols.statistics.algorithm.tallies import Statistic
from veilring.protocols.statistics.plan import Plan
from veilring.protocols.statistics.roles import sum_statistics
from veilring.scenarios.direct import run
from veilring.scenarios.report import CostSummary

__all__ = (
    "Answer",
    "Bins",
    "Category",
    "Correlation",
    "Count",
    "CrossTable",
    "GroupMeans",
    "Histogram",
    "KaplanMeier",
    "LeastSquares",
    "Mean",
    "Number",
    "Plan",
    "Quantiles",
    "Sum",
    "Variance",
    "ask",
    "correlation",
    "count",
    "cross_table",
    "group_means",
    "histogram",
    "kaplan_meier",
    "least_squares",
    "mean",
    "quantiles",
    "run_plan",
    "sum",
    "sum_statistics",
    "variance",
)

_R = TypeVar("_R")

Tables: TypeAlias = (
    Sequence[Mapping[str, ArrayLike] | Frame] | Mapping[str, Mapping[str, ArrayLike] | Frame]
)
"""The table of each party."""


class Options(TypedDict, total=False):
    """The options of all functions: those of a `Plan`, and of a run.

    Attributes:
        runtime: The runtime of the parties: `memory`, `tls`, `processes` or `simulated`.
        seed: The random seed, for experiments; no ε holds against anyone who knows it.
    """

    rows_max: int
    small: int
    epsilon: float | None
    delta: float
    tolerated: Literal["auto"] | int
    person_rows: int
    runtime: RuntimeName
    seed: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Answer(Generic[_R]):
    """The result of statistics among peers.

    Attributes:
        value: The result; of `ask`, a tuple with the result of each statistic.
        plan: The public terms.
        promise: What is protected, from whom, and under which assumption.
        cost: The measured rounds, messages and bytes.
        forecast: The cost from the closed forms.
        transcript: A hash over all messages: equal transcripts mean equal runs.
    """

    value: _R
    plan: Plan
    promise: Promise
    cost: CostSummary
    forecast: CostSummary
    transcript: str

    @override
    def __str__(self) -> str:
        lines = {
            "value": self.value,
            "guarantee": self.promise.guarantee,
            "cost": self.cost,
            "forecast": "equal" if self.cost == self.forecast else self.forecast,
        }
        return "\n".join(f"{name:<12}{text}" for name, text in lines.items())


def ask(
    parts: Tables, *statistics: Statistic[Any], **options: Unpack[Options]
) -> Answer[tuple[Any, ...]]:
    """Compute several statistics from the rows of all parties, in the same sums.

    With `epsilon`, they share one budget.

    Raises:
        InputError: If a table does not fit the declared columns, or sums may not fit into words.
        RunFailed: If the run failed at any party. There is no partial result.
    """
    terms = dict(options)
    runtime = cast("RuntimeName", terms.pop("runtime", "memory"))
    seed = cast("int | None", terms.pop("seed", None))
    plan = Plan(statistics, len(parts), **cast("dict[str, Any]", terms))
    return run_plan(plan, parts, runtime=runtime, seed=seed)


def run_plan(
    plan: Plan, parts: Tables, *, runtime: RuntimeName = "memory", seed: int | None = None
) -> Answer[tuple[Any, ...]]:
    """Compute the statistics of a plan, like `ask`."""
    by_name: Mapping[str, Any] = (
        parts
        if isinstance(parts, Mapping)
        else {f"party-{number}": table for number, table in enumerate(parts)}
    )
    tables = {name: _checked(name, table, plan) for name, table in by_name.items()}
    done: Run[tuple[Any, ...]] = run(sum_statistics, tables, plan=plan, runtime=runtime, seed=seed)
    seeded = {"seeded noise": SEED_TELLS} if seed is not None and plan.epsilon else {}
    return Answer(
        done.result,
        plan,
        plan.promise.broken_by(seeded),
        CostSummary.measured([done.cost]),
        CostSummary.forecast([plan.forecast]),
        done.transcript,
    )


def _checked(name: str, table: Any, plan: Plan) -> dict[str, Any]:  # noqa: ANN401  (a mapping, or a frame)
    """Return the columns of a table that a plan reads, or refuse them before a party starts."""
    known = [str(each) for each in getattr(table, "column_names", getattr(table, "columns", table))]
    read = [column.name for column in plan.columns if column.name in known] or known[:1]
    columns = {each: np.asarray(table[each]) for each in read}
    try:
        plan.encode(columns)
    except InputError as error:
        raise InputError.because(f"{name}: {error}", field=error.field) from None
    return columns


def _one(parts: Tables, statistic: Statistic[_R], options: Options) -> Answer[_R]:
    answer = ask(parts, statistic, **options)
    (value,) = answer.value
    return Answer(
        value, answer.plan, answer.promise, answer.cost, answer.forecast, answer.transcript
    )


def count(parts: Tables, **options: Unpack[Options]) -> Answer[float]:
    """Count the rows of all parties."""
    return _one(parts, Count(), options)


def sum(parts: Tables, column: Number, **options: Unpack[Options]) -> Answer[float]:  # noqa: A001  (as `vr.stats.sum`)
    """Add up a number over the rows of all parties."""
    return _one(parts, Sum(column), options)


def mean(parts: Tables, column: Number, **options: Unpack[Options]) -> Answer[float]:
    """Return the mean of a number over the rows of all parties."""
    return _one(parts, Mean(column), options)


def variance(parts: Tables, column: Number, **options: Unpack[Options]) -> Answer[float]:
    """Return the variance of a number; see `Variance`."""
    return _one(parts, Variance(column), options)


def histogram(parts: Tables, by: Grouping, **options: Unpack[Options]) -> Answer[Floats]:
    """Count the rows in each interval or category."""
    return _one(parts, Histogram(by), options)


def cross_table(
    parts: Tables, first: Grouping, second: Grouping, **options: Unpack[Options]
) -> Answer[CrossTableResult]:
    """Count the rows in each pair of cells of two columns, with χ²."""
    return _one(parts, CrossTable(first, second), options)


def quantiles(
    parts: Tables, column: Number, at: Sequence[float] = QUARTILES, **options: Unpack[Options]
) -> Answer[Floats]:
    """Return quantiles of a number by counting search; see `Quantiles`."""
    return _one(parts, Quantiles(column, tuple(at)), options)


def correlation(parts: Tables, on: Sequence[Number], **options: Unpack[Options]) -> Answer[Floats]:
    """Return the matrix of Pearson's correlations of some numbers."""
    return _one(parts, Correlation(tuple(on)), options)


def group_means(
    parts: Tables, column: Number, by: Grouping, **options: Unpack[Options]
) -> Answer[GroupsResult]:
    """Return the mean and variance of a number in each group of rows."""
    return _one(parts, GroupMeans(column, by), options)


def least_squares(
    parts: Tables, column: Number, on: Sequence[Number], **options: Unpack[Options]
) -> Answer[FitResult]:
    """Return the linear model of a number on others; see `LeastSquares`."""
    return _one(parts, LeastSquares(column, tuple(on)), options)


def kaplan_meier(
    parts: Tables,
    time: Number,
    event: Category,
    by: Grouping | None = None,
    **options: Unpack[Options],
) -> Answer[SurvivalResult]:
    """Return survival curves with the log-rank test between groups; see `KaplanMeier`."""
    return _one(parts, KaplanMeier(time, event, by), options)
