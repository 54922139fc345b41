"""A comparison as text, as a self-contained page of HTML, and as files."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import tomli_w

from veilring.errors import InputError
from veilring.measures import NUMBERS as NUMBERS_OF_LABELS
from veilring.nodes.journal import Traffic
from veilring.privacy.checks import require
from veilring.privacy.files import write_whole
from veilring.scenarios.comparison.comparison import SystemComparison
from veilring.scenarios.comparison.decision import RULE, Decision
from veilring.scenarios.comparison.lines import LOST_MIN, Limits, Line, Played, parameters_text
from veilring.scenarios.comparison.question import OF_CLASSES, OF_NUMBERS, Wording
from veilring.scenarios.report import Amount, interval_text, leaks, percent
from veilring.scenarios.reporting.charts import AccuracyChart, accuracy_chart, bar_chart
from veilring.scenarios.reporting.page import estimates, fill

_NONE: Final = "-"
MEASURES: Final = tuple(name for name in NUMBERS_OF_LABELS if name != "accuracy")
"""The names of the measures beside the accuracy."""
_UNDER: Final = "└ "  # refers to the line above


def _guarantee(line: Line) -> str:
    return line.guarantee if line.leakage is None else f"no ε; {measured_leak(line)}"


def _of_cost(text: Callable[[Played], str]) -> Callable[[Line], str]:
    return lambda line: _NONE if line.cost is None else text(line.cost)


def _seconds(seconds: float) -> str:
    """Format a time with three digits, because a wide table has no room for more."""
    return f"{seconds:.3g} s" if seconds >= 1.0 else f"{1000 * seconds:.3g} ms"


COLUMNS: Final[Mapping[str, Callable[[Line], str]]] = {
    "system": lambda line: f"{_UNDER}in hindsight" if line.in_hindsight else line.name,
    "ε": lambda line: _NONE if line.epsilon is None else f"{line.epsilon:g}",
    "accuracy": lambda line: percent(line.accuracy.mean),
    "95% interval": lambda line: interval_text(line.accuracy),
    "1 in 10 below": lambda line: _NONE if line.one_in_ten is None else percent(line.one_in_ten),
    "trusted": lambda line: line.trust,
    "guarantee": _guarantee,
    "rounds": _of_cost(lambda cost: f"{cost.rounds:,}"),
    "messages": _of_cost(lambda cost: f"{cost.all_messages:,}"),
    "bytes": _of_cost(lambda cost: f"{cost.all_bytes:,}"),
    "network": _of_cost(lambda cost: _seconds(cost.simulated_seconds)),
    "here": _of_cost(lambda cost: _seconds(cost.seconds)),
}
"""The columns of the table: the heading, and the text of a line."""
NUMBERS: Final = {*COLUMNS, OF_NUMBERS.score} - {"system", "trusted", "guarantee"}
"""The headings of columns that contain numbers."""
_VERDICT: Final = "verdict"


def headings(wording: Wording) -> tuple[str, ...]:
    """Return the headings of the table."""
    scored = (wording.score if each == OF_CLASSES.score else each for each in COLUMNS)
    return *scored, _VERDICT


def measures_of(comparison: SystemComparison) -> tuple[str, ...]:
    """Return the names of the measures beside the score: numbers have none."""
    return () if comparison.facts.target else MEASURES


def cells(line: Line, decision: Decision, measures: Sequence[str] = ()) -> list[str]:
    """Return the cells of a line, below `headings`; messages and bytes include the set-up.

    Args:
        measures: The names of measures to add as columns.
    """
    shown = [text(line) for text in COLUMNS.values()]
    measured = [_measured(line, name) for name in measures]
    return [*shown, decision.verdict(line) or _NONE, *measured]


def _measured(line: Line, name: str) -> str:
    """Return a measure with its interval; nothing where labels come without scores."""
    found = line.measures.get(name)
    return _NONE if found is None else f"{percent(found.mean)} ({interval_text(found)})"


def measured_leak(line: Line) -> str:
    """Describe the measured leakage, in a few words."""
    if line.leakage is None:
        return _NONE
    first, *others = leaks(line.leakage, line.system)
    shown = first, next(leaked for leaked in others if leaked.is_estimated)
    return ", ".join(f"{leaked.label} {leaked.share}" for leaked in shown)


def promises(comparison: SystemComparison) -> dict[str, str]:
    """Return the guarantee of each system as a paragraph, that of the decision first."""
    picked = comparison.decision.key
    lines = sorted(comparison.lines, key=lambda line: line.key != picked)
    found = dict[str, str]()
    for line in lines:
        if line.privacy is not None:
            found.setdefault(line.name, line.privacy.paragraph(line.system))
    return found


def setting(comparison: SystemComparison) -> str:
    """Describe the data and the settings of the comparison in one line."""
    facts, asked = comparison.facts, comparison.question
    labels = facts.target or f"{facts.classes} classes"
    batches = f"{facts.batches} batch{'es' if facts.batches > 1 else ''} of {facts.queries} queries"
    return (
        f"{facts.name}: {facts.rows:,} rows, {facts.features} features, {labels};"
        f" {asked.parties} parties hold {facts.train:,} rows, {facts.held_out:,} are held out;"
        f" {comparison.splits} splits with {batches} each; seed {asked.seed}"
    )


def limits(comparison: SystemComparison) -> list[str]:
    """Describe the limits of each line that was searched in hindsight."""
    pooled = comparison.pooled.name
    return [
        f"{line.label}: {_limited(line.limits)} {_lost(line.limits, line.loss.mean, pooled)}"
        for line in comparison.lines
        if line.limits is not None
    ]


def _lost(limits: Limits, loss: float, pooled: str) -> str:
    if loss <= 0:
        return f"It loses nothing compared with {pooled}, and is {_points(-loss)} points above it."
    return (
        f"Of the loss compared with {pooled}, {_points(limits.rule.mean)} points are due to the"
        f" rule, {_points(limits.noise.mean)} to noise and {_points(limits.method.mean)} to the"
        " method."
    )


_LIMITED: Final = {
    "": "little is lost",
    "rule": "limited by the rule that sets its parameters",
    "noise": "limited by noise",
    "method": "limited by the method",
}


def _limited(limits: Limits) -> str:
    told = _LIMITED[limits.greatest]
    if limits.greatest in {"rule", "method"} and limits.noise.mean < LOST_MIN:
        told += ", and not by noise"
    if limits.greatest == "rule" and limits.parameters:
        told += f"; best in hindsight: {parameters_text(limits.parameters)}"
    return f"{told}."


def _points(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f}"  # not -0.0


def render_page(comparison: SystemComparison) -> str:
    """Return the page; equal comparisons give equal pages."""
    tables = comparison.question.model_dump(mode="json", exclude_none=True)
    columns, measures = headings(comparison.facts.wording), measures_of(comparison)
    return fill(
        "comparison.html.j2",
        __package__,
        title=_title(comparison),
        setting=setting(comparison),
        comparison=comparison,
        picture=_picture(comparison),
        headings=columns,
        wording=comparison.facts.wording,
        numbers=NUMBERS,
        rows=[
            (line, list(zip(columns, cells(line, comparison.decision), strict=True)))
            for line in comparison.lines
        ],
        measures=measures,
        measured=[
            (line.label, [_measured(line, name) for name in measures])
            for line in comparison.lines
            if not line.in_hindsight
        ],
        promises=promises(comparison).items(),
        limits=limits(comparison),
        leakages=[
            {"system": line.system, "name": line.name, **estimates(line.leakage, line.system)}
            for line in comparison.lines
            if line.leakage is not None
        ],
        bytes=bar_chart(list(_amounts(comparison))),
        rule=RULE,
        asked=tomli_w.dumps(tables),
    )


def render_picture(comparison: SystemComparison) -> str:
    """Return the chart of accuracy against ε as SVG."""
    return fill(
        "picture.svg.j2",
        __package__,
        title=_title(comparison),
        desc=f"{setting(comparison)}. Means over splits with 95% intervals.",
        picture=_picture(comparison),
    )


def _picture(comparison: SystemComparison) -> AccuracyChart:
    drawn = [line for line in comparison.lines if not line.in_hindsight]
    return accuracy_chart(drawn, comparison.question.epsilon)


def _title(comparison: SystemComparison) -> str:
    return f"{comparison.facts.name}: {comparison.question.parties} parties compared"


def _amounts(comparison: SystemComparison) -> Iterator[Amount]:
    """Yield the bytes of each system, at its smallest ε."""
    seen = set[str]()
    for line in comparison.lines:
        if line.cost is not None and line.name not in seen:
            seen.add(line.name)
            protocol = Traffic(line.cost.messages, line.cost.bytes)
            setup = Traffic(line.cost.setup_messages, line.cost.setup_bytes)
            yield Amount(line.name, protocol, setup)


_PAGE_FILE: Final = "report.html"
_NUMBERS_FILE: Final = "comparison.json"
_PICTURE_FILE: Final = "accuracy.svg"

_HTML: Final = ".html"
_SVG: Final = ".svg"


def require_fresh(out: Path | None, plot: Path | None) -> None:
    """Refuse, before anything is run, outputs that could not be written or would overwrite a file.

    Args:
        out: A page, if it ends in `.html`, otherwise a folder.
    """
    if plot is not None:
        allowed = f"a path that ends in {_SVG}"
        require(plot.suffix == _SVG, "--plot", plot, allowed)
        _require_absent("--plot", plot)
    for path in _files(out):
        _require_absent("--out", path)


def write_comparison(comparison: SystemComparison, out: Path) -> None:
    """Write the page, or a folder with the page, all numbers and the chart."""
    numbers = json.dumps(comparison.as_json(), indent=2)
    texts = (render_page(comparison), numbers, render_picture(comparison))
    for path, text in zip(_files(out), texts, strict=False):
        _write("--out", path, text)


def write_picture(comparison: SystemComparison, plot: Path) -> None:
    """Write only the chart of accuracy against ε."""
    _write("--plot", plot, render_picture(comparison))


def _files(out: Path | None) -> tuple[Path, ...]:
    if out is None:
        return ()
    return (
        (out,)
        if out.suffix == _HTML
        else (out / _PAGE_FILE, out / _NUMBERS_FILE, out / _PICTURE_FILE)
    )


def _require_absent(option: str, path: Path) -> None:
    if path.exists():
        raise InputError(option, path, "a path that does not exist; nothing is overwritten")


def _write(option: str, path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise InputError(option, path, f"a path that can be written ({error})") from error
