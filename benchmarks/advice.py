"""Whether a comparison decides alike for other seeds, and well.

Each table is compared with several seeds, each with its own splits, partitions and noise. Two
comparisons are consistent if the pick of one is the pick of the other, or open there. The line to
use is then asked on fresh splits, which no comparison has seen, beside the best line there.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.samples import read_table
from veilring.data.table import Table
from veilring.scenarios.comparison import Right, compare, find_contenders, mark
from veilring.scenarios.comparison.comparison import SystemComparison
from veilring.scenarios.comparison.lines import Key
from veilring.scenarios.comparison.question import Question, draw_split, make_question

# A comparison of more rows is no other one, and takes longer.
ROWS_MAX: Final = 2000
SEEDS: Final = 10
FRESH: Final = 10
"""The number of fresh splits."""
_FRESH_SEED: Final = 1_000_000  # no seed of a comparison


@dataclass(frozen=True, slots=True)
class Advice:
    """The decision of one comparison.

    Attributes:
        pick: The key of the line to use; none if nothing beats the majority class.
        open: The keys of the lines that may do as well.
        gain: The accuracy of the line to use less that of the majority class, on fresh splits.
        behind: The loss there to the best line that asks for the same trust.
    """

    table: str
    seed: int
    pick: Key | None
    open: tuple[Key, ...]
    tolerance: float
    splits: int
    seconds: float
    gain: float | None = None
    behind: float | None = None

    @property
    def said(self) -> str:
        """The decision in a few words."""
        if self.pick is None:
            return "none"
        system, form, epsilon = self.pick
        at = "" if epsilon is None else f" {epsilon:g}"
        return f"{system}{f' {form}' if form else ''}{at}"

    def permits(self, other: "Advice") -> bool:
        """Whether the pick of another comparison is this one's, or open here."""
        return other.pick == self.pick or other.pick in self.open


def advise(name: str, data: Path | None, seed: int, *, workers: int | None = None) -> Advice:
    """Compare the systems on a table, and ask the line to use on fresh splits."""
    table = _some_rows(read_table(name, data))
    question = make_question({"data": name, "seed": seed, "hindsight": False})
    start = time.perf_counter()
    found = compare(question, table=table, workers=workers)
    seconds = time.perf_counter() - start
    gain, behind = _fresh(table, question, found) or (None, None)
    return Advice(
        table=name,
        seed=seed,
        pick=found.decision.key,
        open=tuple(each.key for each in found.decision.open),
        tolerance=found.decision.tolerance,
        splits=found.splits,
        seconds=seconds,
        gain=gain,
        behind=behind,
    )


def _some_rows(table: Table) -> Table:
    if len(table) <= ROWS_MAX:
        return table
    return table.take(np.random.default_rng(0).permutation(len(table))[:ROWS_MAX])


def _fresh(table: Table, question: Question, found: SystemComparison) -> tuple[float, float] | None:
    """Return the gain over the majority class, and the loss to the best line of equal trust."""
    pick = found.decision.pick
    if pick is None:
        return None
    fresh = question.model_copy(update={"seed": _FRESH_SEED})
    alike = {each.key for each in found.decision.standings if each.trust is pick.trust}
    contenders, _ = find_contenders(table, question)
    gains = dict[Key, list[float]]()
    losses = dict[Key, list[float]]()
    for number in range(FRESH):
        split = draw_split(table, fresh, number)
        right = Right.on(split, question.k)
        for each in contenders:
            if each.key in alike:
                marks = mark(each, split, fresh, right)
                gains.setdefault(each.key, []).append(marks.own - marks.majority)
                losses.setdefault(each.key, []).append(marks.pooled - marks.own)
    means = {key: float(np.mean(each)) for key, each in losses.items()}
    return float(np.mean(gains[pick.key])), means[pick.key] - min(means.values())


def campaign(
    names: list[str], data: Path | None, seeds: int, kept: Path | None, workers: int | None
) -> Iterator[str]:
    """Yield a line of text for each table, after all of its comparisons.

    Args:
        kept: A file to which each piece of advice is added, as a line of JSON; what it holds
            already is not measured again.
    """
    before = {(each.table, each.seed): each for each in _read(kept)}
    yield header()
    for name in names:
        advice = list[Advice]()
        for seed in range(1, seeds + 1):
            if (name, seed) in before:
                advice.append(before[name, seed])
                continue
            advice.append(advise(name, data, seed, workers=workers))
            if kept is not None:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(advice[-1])) + "\n")
        yield format_line(name, advice)


def _read(kept: Path | None) -> Iterator[Advice]:
    if kept is None or not kept.exists():
        return
    for line in kept.read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        pick = None if fields["pick"] is None else tuple(fields["pick"])
        yield Advice(**{**fields, "pick": pick, "open": tuple(map(tuple, fields["open"]))})


def header() -> str:
    """Return the heading of the lines."""
    return (
        f"{'table':<14} {'same':>6} {'inconsistent':>12} {'worst gain':>10} {'in tolerance':>12}"
        f" {'splits':>6} {'seconds':>7}  line to use (seeds)"
    )


def format_line(name: str, advice: list[Advice]) -> str:
    """Return a line with the decisions of all seeds.

    It has the seeds with the same pick, the pairs that are not consistent, the least gain and the
    picks within the tolerance on fresh splits, the median splits and seconds, and the picks.
    """
    said = Counter(each.said for each in advice)
    pairs = list(combinations(advice, 2))
    apart = sum(not (one.permits(other) or other.permits(one)) for one, other in pairs)
    gains = [each.gain for each in advice if each.gain is not None]
    worst = f"{100 * min(gains):.1f}" if gains else "-"
    within = sum((each.behind or 0.0) <= each.tolerance for each in advice)
    splits, seconds = (
        float(np.median(values))
        for values in zip(*((each.splits, each.seconds) for each in advice), strict=True)
    )
    words = "; ".join(f"{text} ({count})" for text, count in said.most_common())
    return (
        f"{name:<14} {max(said.values()):>3}/{len(advice):<2} {apart:>6} of {len(pairs):<3}"
        f" {worst:>9} {within:>9}/{len(advice):<2} {splits:>6.0f} {seconds:>7.1f}  {words}"
    )
