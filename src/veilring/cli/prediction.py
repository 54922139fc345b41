"""`veilring records` and `embed`: the records of a prediction server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from veilring.deployment.prediction import RecordsAdministratorConfig

records_app = typer.Typer(
    help="Change the records of a prediction server while it serves, or repair its files.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_ConfigPath = Annotated[
    Path,
    typer.Argument(
        help="The records administrator's configuration.", metavar="CONFIG", show_default=False
    ),
]


@records_app.command("add")
def add_command(
    config: _ConfigPath,
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

    added = asyncio.run(add_records(_load_administrator(config), records))
    typer.echo(f"{added:,} records were added")


@records_app.command("forget")
def forget_command(
    config: _ConfigPath,
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
        raise InputError.because("no id is given; give at least one, or --from FILE", field="ID")
    gone = asyncio.run(forget_records(_load_administrator(config), named))
    typer.echo(f"{gone:,} records were forgotten")


@records_app.command("repair")
def repair_command(
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
    from veilring.deployment.prediction import PredictionServerConfig, repair_server

    loaded = load_config_of(config, PredictionServerConfig, "veilring records repair")
    damage = repair_server(loaded, lose_records=lose_records, lose_budgets=lose_budgets)
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


def _load_administrator(config: Path) -> "RecordsAdministratorConfig":
    from veilring.deployment import load_config_of
    from veilring.deployment.prediction import RecordsAdministratorConfig

    return load_config_of(config, RecordsAdministratorConfig, "veilring records")


def embed_command(
    texts: Annotated[
        Path, typer.Argument(help="A CSV file whose last column is the label.", metavar="TEXTS.csv")
    ],
    *,
    model: Annotated[
        Path, typer.Option(help="The folder of a sentence-transformers model.", metavar="DIR")
    ],
    column: Annotated[str, typer.Option(help="The column that holds the texts.")] = "text",
    key: Annotated[
        str | None,
        typer.Option(help="The column that says whose each text is.", show_default=False),
    ] = None,
    unlabelled: Annotated[
        bool, typer.Option("--unlabelled", help="The last column is no label: for queries.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="FILE.npz", help="A new file.")],
) -> None:
    """Embed texts with a model that you have; nothing is fetched.

    The extra `text` has to be installed. The file holds the arrays X, y and class_names, and ids
    with --key: public rows to tune on, all rows of a trial, records to add, or queries.

    For example:

        veilring embed news.csv --model all-MiniLM-L6-v2 --out news.npz
        veilring deploy prediction news.npz --out predict
        veilring tune news.npz --protocol prediction --terms predict/terms.toml
        veilring embed letters.csv --model all-MiniLM-L6-v2 --key patient --out records.npz
        veilring embed questions.csv --model all-MiniLM-L6-v2 --unlabelled --out queries.npz
    """
    from veilring.data.npz import write_vectors
    from veilring.data.sources import embed_csv

    vectors = embed_csv(texts, column, model, key=key, labelled=not unlabelled)
    write_vectors(vectors, out)
    count, dimensions = vectors.features.shape
    typer.echo(f"{count:,} texts in {dimensions} dimensions: {out}")
