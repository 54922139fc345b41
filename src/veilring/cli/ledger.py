"""`veilring ledger`: what was spent of a privacy budget, in total and by each analyst."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from veilring.privacy.ledger import Totals

__all__ = ("app",)

app = typer.Typer(
    help="Look at a ledger of privacy budgets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _group() -> None:
    """Keep `show` a command of its own while it is the only one."""


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help="The ledger.", metavar="FILE", show_default=False)],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the totals as JSON and nothing else.")
    ] = False,
) -> None:
    """Print what was spent, by each analyst and by all, and what is left.

    The server that writes the ledger goes on meanwhile. What single records spent is secret, and
    is never shown.

    For example:

        veilring ledger show queries.ledger
    """
    from dataclasses import asdict

    from veilring.privacy.ledger import read_totals

    totals = read_totals(path)
    if as_json:
        typer.echo(json.dumps(asdict(totals), indent=2))
    else:
        _show(totals)


def _show(totals: "Totals") -> None:
    from rich.table import Table
    from rich.text import Text

    from veilring.cli.console import make_console

    table = Table()
    table.add_column("who", style="bold")
    for column in ("entries", f"{totals.unit} spent", "left"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in totals.analysts:
        table.add_row(Text(each.name), *_amounts(each.answers, each.spent, each.budget))
    table.add_section()
    table.add_row("all", *_amounts(totals.answers, totals.spent, totals.budget))
    make_console().print(table)


def _amounts(answers: int, spent: float, budget: float | None) -> tuple[str, str, str]:
    left = "no limit" if budget is None else f"{max(0.0, budget - spent):.6g}"
    return f"{answers:,}", f"{spent:.6g}", left
