"""The lines of a comparison, and a rule of choice that anybody can follow by hand."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from operator import itemgetter
from typing import Any, Final

from veilring.protocols.system import Leakage, Promise
from veilring.scenarios.comparison.question import Question, TableFacts
from veilring.scenarios.intervals import CONFIDENCE, INTERVAL, Interval
from veilring.scenarios.reporting.charts import interval
from veilring.scenarios.reporting.summary import percent

POOLED: Final = "pooled-knn"
MAJORITY: Final = "majority"

_SEEDED: Final = (
    "All noise here is that of the seed: no ε holds against whoever knows it. Parties that are"
    " deployed draw theirs in secret."
)


@dataclass(frozen=True, slots=True)
class Played:
    """What a batch cost: forecast by the closed form, and measured to be just that.

    Attributes:
        rounds: Communication rounds.
        messages: Of the protocol.
        bytes: Of its frames.
        setup_messages: Before its first round.
        setup_bytes: Of those.
        simulated_seconds: On the simulated clock, over the links that were asked for.
        seconds: In this process, on this machine: the computing, and no network.
    """

    rounds: int
    messages: int
    bytes: int
    setup_messages: int
    setup_bytes: int
    simulated_seconds: float
    seconds: float

    @property
    def all_messages(self) -> int:
        """With those of the set-up."""
        return self.messages + self.setup_messages

    @property
    def all_bytes(self) -> int:
        """With those of the set-up."""
        return self.bytes + self.setup_bytes


@dataclass(frozen=True, slots=True)
class Line:
    """One system at one ε.

    Attributes:
        system: The name of the system, as `--protocol` takes it.
        name: Its title.
        epsilon: What was asked for; none where nothing is bounded by one.
        accuracies: The share of queries that got their true class, in each split.
        accuracy: Its mean.
        loss: The pooled classifier's accuracy less this one, split by split.
        gain: This accuracy less that of the majority class, split by split.
        trusted: Whether one party has to be trusted with all rows.
        trust: Who is trusted with what, in a few words.
        guarantee: What is promised, in a few words.
        privacy: The promise in full, but for what the comparison says of all; none for what is not
            private.
        leakage: What was measured to leak, where that is what there is.
        cost: What one batch costs; none for what no parties play.
    """

    system: str
    name: str
    epsilon: float | None
    accuracies: tuple[float, ...]
    accuracy: Interval
    loss: Interval
    gain: Interval
    trusted: bool
    trust: str
    guarantee: str
    privacy: Promise | None = None
    leakage: Leakage | None = None
    cost: Played | None = None

    @property
    def label(self) -> str:
        """The system, with its ε if it has one."""
        return self.name if self.epsilon is None else f"{self.name}, ε = {self.epsilon:g}"


@dataclass(frozen=True, slots=True)
class Left:
    """A system that was left out, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What the documented rule chose.

    Attributes:
        system: The key of the line that it chose; none if none is worth it.
        epsilon: Of that line.
        says: What it chose and why.
        owner: What an owner trusted with all rows would add.
        cannot: What the lines cannot be compared in.
    """

    system: str | None
    epsilon: float | None
    says: str
    owner: str
    cannot: str


@dataclass(frozen=True, slots=True)
class SystemComparison:
    """All that came of it.

    Attributes:
        question: What was asked.
        facts: What is public about the data.
        lines: One for each system and ε, in the order of the registry.
        choice: What follows from them.
        left_out: The systems that do not apply.
        rules: The public rules in words.
        versions: Of what ran it.
        interval: What the intervals are.
        seeded: What the seed takes from every ε.
    """

    question: Question
    facts: TableFacts
    lines: tuple[Line, ...]
    choice: Choice
    left_out: tuple[Left, ...]
    rules: tuple[tuple[str, str], ...]
    versions: dict[str, str] = field(default_factory=dict)
    interval: str = INTERVAL
    seeded: str = _SEEDED

    @property
    def pooled(self) -> Line:
        """The classifier that has all rows in one place."""
        return next(line for line in self.lines if line.system == POOLED)

    @property
    def majority(self) -> Line:
        """The classifier that always answers the most frequent class."""
        return next(line for line in self.lines if line.system == MAJORITY)

    def as_json(self) -> dict[str, Any]:
        """Return everything as what JSON can say; intervals are mean, low and high."""
        return {
            "question": self.question.model_dump(mode="json", exclude_none=True),
            "facts": asdict(self.facts),
            "confidence": CONFIDENCE,
            "interval": self.interval,
            "seeded": self.seeded,
            "lines": [_plain(line) for line in self.lines],
            "choice": asdict(self.choice),
            "left_out": [asdict(each) for each in self.left_out],
            "rules": dict(self.rules),
            "versions": self.versions,
        }


def _plain(line: Line) -> dict[str, Any]:
    named = {name: getattr(line, name)._asdict() for name in ("accuracy", "loss", "gain")}
    return {**asdict(line), **named}


CLOSE: Final = 0.05
"""By how much the mean accuracy may fall behind that of the pooled classifier."""
LEAK_MAX: Final = 0.5
"""Below it, whoever says of something that it saw whose it is, is wrong more often than right:
the yardstick of Xiong, Chitti and Liu (2007, Section 6.6)."""

_WORTH: Final = (
    "A line is worth it if the interval of its gain over the majority class lies above 0, and close"
    f" if its mean is at most {100 * CLOSE:g} points below the pooled classifier's."
)
_FIRST: Final = (
    "First choice: an ε, no trusted party, worth it and close. Of these the smallest ε, then the"
    " highest accuracy, then the fewest bytes."
)
_RING: Final = (
    "Else rank search or PP-kNN, the one that leaks less first, if it is worth it, close, and its"
    f" exposure, claim and peak loss of privacy lie below {percent(LEAK_MAX)} with their intervals:"
    " who then says whose a distance is, is wrong more often than right."
)
_OWNED: Final = "Else a line with a trusted party that is worth it and close, in the same order."
RULE: Final = (_WORTH, _FIRST, _RING, _OWNED, "Else none.")
"""The rule in words, step by step."""
CANNOT: Final = (
    "Not comparable: a measured leak is no ε, since it speaks of one attack and an ε of all; an ε a"
    " report, an ε a stream and an ε a batch are different promises, which further reports, streams"
    " and batches add to; and a promise with a δ may fail with that probability, where a pure one"
    " never does."
)


def choose(lines: Sequence[Line]) -> Choice:
    """Choose by `RULE`.

    Args:
        lines: Among them those of `POOLED` and `MAJORITY`.
    """
    pooled, majority = _line(lines, POOLED), _line(lines, MAJORITY)
    private = [line for line in lines if line.privacy is not None]
    chosen, says = _choose(private, pooled, majority)
    return Choice(
        system=None if chosen is None else chosen.system,
        epsilon=None if chosen is None else chosen.epsilon,
        says=says,
        owner=_owner(private),
        cannot=CANNOT,
    )


def _choose(private: Sequence[Line], pooled: Line, majority: Line) -> tuple[Line | None, str]:
    good = [line for line in private if line.gain.low > 0 and line.loss.mean <= CLOSE]
    alone = [line for line in good if not line.trusted]
    bounded = [line for line in alone if line.epsilon is not None]
    if bounded:
        best = _first(bounded)
        return best, (
            f"{best.label}: it has an ε and needs no party that sees all rows (trusted:"
            f" {best.trust}), and {_beside(best, pooled)}. It is the smallest ε of those tried at"
            " which that is so."
        )
    measured = sorted(
        ((_worst(line.leakage), line) for line in alone if line.leakage is not None),
        key=itemgetter(0),
    )
    for worst, line in measured:
        if line.leakage is not None and worst < LEAK_MAX:
            return line, (
                f"{line.label}: {_beside(line, pooled)}, and no system that has an ε without a"
                f" trusted party comes that near. It is not free of leaks: {_leaks(line.leakage)}."
            )
    if good and (owned := [line for line in good if line.trusted]):
        best = _first(owned)
        leaking = f"{measured[0][1].name} leaks too much, and " if measured else ""
        return best, (
            f"{best.label}, if there is somebody whom all trust with their rows: {leaking}without"
            f" that no line is close, while for this one {_beside(best, pooled)}."
        )
    return None, f"None of the private systems is worth it here: {_why_none(pooled, majority)}."


def _why_none(pooled: Line, majority: Line) -> str:
    most, least = percent(pooled.accuracy.mean), percent(majority.accuracy.mean)
    if pooled.gain.low > 0:
        return f"none is close to the pooled classifier's {most} and surely above {least}"
    return (
        f"even the classifier that has all rows gets {most}, which on these splits cannot be told"
        f" from the {least} of always answering the majority class"
    )


def _owner(private: Sequence[Line]) -> str:
    """Say what an owner trusted with all rows would add, at the largest ε that was tried."""
    top = max((line.epsilon for line in private if line.epsilon is not None), default=None)
    at_top = [line for line in private if line.epsilon == top]
    owned = max(_of(at_top, trusted=True), key=_accuracy, default=None)
    alone = max(_of(at_top, trusted=False), key=_accuracy, default=None)
    if top is None or owned is None or alone is None:
        return "No system of either kind was tried at the same ε."
    more = round(100 * (owned.accuracy.mean - alone.accuracy.mean), 1)
    scores = (
        f"{owned.name} gets {percent(owned.accuracy.mean)}, and the best without,"
        f" {alone.name}, {percent(alone.accuracy.mean)}"
    )
    if more <= 0:
        return f"A party trusted with all rows would add nothing: at ε = {top:g} {scores}."
    return f"A party trusted with all rows would add {more:.1f} points at ε = {top:g}: {scores}."


def _of(lines: Iterable[Line], *, trusted: bool) -> list[Line]:
    return [line for line in lines if line.trusted == trusted]


def _line(lines: Iterable[Line], system: str) -> Line:
    return next(line for line in lines if line.system == system)


def _accuracy(line: Line) -> float:
    return line.accuracy.mean


def _first(lines: Iterable[Line]) -> Line:
    return min(lines, key=_preference)


def _preference(line: Line) -> tuple[float, float, float]:
    size = inf if line.cost is None else line.cost.all_bytes
    return (inf if line.epsilon is None else line.epsilon, -line.accuracy.mean, size)


def _beside(line: Line, pooled: Line) -> str:
    reach = f"{percent(line.accuracy.low)} to {percent(line.accuracy.high)}"
    mine = f"it gets {percent(line.accuracy.mean)} ({reach})"
    return f"{mine}, with all rows in one place {percent(pooled.accuracy.mean)}"


def _worst(leakage: Leakage) -> float:
    return max(interval(estimate)[1] for estimate in leakage.estimates.values())


def _leaks(leakage: Leakage) -> str:
    if not _worst(leakage):
        return (
            "totals that all parties learn locate rows, given enough queries, though they do not"
            " say whose rows these are"
        )
    exposure, claim = (percent(leakage.estimates[name].value) for name in ("exposure", "claim"))
    return (
        f"{exposure} of the messages contain a distance from the sender's own rows, and a successor"
        f" that claims all that is new to it as its predecessor's is right in {claim}; and all"
        " parties learn the nearest distances themselves"
    )
