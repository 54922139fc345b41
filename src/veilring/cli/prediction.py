"""`veilring records` and `veilring embed`: the records of a prediction server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from veilring.deployment.prediction import RecordsAdministratorConfig

records_app = typer.Typer(
    help="Change the records of a running prediction server.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_ConfigPath = Annotated[
    Path,
    typer.Argument(
        help="Configuration file of the records administrator.",
        metavar="CONFIG",
        show_default=False,
    ),
]


@records_app.command("add")
def add_command(
    config: _ConfigPath,
    records: Annotated[
        Path, typer.Argument(help="CSV or .npz file with ids and labels.", metavar="RECORDS")
    ],
) -> None:
    """Add the records of a file. The server uses them from the next request on.

    The configuration names the administrator's own key and the server:

        role     = "records-administrator"
        identity = "registrar.key"
        roster   = "roster.toml"
        terms    = "terms.toml"
        server   = "clinic"
        key      = "id"          # the column that identifies the owner of a row

    A new record has a fresh budget; a forgotten record that returns has its remaining budget. You
    can repeat the command after any failure: existing records are skipped.
    """
    import asyncio

    from veilring.deployment.prediction import add_records

    added = asyncio.run(add_records(_load_administrator(config), records))
    typer.echo(f"{added:,} records were added")


@records_app.command("forget")
def forget_command(
    config: _ConfigPath,
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of the records.", metavar="ID")
    ] = None,
    *,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Read ids from this file, one on each line."),
    ] = None,
) -> None:
    """Forget records: when the command returns, they are gone from memory and disk.

    Other users of this machine can see a command's arguments; use --from to keep ids out of them.

    You can add forgotten records again, with their remaining budgets. Repeating the command is
    harmless.
    """
    import asyncio

    from veilring.deployment.prediction import forget_records, read_ids
    from veilring.errors import InputError

    named = [*(ids or ()), *(read_ids(source) if source else ())]
    if not named:
        raise InputError.because("no id is given; give at least one, or --from FILE", field="ID")
    gone = asyncio.run(forget_records(_load_administrator(config), named))
    typer.echo(f"{gone:,} records were forgotten")


def _load_administrator(config: Path) -> "RecordsAdministratorConfig":
    from veilring.deployment import load_config_of
    from veilring.deployment.prediction import RecordsAdministratorConfig

    return load_config_of(config, RecordsAdministratorConfig, "veilring records")


def embed_command(
    texts: Annotated[
        Path, typer.Argument(help="CSV file whose last column is the label.", metavar="TEXTS.csv")
    ],
    *,
    model: Annotated[
        Path, typer.Option(help="Folder of a sentence-transformers model.", metavar="DIR")
    ],
    column: Annotated[str, typer.Option(help="Column with the texts.")] = "text",
    key: Annotated[
        str | None,
        typer.Option(help="Column with the id of each text's owner.", show_default=False),
    ] = None,
    unlabelled: Annotated[
        bool, typer.Option("--unlabelled", help="Read no label column, for queries.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="FILE.npz", help="New .npz file to write.")],
) -> None:
    """Embed texts with a local model; nothing is downloaded.

    Requires the extra `text`. The file contains the arrays X, y and class_names, and with --key
    also ids. Such a file can contain public rows to tune on, the rows of a trial, records or
    queries.

    For example:

        veilring embed news.csv --model all-MiniLM-L6-v2 --out news.npz
        veilring deploy prediction news.npz --out predict
        veilring tune news.npz --protocol ind-knn --terms predict/terms.toml
        veilring embed letters.csv --model all-MiniLM-L6-v2 --key patient --out records.npz
        veilring embed questions.csv --model all-MiniLM-L6-v2 --unlabelled --out queries.npz
    """
    from veilring.data.npz import write_vectors
    from veilring.data.sources import embed_csv

    vectors = embed_csv(texts, column, model, key=key, labelled=not unlabelled)
    write_vectors(vectors, out)
    count, dimensions = vectors.features.shape
    typer.echo(f"{count:,} texts in {dimensions} dimensions: {out}")
