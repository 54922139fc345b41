"""Statistics among peers in one call: `veilring.stats`.

::

    age = vr.stats.Number("age", 0, 120)
    sex = vr.stats.Category("sex", ("f", "m"))
    mean = vr.stats.mean(parts, age)
    both = vr.stats.ask(parts, vr.stats.Mean(age), vr.stats.Histogram(sex), epsilon=1.0)

Each function takes the tables of the parties, in order or by name: columns by name, or a data
frame; then the fields of its statistic, and `Options` by name. It runs the role `sum_statistics`
among them and returns an `Answer` with the result, its promise, and its cost. Ranges, resolutions
and categories are public: do not take them from rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import Unpack, override

from veilring.data.frames import Frame
from veilring.errors import InputError
from veilring.nodes.cluster import RuntimeName
from veilring.nodes.run import Run
from veilring.protocols.promise import SEED_TELLS, Promise
from veilring.protocols.statistics.algorithm.columns import Bins, Category, Number
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
from veilring.protocols.statistics.algorithm.quantiles import Quantiles
from veilring.protocols.statistics.algorithm.survival import KaplanMeier
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


def _asking(statistic: Callable[..., Statistic[_R]]) -> Callable[..., Answer[_R]]:
    """Return a function that asks one statistic: tables, its fields, and `Options` by name."""

    def asked(parts: Tables, *given: Any, **named: Any) -> Answer[_R]:
        options = {name: named.pop(name) for name in Options.__annotations__ if name in named}
        answer = ask(parts, statistic(*given, **named), **cast("Options", options))
        (value,) = answer.value
        return replace(cast("Answer[Any]", answer), value=value)

    asked.__doc__ = statistic.__doc__
    return asked


count = _asking(Count)
sum = _asking(Sum)  # noqa: A001  (as `vr.stats.sum`)
mean = _asking(Mean)
variance = _asking(Variance)
histogram = _asking(Histogram)
cross_table = _asking(CrossTable)
quantiles = _asking(Quantiles)
correlation = _asking(Correlation)
group_means = _asking(GroupMeans)
least_squares = _asking(LeastSquares)
kaplan_meier = _asking(KaplanMeier)
