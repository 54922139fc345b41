"""The lines of a comparison: one system at one ε, with its accuracy, its promise and its cost."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from veilring.protocols.promise import Leakage, Promise
from veilring.scenarios.comparison.tuning import Interval

Key: TypeAlias = tuple[str, str, float | None]
"""A system, its form and its ε."""
POOLED: Final = "pooled-knn"
MAJORITY: Final = "majority"
HINDSIGHT: Final = "-hindsight"
"""The suffix of the name of a line whose parameters are the best in hindsight."""
LOST_MIN: Final = 0.02
"""The smallest loss of accuracy worth mentioning; smaller ones are within the intervals."""
RARE: Final = 0.1
"""The share of releases that are below the accuracy that is shown as that of a bad release."""
SPLITS_FOR_RARE: Final = 10
"""With fewer splits, that accuracy would be below all that were measured."""


@dataclass(frozen=True, slots=True)
class Played:
    """The cost of a batch: the closed form, confirmed by measurement.

    Attributes:
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
        epsilon: The requested ε; none if the system has no ε.
        gains: This accuracy minus that of the majority class on the same queries, in each split.
        measures: Each measure that exists in all splits, by its name in `veilring.measures`; none
            for a line in hindsight.
        privacy: The guarantee in full; none for a line that is not private.
        cost: The cost of one batch; none for a line that no parties play.
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
    measures: Mapping[str, Interval] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """The system, its form and its ε, which identify the line."""
        return self.system, self.form, self.epsilon

    @property
    def in_hindsight(self) -> bool:
        """Whether the parameters are the best in hindsight, which is not private."""
        return self.system.endswith(HINDSIGHT)

    @property
    def one_in_ten(self) -> float | None:
        """The accuracy below which one release in ten is; none if this is not a release."""
        few = len(self.accuracies) < SPLITS_FOR_RARE
        if not self.lasting or self.epsilon is None or few:
            return None
        return float(np.quantile(self.accuracies, RARE))

    @property
    def label(self) -> str:
        """The system, with its ε if it has one."""
        return self.name if self.epsilon is None else f"{self.name}, ε = {self.epsilon:g}"


@dataclass(frozen=True, slots=True)
class Left:
    """A system that was left out, with the reason."""

    name: str
    why: str


def find_line(lines: Iterable[Line], system: str) -> Line:
    """Return the first line of a system."""
    return next(line for line in lines if line.system == system)


def parameters_text(parameters: Mapping[str, Any]) -> str:
    """Return parameters on one line, numbers with three digits."""
    return ", ".join(
        f"{name} = {value:.3g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in parameters.items()
    )


def as_plain(line: Line) -> dict[str, Any]:
    """Return a line for JSON, with the most important values as fields of their own."""
    cost, plain = line.cost, asdict(line)
    limits = line.limits
    return {
        **plain,
        "one_in_ten_below": line.one_in_ten,
        "delta": None if line.privacy is None else line.privacy.delta,
        "accuracy": line.accuracy.mean,
        "low": line.accuracy.low,
        "high": line.accuracy.high,
        "loss": line.loss._asdict(),
        "gain": line.gain._asdict(),
        "measures": {name: each._asdict() for name, each in line.measures.items()},
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
