"""The numbers of a report: names, meanings, formatting, and tables of the traffic."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import floor, log10
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from veilring.data.sources import BUILTIN
from veilring.nodes.journal import SETUP_ROUND, TracedMessage, Traffic
from veilring.protocols.promise import Estimate, Leakage
from veilring.protocols.registry import find_system
from veilring.protocols.system import NEIGHBOURS
from veilring.scenarios.intervals import Interval
from veilring.scenarios.report import Attack, Findings, Named, Report, StruckFault, TotalsFindings
from veilring.scenarios.schema import Scenario

# More bars than this are unreadable; the remaining ones are merged into one.
BARS_MAX: Final = 32
# Each column is then five pixels wide on a phone of 360 pixels.
COLUMNS_MAX: Final = 60

K = TypeVar("K", bound=Hashable)


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


_SECOND: Final = 1.0
_MILLISECOND: Final = 1e-3


def percent(share: float) -> str:
    """Format a share as a percentage."""
    return f"{share:.1%}"


def interval_text(interval: Interval) -> str:
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


class SummaryLine(NamedTuple):
    """A line of a summary."""

    label: str
    value: str
    meaning: str


def titled(scenario: Scenario) -> str:
    """Return the title of a scenario's report, with the data set if that was replaced."""
    name, source = scenario.name, scenario.data.source
    if source.lower().endswith((".csv", ".npz")):
        file = Path(source)
        return file.name if name == file.stem else f"{name} on {file.name}"
    return f"{name} on {source}" if name in BUILTIN and source != name else name


def accuracies(report: Report) -> tuple[Share, ...]:
    """Return the accuracy of a run and the accuracies to compare it with."""
    rows = report.rows
    if report.recovery is not None:
        rows -= report.recovery.rows_lost
    k = getattr(report.scenario.protocol, "k", 0) or NEIGHBOURS
    pooled = f"k = {k}, not private: all {rows:,} rows in one place"
    return (
        Share("accuracy", report.accuracy, f"of {report.queries:,} held-out rows"),
        Share("pooled kNN", report.reference_accuracy, pooled),
        Share("majority class", report.majority_accuracy, "the largest class for every query"),
        Share("agreement", report.agreement, "of labels equal those of the pooled kNN"),
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
    protects = f"{promise.protects}, from {promise.against}"
    return (
        *lines,
        SummaryLine("protects", "", protects),
        SummaryLine("threat model", "", promise.threat_model),
        SummaryLine("learned", "", promise.learned),
    )


def adversaries(scenario: Scenario) -> str:
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


def found(report: Report) -> tuple[SummaryLine, ...]:
    """Return the findings of a coalition; empty if nobody colluded."""
    if report.coalition is None:
        return ()
    findings = report.coalition
    if isinstance(findings, TotalsFindings):
        return tuple(_totals(findings))
    owners = _owners(findings.named, retried=report.recovery is not None)
    return (*_who_and_votes(findings), *_distances(findings), *owners)


def attack(attack: Attack | None) -> str:
    """Format the share of correct claims."""
    if attack is None:
        return "not tried"
    return _of(attack.right, attack.claims) if attack.claims else "no claims"


def troubles(report: Report) -> tuple[SummaryLine, ...]:
    """Return faults, and the parties and traffic lost to them; empty if there were none."""
    lines = []
    if report.faults:
        struck = [fault for fault in report.faults if fault.struck]
        parts = [say(fault) for fault in struck] or ["none of them had an effect"]
        meaning = "; ".join([*parts, *_too_late(report)])
        value = f"{_of(len(struck), len(report.faults))} took effect"
        lines.append(SummaryLine("faults", value, meaning))
    if (recovery := report.recovery) is not None:
        rows = f"held {recovery.rows_lost:,} rows; {_times(recovery.attempts, 'attempt')} failed"
        lines.append(SummaryLine("left out", ", ".join(recovery.without) or "nobody", rows))
        wasted = f"{recovery.messages:,} messages"
        sent = f"sent in failed attempts, {in_bytes(recovery.bytes)} in total"
        lines.append(SummaryLine("wasted", wasted, sent))
    return tuple(lines)


def _too_late(report: Report) -> Iterable[str]:
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


def _totals(found: TotalsFindings) -> Iterable[SummaryLine]:
    yield _members(found)
    whose = (
        "the one party outside it"
        if found.outside == 1
        else f"the {found.outside} parties outside it"
    )
    meaning = f"exact sums of the counts of {whose} that it computed, one per threshold"
    yield SummaryLine("totals read", _of(found.right, found.totals), meaning)
    meaning = "totals read that are the count of a single party"
    yield SummaryLine("counts exposed", _of(found.alone, found.totals), meaning)
    meaning = "owners of nearest rows that a guess is expected to hit; the view does not help"
    guessed = f"{_expected(found.guessed)} of {found.nearest:,}"
    yield SummaryLine("owners named", guessed, meaning)


def _members(found: Findings | TotalsFindings) -> SummaryLine:
    what = "it records its view" if len(found.members) == 1 else "they pool their views"
    members = f"{', '.join(found.members)}: {what}"
    return SummaryLine("coalition", _times(len(found.members), "party", "parties"), members)


def _who_and_votes(found: Findings) -> Iterable[SummaryLine]:
    yield _members(found)
    expected = f"parties whose votes it computed exactly; {found.exposed_expected:.2f} expected"
    yield SummaryLine("votes exposed", _of(found.exposed, found.honest), expected)
    sums = "groups of honest parties whose summed votes it computed exactly"
    yield SummaryLine("vote sums", _of(found.groups_recovered, found.groups), sums)


def _distances(found: Findings) -> Iterable[SummaryLine]:
    simple, optimal = Attack(), Attack()
    for victim in found.victims:
        simple = simple.plus(victim.simple)
        optimal = optimal.plus(victim.optimal or Attack())
    tried = all(victim.optimal is not None for victim in found.victims)
    meaning = "if it attributes every new value in a neighbour's message to that neighbour"
    yield SummaryLine("correct claims", attack(simple), meaning)
    meaning = "if it attributes only values that are more likely the neighbour's than not"
    yield SummaryLine("correct likely claims", attack(optimal if tried else None), meaning)
    best = optimal if tried else simple
    held = sum(victim.distances for victim in found.victims)
    meaning = f"of its neighbours' distances, found by {'the likely' if tried else 'all'} claims"
    yield SummaryLine("distances located", _of(best.located, held), meaning)


def _expected(hits: float) -> str:
    """Return an expected number of hits, which is whole unless owners are drawn by lot."""
    return f"{hits:,.1f}".removesuffix(".0")


def _owners(named: Named, *, retried: bool) -> Iterable[SummaryLine]:
    guessed = _expected(named.guessed)
    meaning = f"of the nearest distances traced to their owners; {guessed} expected by guessing"
    yield SummaryLine("owners named", f"{_expected(named.named)} of {named.values:,}", meaning)
    if retried:
        again = f"{_expected(named.with_retries)} of {named.values:,}"
        yield SummaryLine(
            "with failed attempts", again, "as above, if it also uses views of the failed attempts"
        )
        hidden = f"distances seen again, hence real; {named.recurred_hidden:,} are in no result"
        yield SummaryLine("recurred", f"{named.recurred:,}", hidden)


def _of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}"


def _times(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
