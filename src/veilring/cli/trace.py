"""`veilring trace`: which message passed when, in the terminal."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from veilring.scenarios.reporting.tables import Amount

LIMIT_DEFAULT: Final = 40  # about what a terminal shows at once


def trace(
    folder: Annotated[
        Path,
        typer.Argument(
            help="A folder that `veilring run --out` wrote.", metavar="DIR", show_default=False
        ),
    ],
    *,
    limit: Annotated[
        int, typer.Option(min=0, help="How many messages to draw, from the first on.")
    ] = LIMIT_DEFAULT,
) -> None:
    """Show which message passed when, and what parties and kinds of message cost.

    In the diagram time runs down and each party is a column; they are in the order in which they
    first spoke in the protocol. Above it stands what went wrong, and what a coalition found.

    For example:

        veilring run wine --out runs/wine

        veilring trace runs/wine --limit 200
    """
    from veilring.cli.console import make_console
    from veilring.scenarios.reporting import read_folder
    from veilring.scenarios.reporting.summary import adversaries, found, troubles
    from veilring.scenarios.reporting.tables import by_kind, by_party
    from veilring.scenarios.reporting.text import text_diagram

    run, console = read_folder(folder), make_console()
    parties = run.scenario.parties.all
    if run.failure is not None:
        console.print(f"The run failed. {run.failure.error}: {run.failure.message}", markup=False)
        for note in run.failure.notes:
            console.print(note, markup=False, highlight=False)
    if malicious := adversaries(run.scenario):
        console.print(f"adversaries: {malicious}", markup=False, highlight=False)
    told = () if run.report is None else (*troubles(run.report), *found(run.report))
    for label, value, meaning in told:
        console.print(f"{label}: {value}; {meaning}", markup=False, highlight=False)
    console.print(_table("party", by_party(run.messages, parties)))
    console.print(_table("kind", by_kind(run.messages)))
    diagram = text_diagram(run.messages, run.marks, parties, limit=limit, width=console.width)
    for line in diagram:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if limit < len(run.messages):
        typer.echo(f"The first {limit:,} of {len(run.messages):,} messages; see --limit.")


def _table(title: str, amounts: "Iterable[Amount]") -> "Table":
    from rich.table import Table

    table = Table()
    table.add_column(title, style="bold")
    for column in ("messages", "bytes", "set-up messages", "set-up bytes"):
        table.add_column(column, justify="right")
    for amount in amounts:
        numbers = (f"{number:,}" for traffic in amount[1:] for number in traffic)
        table.add_row(amount.label, *numbers)
    return table
