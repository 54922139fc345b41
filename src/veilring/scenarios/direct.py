"""Running a system, or a custom role, from Python in one call.

`run` picks the event loop that a runtime needs. If a loop is already running, as in a notebook, it
runs in a separate thread and blocks until the end; `run_async` waits without blocking the loop. If
a run is interrupted or cancelled, no thread or process stays behind.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Final, TypeAlias, TypeVar, cast, overload

import numpy as np

from veilring import simulation
from veilring.arrays import Floats, Ints
from veilring.data.frames import Frame
from veilring.data.schema import schema_of
from veilring.data.table import Features, Rows, Table, is_table
from veilring.errors import InputError
from veilring.measures import Measures, NumberMeasures
from veilring.nodes.cluster import RUNTIMES, Cluster, RuntimeName
from veilring.nodes.journal import View
from veilring.nodes.party import by_party
from veilring.nodes.run import Run, refuse_options
from veilring.privacy.checks import require
from veilring.protocols.membership import PublicModel
from veilring.protocols.promise import Facts, Promise, Spent
from veilring.protocols.system import System
from veilring.scenarios.parts import shared_schema
from veilring.scenarios.report import CostSummary
from veilring.scenarios.runner import Conditions, Labelled, measures_of, play_queries
from veilring.simulation.loop import Runner, Start, begin, complete

R = TypeVar("R")
Parts: TypeAlias = Sequence[Table | Rows] | Mapping[str, Table | Rows]
"""The rows of each party: a table with its public ranges, or rows that are scaled already."""
Role: TypeAlias = Callable[..., Awaitable[R]]
"""A coroutine function over a `Party` and its own input."""

_SIMULATED = "simulated"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SystemRun:
    """The result of running a system: labels, cost and guarantee.

    Attributes:
        system: The system that was run.
        labels: The name of the class of each query, or the number predicted for it.
        scores: The score of each class for each query, shape (queries, classes); None if the system
            reveals only labels.
        measures: All measures of the labels, with their intervals; None if true classes are
            unknown.
        reference: The labels of a classifier that has all rows in one place.
        cost: The measured rounds, messages and bytes.
        forecast: The cost from the closed forms.
        promise: The guarantee.
        spent: The privacy budget that this run spent.
        transcript: A hash over all messages: equal transcripts mean equal runs.
        views: The view of each watched party, batch by batch.
        seconds: Wall-clock time from the start of the first batch to the end of the last.
        model: The public model that the run released, if its system makes one.
    """

    system: System
    labels: tuple[str, ...] | tuple[float, ...]
    scores: Floats | None
    measures: Measures | NumberMeasures | None
    reference: tuple[str, ...] | tuple[float, ...]
    cost: CostSummary
    forecast: CostSummary
    promise: Promise
    spent: Spent
    transcript: str
    views: Mapping[str, tuple[View, ...]]
    seconds: float
    model: PublicModel | None = None

    @property
    def accuracy(self) -> float | None:
        """The share of queries that got their true class; None if that is unknown, or no class."""
        return self.measures.accuracy.value if isinstance(self.measures, Measures) else None

    def __repr__(self) -> str:
        right = "" if self.accuracy is None else f", {self.accuracy:.1%} right"
        if isinstance(self.measures, NumberMeasures):
            right = f", RMSE {self.measures.rmse.value:.4g}"
        return f"SystemRun({self.system.name!r}: {len(self.labels):,} labels{right}, {self.cost})"

    def __str__(self) -> str:
        return "\n".join(f"{name:<12}{text}" for name, text in self._lines())

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in self._lines()
        )
        return f"<table>{rows}</table>"

    def _lines(self) -> list[tuple[str, str]]:
        agreeing = np.mean(
            [one == other for one, other in zip(self.labels, self.reference, strict=True)]
        )
        accuracy = "unknown" if self.accuracy is None else f"{self.accuracy:.1%}"
        right = [("accuracy", accuracy)]
        if isinstance(self.measures, NumberMeasures):
            right = [(label, value) for label, value, _ in self.measures.lines()]
        return [
            ("system", f"{self.system.title} ({self.system.name})"),
            ("labels", f"{len(self.labels):,}"),
            *right,
            ("agreement", f"{agreeing:.1%} with a classifier that has all rows in one place"),
            ("guarantee", self.promise.guarantee),
            ("spent", str(self.spent)),
            ("cost", str(self.cost)),
            ("forecast", "equal" if self.cost == self.forecast else str(self.forecast)),
            ("transcript", self.transcript),
        ]


@overload
def run(
    what: System,
    parts: Parts,
    queries: Table | Frame | Floats,
    *,
    runtime: RuntimeName = ...,
    seed: int | None = ...,
    watch: Sequence[str] = ...,
) -> SystemRun: ...


@overload
def run(
    what: Role[R],
    parts: Sequence[object] | Mapping[str, object],
    *,
    runtime: RuntimeName = ...,
    seed: int | None = ...,
    watch: Sequence[str] = ...,
    **public: Any,
) -> Run[R]: ...


def run(
    what: System | Role[R],
    parts: Any,
    queries: Any = None,
    *,
    runtime: RuntimeName = "memory",
    seed: int | None = None,
    watch: Sequence[str] = (),
    **public: Any,
) -> SystemRun | Run[R]:
    """Run a system or a custom role, and return the result.

    Args:
        what: A system, or a coroutine function that each party plays:
            ``role(party, own, **public)``.
        parts: The input of each party, in order or by name. For a system these are tables, which
            are scaled by their public ranges, or `Rows`.
        queries: For a system, a table with true labels, or in the units of the parts a data frame
            with their columns, found by name, or an array of shape (queries, features).
        runtime: The runtime of the parties: `memory`, `tls`, `processes` or `simulated`.
        seed: The random seed, which makes every draw and transcript reproducible. By default all
            randomness is cryptographic.
        watch: The parties whose views to return.
        **public: For a role, keyword arguments given to all parties.

    Returns:
        A `SystemRun`; for a role a `Run` with the result of each party.

    Raises:
        InputError: If the parts, the queries or the runtime do not fit.
        RunFailed: If the run failed at any party. There is no partial result.
    """
    return cast(
        "SystemRun | Run[R]",
        complete(
            _ready(what, parts, queries, runtime=runtime, seed=seed, watch=watch, **public),
            _runner(runtime),
        ),
    )


async def run_async(
    what: System | Role[R],
    parts: Any,  # noqa: ANN401  (as `run` takes it)
    queries: Any = None,  # noqa: ANN401  (likewise)
    *,
    runtime: RuntimeName = "memory",
    **options: Any,
) -> Any:  # noqa: ANN401  (what `run` returns)
    """Like `run`, but in a separate thread, without blocking the running event loop.

    If cancelled, it stops the run and waits for its end.
    """

    async def all_of_it() -> Any:  # noqa: ANN401  (as above)
        return await _ready(what, parts, queries, runtime=runtime, **options)()

    outcome, stop = begin(all_of_it, _runner(runtime))
    ended = asyncio.wrap_future(outcome)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        stop()
        await asyncio.gather(ended, return_exceptions=True)
        raise


_TRACED: Final = "; `veilring run SCENARIO --out DIR` and `veilring trace DIR` show its messages"


def _ready(
    what: System | Role[R],
    parts: Any,  # noqa: ANN401  (as `run` takes it)
    queries: Any,  # noqa: ANN401  (likewise)
    *,
    runtime: RuntimeName,
    seed: int | None = None,
    watch: Sequence[str] = (),
    **public: Any,
) -> Start[Any]:
    """Return a function that starts the requested run, after checking all arguments."""
    if isinstance(what, System):
        if public:
            more = _TRACED if "trace" in public else ""
            raise InputError.because(
                f"{next(iter(public))} is not for a system, which has its own parameters{more}",
                field=next(iter(public)),
            )
        return _ready_system(what, by_party(parts), queries, runtime, seed, watch)
    if queries is not None:
        raise InputError.because(
            "queries are for systems; give a role its arguments by their names", field="queries"
        )
    refuse_options(what, run)
    named: dict[str, Any] = by_party(parts)

    async def play() -> Run[R]:
        own = tuple(named.values())
        async with Cluster(tuple(named), runtime=runtime, own=own, seed=seed) as cluster:
            return await cluster.run(what, watch=watch, **public)

    return play


def _runner(runtime: RuntimeName) -> Runner:
    """Return a function that runs a coroutine to its end, on the loop that the runtime needs."""
    require(runtime in RUNTIMES, "runtime", runtime, ", ".join(RUNTIMES))
    return simulation.simulate if runtime == _SIMULATED else asyncio.run


def _ready_system(  # noqa: PLR0917  (what `run` takes for a system)
    system: System,
    parts: Mapping[str, Table | Rows],
    queries: Table | Frame | Floats | None,
    runtime: RuntimeName,
    seed: int | None,
    watch: Sequence[str],
) -> Start[SystemRun]:
    if queries is None:
        raise InputError.because(
            "queries are missing; give a table, or an array of shape (queries, features)",
            field="queries",
        )
    features = shared_schema(parts.values())
    rows = {name: _rows(part) for name, part in parts.items()}
    asked, truth = _asked(queries, features)
    known = features or _numbered(asked.shape[1], rows.values())
    facts = Facts.of(
        len(rows),
        asked.shape[1] if features is None else features,
        known.label_count,
        sum(map(len, rows.values())),
        len(asked),
    )
    setup, conditions = system.setup(rows, facts), Conditions(watch=tuple(watch))

    async def play() -> SystemRun:
        labelled = await play_queries(setup, asked, runtime, seed=seed, conditions=conditions)
        labels, batches = labelled.labels, labelled.batches
        return SystemRun(
            system=setup.system,
            labels=known.named(labels),
            scores=labelled.scores,
            measures=None if truth is None else _measures(truth, labelled, known),
            reference=known.named(setup.reference(asked)),
            cost=CostSummary.measured(batch.run.cost for batch in batches),
            forecast=CostSummary.forecast(batch.forecast for batch in batches),
            promise=setup.system.promise_about(setup.facts),
            spent=setup.spent(labelled.attempts),
            transcript=labelled.transcript,
            views={
                name: tuple(each.run.views[name] for each in batches if name in each.run.views)
                for name in watch
            },
            seconds=labelled.seconds,
            model=labelled.model_of(setup, seeded=seed is not None),
        )

    return play


def _measures(truth: Ints, labelled: Labelled, known: Features) -> Measures | NumberMeasures:
    """Return the measures of a run, also if a query has a class that no scaled row has."""
    more, scores = range(known.label_count, int(truth.max()) + 1), labelled.scores
    if scores is not None:
        scores = np.pad(scores, ((0, 0), (0, len(more))))
    known = replace(known, classes=(*known.classes, *map(str, more)))
    return measures_of(known, truth, labelled.labels, scores)


def _rows(part: Table | Rows) -> Rows:
    if isinstance(part, Rows):
        return part
    return Rows(part.features.ranges.to_unit(part.X, constant=0.0), part.y)


def _asked(
    queries: Table | Frame | Floats, features: Features | None
) -> tuple[Floats, Ints | None]:
    """Return the queries, scaled into [0, 1], with their true labels if known."""
    if isinstance(queries, Table):
        if features is not None and queries.features.target != features.target:
            raise InputError.because(
                f"the label of the queries is {queries.features.label_text}, and that of the parts"
                f" is {features.label_text}; load both with one schema",
                field="queries",
            )
        ranges = (features or queries.features).ranges
        return ranges.to_unit(queries.X, constant=0.0), queries.y
    if isinstance(queries, Frame):
        if features is None:
            raise InputError.because(
                "queries is a data frame, and the parts have no columns; give an array, scaled like"
                " the parts",
                field="queries",
            )
        return schema_of(features).of_frame(queries), None
    given = np.asarray(queries, np.float64)
    if not is_table(given):
        raise InputError.because(
            f"queries has the shape {given.shape}; it must be (queries, features)", field="queries"
        )
    return (given if features is None else features.ranges.to_unit(given, constant=0.0)), None


def _numbered(width: int, parts: Any) -> Features:  # noqa: ANN401  (as above)
    """Return the schema of scaled rows, whose classes are numbered."""
    highest = max(int(rows.labels.max(initial=0)) for rows in parts)
    return Features.of_numbers(width, highest + 1)
