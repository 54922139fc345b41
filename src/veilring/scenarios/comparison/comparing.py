"""A comparison at work: its jobs in many processes, first on a few splits, then on more."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from veilring.data.table import Table
from veilring.protocols.system import SERVER, System
from veilring.scenarios.comparison.comparison import SystemComparison
from veilring.scenarios.comparison.contenders import Contender, describe_rules, find_contenders
from veilring.scenarios.comparison.decision import decide
from veilring.scenarios.comparison.lines import Left
from veilring.scenarios.comparison.marks import mark_split
from veilring.scenarios.comparison.playing import play_batch
from veilring.scenarios.comparison.question import (
    Asked,
    Question,
    TableFacts,
    draw_split,
    find_question,
    load_facts,
)
from veilring.scenarios.comparison.results import Results, make_lines
from veilring.scenarios.comparison.tuning import SystemAt, search_in_hindsight
from veilring.scenarios.network import make_topology
from veilring.scenarios.reporting import versions_used
from veilring.scenarios.runner import Progress, ignore_progress
from veilring.scenarios.sweep.engine import Engine, each_done

# They take a few seconds, and are enough for a first answer.
_FIRST_SPLITS: Final = 5
# Noise at this ε no longer decides anything; a system with a lower limit gets its maximum. At a
# larger ε, public rules would cut grids into millions of cells.
_EPSILON_QUIET: Final = 30.0


class _Job(NamedTuple):
    """A task of one process, and the place of its result: a table of `Results`, and a key."""

    table: str
    key: object
    task: Callable[[Table, Question], object]


def _run(given: tuple[_Job, Table, Question]) -> tuple[str, object, object]:
    job, table, question = given
    return job.table, job.key, job.task(table, question)


@dataclass(frozen=True, slots=True)
class _Comparing:
    """A comparison at work: its jobs, and their results so far."""

    table: Table
    question: Question
    facts: TableFacts
    contenders: Sequence[Contender]
    left_out: tuple[Left, ...]
    engine: Engine
    progress: Progress
    results: Results = field(default_factory=Results)

    @property
    def systems(self) -> tuple[SystemAt, ...]:
        """The contenders that parties play."""
        return tuple(each for each in self.contenders if isinstance(each, SystemAt))

    def marks(self, start: int, stop: int) -> list[_Job]:
        """Return the jobs that mark all contenders on splits."""
        jobs = (partial(mark_split, each, self.contenders) for each in range(start, stop))
        return [_Job("marks", number, job) for number, job in enumerate(jobs, start)]

    def plays(self, *, bounded: bool) -> list[_Job]:
        """Return the jobs that play a batch of each system with, or without, an ε."""
        systems = (each for each in self.systems if each.system.is_bounded() is bounded)
        return [_Job("played", each.key, partial(play_batch, each)) for each in systems]

    def searches(self) -> list[_Job]:
        """Return the jobs that search in hindsight, if asked for."""
        hindsight = self.question.hindsight
        return list(_searched(self.systems, self.question)) if hindsight else []

    def run(self, jobs: Sequence[_Job], *, before: int = 0, after: int = 0) -> SystemComparison:
        """Run jobs in any order, among others, and return the comparison so far."""
        total = before + len(jobs) + after
        self.progress("Comparing", before, total)
        given = [(job, self.table, self.question) for job in jobs]
        with each_done(_run, given, self.engine) as results:
            for done, (table, key, result) in enumerate(results, before + 1):
                getattr(self.results, table)[key] = result
                self.progress("Comparing", done, total)
        return self._found()

    def _found(self) -> SystemComparison:
        question, failed = self.question, self.results.failed
        public = draw_split(self.table, question, 0).facts
        kept = [each for each in self.contenders if each.key not in failed]
        lines = make_lines(question, self.facts, public, kept, self.results)
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
    contenders, left_out = find_contenders(rows, question)
    progress = progress or ignore_progress
    engine = Engine(workers=workers)
    at_work = _Comparing(rows, question, facts, contenders, left_out, engine, progress)
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


def _searched(systems: Sequence[SystemAt], question: Question) -> Iterator[_Job]:
    """Yield the searches in hindsight: for each form at its largest ε, and without noise."""
    for each in systems:
        kind, epsilon = type(each.system), each.key[-1]
        if epsilon == question.epsilon[-1] and set(kind.tunable()) - set(question.settings):
            yield _Job("hindsight", each.key, partial(search_in_hindsight, each, is_line=True))
            without = each.system.replaced(epsilon=min(_EPSILON_QUIET, _most(kind)))
            quiet = SystemAt(without, each.form)
            yield _Job("quiet", each.key, partial(search_in_hindsight, quiet, is_line=False))


def _most(kind: type[System]) -> float:
    """Return the largest ε that a system supports."""
    bounds = (getattr(each, "le", None) for each in kind.model_fields["epsilon"].metadata)
    return min((float(each) for each in bounds if each is not None), default=_EPSILON_QUIET)
