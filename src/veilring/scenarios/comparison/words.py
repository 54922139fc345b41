"""The lines of a comparison as words, the same for a terminal and for a page."""

from typing import Final, NamedTuple

from veilring.scenarios.comparison.comparison import Comparison, Line
from veilring.scenarios.reporting.summary import leaks
from veilring.scenarios.reporting.words import interval_text, percent

_NONE: Final = "-"
HEADINGS: Final = (
    "system",
    "ε",
    "accuracy",
    "95% interval",
    "trusted",
    "guarantee",
    "rounds",
    "messages",
    "bytes",
    "network",
    "here",
)
"""Of the columns of `Cells`."""
NUMBERS: Final = frozenset(HEADINGS) - {"system", "trusted", "guarantee"}
"""Those of them that hold numbers."""


class Cells(NamedTuple):
    """One line of the table."""

    system: str
    epsilon: str
    accuracy: str
    reach: str
    trust: str
    guarantee: str
    rounds: str
    messages: str
    bytes: str
    simulated: str
    here: str


class PromiseRow(NamedTuple):
    """What a system promises, in full."""

    system: str
    protects: str
    against: str
    threat_model: str
    adjacency: str
    measure: str
    note: str


def cells(line: Line) -> Cells:
    """Return a line of the table; messages and bytes are with those of the set-up."""
    cost = line.cost
    return Cells(
        line.name,
        _NONE if line.epsilon is None else f"{line.epsilon:g}",
        percent(line.accuracy.mean),
        interval_text(line.accuracy),
        line.trust,
        line.guarantee if line.leakage is None else f"no ε; {measured_leak(line)}",
        *(
            (_NONE,) * 5
            if cost is None
            else (
                f"{cost.rounds:,}",
                f"{cost.all_messages:,}",
                f"{cost.all_bytes:,}",
                _seconds(cost.simulated_seconds),
                _seconds(cost.seconds),
            )
        ),
    )


def _seconds(seconds: float) -> str:
    """Write a time in three figures: in a table of fifteen, more are in the way."""
    return f"{seconds:.3g} s" if seconds >= 1.0 else f"{1000 * seconds:.3g} ms"


def measured_leak(line: Line) -> str:
    """Write what was measured to leak, in a few words."""
    if line.leakage is None:
        return _NONE
    parts = (
        f"{label} {percent(estimate.value)}"
        for label, estimate, _ in leaks(line.leakage, line.system)[:2]
    )
    return ", ".join(parts)


def promises(comparison: Comparison) -> list[PromiseRow]:
    """Return what each system promises, once each."""
    seen: dict[str, PromiseRow] = {}
    for line in comparison.lines:
        if (said := line.privacy) is not None:
            what = (said.protects, said.against, said.threat_model, said.adjacency, said.measure)
            seen.setdefault(line.system, PromiseRow(line.name, *what, said.note))
    return list(seen.values())


def setting(comparison: Comparison) -> str:
    """Write in one line what was compared."""
    facts, asked = comparison.facts, comparison.question
    batches = f"{facts.batches} batch{'es' if facts.batches > 1 else ''} of {facts.queries} queries"
    return (
        f"{facts.name}: {facts.rows:,} rows, {facts.features} features, {facts.classes} classes;"
        f" {asked.parties} parties hold {facts.train:,} rows; {asked.splits} splits, in each"
        f" {batches}; seed {asked.seed}"
    )
