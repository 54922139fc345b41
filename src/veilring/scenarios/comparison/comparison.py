"""The lines of a comparison, and what follows from them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from veilring.protocols.system import Leakage, Promise
from veilring.scenarios.comparison.question import Question
from veilring.scenarios.comparison.splits import TableFacts
from veilring.scenarios.intervals import CONFIDENCE, INTERVAL, Interval

POOLED: Final = "pooled-knn"
MAJORITY: Final = "majority"
HINDSIGHT: Final = "-hindsight"
"""The end of the name of a line whose parameters are the best in hindsight."""
LOST_MIN: Final = 0.02
"""Less than this in accuracy is not worth a word: it is within what the intervals leave open."""

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
class Limits:
    """What a line lacks to the pooled classifier, divided by what it is lost to.

    Attributes:
        parameters: The parameters that were best in hindsight, where they differ.
        rule: What the best parameters in hindsight would add: the public rule has lost it.
        noise: What the best parameters without noise would add to that.
        method: What the best parameters without noise still lack.
    """

    parameters: Mapping[str, Any]
    rule: Interval
    noise: Interval
    method: Interval

    @property
    def greatest(self) -> str:
        """What most is lost to: `rule`, `noise` or `method`; empty if little is lost."""
        parts = {name: getattr(self, name).mean for name in ("rule", "noise", "method")}
        name = max(parts, key=lambda part: parts[part])
        return name if parts[name] >= LOST_MIN else ""


@dataclass(frozen=True, slots=True)
class Line:
    """One system at one ε.

    Attributes:
        system: The name of the system, as `--protocol` takes it.
        name: The title of the system, with its form.
        epsilon: The ε that was asked for; none where nothing is bounded by one.
        queries: The number of queries in each split.
        overlap: The same over the number of training rows.
        accuracies: The share of queries that got their true class, in each split.
        losses: The pooled classifier's accuracy on the same queries less this one, in each split.
        gains: This accuracy less that of the majority class on the same queries, in each split.
        accuracy: The mean accuracy with its interval.
        loss: The mean loss with its interval.
        gain: The mean gain with its interval.
        trusted: Whether one party has to be trusted with all rows.
        trust: Who is trusted with what, in a few words.
        guarantee: What is promised, in a few words.
        form: What tells it from other forms of the same system.
        lasting: Whether the ε covers any number of queries, and not one batch of them.
        privacy: The promise in full, but for what the comparison says of all; none for what is not
            private.
        leakage: What was measured to leak, where no ε bounds it.
        cost: What one batch costs; none for what no parties play.
        limits: What it lacks to the pooled classifier, where that was searched.
    """

    system: str
    name: str
    epsilon: float | None
    queries: int
    overlap: float
    accuracies: tuple[float, ...]
    losses: tuple[float, ...]
    gains: tuple[float, ...]
    accuracy: Interval
    loss: Interval
    gain: Interval
    trusted: bool
    trust: str
    guarantee: str
    form: str = ""
    lasting: bool = False
    privacy: Promise | None = None
    leakage: Leakage | None = None
    cost: Played | None = None
    limits: Limits | None = None

    @property
    def key(self) -> tuple[str, str, float | None]:
        """The system, its form and its ε, which tell it from all other lines."""
        return self.system, self.form, self.epsilon

    @property
    def in_hindsight(self) -> bool:
        """Whether its parameters are the best in hindsight, which is not private."""
        return self.system.endswith(HINDSIGHT)

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
        system: The key of the line that it recommends; none if none is worth it, or if that cannot
            be told.
        form: The form of that system.
        epsilon: The ε of that line.
        share: How often it was chosen, as a share of the resamples.
        shares: How often each line was chosen, the most frequent first; a label of none stands for
            no line.
        says: What it chose and why.
        owner: What an owner trusted with all rows would add.
        cannot: What the lines cannot be compared in.
    """

    system: str | None
    form: str
    epsilon: float | None
    share: float
    shares: tuple[tuple[str | None, float], ...]
    says: str
    owner: str
    cannot: str

    @property
    def key(self) -> tuple[str, str, float | None] | None:
        """The key of the line that it recommends, if it does."""
        return None if self.system is None else (self.system, self.form, self.epsilon)


@dataclass(frozen=True, slots=True)
class SystemComparison:
    """The results of a comparison.

    Attributes:
        question: What was asked.
        facts: What is public about the data.
        lines: The baselines, and one for each system, form and ε, in the order of the registry.
        choice: What follows from the lines.
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
        """Return everything as what JSON can say."""
        return {
            "question": self.question.model_dump(mode="json", exclude_none=True),
            "facts": asdict(self.facts),
            "confidence": CONFIDENCE,
            "interval": self.interval,
            "seeded": self.seeded,
            "lines": [_plain(line) for line in self.lines],
            "recommended": _recommended(self.choice),
            "choice": asdict(self.choice),
            "left_out": [asdict(each) for each in self.left_out],
            "rules": dict(self.rules),
            "versions": self.versions,
        }


def parameters_text(parameters: Mapping[str, Any]) -> str:
    """Return parameters in one line, numbers in three figures."""
    return ", ".join(
        f"{name} = {value:.3g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in parameters.items()
    )


def _recommended(choice: Choice) -> dict[str, Any] | None:
    if choice.system is None:
        return None
    return {
        "system": choice.system,
        "form": choice.form,
        "epsilon": choice.epsilon,
        "share": choice.share,
    }


def _plain(line: Line) -> dict[str, Any]:
    """Return a line as JSON has it: what is asked for most is a number of its own."""
    cost, plain = line.cost, asdict(line)
    limits = line.limits
    return {
        **plain,
        "delta": None if line.privacy is None else line.privacy.delta,
        "accuracy": line.accuracy.mean,
        "low": line.accuracy.low,
        "high": line.accuracy.high,
        "loss": line.loss._asdict(),
        "gain": line.gain._asdict(),
        "rounds": None if cost is None else cost.rounds,
        "messages": None if cost is None else cost.all_messages,
        "bytes": None if cost is None else cost.all_bytes,
        "limits": None
        if limits is None
        else {
            "parameters": dict(limits.parameters),
            **{name: getattr(limits, name)._asdict() for name in ("rule", "noise", "method")},
            "greatest": limits.greatest,
        },
    }
