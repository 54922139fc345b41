"""Comparison of all applicable systems on the same splits: accuracy, privacy and cost.

`question` defines the inputs and the shared rows; this module plays all systems on them, with one
real batch each. `lines` contains their results, `decision` what follows from them, and `page`
renders both. `baselines` are those of other libraries. `tuning` computes the accuracy on a split
and searches parameters, for `veilring tune` too.

Parameters follow from public numbers alone: trying several on private rows and keeping the best
leaks information that no budget accounts for. The rules are the same for all data. The best
parameters in hindsight are measured too, and marked as not private.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from veilring import simulation
from veilring.arrays import Floats
from veilring.data.table import Table
from veilring.errors import InputError, MissingExtra, UnforeseenCost
from veilring.measures import NUMBERS, measure
from veilring.nodes.runtimes import Memory, Simulated
from veilring.protocols.promise import Facts, Forecast, Leakage, Promise, total_cost
from veilring.protocols.registry import find_system, system_names
from veilring.protocols.ring.algorithm.classify import pooled_knn, pooled_mean
from veilring.protocols.system import SERVER, Scored, Setup, System
from veilring.randomness import Streams
from veilring.scenarios.comparison.baselines import Baseline, installed
from veilring.scenarios.comparison.comparison import SystemComparison
from veilring.scenarios.comparison.decision import decide
from veilring.scenarios.comparison.lines import (
    HINDSIGHT,
    MAJORITY,
    POOLED,
    Key,
    Left,
    Limits,
    Line,
    Played,
    parameters_text,
)
from veilring.scenarios.comparison.question import (
    Asked,
    DealtSplit,
    Question,
    TableFacts,
    draw_split,
    find_question,
    load_facts,
)
from veilring.scenarios.comparison.tuning import (
    Interval,
    Search,
    SystemAt,
    over_splits,
    score_over_splits,
)
from veilring.scenarios.network import make_topology
from veilring.scenarios.reporting import versions_used
from veilring.scenarios.runner import Conditions, Labelled, Progress, ignore_progress, play_queries
from veilring.scenarios.sweep.engine import Engine, each_done
from veilring.simulation import Topology
from veilring.simulation.loop import complete

# They take a few seconds, and are enough for a first answer.
_FIRST_SPLITS: Final = 5
_TRIALS: Final = 5_000  # of measured leakage: the default of a scenario's report
# A search tries some twenty choices of parameters on each of them.
_HINDSIGHT_SPLITS: Final = 8
# Noise at this ε no longer decides anything; a system with a lower limit gets its maximum. At a
# larger ε, public rules would cut grids into millions of cells.
_EPSILON_QUIET: Final = 30.0

Contender = SystemAt | Baseline
"""A system at an ε, or a baseline."""


@dataclass(frozen=True, slots=True, repr=False)
class _Asked:
    """The inputs of all jobs; each job runs in a process of its own.

    Attributes:
        table: All rows, scaled into [0, 1].
    """

    table: Table
    question: Question


@dataclass(frozen=True, slots=True)
class Right:
    """The credit of the baselines for each held-out row, shape (rows,) each.

    Attributes:
        pooled: The credit of the nearest rows of all parties.
        majority: The credit of the majority class, or of the mean of all numbers.
        measures: The values of measures of each baseline, by its key.
    """

    pooled: Floats
    majority: Floats
    measures: Mapping[str, Mapping[str, float]]

    @classmethod
    def on(cls, split: DealtSplit, k: int) -> "Right":
        """Return the correct answers of the baselines on a split."""
        train, held_out = split.train, split.held_out
        if train.features.target is None:
            classes = len(train.features.classes)
            pooled = pooled_knn(held_out.X, train.X, train.y, classes, k)
            always = int(np.bincount(train.y).argmax())
        else:
            pooled = pooled_mean(held_out.X, train.X, train.y, k)
            always = round(float(train.y.mean()))
        most = np.full(len(held_out), always)
        measures = {
            key: _values(held_out, Scored(labels))
            for key, labels in ((POOLED, pooled), (MAJORITY, most))
        }
        return cls(split.credits(pooled), split.credits(most), measures)


@dataclass(frozen=True, slots=True)
class Marks:
    """The scores of the same queries: the accuracy, or R² for numbers."""

    own: float
    pooled: float
    majority: float
    queries: int
    measures: Mapping[str, float]


def _values(held_out: Table, said: Scored) -> Mapping[str, float]:
    """Return the value of each measure of the classes of the first held-out rows."""
    if held_out.features.target is not None:
        return {}
    truth = held_out.y[: len(said.labels)]
    found = measure(truth, said.labels, held_out.features.classes, said.scores)
    each = ((name, found.number(name)) for name in NUMBERS)
    return {name: number.value for name, number in each if number is not None}


def mark(contender: Contender, split: DealtSplit, question: Question, right: Right) -> Marks:
    """Return the score of a system on a split, and of the baselines on the same queries."""
    said = contender.score(split, question)
    asked = slice(len(said.labels))
    return Marks(
        own=float(split.credits(said.labels).mean()),
        pooled=float(right.pooled[asked].mean()),
        majority=float(right.majority[asked].mean()),
        queries=len(said.labels),
        measures=_values(split.held_out, said),
    )


class _Marked(NamedTuple):
    """The marks on one split, and the baselines that failed on it."""

    marks: Mapping[Key, Marks]
    failed: Mapping[Key, Left]


def _mark_split(number: int, contenders: Sequence[Contender], asked: _Asked) -> _Marked:
    """Return the marks of all contenders on one split."""
    split = draw_split(asked.table, asked.question, number)
    right = Right.on(split, asked.question.k)
    pooled, majority = float(right.pooled.mean()), float(right.majority.mean())
    queries = len(right.pooled)
    marks: dict[Key, Marks] = {
        (key, "", None): Marks(own, pooled, majority, queries, right.measures[key])
        for key, own in ((POOLED, pooled), (MAJORITY, majority))
    }
    failed = {}
    for each in contenders:
        try:
            marks[each.key] = mark(each, split, asked.question, right)
        except InputError as error:
            if isinstance(each, SystemAt):
                raise
            failed[each.key] = Left(f"{each.title}, ε = {each.epsilon:g}", error.sentence)
    return _Marked(marks, failed)


class _BatchPlayed(NamedTuple):
    cost: Played
    leakage: Leakage | None


def _play_batch(contender: SystemAt, asked: _Asked) -> _BatchPlayed:
    """Play one batch of the first split, and measure its leakage if no ε bounds that."""
    question = asked.question
    split = draw_split(asked.table, question, 0)
    batch = split.batches(question.queries)[0]
    setup = contender.set_up(split, len(batch))
    leakage = None
    if not contender.system.is_bounded():
        rng = Streams(question.seed).generator("comparison", "leakage")
        leakage = setup.leakage(batch.X, _TRIALS, rng)
    topology = make_topology(question.network, setup.parties)
    return _BatchPlayed(_play(setup, batch, topology, question.seed), leakage)


class _Hindsight(NamedTuple):
    parameters: Mapping[str, object]
    accuracies: tuple[float, ...]


def _search_in_hindsight(contender: SystemAt, asked: _Asked, *, is_line: bool) -> _Hindsight:
    """Return the best parameters, and their accuracy on splits not used to choose them."""
    question = asked.question
    splits = [draw_split(asked.table, question, each) for each in range(question.splits)]
    searched, others = splits[:_HINDSIGHT_SPLITS], splits[_HINDSIGHT_SPLITS:]

    def accuracies(system: System, splits: Sequence[DealtSplit]) -> list[float]:
        at = SystemAt(system, contender.form)
        return [at.accuracy(split, question) for split in splits]

    def measure(systems: Sequence[System]) -> Iterator[Floats | None]:
        for system in systems:
            try:
                yield np.array(accuracies(system, searched))
            except InputError:  # not for these rows
                yield None

    fixed = frozenset(question.settings)
    search = Search(contender.system, splits[0].facts, measure, fixed)
    best, honest = search.best(), search.honest()
    if not best.parameters and is_line:
        return _Hindsight({}, honest)  # on the others it is the line itself
    system = contender.system.replaced(**best.parameters)
    shares = (*honest, *accuracies(system, others))
    return _Hindsight(best.parameters, shares)


class _Job(NamedTuple):
    """A task of one process, and the place of its result: a table of `_Results`, and a key."""

    table: str
    key: object
    task: Callable[[_Asked], object]


def _run(given: tuple[_Job, _Asked]) -> tuple[str, object, object]:
    job, asked = given
    return job.table, job.key, job.task(asked)


@dataclass(frozen=True, slots=True)
class _Results:
    """The results of all jobs, by the number of a split or by a contender."""

    marks: dict[int, _Marked] = field(default_factory=dict)
    played: dict[Key, _BatchPlayed] = field(default_factory=dict)
    hindsight: dict[Key, _Hindsight] = field(default_factory=dict)
    quiet: dict[Key, _Hindsight] = field(default_factory=dict)

    def of(self, key: Key) -> list[Marks]:
        """Return the marks of a line on each split."""
        return [self.marks[number].marks[key] for number in sorted(self.marks)]

    @property
    def failed(self) -> Mapping[Key, Left]:
        """The baselines that failed on a split."""
        splits = (self.marks[number].failed for number in sorted(self.marks, reverse=True))
        return {key: left for failed in splits for key, left in failed.items()}


@dataclass(frozen=True, slots=True)
class _Comparing:
    """A comparison at work: its jobs, and their results so far."""

    asked: _Asked
    facts: TableFacts
    contenders: Sequence[Contender]
    left_out: tuple[Left, ...]
    engine: Engine
    progress: Progress
    results: _Results = field(default_factory=_Results)

    @property
    def systems(self) -> tuple[SystemAt, ...]:
        """The contenders that parties play."""
        return tuple(each for each in self.contenders if isinstance(each, SystemAt))

    def marks(self, start: int, stop: int) -> list[_Job]:
        """Return the jobs that mark all contenders on splits."""
        jobs = (partial(_mark_split, each, self.contenders) for each in range(start, stop))
        return [_Job("marks", number, job) for number, job in enumerate(jobs, start)]

    def plays(self, *, bounded: bool) -> list[_Job]:
        """Return the jobs that play a batch of each system with, or without, an ε."""
        systems = (each for each in self.systems if each.system.is_bounded() is bounded)
        return [_Job("played", each.key, partial(_play_batch, each)) for each in systems]

    def searches(self) -> list[_Job]:
        """Return the jobs that search in hindsight, if asked for."""
        question = self.asked.question
        return list(_searched(self.systems, question)) if question.hindsight else []

    def run(self, jobs: Sequence[_Job], *, before: int = 0, after: int = 0) -> SystemComparison:
        """Run jobs in any order, among others, and return the comparison so far."""
        total = before + len(jobs) + after
        self.progress("Comparing", before, total)
        with each_done(_run, [(job, self.asked) for job in jobs], self.engine) as results:
            for done, (table, key, result) in enumerate(results, before + 1):
                getattr(self.results, table)[key] = result
                self.progress("Comparing", done, total)
        return self._found()

    def _found(self) -> SystemComparison:
        question, failed = self.asked.question, self.results.failed
        public = draw_split(self.asked.table, question, 0).facts
        kept = [each for each in self.contenders if each.key not in failed]
        lines = _lines(question, self.facts, public, kept, self.results)
        return SystemComparison(
            question=question,
            facts=self.facts,
            lines=lines,
            decision=decide(lines, question.tolerance, self.facts.wording),
            left_out=(*self.left_out, *failed.values()),
            rules=describe_rules(self.systems, public),
            versions=versions_used(),
        )


def compare(
    data: Asked,
    *,
    table: Table | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    watch: Callable[[SystemComparison], None] | None = None,
    **fields: Any,
) -> SystemComparison:
    """Compare every applicable system on the same splits of the same data.

    Args:
        data: A data set by its name or path, a table, or the table of each party under one schema;
            or a `Question`.
        table: For a question: the rows, instead of those that it names; its ranges count as public.
        workers: The number of processes; by default one per core.
        watch: Called with the comparison so far: after a few splits, which have no costs yet, and
            before splits are added.
        fields: Without a question: its fields, such as `parties`, `epsilon` and `splits`.

    Raises:
        InputError: If the data, the network or a parameter does not fit the question.
        RunFailed: If a played batch failed at any party.
        UnforeseenCost: If a played batch cost anything other than its closed form.
    """
    question, found = find_question(data, fields)
    rows, facts = load_facts(question, table if found is None else found)
    # Checked before anything takes long.
    make_topology(question.network, (SERVER, *question.names))
    asked = _Asked(rows, question)
    contenders, left_out = find_contenders(rows, question)
    progress = progress or ignore_progress
    at_work = _Comparing(asked, facts, contenders, left_out, Engine(workers=workers), progress)
    first = min(_FIRST_SPLITS, question.splits)
    beginning = [*at_work.plays(bounded=False), *at_work.marks(0, first)]
    rest = [*at_work.searches(), *at_work.plays(bounded=True)]
    rest += at_work.marks(first, question.splits)
    comparison = at_work.run(beginning, after=len(rest))
    if watch is not None and first < question.splits:
        watch(comparison)
    comparison = at_work.run(rest, before=len(beginning))
    while comparison.decision.open and comparison.splits < question.splits_max:
        if watch is not None:
            watch(comparison)
        splits = comparison.splits
        more = min(splits + question.splits, question.splits_max)
        comparison = at_work.run(at_work.marks(splits, more))
    return comparison


def find_contenders(
    table: Table, question: Question
) -> tuple[tuple[Contender, ...], tuple[Left, ...]]:
    """Return the contenders, and the systems that do not apply, with the reason.

    Args:
        table: All rows, scaled into [0, 1].
    """
    found, left_out = list[Contender](), dict[str, Left]()
    split = draw_split(table, question, 0)
    size = len(split.batches(question.queries)[0])
    for kind in map(find_system, system_names()):
        if not kind.hides_rows:
            left_out[kind.title] = Left(kind.title, "it protects a query, not rows")
            continue
        for contender in _forms_of(kind, question):
            try:
                setup = contender.set_up(split, size)
                make_topology(question.network, setup.parties)
                earlier = (each for each in found if isinstance(each, SystemAt))
                same = next((e for e in earlier if contender.repeats(e, split.facts)), None)
            except (InputError, MissingExtra) as error:
                name = _name(contender)
                why = str(error)
                if isinstance(error, InputError):
                    why = f"it does not fit this table: {error.sentence}"
                left_out[name] = Left(name, why)
            else:
                if same is None:
                    found.append(contender)
                    continue
                why = f"it repeats {_name(same)} wherever that has the same guarantee"
                left_out[_name(contender)] = Left(_name(contender), why)
    for baseline in installed(table.features):
        try:
            baseline.label(split, question)
        except InputError as error:
            left_out[baseline.title] = Left(baseline.title, error.sentence)
            continue
        found += [replace(baseline, epsilon=epsilon) for epsilon in question.epsilon]
    return tuple(found), tuple(left_out.values())


def _forms_of(kind: type[System], question: Question) -> Iterator[SystemAt]:
    """Yield each form of a system with the parameters of the question: once, or at each ε."""
    settings = {name: value for name, value in question.settings.items() if name in kind.tunable()}
    at = [
        kind.forms(epsilon=epsilon, k=question.k, tolerated=question.colluding)
        for epsilon in (question.epsilon if kind.is_bounded() else (None,))
    ]
    for form in at[0]:
        yield from (SystemAt(forms[form].replaced(**settings), form) for forms in at)


def _searched(systems: Sequence[SystemAt], question: Question) -> Iterator[_Job]:
    """Yield the searches in hindsight: for each form at its largest ε, and without noise."""
    for each in systems:
        kind, epsilon = type(each.system), each.key[-1]
        if epsilon == question.epsilon[-1] and set(kind.tunable()) - set(question.settings):
            yield _Job("hindsight", each.key, partial(_search_in_hindsight, each, is_line=True))
            without = each.system.replaced(epsilon=min(_EPSILON_QUIET, _most(kind)))
            quiet = SystemAt(without, each.form)
            yield _Job("quiet", each.key, partial(_search_in_hindsight, quiet, is_line=False))


def _most(kind: type[System]) -> float:
    """Return the largest ε that a system supports."""
    bounds = (getattr(each, "le", None) for each in kind.model_fields["epsilon"].metadata)
    return min((float(each) for each in bounds if each is not None), default=_EPSILON_QUIET)


def describe_rules(systems: Sequence[SystemAt], public: Facts) -> tuple[tuple[str, str], ...]:
    """Return each rule in words, with its values for this table at the smallest ε."""
    said = dict[str, str]()
    for each in systems:
        said.setdefault(_name(each), each.system.rule(public))
    ranges = "features are scaled into [0, 1] by public ranges; values outside are clipped"
    return ("ranges", ranges), *((name, rule) for name, rule in said.items() if rule)


def _lines(
    question: Question,
    facts: TableFacts,
    public: Facts,
    contenders: Sequence[Contender],
    results: _Results,
) -> tuple[Line, ...]:
    """Return the lines: the baselines, and each contender followed by its line in hindsight."""
    lines = [
        _baseline(POOLED, f"pooled {question.k}-NN", facts, results),
        _baseline(MAJORITY, facts.wording.baseline, facts, results),
    ]
    for each in contenders:
        marks = results.of(each.key)
        figures = _figures(marks, facts)
        if isinstance(each, Baseline):
            lines.append(_of_baseline(each, figures))
            continue
        promise = each.system.promise_about(public)
        line = _of_system(each, promise, figures, question, results.played.get(each.key))
        if each.key in results.hindsight:
            found, quiet = results.hindsight[each.key], results.quiet[each.key]
            marks = marks[: question.splits]
            as_ruled = (mark.own for mark in marks[len(found.accuracies) :])
            found = found._replace(accuracies=(*found.accuracies, *as_ruled))
            limits = _limits(marks, found, quiet, facts)
            lines.append(replace(line, limits=limits))
            lines.append(_best_line(line, marks, found, facts))
        else:
            lines.append(line)
    return tuple(lines)


def _baseline(key: str, name: str, facts: TableFacts, results: _Results) -> Line:
    """Return the line of a baseline, which nobody plays and which protects nothing."""
    marks = results.of((key, "", None))
    return Line(
        system=key,
        name=name,
        epsilon=None,
        trusted=True,
        trust="one place",
        guarantee="none",
        **_figures(marks, facts),
    )


def _name(contender: SystemAt) -> str:
    title = contender.system.title
    return f"{title}, {contender.form}" if contender.form else title


def _of_system(
    contender: SystemAt,
    promise: Promise,
    figures: Mapping[str, Any],
    question: Question,
    played: _BatchPlayed | None,
) -> Line:
    system, parties = contender.system, question.parties
    return Line(
        system=system.name,
        form=contender.form,
        name=_name(contender),
        epsilon=contender.key[-1],
        trusted=system.has_owner,
        trust=system.trust.format(
            parties=parties,
            honest=parties - question.colluding,
            outside=parties - system.pooling(parties),
        ),
        guarantee=promise.short,
        lasting=system.is_lasting,
        privacy=promise,
        leakage=played.leakage if played and promise.epsilon is None else None,
        cost=played and played.cost,
        **figures,
    )


def _of_baseline(baseline: Baseline, figures: Mapping[str, Any]) -> Line:
    return Line(
        system=baseline.name,
        name=baseline.title,
        epsilon=baseline.epsilon,
        trusted=True,
        trust="an owner",
        guarantee=baseline.promise.short,
        lasting=True,
        privacy=baseline.promise,
        **figures,
    )


def _best_line(line: Line, marks: Sequence[Marks], found: _Hindsight, facts: TableFacts) -> Line:
    """Return the line of the best parameters in hindsight: these depend on the rows."""
    pairs = zip(marks, found.accuracies, strict=True)
    best = [replace(mark, own=own, measures={}) for mark, own in pairs]
    return Line(
        system=f"{line.system}{HINDSIGHT}",
        form=line.form,
        name=f"{line.name}, in hindsight",
        epsilon=line.epsilon,
        trusted=line.trusted,
        trust=line.trust,
        guarantee=f"not private: {parameters_text(found.parameters) or 'same as the rule'}",
        **_figures(best, facts),
    )


def _limits(
    marks: Sequence[Marks], found: _Hindsight, quiet: _Hindsight, facts: TableFacts
) -> Limits:
    """Divide the loss of a line to the pooled classifier, split by split."""
    overlap = marks[0].queries / facts.train
    pairs = zip(marks, found.accuracies, quiet.accuracies, strict=True)
    shares = [(best - mark.own, still - best, mark.pooled - still) for mark, best, still in pairs]
    rule, noise, method = (over_splits(each, overlap) for each in zip(*shares, strict=True))
    return Limits(dict(found.parameters), rule, noise, method)


def _figures(marks: Sequence[Marks], facts: TableFacts) -> dict[str, Any]:
    """Return the accuracy figures of a line, named like its fields."""
    queries = marks[0].queries
    overlap = queries / facts.train
    own = tuple(mark.own for mark in marks)
    losses = tuple(mark.pooled - mark.own for mark in marks)
    gains = tuple(mark.own - mark.majority for mark in marks)
    return {
        "queries": queries,
        "overlap": overlap,
        "accuracies": own,
        "losses": losses,
        "gains": gains,
        "accuracy": score_over_splits(own, facts, queries),
        "loss": over_splits(losses, overlap),
        "gain": over_splits(gains, overlap),
        "measures": {
            name: _possible(name, over_splits([mark.measures[name] for mark in marks], overlap))
            for name in NUMBERS
            if all(name in mark.measures for mark in marks)
        },
    }


def _possible(name: str, interval: Interval) -> Interval:
    """Return the possible part of an interval: only a calibration may be negative."""
    least = -1.0 if name == "calibration" else 0.0
    return interval._replace(low=max(least, interval.low), high=min(1.0, interval.high))


def _play(setup: Setup, asked: Table, topology: Topology, seed: int) -> Played:
    """Play a batch in the simulation and in memory, and check its cost against the closed form."""
    label = partial(play_queries, setup, asked.X, seed=seed, conditions=Conditions())
    simulated = simulation.simulate(label(Simulated(topology)))
    here = complete(lambda: label(Memory()), asyncio.run)
    forecast = _require_forecast(simulated)
    _require_forecast(here)
    return Played(
        forecast.rounds,
        *forecast.traffic,
        *forecast.setup,
        simulated_seconds=sum(batch.seconds for batch in simulated.batches),
        seconds=here.seconds,
    )


def _require_forecast(labelled: Labelled) -> Forecast:
    """Return the cost of all batches, checked against the closed form."""
    for batch in labelled.batches:
        found = Forecast.measured(batch.run.cost)
        if found != batch.forecast:
            raise UnforeseenCost(batch.forecast, found)
    return total_cost(*(batch.forecast for batch in labelled.batches))
