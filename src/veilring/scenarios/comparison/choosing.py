"""The rule of choice, and how often it chooses the same when the splits are drawn again.

A rule that is applied once to means of a few splits names what was lucky. So it is applied to many
resamples of the splits, from the means on, and recommends a line only if nearly all of them agree.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.protocols.system import Leakage
from veilring.scenarios.comparison.comparison import MAJORITY, POOLED, Choice, Line
from veilring.scenarios.intervals import CONFIDENCE
from veilring.scenarios.reporting.charts import interval
from veilring.scenarios.reporting.summary import percent

CLOSE: Final = 0.05
"""By how much the mean accuracy may fall behind that of the pooled classifier."""
LEAK_MAX: Final = 0.5
"""Below it, a guess at the owner of something that was seen is wrong more often than right: the
yardstick of Xiong, Chitti and Liu (2007, Section 6.6)."""
RESAMPLES: Final = 1000
"""The number of resamples of the splits."""
SHARE_MIN: Final = 0.9
"""The share of the resamples that have to choose a line before it is recommended."""

_WORTH: Final = (
    "A line is worth it if its gain over the majority class is above 0: the lower end of an"
    " interval that holds for all lines together. It is close if its mean is at most"
    f" {100 * CLOSE:g} points below the pooled classifier's. It is beaten if another line of the"
    " same trust has a smaller ε and a higher mean."
)
_FIRST: Final = (
    "First choice: an ε, no trusted party, worth it, close and not beaten. Of these the smallest ε,"
    " then one that covers any number of queries, then the highest accuracy, then the fewest bytes."
)
_RING: Final = (
    "Otherwise a system without an ε, the one that leaks less first, if it is worth it, close, and"
    " every measure of its leakage of a party lies below"
    f" {percent(LEAK_MAX)} with its interval: a guess at the owner of a distance is wrong more"
    " often than right."
)
_OWNED: Final = (
    "Otherwise a line with a trusted party that is worth it, close and not beaten, in the same"
    " order. Otherwise none."
)
_AGAIN: Final = (
    f"All of this is repeated on {RESAMPLES:,} resamples of the splits, which are drawn with"
    " replacement. A line is recommended if the splits as they are choose it, and at least"
    f" {100 * SHARE_MIN:g}% of the resamples its system at its ε, in whatever form that needs the"
    " same trust. Otherwise it cannot be told."
)
RULE: Final = (_WORTH, _FIRST, _RING, _OWNED, _AGAIN)
"""The rule in words, step by step."""
CANNOT: Final = (
    "Not comparable: a measured leak is no ε, since it speaks of one attack and an ε of all; an ε a"
    " report, an ε a stream, an ε a batch and an ε a release are different promises, which further"
    " reports, streams, batches and releases add to; and a promise with a δ may fail with that"
    " probability, where a pure one never does."
)
_SHOWN: Final = 3  # of the lines that were chosen, where none was chosen often enough


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What of a private line does not depend on the splits.

    Attributes:
        order: What it is preferred by; the least first.
        trusted: Whether one party has to be trusted with all rows.
        epsilon: The ε, infinite without one.
        size: The bytes of a batch, which decide last.
    """

    order: tuple[float, ...]
    trusted: bool
    epsilon: float
    size: float


@dataclass(frozen=True, slots=True, eq=False)
class _Scores:
    """The private lines' scores, shape (lines, splits) each.

    Attributes:
        accuracies: The accuracies.
        losses: What they lack to the pooled classifier.
        gains: What they are above the majority class.
        overlaps: The queries over the training rows, shape (lines,).
    """

    accuracies: NDArray[np.float64]
    losses: NDArray[np.float64]
    gains: NDArray[np.float64]
    overlaps: NDArray[np.float64]

    def gain_low(self, gains: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the lower ends of intervals that hold for all lines together (Bonferroni).

        The interval is the corrected resampled t interval of `veilring.scenarios.intervals`.
        """
        from scipy.special import stdtrit

        lines, splits = gains.shape
        quantile = float(stdtrit(splits - 1, 1 - (1 - CONFIDENCE) / (2 * lines)))
        reach = quantile * gains.std(axis=1, ddof=1) * np.sqrt(1 / splits + self.overlaps)
        low: NDArray[np.float64] = gains.mean(axis=1) - reach
        return low


def choose(lines: Sequence[Line], rng: Generator) -> Choice:
    """Choose by `RULE`.

    Args:
        lines: The lines, among them those of `POOLED` and `MAJORITY`.
        rng: The source of the resamples.
    """
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
        says = f"None of the private systems is worth it here: {_why_none(pooled, majority)}."
    else:
        says = f"{_why(picked, private, pooled)} {_agreed(share)}"
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
    """Return what has to be the same in the resamples: the forms of a system count together."""
    if number is None:
        return None
    line = private[number]
    return line.system, line.epsilon, line.trusted


def _resample(private: Sequence[Line], rng: Generator) -> tuple[int | None, Counter[int | None]]:
    """Return the number of the line that all splits choose, and how often resamples choose each."""
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


def _pick(
    candidates: Sequence[_Candidate], scores: _Scores, splits: NDArray[np.int64]
) -> int | None:
    """Return the number of the line that the rule chooses on splits that may repeat."""
    means = scores.accuracies[:, splits].mean(axis=1)
    losses = scores.losses[:, splits].mean(axis=1)
    good = (scores.gain_low(scores.gains[:, splits]) > 0) & (losses <= CLOSE)
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


def _agreed(share: float) -> str:
    return f"{percent(share)} of {RESAMPLES:,} resamples of the splits choose this system and ε."


def _unsure(label: str | None, shares: Sequence[tuple[str | None, float]]) -> str:
    """Say what was chosen how often, where nothing was chosen often enough."""
    often = "; ".join(f"{name or 'none'} in {percent(share)}" for name, share in shares[:_SHOWN])
    first = label or "none of the lines"
    return (
        f"It cannot be told which system to choose. The rule picks {first} on these splits, but"
        f" resamples of them do not agree ({often}), and {100 * SHARE_MIN:g}% are needed. More"
        " --seeds may tell."
    )


def _why(line: Line, private: Sequence[Line], pooled: Line) -> str:
    """Say why a line is recommended."""
    beside = _beside(line, pooled)
    if line.trusted:
        leaking = [
            each.name for each in private if each.leakage and _worst(each.leakage) >= LEAK_MAX
        ]
        leaks = f"{leaking[0]} leaks too much, and " if leaking else ""
        return (
            f"{line.label}, if there is somebody whom all trust with their rows: {leaks}without"
            f" that no line is close, while for this one {beside}."
        )
    if line.leakage is not None:
        return (
            f"{line.label}: {beside}, and no system that has an ε without a trusted party comes"
            f" that near. It is not free of leaks: {_leaks(line.leakage)}."
        )
    covers = ", and its ε covers any number of queries" if line.lasting else ""
    return (
        f"{line.label}: it has an ε and needs no party that sees all rows (trusted: {line.trust}),"
        f" and {beside}{covers}. It is the smallest ε of those tried at which that is so."
        f"{'' if line.lasting else _lasting(private)}"
    )


def _lasting(private: Sequence[Line]) -> str:
    """Name the line to look at where more queries follow than one batch, if there is one."""
    good = [
        line
        for line in private
        if line.lasting and not line.trusted and line.gain.low > 0 and line.loss.mean <= CLOSE
    ]
    first = min(good, key=lambda line: (line.epsilon, -line.accuracy.mean), default=None)
    if first is None:
        return " Each further batch spends as much again."
    return (
        f" Each further batch spends as much again: for any number of queries under one ε look at"
        f" {first.label}, which gets {percent(first.accuracy.mean)}."
    )


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
