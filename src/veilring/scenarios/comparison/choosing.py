"""What to choose: a rule that anybody can follow by hand on the lines of a comparison."""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from veilring.protocols.system import Leakage
from veilring.scenarios.comparison.comparison import MAJORITY, POOLED, Choice, Line
from veilring.scenarios.reporting.charts import interval
from veilring.scenarios.reporting.words import percent

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
    "Else PP-kNN, if it is worth it, close, and its exposure, claim and peak loss of privacy lie"
    f" below {percent(LEAK_MAX)} with their intervals: who then says whose a distance is, is wrong"
    " more often than right."
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
    measured = [line for line in alone if line.leakage is not None]
    for line in measured:
        if line.leakage is not None and _worst(line.leakage) < LEAK_MAX:
            return line, (
                f"{line.label}: {_beside(line, pooled)}, and no system that has an ε without a"
                f" trusted party comes that near. It is not free of leaks: {_leaks(line.leakage)};"
                " and all parties learn the nearest distances themselves."
            )
    if good and (owned := [line for line in good if line.trusted]):
        best = _first(owned)
        leaking = "PP-kNN leaks too much, and " if measured else ""
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
    exposure, claim = (percent(leakage.estimates[name].value) for name in ("exposure", "claim"))
    return (
        f"{exposure} of messages carry a distance that their sender has just added, and a successor"
        f" that claims all that is new to it as its predecessor's is right in {claim}"
    )
