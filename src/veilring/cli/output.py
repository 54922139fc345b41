"""The text report of a run."""

from rich.table import Table as Grid

from veilring.cli.console import make_console
from veilring.scenarios.report import (
    Report,
    accuracies,
    adversaries,
    found,
    leaks,
    percent,
    promised,
    titled,
    troubles,
)


def show_report(report: Report) -> None:
    """Print the report on standard output."""
    title = f"{titled(report.scenario)}: {report.parties} parties, {report.runtime}"
    if malicious := adversaries(report.scenario):
        title += f"\nadversaries: {malicious}"
    table = Grid(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    sections = (
        _accuracy(report),
        promised(report),
        _cost(report),
        troubles(report),
        _leakage(report),
        found(report),
    )
    for section in sections:
        for row in section:
            table.add_row(*row)
        table.add_section()
    console = make_console()
    console.print(table)
    console.print(_closing(report), style="dim", highlight=False, markup=False, soft_wrap=True)


_Line = tuple[str, str, str]


def _accuracy(report: Report) -> list[_Line]:
    return [(label, percent(share), meaning) for label, share, meaning in accuracies(report)]


def _cost(report: Report) -> list[_Line]:
    cost = report.cost
    went = "" if report.rounds is None else f"; PP-TopK circles the ring {report.rounds} times"
    ring = "" if report.ring is None else f"; ring {report.ring}"
    lines = [
        ("rounds", f"{cost.rounds:,}", "each waits for the previous one" + went),
        ("messages", f"{cost.messages:,}", f"plus {cost.setup_messages:,} for set-up" + ring),
        ("bytes", f"{cost.bytes:,}", f"plus {cost.setup_bytes:,} for set-up"),
        (
            "wall time",
            f"{report.seconds:.3f} s",
            f"plus {report.start_seconds:.3f} s to start the parties",
        ),
    ]
    equal = cost == report.forecast
    match = "match" if equal else "do not all match"
    meaning = f"rounds, messages and bytes {match} the closed forms"
    lines.append(("forecast", "equal" if equal else "differs", meaning))
    if report.simulated_seconds is not None:
        seconds = f"{report.simulated_seconds:.3f} s"
        lines.append(("simulated time", seconds, "with the scenario's links"))
    return lines


def _leakage(report: Report) -> list[_Line]:
    if report.leakage is None:
        return []
    return [
        (leaked.label, leaked.value, leaked.meaning)
        for leaked in leaks(report.leakage, report.scenario.protocol.name)
    ]


def _closing(report: Report) -> str:
    again = f"--seed {report.seed}"
    if report.secrets == "seeded":
        return f"Transcript {report.transcript}\nTo repeat: {again}."
    return (
        f"Transcript {report.transcript}\n"
        f"The parties used cryptographic randomness. To repeat the split and partition: {again}."
    )
