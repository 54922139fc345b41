"""`veilring records`: add records to a prediction server, and have it forget them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from veilring.deployment import CuratorConfig

__all__ = ("app",)

app = typer.Typer(
    help="Change the records of a prediction server while it serves.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_Config = Annotated[
    Path,
    typer.Argument(help="The curator's configuration.", metavar="CONFIG", show_default=False),
]


@app.command()
def add(
    config: _Config,
    records: Annotated[
        Path, typer.Argument(help="A CSV or .npz file with ids and labels.", metavar="RECORDS")
    ],
) -> None:
    """Add the records of a file; they take part from the next request on.

    The configuration names the curator's own key and the server:

        role     = "curator"

        identity = "registrar.key"

        roster   = "roster.toml"

        terms    = "terms.toml"

        server   = "clinic"

        key      = "id"          # the column that says whose row it is

    A new record has a fresh budget. One that was there before has what it had left. The same
    command again, after whatever went wrong, goes on: records that are there are passed over.
    """
    import asyncio

    from veilring.deployment.curator import add as add_records

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

    from veilring.deployment.curator import forget as forget_records
    from veilring.deployment.prediction_files import read_ids
    from veilring.errors import InputError

    named = [*(ids or ()), *(read_ids(source) if source else ())]
    if not named:
        raise InputError("ID", "missing", "at least one, or --from FILE")
    gone = asyncio.run(forget_records(_loaded(config), named))
    typer.echo(f"{gone:,} records were forgotten")


def _loaded(config: Path) -> "CuratorConfig":
    from veilring.deployment import CuratorConfig, load_config_of

    return load_config_of(config, CuratorConfig, "veilring records")
