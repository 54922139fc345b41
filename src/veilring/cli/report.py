"""`veilring report`, `trace` and `reproduce`: pages and diagrams of finished runs, and figures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from veilring.cli.options import RunFolder


def report(
    folder: RunFolder,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="File to write the page to. Default: report.html in DIR."
        ),
    ] = None,
) -> None:
    """Write an HTML page about a run: cost, leakage, and every message over time.

    The page is one file that needs no network. It steps through the run, and is overwritten each
    time.

    For example:

        veilring run wine --out runs/wine

        veilring report runs/wine

        veilring report runs/wine --out wine.html
    """
    from veilring.errors import InputError
    from veilring.privacy.files import write_whole
    from veilring.scenarios.reporting import read_folder
    from veilring.scenarios.reporting.page import render

    page = render(read_folder(folder))
    path = folder / "report.html" if out is None else out
    try:
        write_whole(path, page)
    except OSError as error:
        raise InputError("--out", path, f"a file that can be written ({error})") from error
    typer.echo(f"Written: {path}")


if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from veilring.scenarios.report import Amount

LIMIT_DEFAULT: Final = 40  # about as much as a terminal shows at once


def trace(
    folder: RunFolder,
    *,
    limit: Annotated[
        int, typer.Option(min=0, help="Number of messages to draw, starting with the first.")
    ] = LIMIT_DEFAULT,
) -> None:
    """Show the messages of a run over time, and the traffic per party and kind of message.

    In the diagram, time runs down and each party is a column, in the order of first messages in the
    protocol. Problems and the findings of a coalition are printed above it.

    For example:

        veilring run wine --out runs/wine

        veilring trace runs/wine --limit 200
    """
    from veilring.cli.console import make_console
    from veilring.scenarios.report import adversaries, by_kind, by_party, found, troubles
    from veilring.scenarios.reporting import read_folder
    from veilring.scenarios.reporting.charts import text_diagram

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


def reproduce() -> None:
    """Say where the reproductions of the papers' figures are: beside the package."""
    typer.echo(
        "The reproductions of the papers' figures are in the repository, beside the package."
        " In a clone of it, run `python -m papers --list`."
    )
