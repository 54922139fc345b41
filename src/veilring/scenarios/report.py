"""The report of a run: accuracy, guarantee, cost and leakage, without any party's rows.

The second half puts a report into words: the names and meanings of its numbers, their format, and
tables of the traffic. The terminal, the pages and the charts share it.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, TypeVar

import numpy as np
from pydantic import TypeAdapter
from typing_extensions import override

from veilring.data.sources import BUILTIN
from veilring.measures import Measures, NumberMeasures
from veilring.nodes import RuntimeName
from veilring.nodes.journal import SETUP_ROUND, Cost, TracedMessage, Traffic
from veilring.protocols.claims import Findings, SummaryLine, share_of
from veilring.protocols.promise import Estimate, Forecast, Leakage, Promise, Spent, describe_cost
from veilring.protocols.registry import find_system
from veilring.protocols.system import NEIGHBOURS
from veilring.scenarios.schema import Experiment, RoleScenario, Scenario
from veilring.simulation.faults import FaultClass

if TYPE_CHECKING:
    from veilring.scenarios.comparison.tuning import Interval

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class StruckFault:
    """A fault of the schedule, and whether it had an effect.

    Attributes:
        start_seconds: The start, in simulated seconds from the start of the parties.
        end_seconds: The end; `None` for never.
        strength: The extra seconds or the slowdown factor; 0 for other kinds.
    """

    kind: FaultClass
    parties: tuple[str, ...]
    start_seconds: float
    end_seconds: float | None
    strength: float
    struck: bool


@dataclass(frozen=True, slots=True)
class Recovery:
    """The losses until the remaining parties had a result.

    Attributes:
        without: The parties left out, in the order of the parties.
    """

    without: tuple[str, ...]
    attempts: int
    rows_lost: int
    messages: int
    bytes: int


RingOrigin = Literal["drawn by all parties", "drawn by a committee", "dealt from the seed"]


@dataclass(frozen=True, slots=True)
class CostSummary:
    """The cost of all batches together.

    Attributes:
        rounds: The rounds that the role declares.
        depth: The rounds as measured.
    """

    batches: int
    rounds: int
    depth: int
    messages: int
    bytes: int
    setup_messages: int
    setup_bytes: int

    def __str__(self) -> str:
        messages, size = self.messages + self.setup_messages, self.bytes + self.setup_bytes
        return describe_cost((self.depth, messages, size))

    @classmethod
    def measured(cls, costs: Iterable[Cost]) -> "CostSummary":
        """Add up the measured cost of batches."""
        return cls._sum((c.rounds, c.rounds_taken, c.messages, c.bytes, *c.setup) for c in costs)

    @classmethod
    def forecast(cls, forecasts: Iterable[Forecast]) -> "CostSummary":
        """Add up the forecast cost of batches."""
        return cls._sum((f.rounds, f.rounds, *f.traffic, *f.setup) for f in forecasts)

    @classmethod
    def _sum(cls, costs: Iterable[tuple[int, ...]]) -> "CostSummary":
        each = list(costs)
        return cls(len(each), *(sum(column) for column in zip(*each, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The part of a report that every run has.

    Attributes:
        seconds: Wall-clock time from the start of the first session to the end of the last.
        simulated_seconds: The simulated counterpart of `seconds`, in the simulation.
        seed: The seed of everything that the experiment draws; pass it to a run to repeat that.
        faults: The faults of the simulation, in order of time.
    """

    scenario: Experiment
    runtime: RuntimeName
    parties: int
    cost: CostSummary
    seconds: float
    start_seconds: float
    simulated_seconds: float | None
    transcript: str
    seed: int
    secrets: Literal["seeded", "cryptographic"]
    faults: tuple[StruckFault, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values; `scenario` is the name, `settings` the rest."""
        tables = self.scenario.model_dump(mode="json", exclude_none=True)
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain = {name: _plain(value) for name, value in fields.items() if name != "scenario"}
        return {**plain, "scenario": self.scenario.name, "settings": tables}

    @classmethod
    def from_json(cls, plain: object) -> Self:
        """Return the report from the output of `as_json`."""
        tables = TypeAdapter(dict[str, Any]).validate_python(plain)
        fields = {name: tables[name] for name in cls.__dataclass_fields__ if name in tables}
        made = {**fields, "scenario": tables.get("settings")}
        return TypeAdapter(cls).validate_python(made)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(RunReport):
    """The report of one run of a system.

    Attributes:
        rounds: The number of rounds of the vector for each batch, in systems with a circulating
            vector.
        reference_accuracy: The accuracy of the non-private classifier on the pooled rows of the
            parties that took part.
        ring: The origin of the order of the parties, if they form a ring.
        spent: The part of the guarantee spent by all attempts at all batches: a failed attempt may
            have released its answer, and the next one draws new noise.
        measures: All measures of the labels, with their intervals. If the label is a number, there
            are no accuracies, but the measures of the non-private regression are in
            `reference_measures`.
        recovery: The losses until there was a result, if any party was lost.
    """

    scenario: Scenario
    rows: int
    queries: int
    rounds: int | None
    accuracy: float | None
    reference_accuracy: float | None
    majority_accuracy: float | None
    agreement: float
    labels: tuple[str, ...] | tuple[float, ...]
    forecast: CostSummary
    ring: RingOrigin | None
    promise: Promise
    spent: Spent
    leakage: Leakage | None
    measures: Measures | NumberMeasures
    reference_measures: Measures | NumberMeasures | None = None
    coalition: Findings | None = None
    recovery: Recovery | None = None

    @override
    def as_json(self) -> dict[str, Any]:
        leakage = {} if self.leakage is None else {"leakage": leakage_as_json(self.leakage)}
        return super(Report, self).as_json() | leakage

    @classmethod
    @override
    def from_json(cls, plain: object) -> Self:
        tables = TypeAdapter(dict[str, Any]).validate_python(plain)
        leakage, found = leakage_from_json(tables.get("leakage")), tables.get("coalition")
        report = super(Report, cls).from_json({**tables, "leakage": leakage, "coalition": None})
        kind = report.scenario.protocol.findings
        if found is None or kind is None:
            return report
        return replace(report, coalition=TypeAdapter(kind).validate_python(found))


Scalar = bool | int | float | str
"""A result that has one column in a table."""
# A line of a terminal also has room for the names of parties.
SHOWN_MAX: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleReport(RunReport):
    """The report of one run of a role.

    Attributes:
        results: The results that are scalars, by party.
        shown: The result of each party as text, shortened to `SHOWN_MAX` letters.
        by_kind: The messages and bytes of each kind of message.
        rounds_differ: How the declared rounds differ from the measured ones, if they do.
        lost: The parties without which the role continued.
        without: The parties left out by retries.
        attempts: The number of attempts.
    """

    scenario: RoleScenario
    results: Mapping[str, Scalar]
    shown: Mapping[str, str]
    by_kind: Mapping[str, Mapping[str, int]]
    rounds_differ: str = ""
    lost: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    attempts: int = 1


def scalars(values: Mapping[str, object]) -> dict[str, Scalar]:
    """Return the values that are scalars; NumPy's become Python's."""
    plain = {key: v.item() if isinstance(v, np.generic) else v for key, v in values.items()}
    return {key: value for key, value in plain.items() if isinstance(value, Scalar)}


def leakage_as_json(leakage: Leakage) -> dict[str, Any]:
    """Return the number of trials and each estimate as values that JSON can express."""
    plain = {name: asdict(each) for name, each in leakage.estimates.items()}
    if leakage.published:
        plain["published"] = {name: asdict(each) for name, each in leakage.published.items()}
    return {"trials": leakage.trials, **plain}


def leakage_from_json(plain: object) -> Leakage | None:
    """Return the leakage from the output of `leakage_as_json`."""
    if plain is None:
        return None
    tables = TypeAdapter(dict[str, Any]).validate_python(plain)
    trials = TypeAdapter(int).validate_python(tables.pop("trials", None))
    read = TypeAdapter(dict[str, Estimate]).validate_python
    published = read(tables.pop("published", {}))
    return Leakage(trials, read(tables), published)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(_plain(each) for each in value)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


# More bars than this are unreadable; the remaining ones are merged into one.
BARS_MAX: Final = 32
# Each column is then five pixels wide on a phone of 360 pixels.
COLUMNS_MAX: Final = 60


class Amount(NamedTuple):
    """The traffic under one label. Each message is counted once, at its sender."""

    label: str
    protocol: Traffic = Traffic()
    setup: Traffic = Traffic()

    @property
    def messages(self) -> int:
        """Messages of the protocol and of its set-up."""
        return self.protocol.messages + self.setup.messages

    @property
    def bytes(self) -> int:
        """Bytes of the protocol and of its set-up."""
        return self.protocol.bytes + self.setup.bytes


def total(messages: Iterable[TracedMessage], label: str = "all") -> Amount:
    """Return the traffic of all messages."""
    protocol, setup = [0, 0], [0, 0]
    for message in messages:
        sums = setup if message.round == SETUP_ROUND else protocol
        sums[0] += 1
        sums[1] += message.bytes
    return Amount(label, Traffic(*protocol), Traffic(*setup))


def by_party(messages: Iterable[TracedMessage], parties: Sequence[str]) -> list[Amount]:
    """Return the traffic sent by each party, in the order of `parties`.

    With more than `BARS_MAX` parties, only those that sent most are listed individually; the others
    are merged.
    """
    sent = _grouped(messages, lambda message: message.sender)
    amounts = [total(sent.get(party, ()), party) for party in parties]
    if len(amounts) <= BARS_MAX:
        return amounts
    most = sorted(amounts, key=lambda amount: -amount.bytes)
    return [*most[: BARS_MAX - 1], _together(most[BARS_MAX - 1 :], "others")]


def by_kind(messages: Iterable[TracedMessage]) -> list[Amount]:
    """Return the traffic of each kind, in the order of their first messages."""
    groups = _grouped(messages, lambda message: message.kind)
    return [total(group, kind) for kind, group in groups.items()]


def by_round(messages: Iterable[TracedMessage]) -> list[Amount]:
    """Return the traffic of each round of the protocol, without the set-up.

    With more than `COLUMNS_MAX` rounds, consecutive ones are merged as far as necessary. The rounds
    of several batches are added by their number.
    """
    rounds = _grouped(messages, lambda message: message.round)
    last = max(rounds, default=SETUP_ROUND)
    width = -(-last // COLUMNS_MAX)
    amounts = []
    for first in range(SETUP_ROUND + 1, last + 1, max(1, width)):
        covered = range(first, min(first + width, last + 1))
        label = f"{first}" if len(covered) == 1 else f"{first} to {covered[-1]}"
        amounts.append(total((m for number in covered for m in rounds.get(number, ())), label))
    return amounts


def _grouped(
    messages: Iterable[TracedMessage], key: Callable[[TracedMessage], K]
) -> dict[K, list[TracedMessage]]:
    groups: dict[K, list[TracedMessage]] = {}
    for message in messages:
        groups.setdefault(key(message), []).append(message)
    return groups


def _together(amounts: Sequence[Amount], label: str) -> Amount:
    protocol, setup = Traffic(), Traffic()
    for amount in amounts:
        protocol, setup = protocol.plus(amount.protocol), setup.plus(amount.setup)
    return Amount(f"{len(amounts):,} {label}", protocol, setup)


_AGREEMENT: Final = "of labels equal those of the pooled kNN"
_NAMED_MAX: Final = 5  # names of parties in one line of a terminal
_SECOND: Final = 1.0
_MILLISECOND: Final = 1e-3


def percent(share: float) -> str:
    """Format a share as a percentage."""
    return f"{share:.1%}"


def interval_text(interval: "Interval") -> str:
    """Format the ends of an interval of a share."""
    return f"{100 * interval.low:.1f} to {percent(interval.high)}"


def in_bytes(size: int) -> str:
    """Format a number of bytes, in full."""
    return f"{size:,} B"


def in_seconds(seconds: float) -> str:
    """Format a time to the microsecond at best, in a suitable unit."""
    if not seconds or abs(seconds) >= _SECOND:
        return f"{seconds:,.3f} s" if seconds else "0 s"
    return (
        f"{1000 * seconds:,.3f} ms" if abs(seconds) >= _MILLISECOND else f"{1e6 * seconds:.0f} µs"
    )


def shortened(name: str, letters: int) -> str:
    """Shorten a name to at most the given number of letters."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def ticks(span: float, count: int = 5) -> list[tuple[float, str]]:
    """Return about `count` round times from 0 to `span` seconds, each with its text."""
    if span <= 0.0:
        return [(0.0, "0 s")]
    magnitude = 10.0 ** floor(log10(span / count))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude * count >= span)
    unit, scale = ("s", 1.0) if step * count >= _SECOND else ("ms", 1000.0)
    number = floor(span / step * (1 + 1e-9)) + 1
    return [(n * step, f"{n * step * scale:.6g} {unit}") for n in range(number)]


class Share(NamedTuple):
    """A share that was counted."""

    label: str
    value: float
    meaning: str


class Leaked(NamedTuple):
    """A share that was estimated, or that is 0 by proof."""

    label: str
    estimate: Estimate
    meaning: str
    is_estimated: bool

    @property
    def share(self) -> str:
        """The share alone."""
        return percent(self.estimate.value) if self.is_estimated else "0"

    @property
    def value(self) -> str:
        """The share with its standard error."""
        error = f" ± {self.estimate.standard_error:.2%}" if self.is_estimated else ""
        return f"{self.share}{error}"


def titled(scenario: Experiment) -> str:
    """Return the title of a scenario's report, with the data set if that was replaced."""
    if not isinstance(scenario, Scenario):
        return scenario.name
    name, source = scenario.name, scenario.data.source
    if source.lower().endswith((".csv", ".npz")):
        file, others = Path(source), scenario.data.others
        files = ", ".join([file.name, *(Path(each).name for each in others)])
        return files if name == file.stem else f"{name} on {files}"
    return f"{name} on {source}" if name in BUILTIN and source != name else name


_USELESS: Final = "; no better than the majority class"


def accuracies(report: Report) -> tuple[Share, ...]:
    """Return the accuracy of a run and the accuracies to compare it with; none for numbers."""
    if isinstance(report.measures, NumberMeasures):
        return ()
    majority, own = report.majority_accuracy, report.accuracy
    useless = "" if majority is None or own is None or own > majority else _USELESS
    known = {
        "accuracy": (report.accuracy, f"of {report.queries:,} held-out rows{useless}"),
        "pooled kNN": (report.reference_accuracy, _pooled(report)),
        "majority class": (report.majority_accuracy, "the largest class for every query"),
        "agreement": (report.agreement, _AGREEMENT),
    }
    return tuple(
        Share(name, share, what) for name, (share, what) in known.items() if share is not None
    )


def _pooled(report: Report) -> str:
    rows = report.rows
    if report.recovery is not None:
        rows -= report.recovery.rows_lost
    k = getattr(report.scenario.protocol, "k", 0) or NEIGHBOURS
    return f"k = {k}, not private: all {rows:,} rows in one place"


def errors(report: Report) -> Iterator[SummaryLine]:
    """Yield the measures of predicted numbers; none if labels are classes."""
    if isinstance(report.measures, NumberMeasures):
        yield from (SummaryLine(*line) for line in report.measures.lines())
    if isinstance(report.reference_measures, NumberMeasures):
        _, value, _ = next(report.reference_measures.lines())
        yield SummaryLine("pooled kNN", value, f"its RMSE; {_pooled(report)}")
        yield SummaryLine("agreement", percent(report.agreement), _AGREEMENT)


_TRIAL: Final = (
    "This describes a deployment with these parameters; a run reads the whole table on one machine,"
    " and no guarantee covers it."
)


def promised(report: Report) -> tuple[SummaryLine, ...]:
    """Return the guarantee of the system, and the budget spent."""
    promise, spent = report.promise, report.spent
    bound = "no ε" if promise.epsilon is None else f"ε = {promise.epsilon:g}"
    kind = [f"for each {promise.unit}"] if promise.epsilon is not None else []
    said = ", ".join([*kind, promise.measure, *([promise.adjacency] if promise.adjacency else [])])
    lines = [SummaryLine("guarantee", bound, said)]
    if spent.epsilon is not None:
        delta = f"; δ = {spent.delta:g}" if spent.delta else ""
        lines.append(SummaryLine("spent", f"ε = {spent.epsilon:.4g}", f"{spent.what}{delta}"))
    return tuple(lines)


def assessment(report: Report) -> str:
    """Return the guarantee as a paragraph for a data-protection assessment."""
    return f"{report.promise.paragraph(report.scenario.protocol.name)} {_TRIAL}"


def adversaries(scenario: Experiment) -> str:
    """Describe the malicious parties; empty if all parties are honest."""
    return "; ".join(f"{party}, {table['kind']}" for party, table in scenario.adversaries.items())


def leaks(leakage: Leakage, system: str) -> tuple[Leaked, ...]:
    """Return the leakage of a run."""
    found = {**leakage.estimates, **leakage.published}
    return tuple(
        Leaked(
            measure.label,
            found[name],
            f"by proof: {measure.argument}" if measure.argument else measure.meaning,
            not measure.argument,
        )
        for name, measure in find_system(system).measures.items()
    )


def measured(report: Report, names: Sequence[str]) -> list[SummaryLine]:
    """Return measures of classes in words, with their intervals, given by their names."""
    if isinstance(report.measures, Measures):
        return [SummaryLine(*line) for line in report.measures.lines(names)]
    return [SummaryLine(name, "none", "the label is a number, not a class") for name in names]


def sections(report: RunReport, measures: Sequence[str] = ()) -> tuple[Sequence[SummaryLine], ...]:
    """Return a report in words, as the command line prints it.

    Args:
        measures: The names of the measures to add; the accuracy is always there.
    """
    if isinstance(report, RoleReport):
        return role_results(report), _paid(report), _kinds(report), troubles(report)
    assert isinstance(report, Report)  # noqa: S101  (for mypy: there are two kinds)
    shares = accuracies(report)
    leaked = () if report.leakage is None else leaks(report.leakage, report.scenario.protocol.name)
    return (
        [
            *errors(report),
            *(SummaryLine(label, percent(share), meaning) for label, share, meaning in shares),
        ],
        measured(report, measures),
        promised(report),
        _paid(report),
        troubles(report),
        [SummaryLine(each.label, each.value, each.meaning) for each in leaked],
        found(report),
    )


def _paid(report: RunReport) -> list[SummaryLine]:
    cost, went, ring = report.cost, "", ""
    differ = "" if cost.rounds == cost.depth else f", and {cost.rounds:,} were declared"
    waits = f"each waits for the previous one{differ}"
    if isinstance(report, Report):
        went = "" if report.rounds is None else f"; PP-TopK circles the ring {report.rounds} times"
        ring = "" if report.ring is None else f"; ring {report.ring}"
    start = f"plus {report.start_seconds:.3f} s to start the parties"
    setup = f"plus {cost.setup_messages:,} for set-up"
    lines = [
        SummaryLine("rounds", f"{cost.depth:,}", waits + went),
        SummaryLine("messages", f"{cost.messages:,}", setup + ring),
        SummaryLine("bytes", f"{cost.bytes:,}", f"plus {cost.setup_bytes:,} for set-up"),
        SummaryLine("wall time", f"{report.seconds:.3f} s", start),
    ]
    if isinstance(report, Report):
        equal = cost == report.forecast
        as_predicted = "as predicted" if equal else "not all as predicted"
        closed = f"rounds, messages and bytes are {as_predicted} before the run"
        lines.append(SummaryLine("forecast", "equal" if equal else "differs", closed))
    if report.simulated_seconds is not None:
        seconds = f"{report.simulated_seconds:.3f} s"
        lines.append(SummaryLine("simulated time", seconds, "with the scenario's links"))
    return lines


def role_results(report: RoleReport) -> list[SummaryLine]:
    """Return the result of each party; parties with equal results share a line."""
    holders = dict[str, list[str]]()
    for party, text in report.shown.items():
        holders.setdefault(text, []).append(party)
    lines = [SummaryLine(first, text, _also(others)) for text, (first, *others) in holders.items()]
    if len(lines) <= BARS_MAX:
        return lines
    hidden = f"{len(lines) - BARS_MAX:,} more different results"
    return [*lines[:BARS_MAX], SummaryLine("…", "", hidden)]


def _also(parties: Sequence[str]) -> str:
    if not parties:
        return ""
    more = len(parties) - _NAMED_MAX
    return f"also {', '.join(parties[:_NAMED_MAX])}{f' and {more:,} more' if more > 0 else ''}"


def _kinds(report: RoleReport) -> list[SummaryLine]:
    return [
        SummaryLine(
            kind, f"{each['messages']:,}", f"messages of {in_bytes(each['bytes'])} together"
        )
        for kind, each in report.by_kind.items()
    ]


def _role_troubles(report: RoleReport) -> Iterable[SummaryLine]:
    if report.rounds_differ:
        yield SummaryLine("rounds", "differ", report.rounds_differ)
    if report.lost:
        yield SummaryLine("lost", ", ".join(report.lost), "the others continued")
    if report.without:
        failed = f"left out after failed attempts; {report.attempts:,} attempts in total"
        yield SummaryLine("left out", ", ".join(report.without), failed)


def found(report: RunReport) -> tuple[SummaryLine, ...]:
    """Return the findings of a coalition; empty if nobody colluded."""
    if not isinstance(report, Report) or report.coalition is None:
        return ()
    return tuple(report.coalition.lines(retried=report.recovery is not None))


def troubles(report: RunReport) -> tuple[SummaryLine, ...]:
    """Return faults, and the parties and traffic lost to them; empty if there were none."""
    lines = [*_took_effect(report)]
    if isinstance(report, RoleReport):
        return (*_role_troubles(report), *lines)
    assert isinstance(report, Report)  # noqa: S101  (for mypy: there are two kinds)
    if (recovery := report.recovery) is not None:
        attempts = f"{recovery.attempts:,} attempt{'s' * (recovery.attempts != 1)} failed"
        rows = f"held {recovery.rows_lost:,} rows; {attempts}"
        lines.append(SummaryLine("left out", ", ".join(recovery.without) or "nobody", rows))
        wasted = f"{recovery.messages:,} messages"
        sent = f"sent in failed attempts, {in_bytes(recovery.bytes)} in total"
        lines.append(SummaryLine("wasted", wasted, sent))
    return tuple(lines)


def _took_effect(report: RunReport) -> Iterable[SummaryLine]:
    if report.faults:
        struck = [fault for fault in report.faults if fault.struck]
        parts = [say(fault) for fault in struck] or ["none of them had an effect"]
        meaning = "; ".join([*parts, *_too_late(report)])
        value = f"{share_of(len(struck), len(report.faults))} took effect"
        yield SummaryLine("faults", value, meaning)


def _too_late(report: RunReport) -> Iterable[str]:
    """Describe faults that were scheduled after the end of the run."""
    ended = report.simulated_seconds
    late = [] if ended is None else [f for f in report.faults if f.start_seconds >= ended]
    late = [fault for fault in late if not fault.struck]
    if ended is not None and late:
        first = min(late, key=lambda fault: fault.start_seconds)
        others = f" and {len(late) - 1:,} more" if len(late) > 1 else ""
        yield f"the run ended after {in_seconds(ended)}, before {say(first)}{others}"


def say(fault: StruckFault) -> str:
    """Describe a fault: its kind, the parties it struck, and its time."""
    until = "" if fault.end_seconds is None else f" to {in_seconds(fault.end_seconds)}"
    strength = f" ({fault.strength:g})" if fault.strength else ""
    whom = ", ".join(fault.parties)
    return f"{fault.kind}{strength} of {whom} at {in_seconds(fault.start_seconds)}{until}"
