"""The decision of a comparison: the lines as good as the best one, and which of them to use.

One winner by accuracy would be a matter of luck, because neighbours on the axis of ε are within
their noise. Each line is therefore compared with the best one, split by split, and is *as good*,
*worse* or still *open*. Of the lines that are as good, the decision is for the one that asks for
the least trust, then for the least ε and δ, then for the fewest bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from math import ceil, inf
from typing import Any, Final, Literal

import numpy as np

from veilring.protocols.promise import Leakage
from veilring.scenarios.comparison.lines import MAJORITY, POOLED, Key, Line, find_line
from veilring.scenarios.comparison.question import OF_CLASSES, SPLITS_MAX, Wording
from veilring.scenarios.comparison.tuning import Interval
from veilring.scenarios.report import percent
from veilring.scenarios.reporting.charts import interval

ERRORS: Final = 2.3
"""The standard errors of a mean over splits within which a comparison is open. In 280 simulated
pairs of comparisons on seven tables, 1.6 to 3 gave consistent decisions."""
LEAK_MAX: Final = 0.5
"""The leakage below which a guess at the owner of an observed value is wrong more often than right:
the criterion of Xiong, Chitti and Liu (2007, Section 6.6)."""
_SHOWN: Final = 3  # the number of open lines that are named

CANNOT: Final = (
    "Do not compare across guarantees: a measured leak covers one attack, an ε bounds every attack"
    " on the results, as long as the stated trust holds. An ε for each report, stream, batch or"
    " release is a different guarantee, and each further report, stream, batch or release adds to"
    " it. A bound with a δ may be exceeded, with a probability of about δ; a pure one never is."
)
_REPLACED: Final = (
    "Where ε is for an added or removed row or record, the content of one that is known to be there"
    " has up to 2·ε."
)
_BEST: Final = (
    "The best line is the private one that loses least to the pooled classifier, on the same"
    " queries of the same splits. If it is not clearly above the majority class, or the mean of"
    " numbers, no system is useful. A system without an ε counts only if the whole interval of"
    f" every measure of its leakage is below {percent(LEAK_MAX)}: a guess at the owner of a"
    " distance is then wrong more often than right."
)
_AS_GOOD: Final = (
    "Each line is compared with the best one, split by split. It is as good if it is behind by at"
    " most the tolerance, worse if it is behind by more, and open if the splits do not tell: within"
    f" {ERRORS} standard errors of the mean over these splits. If the best line is above the"
    " majority class by less than twice the tolerance, half of that gain is tolerated instead."
)
_PREFERRED: Final = (
    "Of the lines that are as good, use the one with the least trust: first an ε without a party"
    " that sees all rows, for any number of queries; then the same for each batch; then no ε; then"
    " a trusted party. Among lines of equal trust, use the one with the least ε, then the least δ,"
    " then the fewest bytes."
)
_REFINED: Final = (
    "While a line that would come before it is open, more splits are drawn, unless their number"
    " was given."
)
RULE: Final = (_BEST, _AS_GOOD, _PREFERRED, _REFINED)
"""The rule in words, step by step."""


Verdict = Literal["as good", "open", "worse"]


class Trust(IntEnum):
    """The trust that a line asks for, from the least to the most."""

    LASTING = 0
    BATCH = 1
    NO_EPSILON = 2
    OWNER = 3


TRUSTS: Final[Mapping[Trust, str]] = {
    Trust.LASTING: "with one ε for any number of queries and no party that sees all rows",
    Trust.BATCH: "with an ε for each batch and no party that sees all rows",
    Trust.NO_EPSILON: "without an ε",
    Trust.OWNER: "with a party that sees all rows",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """A private line beside the best one.

    Attributes:
        behind: Its mean loss of accuracy to the best line, with `ERRORS` standard errors.
    """

    system: str
    form: str
    epsilon: float | None
    trust: Trust
    behind: Interval
    verdict: Verdict

    @property
    def key(self) -> Key:
        """The key of the line."""
        return self.system, self.form, self.epsilon


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of the documented rule.

    Attributes:
        pick: The line to use; none if no private line is above the majority class.
        best: The line that loses least; none if there is no private line.
        tolerance: The loss to the best line that still counts as equal.
        standings: All private lines that count, in the order in which the rule prefers them.
        says: The decision in sentences: the line to use first.
        cannot: How the guarantees of the lines differ, so that an ε is not compared with another.
    """

    pick: Standing | None
    best: Standing | None
    tolerance: float
    standings: tuple[Standing, ...]
    says: tuple[str, ...]
    cannot: str = CANNOT

    @property
    def key(self) -> Key | None:
        """The key of the line to use, if there is one."""
        return None if self.pick is None else self.pick.key

    @property
    def open(self) -> tuple[Standing, ...]:
        """The lines that the rule prefers to its pick, if further splits show them as good."""
        before = [] if self.pick is None else self.standings[: self.standings.index(self.pick)]
        return tuple(each for each in before if each.verdict == "open")

    def verdict(self, line: Line) -> str:
        """Return the verdict on a line; empty for one that does not count."""
        if line.key == self.key:
            return "use"
        return next((each.verdict for each in self.standings if each.key == line.key), "")

    def as_json(self) -> dict[str, Any]:
        """Return everything as values that JSON can express."""
        plain = {
            each.key: {
                **asdict(each),
                "trust": each.trust.name.lower(),
                "behind": each.behind._asdict(),
            }
            for each in self.standings
        }
        return {
            "pick": None if self.pick is None else plain[self.pick.key],
            "best": None if self.best is None else plain[self.best.key],
            "open": [plain[each.key] for each in self.open],
            "tolerance": self.tolerance,
            "standings": list(plain.values()),
            "says": list(self.says),
            "cannot": self.cannot,
        }


def decide(lines: Sequence[Line], tolerance: float, wording: Wording = OF_CLASSES) -> Decision:
    """Decide by `RULE`.

    Args:
        tolerance: The loss of accuracy to the best line that is acceptable, such as 0.02.
    """
    counted = {line.key: line for line in lines if _counts(line)}
    decision = _decide(lines, counted, tolerance, wording)
    return replace(decision, cannot=" ".join([CANNOT, *_adjacencies(counted.values())]))


def _decide(
    lines: Sequence[Line], counted: Mapping[Key, Line], tolerance: float, wording: Wording
) -> Decision:
    majority = find_line(lines, MAJORITY)
    best = min(
        counted.values(), key=lambda line: (line.loss.mean, *_preference(line)), default=None
    )
    if best is None:
        return Decision(None, None, tolerance, (), ("No private system fits these rows.",))
    gain = _over_these_splits(best.gains)
    tolerance = min(tolerance, max(0.0, gain.mean / 2))
    ordered = sorted(counted.values(), key=_preference)
    standings = tuple(_standing(line, best, tolerance) for line in ordered)
    (first,) = (each for each in standings if each.key == best.key)
    if gain.low <= 0:
        says = (_none(best, gain, find_line(lines, POOLED), majority, wording),)
        return Decision(None, first, tolerance, standings, says)
    pick = next(each for each in standings if each.verdict == "as good")
    decision = Decision(pick, first, tolerance, standings, ())
    line = counted[pick.key]
    use = _use(decision, line, best, find_line(lines, POOLED), wording)
    return replace(decision, says=(use, *_besides(decision, line, counted)))


def _adjacencies(lines: Iterable[Line]) -> Iterator[str]:
    """Yield each adjacency with its systems, unless all systems have the same one."""
    found = dict[str, dict[str, str]]()
    for line in lines:
        if line.privacy is not None and line.epsilon is not None:
            found.setdefault(line.privacy.adjacency, {}).setdefault(line.system, line.name)
    if len(found) > 1:
        each = (f"{adjacency} ({'; '.join(names.values())})" for adjacency, names in found.items())
        yield f"The adjacency of ε differs: {', '.join(each)}. {_REPLACED}"


def _counts(line: Line) -> bool:
    """Whether a line is private, and leaks little if no ε bounds its leakage."""
    if line.privacy is None or line.epsilon is not None:
        return line.privacy is not None
    return not line.trusted and line.leakage is not None and _worst(line.leakage) < LEAK_MAX


def _trust(line: Line) -> Trust:
    if line.trusted:
        return Trust.OWNER
    if line.epsilon is None:
        return Trust.NO_EPSILON
    return Trust.LASTING if line.lasting else Trust.BATCH


def _preference(line: Line) -> tuple[float | str, ...]:
    delta = 0.0 if line.privacy is None else line.privacy.delta
    leak = 0.0 if line.leakage is None else _worst(line.leakage)
    size = inf if line.cost is None else line.cost.all_bytes
    epsilon = inf if line.epsilon is None else line.epsilon
    # The accuracies of lines that are as good differ by luck, which decides nothing.
    name = line.system, line.form
    return _trust(line), epsilon, float(not line.lasting), leak, delta, size, *name


def _standing(line: Line, best: Line, tolerance: float) -> Standing:
    behind = _over_these_splits(np.subtract(line.losses, best.losses).tolist())
    verdict: Verdict = "open"
    if behind.high <= tolerance:
        verdict = "as good"
    elif behind.low > tolerance:
        verdict = "worse"
    return Standing(*line.key, _trust(line), behind, verdict)


def _over_these_splits(values: Sequence[float]) -> Interval:
    """Return a mean with `ERRORS` standard errors: of splits of this table, not of other tables."""
    mean = float(np.mean(values))
    reach = ERRORS * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return Interval(mean, mean - reach, mean + reach)


def _none(best: Line, gain: Interval, pooled: Line, majority: Line, wording: Wording) -> str:
    most = percent(pooled.accuracy.mean)
    reaches = wording.reaches.format(share=percent(majority.accuracy.mean))
    needed = "A larger ε, more rows or other columns are needed"
    if majority.accuracy.mean == 1:
        needed = wording.constant
    return (
        f"Nothing here clearly beats the {wording.baseline}, which {reaches}:"
        f" the best private line, {best.label}, is {_apart(gain, 'above', 'below')} it, and all"
        f" rows in one place have {most}. {needed} before a private system is worth its cost."
    )


def _besides(decision: Decision, line: Line, counted: Mapping[Key, Line]) -> Iterator[str]:
    """Yield what remains open, and what more trust, a larger ε or more rows would add."""
    yield from _lasting(decision, line, counted)
    if decision.open:
        yield _undecided(decision, counted, len(line.losses))
    yield from _beside(decision, line, counted)
    yield from _more_rows(decision, line)


def _use(decision: Decision, line: Line, best: Line, pooled: Line, wording: Wording) -> str:
    low = line.one_in_ten
    bad = "" if low is None else f"; one release in ten is below {percent(low)}"
    beside = _apart(_over_these_splits(line.losses), "below", "above")
    equal = "No private line is better."
    if line.key != best.key:
        behind = next(each.behind for each in decision.standings if each.key == line.key)
        equal = (
            f"It is as good as the best line, {best.label}, within {100 * decision.tolerance:.1f}"
            f" points: it is {_apart(behind, 'below', 'above')} it."
        )
    leaking = "" if line.leakage is None else f" It does leak: {_leaks(line.leakage)}."
    return (
        f"Use {line.label} (trusted: {line.trust}):"
        f" {wording.scored.format(share=percent(line.accuracy.mean))}, {beside} the"
        f" {percent(pooled.accuracy.mean)} of all rows in one place{bad}. {equal}{leaking}"
    )


def _lasting(decision: Decision, line: Line, counted: Mapping[Key, Line]) -> Iterator[str]:
    """Say that a batch's ε is spent again, and what would last."""
    if line.lasting or line.epsilon is None:
        return
    lasting = [counted[each.key] for each in decision.standings if each.trust is Trust.LASTING]
    first = min(lasting, key=lambda each: each.loss.mean, default=None)
    instead = (
        ""
        if first is None
        else f"; for any number of queries under one ε, {first.label} has"
        f" {percent(first.accuracy.mean)}"
    )
    yield f"Each further batch costs the same ε again{instead}."


def _undecided(decision: Decision, counted: Mapping[Key, Line], splits: int) -> str:
    """Name the lines that may do as well, the cost of an error, and what would decide."""
    shown = decision.open[:_SHOWN]
    *others, last = (f"{counted[each.key].label} ({_reach(each.behind)})" for each in shown)
    named = f"{', '.join(others)} and {last}" if others else last
    most = max(each.behind.high for each in shown)
    needed = max(_splits_needed(each.behind, decision.tolerance, splits) for each in shown)
    decided = (
        f"--seeds {needed} would probably decide."
        if needed <= SPLITS_MAX
        else "That is so close to the tolerance that more splits of these rows do not decide."
    )
    return (
        f"Points behind the best line after {splits} splits, too few to tell: {named}. A line with"
        f" less trust, a smaller ε or δ, or fewer bytes may do as well; if it does not, it costs at"
        f" most {100 * most:.1f} points. {decided}"
    )


def _splits_needed(behind: Interval, tolerance: float, splits: int) -> int:
    """Return the number of splits after which a mean this far from the tolerance is decided."""
    apart = abs(behind.mean - tolerance)
    if not apart:
        return SPLITS_MAX + 1
    return ceil(min(splits * ((behind.high - behind.mean) / apart) ** 2, SPLITS_MAX + 1))


def _beside(decision: Decision, line: Line, counted: Mapping[Key, Line]) -> Iterator[str]:
    """Compare the line to use with the best line of each other kind of trust."""
    own = _trust(line)
    for trust, words in TRUSTS.items():
        others = [counted[each.key] for each in decision.standings if each.trust is trust]
        if trust is not own and others:
            other = min(others, key=lambda each: each.loss.mean)
            gain = _over_these_splits(np.subtract(line.losses, other.losses).tolist())
            more = _apart(gain, "above", "below")
            yield f"The best line {words}, {other.label}, is {more} the line to use."


def _more_rows(decision: Decision, line: Line) -> Iterator[str]:
    """Say how many rows a smaller ε needs: the noise in a sum of rows depends on rows times ε."""
    if line.epsilon is None or not line.lasting:
        return
    smaller = [
        each.epsilon
        for each in decision.standings
        if (each.system, each.form, each.verdict) == (line.system, line.form, "worse")
        and each.epsilon is not None
        and each.epsilon < line.epsilon
    ]
    if smaller:
        times = line.epsilon / max(smaller)
        yield (
            f"With about {times:.2g} times the rows, ε = {max(smaller):g} would do what"
            f" ε = {line.epsilon:g} does here."
        )


def _reach(part: Interval) -> str:
    low, high = (f"{100 * each:.1f}" for each in (part.low, part.high))
    return low if low == high else f"{low} to {high}"


def _apart(part: Interval, more: str, less: str) -> str:
    """Return a difference in points in words, such as "1.0 to 2.0 points below"."""
    if not part.low and not part.high:
        return "equal to"
    if part.low >= 0:
        return f"{_reach(part)} points {more}"
    if part.high <= 0:
        return f"{_reach(Interval(-part.mean, -part.high, -part.low))} points {less}"
    return f"between {-100 * part.low:.1f} points {less} and {100 * part.high:.1f} {more}"


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
