"""Whether a comparison gives the same advice for other seeds, and good advice.

Each table is compared with several seeds, each with its own split, partition and noise.
The recommended line is then asked on fresh splits, which no comparison has seen.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.samples import read_table
from veilring.data.table import Table
from veilring.scenarios.comparison import Right, compare, find_contenders, mark
from veilring.scenarios.comparison.comparison import SHARE_MIN, SystemComparison
from veilring.scenarios.comparison.question import Question, draw_split, make_question

# A comparison of more rows is no other one, and takes longer.
ROWS_MAX: Final = 2000
SEEDS: Final = 9
FRESH: Final = 10
"""The number of fresh splits."""
_FRESH_SEED: Final = 1_000_000  # no seed of a comparison


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommendation of one comparison.

    Attributes:
        system: The system that it recommends; none if it recommends nothing.
        share: The share of the resamples that agree.
        can_tell: Whether it reached a decision, which may be to recommend nothing.
        gain: The accuracy on fresh splits less that of the majority class there; none if nothing is
            recommended.
    """

    table: str
    seed: int
    system: str | None
    form: str
    epsilon: float | None
    share: float
    can_tell: bool
    seconds: float
    gain: float | None = None

    @property
    def said(self) -> str:
        """The advice in a few words."""
        if not self.can_tell:
            return "cannot tell"
        at = "" if self.epsilon is None else f" {self.epsilon:g}"
        return f"{self.system}{at}" if self.system else "none"


def advise(name: str, data: Path | None, seed: int, *, workers: int | None = None) -> Advice:
    """Compare the systems on a table, and ask what is recommended on fresh splits."""
    table = _some_rows(read_table(name, data))
    question = make_question({"data": name, "seed": seed, "hindsight": False})
    start = time.perf_counter()
    found = compare(question, table=table, workers=workers)
    seconds = time.perf_counter() - start
    choice = found.choice
    return Advice(
        table=name,
        seed=seed,
        system=choice.system,
        form=choice.form,
        epsilon=choice.epsilon,
        share=choice.share,
        can_tell=choice.share >= SHARE_MIN,
        seconds=seconds,
        gain=_fresh_gain(table, question, found),
    )


def _some_rows(table: Table) -> Table:
    if len(table) <= ROWS_MAX:
        return table
    return table.take(np.random.default_rng(0).permutation(len(table))[:ROWS_MAX])


def _fresh_gain(table: Table, question: Question, found: SystemComparison) -> float | None:
    """Return the gain of the recommended line over the majority class on fresh splits."""
    if found.choice.key is None:
        return None
    fresh = question.model_copy(update={"seed": _FRESH_SEED})
    contenders, _ = find_contenders(table, question)
    (contender,) = (each for each in contenders if each.key == found.choice.key)
    gains = []
    for number in range(FRESH):
        split = draw_split(table, fresh, number)
        marks = mark(contender, split, fresh, Right.on(split, question.k))
        gains.append(marks.own - marks.majority)
    return float(np.mean(gains))


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
    if kept is not None and kept.exists():
        for line in kept.read_text(encoding="utf-8").splitlines():
            yield Advice(**json.loads(line))


def header() -> str:
    """Return the heading of the lines."""
    return f"{'table':<14} {'agree':>7} {'worst gain':>10} {'seconds':>8}  advice (seeds)"


def format_line(name: str, advice: list[Advice]) -> str:
    """Return a line: seeds that say the same or cannot tell, worst gain, median seconds, advice."""
    said = Counter(each.said for each in advice)
    unsure = said["cannot tell"]
    certain = Counter({text: count for text, count in said.items() if text != "cannot tell"})
    most = max(certain.values(), default=0)
    gains = [each.gain for each in advice if each.gain is not None]
    worst = f"{100 * min(gains):.1f}" if gains else "-"
    seconds = float(np.median([each.seconds for each in advice]))
    words = "; ".join(f"{text} ({count})" for text, count in said.most_common())
    return f"{name:<14} {most + unsure:>3}/{len(advice):<3} {worst:>10} {seconds:>8.1f}  {words}"
