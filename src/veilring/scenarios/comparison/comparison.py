"""The lines of a comparison, and the conclusions from them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from veilring.protocols.measures import Leakage
from veilring.protocols.promise import Promise, delta_warning
from veilring.scenarios.comparison.question import Question
from veilring.scenarios.comparison.splits import TableFacts
from veilring.scenarios.intervals import CONFIDENCE, INTERVAL, Interval

POOLED: Final = "pooled-knn"
MAJORITY: Final = "majority"
HINDSIGHT: Final = "-hindsight"
"""The suffix of the name of a line whose parameters are the best in hindsight."""
LOST_MIN: Final = 0.02
"""The smallest loss of accuracy worth mentioning; smaller ones are within the intervals."""

_SEEDED: Final = (
    "All noise here was drawn from the seed: no ε holds against someone who knows it. Deployed"
    " parties draw their noise in secret."
)
_UNPROTECTED: Final = (
    "A comparison reads all rows in one place and no ε covers it. Run it on public or synthetic"
    " rows of the same shape, or on your own part."
)


@dataclass(frozen=True, slots=True)
class Played:
    """The cost of a batch: the closed form, confirmed by measurement.

    Attributes:
        rounds: Communication rounds.
        messages: Messages of the protocol.
        bytes: Bytes of the protocol's frames.
        setup_messages: Messages before the first round.
        setup_bytes: Bytes before the first round.
        simulated_seconds: Time in the simulation, over the given links.
        seconds: Time in this process, on this machine: computation without a network.
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
        """All messages, including the set-up."""
        return self.messages + self.setup_messages

    @property
    def all_bytes(self) -> int:
        """All bytes, including the set-up."""
        return self.bytes + self.setup_bytes


@dataclass(frozen=True, slots=True)
class Limits:
    """The loss of a line to the pooled classifier, divided by its causes.

    Attributes:
        parameters: The best parameters in hindsight, if different.
        rule: The gain from the best parameters in hindsight: the loss due to the public rule.
        noise: The further gain without noise, with the best parameters for that.
        method: The remaining loss without noise.
    """

    parameters: Mapping[str, Any]
    rule: Interval
    noise: Interval
    method: Interval

    @property
    def greatest(self) -> str:
        """The largest cause of loss: `rule`, `noise` or `method`; empty if little is lost."""
        parts = {name: getattr(self, name).mean for name in ("rule", "noise", "method")}
        name = max(parts, key=lambda part: parts[part])
        return name if parts[name] >= LOST_MIN else ""


@dataclass(frozen=True, slots=True)
class Line:
    """One system at one ε.

    Attributes:
        system: The name of the system, as for `--protocol`.
        name: The title of the system, with its form.
        epsilon: The requested ε; none if the system has no ε.
        queries: The number of queries in each split.
        overlap: The number of queries divided by that of training rows.
        accuracies: The share of queries that got their true class, in each split.
        losses: The pooled classifier's accuracy on the same queries minus this one, in each split.
        gains: This accuracy minus that of the majority class on the same queries, in each split.
        accuracy: The mean accuracy with its interval.
        loss: The mean loss with its interval.
        gain: The mean gain with its interval.
        trusted: Whether one party has to be trusted with all rows.
        trust: The trusted parties, in a few words.
        guarantee: The guarantee, in a few words.
        form: The form of the system, if it has several.
        lasting: Whether the ε covers any number of queries rather than one batch.
        privacy: The guarantee in full; none for a line that is not private.
        leakage: The measured leakage, if no ε bounds it.
        cost: The cost of one batch; none for a line that no parties play.
        limits: The causes of its loss, if they were searched.
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
        """The system, its form and its ε, which identify the line."""
        return self.system, self.form, self.epsilon

    @property
    def in_hindsight(self) -> bool:
        """Whether the parameters are the best in hindsight, which is not private."""
        return self.system.endswith(HINDSIGHT)

    @property
    def label(self) -> str:
        """The system, with its ε if it has one."""
        return self.name if self.epsilon is None else f"{self.name}, ε = {self.epsilon:g}"


@dataclass(frozen=True, slots=True)
class Left:
    """A system that was left out, with the reason."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice of the documented rule.

    Attributes:
        system: The key of the recommended system; none if none is useful, or if the comparison is
            inconclusive.
        form: The form of that system.
        epsilon: The ε of that line.
        share: The share of resamples in which it was chosen.
        shares: The share of resamples in which each line was chosen, the most frequent first; an
            empty label stands for no line.
        says: The choice and its reasons.
        owner: The gain from an owner trusted with all rows.
        cannot: The limits of comparing the lines.
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
        """The key of the recommended line, if there is one."""
        return None if self.system is None else (self.system, self.form, self.epsilon)


@dataclass(frozen=True, slots=True)
class SystemComparison:
    """The results of a comparison.

    Attributes:
        question: The inputs.
        facts: The public facts about the data.
        lines: The baselines, then one line for each system, form and ε, in the order of the
            registry.
        choice: The recommendation.
        left_out: The systems that do not apply.
        rules: The public rules in words.
        versions: The versions of the software.
        interval: A description of the intervals.
        seeded: A warning about noise drawn from a seed.
        unprotected: A warning that the comparison itself is not private.
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
    unprotected: str = _UNPROTECTED

    @property
    def pooled(self) -> Line:
        """The line of the pooled classifier."""
        return next(line for line in self.lines if line.system == POOLED)

    @property
    def majority(self) -> Line:
        """The line of the majority class."""
        return next(line for line in self.lines if line.system == MAJORITY)

    @property
    def delta_warning(self) -> str:
        """A warning if the largest δ is too large for the parties' rows; otherwise empty."""
        deltas = (line.privacy.delta for line in self.lines if line.privacy is not None)
        return delta_warning(max(deltas, default=0.0), self.facts.train)

    def as_json(self) -> dict[str, Any]:
        """Return everything as values that JSON can express."""
        return {
            "question": self.question.model_dump(mode="json", exclude_none=True),
            "facts": asdict(self.facts),
            "confidence": CONFIDENCE,
            "interval": self.interval,
            "seeded": self.seeded,
            "unprotected": self.unprotected,
            "delta_warning": self.delta_warning,
            "lines": [_plain(line) for line in self.lines],
            "recommended": _recommended(self.choice),
            "choice": asdict(self.choice),
            "left_out": [asdict(each) for each in self.left_out],
            "rules": dict(self.rules),
            "versions": self.versions,
        }


def parameters_text(parameters: Mapping[str, Any]) -> str:
    """Return parameters on one line, numbers with three digits."""
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
    """Return a line for JSON, with the most important values as fields of their own."""
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
