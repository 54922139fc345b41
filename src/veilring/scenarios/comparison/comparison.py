"""The lines of a comparison, and the conclusions from them: the rule of choice.

A rule applied once to the means of a few splits picks a lucky system. The rule is therefore applied
to many resamples of the splits, and a line is recommended only if nearly all of them agree.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, Final

import numpy as np
from numpy.random import Generator

from veilring.arrays import Floats, Ints
from veilring.measures import CONFIDENCE
from veilring.protocols.promise import Leakage, Promise, delta_warning
from veilring.scenarios.comparison.question import Question, TableFacts
from veilring.scenarios.comparison.tuning import INTERVAL, Interval, reach_over_splits
from veilring.scenarios.report import percent
from veilring.scenarios.reporting.charts import interval

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
        shares: The share of resamples in which each line was chosen, the most frequent first; an
            empty label stands for no line.
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
        lines: The baselines, then one line for each system, form and ε, in the order of the
            registry.
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
        return _line(self.lines, POOLED)

    @property
    def majority(self) -> Line:
        """The line of the majority class."""
        return _line(self.lines, MAJORITY)

    @property
    def delta_warning(self) -> str:
        """A warning if the largest δ is too large for the parties' rows; otherwise empty."""
        deltas = (line.privacy.delta for line in self.lines if line.privacy is not None)
        return delta_warning(max(deltas, default=0.0), self.facts.train)

    def as_json(self) -> dict[str, Any]:
        """Return everything as values that JSON can express."""
        choice = asdict(self.choice)
        recommended = {name: choice[name] for name in ("system", "form", "epsilon", "share")}
        return {
            "question": self.question.model_dump(mode="json", exclude_none=True),
            "facts": asdict(self.facts),
            "confidence": CONFIDENCE,
            "interval": self.interval,
            "seeded": self.seeded,
            "unprotected": self.unprotected,
            "delta_warning": self.delta_warning,
            "lines": [_plain(line) for line in self.lines],
            "recommended": None if self.choice.system is None else recommended,
            "choice": choice,
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


CLOSE: Final = 0.05
"""The largest loss of mean accuracy to the pooled classifier that still counts as close."""
LEAK_MAX: Final = 0.5
"""The leakage below which a guess at the owner of an observed value is wrong more often than right:
the criterion of Xiong, Chitti and Liu (2007, Section 6.6)."""
RESAMPLES: Final = 1000
"""The number of resamples of the splits."""
SHARE_MIN: Final = 0.9
"""The share of resamples that must choose a line for it to be recommended."""

_WORTH: Final = (
    "A line is useful if it is more accurate than the majority class: the lower end of the"
    " interval of its gain, jointly for all lines, is above 0. It is close if its mean is at most"
    f" {100 * CLOSE:g} points below the pooled classifier's. It is dominated if another line with"
    " the same trust has a smaller ε and a higher mean."
)
_FIRST: Final = (
    "First choice: lines with an ε and no trusted party that are useful, close and not dominated."
    " Of these, prefer the smallest ε, then an ε for any number of queries, then the highest"
    " accuracy, then the fewest bytes."
)
_RING: Final = (
    "Second choice: the useful and close system without an ε that leaks least. Every measure of its"
    f" leakage, with its interval, must be below {percent(LEAK_MAX)}: a guess at the owner of a"
    " distance is then wrong more often than right."
)
_OWNED: Final = (
    "Third choice: a line with a trusted party that is useful, close and not dominated, in the same"
    " order. Otherwise, no system."
)
_AGAIN: Final = (
    f"The rule is repeated on {RESAMPLES:,} resamples of the splits, drawn with replacement. A line"
    " is recommended if the rule chooses it on the original splits, and in at least"
    f" {100 * SHARE_MIN:g}% of the resamples the same system and ε, in any form with the same"
    " trust. Otherwise the comparison is inconclusive."
)
RULE: Final = (_WORTH, _FIRST, _RING, _OWNED, _AGAIN)
"""The rule in words, step by step."""
CANNOT: Final = (
    "Do not compare across guarantees: a measured leak covers one attack, an ε covers all. An ε"
    " for each report, stream, batch or release is a different guarantee, and each further report,"
    " stream, batch or release adds to it. A guarantee with a δ may fail with that probability;"
    " a pure one never does."
)
_SHOWN: Final = 3  # number of lines named when none was chosen often enough


@dataclass(frozen=True, slots=True)
class _Candidate:
    """The properties of a private line that do not depend on the splits.

    Attributes:
        size: The bytes of a batch, the last criterion.
    """

    order: tuple[float, ...]
    trusted: bool
    epsilon: float
    size: float


@dataclass(frozen=True, slots=True, eq=False)
class _Scores:
    """The scores of the private lines, shape (lines, splits) each.

    Attributes:
        overlaps: The number of queries divided by that of training rows, shape (lines,).
    """

    accuracies: Floats
    losses: Floats
    gains: Floats
    overlaps: Floats


def choose(lines: Sequence[Line], rng: Generator) -> Choice:
    """Choose a line by `RULE`."""
    pooled, majority = _line(lines, POOLED), _line(lines, MAJORITY)
    private = [line for line in lines if line.privacy is not None]
    if not private:
        return Choice(None, "", None, 1.0, (), _why_none(pooled, majority), "", CANNOT)
    chosen, counts = _resample(private, rng)
    whole = Counter[_Group | None]()
    for number, count in counts.items():
        whole[_group(private, number)] += count
    share = whole[_group(private, chosen)] / RESAMPLES
    shares = tuple(
        (None if number is None else private[number].label, count / RESAMPLES)
        for number, count in counts.most_common()
    )
    picked = None if chosen is None or share < SHARE_MIN else private[chosen]
    if share < SHARE_MIN:
        says = _unsure(None if chosen is None else private[chosen].label, shares)
    elif picked is None:
        says = f"None of the private systems is useful here: {_why_none(pooled, majority)}."
    else:
        says = (
            f"{_why(picked, private, pooled)} The rule chooses this system and ε in"
            f" {percent(share)} of {RESAMPLES:,} resamples of the splits."
        )
    return Choice(
        system=None if picked is None else picked.system,
        form="" if picked is None else picked.form,
        epsilon=None if picked is None else picked.epsilon,
        share=share,
        shares=shares,
        says=says,
        owner=_owner(private),
        cannot=CANNOT,
    )


_Group = tuple[str, float | None, bool]


def _group(private: Sequence[Line], number: int | None) -> _Group | None:
    """Return the key compared across resamples: the forms of a system count together."""
    if number is None:
        return None
    line = private[number]
    return line.system, line.epsilon, line.trusted


def _resample(private: Sequence[Line], rng: Generator) -> tuple[int | None, Counter[int | None]]:
    """Return the number of the line chosen on all splits, and the frequency of each choice."""
    scores = _Scores(
        accuracies=np.array([line.accuracies for line in private]),
        losses=np.array([line.losses for line in private]),
        gains=np.array([line.gains for line in private]),
        overlaps=np.array([line.overlap for line in private]),
    )
    candidates = [_candidate(line) for line in private]
    splits = scores.gains.shape[1]
    drawn = rng.integers(splits, size=(RESAMPLES, splits))
    chosen = _pick(candidates, scores, np.arange(splits))
    return chosen, Counter(_pick(candidates, scores, each) for each in drawn)


def _candidate(line: Line) -> _Candidate:
    epsilon = inf if line.epsilon is None else line.epsilon
    leak = 0.0 if line.leakage is None else _worst(line.leakage)
    stage = 2.0 if line.trusted else 0.0 if line.epsilon is not None else 1.0
    if line.epsilon is None and (line.trusted or line.leakage is None or leak >= LEAK_MAX):
        stage = inf
    size = inf if line.cost is None else float(line.cost.all_bytes)
    return _Candidate((stage, epsilon, float(not line.lasting), leak), line.trusted, epsilon, size)


def _pick(candidates: Sequence[_Candidate], scores: _Scores, splits: Ints) -> int | None:
    """Return the number of the line that the rule chooses on splits that may repeat."""
    means = scores.accuracies[:, splits].mean(axis=1)
    losses = scores.losses[:, splits].mean(axis=1)
    gains = scores.gains[:, splits]
    jointly = 1 - (1 - CONFIDENCE) / (2 * len(gains))  # for all lines (Bonferroni)
    low = gains.mean(axis=1) - reach_over_splits(gains, scores.overlaps, jointly)
    good = (low > 0) & (losses <= CLOSE)
    eligible = [
        number
        for number, own in enumerate(candidates)
        if good[number]
        and own.order[0] < inf
        and not any(
            other.trusted == own.trusted and other.epsilon < own.epsilon and mean > means[number]
            for other, mean in zip(candidates, means, strict=True)
        )
    ]

    def preference(number: int) -> tuple[object, ...]:
        own = candidates[number]
        return *own.order, -means[number], own.size

    return min(eligible, key=preference, default=None)


def _unsure(label: str | None, shares: Sequence[tuple[str | None, float]]) -> str:
    """Describe the frequencies of the choices when none was frequent enough."""
    often = "; ".join(f"{name or 'none'} in {percent(share)}" for name, share in shares[:_SHOWN])
    first = label or "no line"
    return (
        f"The comparison is inconclusive. The rule picks {first} on these splits, but"
        f" resamples of them disagree ({often}), and {100 * SHARE_MIN:g}% are needed. More"
        " --seeds may give a clear choice."
    )


def _why(line: Line, private: Sequence[Line], pooled: Line) -> str:
    """Explain why a line is recommended."""
    beside = _beside(line, pooled)
    if line.trusted:
        leaking = [
            each.name for each in private if each.leakage and _worst(each.leakage) >= LEAK_MAX
        ]
        leaks = f" {leaking[0]} leaks too much." if leaking else ""
        return (
            f"{line.label}, if all parties trust one party with their rows: it has {beside}, and no"
            f" system without such a party comes as close.{leaks}"
        )
    if line.leakage is not None:
        return (
            f"{line.label}: it has {beside}, and no system with an ε and without a trusted party"
            f" comes as close. It does leak: {_leaks(line.leakage)}."
        )
    covers = "; its ε covers any number of queries" if line.lasting else ""
    return (
        f"{line.label}: it has an ε, needs no party that sees all rows (trusted: {line.trust}),"
        f" and has {beside}{covers}. It is the smallest ε tried for which this holds."
        f"{'' if line.lasting else _lasting(private)}"
    )


def _lasting(private: Sequence[Line]) -> str:
    """Name the line to use for more than one batch of queries, if there is one."""
    good = [
        line
        for line in private
        if line.lasting and not line.trusted and line.gain.low > 0 and line.loss.mean <= CLOSE
    ]
    first = min(good, key=lambda line: (line.epsilon, -line.accuracy.mean), default=None)
    if first is None:
        return " Each further batch costs the same ε again."
    return (
        " Each further batch costs the same ε again; for any number of queries under one ε,"
        f" consider {first.label}, with an accuracy of {percent(first.accuracy.mean)}."
    )


def _why_none(pooled: Line, majority: Line) -> str:
    most, least = percent(pooled.accuracy.mean), percent(majority.accuracy.mean)
    if pooled.gain.low > 0:
        return (
            f"none is both close to the pooled classifier's {most} and significantly above {least}"
        )
    return (
        f"even the pooled classifier has {most}, which on these splits is not significantly"
        f" different from the {least} of the majority class"
    )


def _owner(private: Sequence[Line]) -> str:
    """Describe the gain from an owner trusted with all rows, at the largest ε tried."""
    top = max((line.epsilon for line in private if line.epsilon is not None), default=None)
    at_top = [line for line in private if line.epsilon == top]
    by_accuracy = sorted(at_top, key=lambda line: -line.accuracy.mean)
    owned = next((line for line in by_accuracy if line.trusted), None)
    alone = next((line for line in by_accuracy if not line.trusted), None)
    if top is None or owned is None or alone is None:
        return "No systems with and without a trusted party were tried at the same ε."
    more = round(100 * (owned.accuracy.mean - alone.accuracy.mean), 1)
    scores = (
        f"{owned.name} has {percent(owned.accuracy.mean)}, and {alone.name}, the best system"
        f" without such a party, has {percent(alone.accuracy.mean)}"
    )
    if more <= 0:
        return f"Trusting a party with all rows would gain nothing: at ε = {top:g}, {scores}."
    return f"Trusting a party with all rows would gain {more:.1f} points at ε = {top:g}: {scores}."


def _line(lines: Iterable[Line], system: str) -> Line:
    return next(line for line in lines if line.system == system)


def _beside(line: Line, pooled: Line) -> str:
    reach = f"{percent(line.accuracy.low)} to {percent(line.accuracy.high)}"
    mine = f"an accuracy of {percent(line.accuracy.mean)} ({reach})"
    return f"{mine}, against {percent(pooled.accuracy.mean)} with all rows in one place"


def _worst(leakage: Leakage) -> float:
    return max(interval(estimate)[1] for estimate in leakage.estimates.values())


def _leaks(leakage: Leakage) -> str:
    if not _worst(leakage):
        return (
            "all parties learn totals; with enough queries, these locate rows, but do not reveal"
            " their owners"
        )
    exposure, claim = (percent(leakage.estimates[name].value) for name in ("exposure", "claim"))
    return (
        f"{exposure} of the messages contain a distance from the sender's own rows; a successor"
        f" that attributes every new value to its predecessor is right in {claim} of cases; and all"
        " parties learn the nearest distances themselves"
    )
