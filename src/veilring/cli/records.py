"""`veilring records`: change the records of a prediction server, or repair its files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from veilring.deployment.prediction import RecordsAdministratorConfig

app = typer.Typer(
    help="Change the records of a prediction server while it serves, or repair its files.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_Config = Annotated[
    Path,
    typer.Argument(
        help="The records administrator's configuration.", metavar="CONFIG", show_default=False
    ),
]


@app.command()
def add(
    config: _Config,
    records: Annotated[
        Path, typer.Argument(help="A CSV or .npz file with ids and labels.", metavar="RECORDS")
    ],
) -> None:
    """Add the records of a file; they take part from the next request on.

    The configuration names the administrator's own key and the server:

        role     = "records-administrator"

        identity = "registrar.key"

        roster   = "roster.toml"

        terms    = "terms.toml"

        server   = "clinic"

        key      = "id"          # the column that says whose row it is

    A new record has a fresh budget. One that was there before has what it had left. The same
    command again, after whatever went wrong, goes on: records that are there are passed over.
    """
    import asyncio

    from veilring.deployment.prediction import add_records

    added = asyncio.run(add_records(_loaded(config), records))
    typer.echo(f"{added:,} records were added")


@app.command()
def forget(
    config: _Config,
    ids: Annotated[
        list[str] | None, typer.Argument(help="Whose records.", metavar="[ID]...")
    ] = None,
    *,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Read ids from here, one on each line."),
    ] = None,
) -> None:
    """Have records forgotten: gone from memory and from the disk when this returns.

    Other users of this machine can see a command's arguments; --from keeps ids out of them.

    Forgotten ids may come again, with what they had left. The same command again does no harm.
    """
    import asyncio

    from veilring.deployment.prediction import forget_records, read_ids
    from veilring.errors import InputError

    named = [*(ids or ()), *(read_ids(source) if source else ())]
    if not named:
        raise InputError("ID", "missing", "at least one, or --from FILE")
    gone = asyncio.run(forget_records(_loaded(config), named))
    typer.echo(f"{gone:,} records were forgotten")


@app.command()
def repair(
    config: Annotated[
        Path,
        typer.Argument(help="The server's configuration.", metavar="CONFIG", show_default=False),
    ],
    *,
    lose_records: Annotated[
        bool, typer.Option("--lose-records", help="Go on without the records that are lost.")
    ] = False,
    lose_budgets: Annotated[
        bool, typer.Option("--lose-budgets", help="Let records spend again what is forgotten.")
    ] = False,
) -> None:
    """Say what the files of a server that does not start have lost, and go on without it.

    Put back the newest copies of the files first, if you have any. Without an option this command
    overwrites no record: it says what is lost, and which option accepts that.

    Lost records can be added again, and then have what they had left. Where the ledger is lost or
    an old copy, records spend again what they had spent since, and what is promised to them does
    not hold any longer: the answers before and the answers to come are two streams.
    """
    from veilring.deployment import load_config_of
    from veilring.deployment.prediction import PredictionServerConfig
    from veilring.deployment.prediction import repair_server as repair_files

    loaded = load_config_of(config, PredictionServerConfig, "veilring records repair")
    damage = repair_files(loaded, lose_records=lose_records, lose_budgets=lose_budgets)
    typer.echo(f"{damage.records:,} records can be read")
    if damage.lost:
        accept = "" if lose_records else ": --lose-records accepts that"
        typer.echo(f"{damage.lost:,} records or changes are lost{accept}")
    if damage.refunded:
        accept = "" if lose_budgets else ": --lose-budgets accepts that"
        typer.echo(f"what {damage.refunded:,} records have spent is forgotten{accept}")
    if not damage.is_accepted(lose_records=lose_records, lose_budgets=lose_budgets):
        typer.echo("nothing was changed")
        raise typer.Exit(1)
    typer.echo("the files fit each other")


def _loaded(config: Path) -> "RecordsAdministratorConfig":
    from veilring.deployment import load_config_of
    from veilring.deployment.prediction import RecordsAdministratorConfig

    return load_config_of(config, RecordsAdministratorConfig, "veilring records")
