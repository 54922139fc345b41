"""`veilring ledger`: inspect a ledger of privacy budgets."""

import json
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilring.cli.options import AsJson

if TYPE_CHECKING:
    from veilring.privacy.ledger import Totals

_LedgerFile = Annotated[
    Path, typer.Argument(help="Ledger file.", metavar="FILE", show_default=False)
]

ledger_app = typer.Typer(
    help="Inspect a ledger of privacy budgets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@ledger_app.command("show")
def show_ledger(
    path: _LedgerFile,
    *,
    as_json: AsJson = False,
) -> None:
    """Print the spent and the remaining budget, of each analyst and in total.

    An analyst's remaining budget is never more than the total. Each entry is one answer. A
    query of a places client has three entries: its charge, its messages and its answer.

    You can run this while the server is writing the ledger. The spending of individual records is
    secret and never shown.

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
    table.add_column("account", style="bold")
    for column in ("entries", f"{totals.unit} spent", "left"):
        table.add_column(column, justify="right", no_wrap=True)
    rest = inf if totals.budget is None else totals.budget - totals.spent
    for each in totals.analysts:
        own = inf if each.budget is None else each.budget - each.spent
        table.add_row(Text(each.name), *_amounts(each.answers, each.spent, min(own, rest)))
    table.add_section()
    table.add_row("all", *_amounts(totals.answers, totals.spent, rest))
    make_console().print(table)


def _amounts(answers: int, spent: float, left: float) -> tuple[str, str, str]:
    rest = "no limit" if left == inf else f"{max(0.0, left):.6g}"
    return f"{answers:,}", f"{spent:.6g}", rest
