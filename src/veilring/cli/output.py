"""Progress and a report for people."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table

from veilring.scenarios.report import Estimate, Report
from veilring.scenarios.runner import Progress

__all__ = ("show_progress", "show_report")


@contextmanager
def show_progress(*, quiet: bool) -> Iterator[Progress | None]:
    """Give what shows a bar on standard error, if a person sits there to watch it."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    with Bar(console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda doing, done, total: bar.update(
            task, description=doing, completed=done, total=total
        )


def show_report(report: Report) -> None:
    """Print the report on standard output."""
    title = f"{report.scenario.name}: {report.parties} parties, {report.runtime}"
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for section in (_accuracy(report), _cost(report), _leakage(report)):
        for row in section:
            table.add_row(*row)
        table.add_section()
    console = Console()
    console.print(table)
    console.print(_closing(report), style="dim", highlight=False, markup=False, soft_wrap=True)


_Line = tuple[str, str, str]


def _accuracy(report: Report) -> list[_Line]:
    k = report.scenario.protocol.k
    return [
        ("accuracy", _percent(report.accuracy), f"of {report.queries:,} held-out rows"),
        (
            "pooled kNN",
            _percent(report.reference_accuracy),
            f"k = {k}, not private: all {report.rows:,} rows in one place",
        ),
        (
            "majority class",
            _percent(report.majority_accuracy),
            "the same answer to every query",
        ),
        ("agreement", _percent(report.agreement), "of labels are those of the pooled kNN"),
    ]


def _cost(report: Report) -> list[_Line]:
    cost = report.cost
    lines = [
        (
            "rounds",
            f"{cost.rounds:,}",
            f"each waits for the one before; PP-TopK went round {report.rounds} times",
        ),
        (
            "messages",
            f"{cost.messages:,}",
            f"and {cost.setup_messages:,} to set up; ring {report.ring}",
        ),
        ("bytes", f"{cost.bytes:,}", f"and {cost.setup_bytes:,} to set up"),
        (
            "wall time",
            f"{report.seconds:.3f} s",
            f"and {report.start_seconds:.3f} s to start the parties",
        ),
    ]
    if report.simulated_seconds is not None:
        seconds = f"{report.simulated_seconds:.3f} s"
        lines.append(("simulated time", seconds, "what the links of the scenario would take"))
    return lines


def _leakage(report: Report) -> list[_Line]:
    leakage = report.leakage
    if leakage is None:
        return []
    return [
        (
            "exposure",
            _with_error(leakage.exposure),
            "of messages carry a distance that their sender has just added",
        ),
        (
            "claim",
            _with_error(leakage.claim),
            "of what is new to a receiver is its sender's own: right, if it claims so",
        ),
        (
            "loss of privacy",
            _with_error(leakage.lop),
            "of such claims are right that a guess from the result would not have been",
        ),
        (
            "  at its peak",
            _with_error(leakage.lop_peak),
            "for the place in the ring where that is most",
        ),
    ]


def _closing(report: Report) -> str:
    again = f"--seed {report.seed}"
    if report.secrets == "seeded":
        return f"Transcript {report.transcript}\nRepeat with {again}."
    return (
        f"Transcript {report.transcript}\n"
        f"The parties' randomness was cryptographic. The same split and partition: {again}."
    )


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _with_error(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} ± {estimate.standard_error:.2%}"
