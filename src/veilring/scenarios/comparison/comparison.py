"""What a comparison found: one line for each system and each ε, and what follows from them."""

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from veilring.protocols.system import Leakage, Promise
from veilring.scenarios.comparison.question import Question, TableFacts
from veilring.scenarios.intervals import CONFIDENCE, INTERVAL, Interval

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
class Comparison:
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
