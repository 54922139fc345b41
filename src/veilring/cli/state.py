"""`veilring state` and `ledger`: create the durable state of a party, copy and inspect it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilring.cli.options import AsJson, ConfigFile, group_of
from veilring.errors import ScenarioError

if TYPE_CHECKING:
    from veilring.privacy.ledger import Totals

_LedgerFile = Annotated[Path, typer.Argument(help="Ledger file.", metavar="FILE")]

ledger_app = group_of("Inspect a ledger of privacy budgets.")


@ledger_app.command("show")
def show_ledger(path: _LedgerFile, *, as_json: AsJson = False) -> None:
    """Print the spent and the remaining budget, of each analyst and in total.

    An analyst's remaining budget is never more than the total. An answer is counted where it was
    charged, so a member counts those of other members' clients under the names of these members.

    You can run this while the server is writing the ledger. The spending of individual records is
    secret and never shown.

    For example:

        veilring ledger show owner.db
    """
    from dataclasses import asdict

    from veilring.privacy.ledger import read_totals

    totals = read_totals(path)
    if as_json:
        typer.echo(json.dumps(asdict(totals), indent=2))
    else:
        show_totals(totals)


def show_totals(totals: "Totals") -> None:
    """Print the totals of a ledger as a table."""
    from rich.table import Table
    from rich.text import Text

    from veilring.cli.console import make_console

    table = Table()
    table.add_column("account", style="bold")
    for column in ("answers", f"{totals.unit} spent", "left"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in totals.analysts:
        left = totals.left_for(each)
        table.add_row(Text(each.name), *_amounts(each.answers, each.spent, left))
    table.add_section()
    table.add_row("all", *_amounts(totals.answers, totals.spent, totals.left))
    make_console().print(table)
    if totals.delta:
        typer.echo(f"delta charged: {totals.delta:g}")


def _amounts(answers: int, spent: float, left: float | None) -> tuple[str, str, str]:
    rest = "no limit" if left is None else f"{left:.6g}"
    return f"{answers:,}", f"{spent:.6g}", rest


state_app = group_of("Create the ledger, store or outbox of a party, or back it up.")


@state_app.command("new")
def new_command(config: ConfigFile) -> None:
    """Create the state that a configuration names: a ledger, store, outbox or folder of records.

    Run it once for each party, before its first start. The other commands never create state: if it
    is missing, they stop. An empty ledger would forget what was spent, so a disk that is not
    mounted must not look like a new deployment. `veilring deploy` creates the state of a trial.

    For example:

        veilring state new ada.toml
        veilring serve ada.toml
    """
    from veilring.deployment import begin_state, load_config

    loaded = load_config(config)
    if not begin_state(loaded):
        raise ScenarioError.because(
            f"a party of the role {loaded.role} keeps no state under these terms, and needs none",
            field="role",
        )
    typer.echo(f"created the state of {config}")


@state_app.command("backup")
def backup_command(
    path: Annotated[Path, typer.Argument(help="File to copy.", metavar="FILE")],
    to: Annotated[Path, typer.Argument(help="File to write.", metavar="COPY")],
) -> None:
    """Copy a ledger, store or outbox into one complete file, even while its server is running.

    A plain copy of the files of a running server may be incomplete, and is refused on start.

    To restore a copy, stop the server and move four files away: the original and the files next to
    it that end in -wal, -shm and .lock. The first two exist only after a kill, and would damage the
    copy. Then put the copy in its place. Charges, answers and reports stored after the copy was
    made are lost.

    For example:

        veilring state backup owner.db owner-2026-11-22.db
    """
    from veilring.deployment import back_up_state

    back_up_state(path, to)
    typer.echo(f"copied {path} to {to}")


@state_app.command("upgrade")
def upgrade_command(
    target: Annotated[
        Path,
        typer.Argument(
            help="State file, folder of an earlier prediction server, or configuration.",
            metavar="FILE",
        ),
    ],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing.")] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Put the kept copy back, if nothing was spent since.")
    ] = False,
) -> None:
    """Convert the state of an earlier version of veilring to the formats of this one.

    Charges, answers, reports and their receipts are carried over. A copy of the old file is kept
    beside it, with a mark by which no version opens it, so that no budget is spent twice. The
    command checks the old file, and refuses one in use. If it is stopped at any point, run it
    again.

    For example:

        veilring state upgrade owner.db --dry-run
        veilring state upgrade owner.db
    """
    from veilring.deployment.upgrading import undo_state_upgrade, upgrade_state
    from veilring.privacy.checks import require_that

    require_that(not (undo and dry_run), "--undo", "give either --dry-run or --undo")
    if undo:
        path, kept = undo_state_upgrade(target)
        typer.echo(f"put {kept.name} back as {path}; use the version that wrote it")
        return
    place, upgrade = upgrade_state(target, dry_run=dry_run)
    if not upgrade.changes:
        typer.echo(f"{place} has the formats of this version; nothing was changed")
        return
    typer.echo(f"{'would convert' if dry_run else 'converted'} {place}")
    for line in (*upgrade.changes, *upgrade.notes):
        typer.echo(f"  {line}")
    if upgrade.rows:
        rows = (f"{table} {count:,}" for table, count in upgrade.rows.items() if count)
        typer.echo(f"  rows: {', '.join(rows) or 'none'}")
    if upgrade.kept is not None and not dry_run:
        typer.echo(f"  the old file is kept as {upgrade.kept.name}; no version opens it")
