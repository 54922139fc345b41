"""`veilring records`, `tune` and `embed`: the records of a prediction server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

if TYPE_CHECKING:
    from veilring.deployment.prediction import PredictionTerms, RecordsAdministratorConfig
    from veilring.protocols.prediction.tuning import PublicTable, TriedPair
    from veilring.randomness import Streams

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


_SHOWN: Final = 10  # pairs; all are in the file


def tune_command(
    data: Annotated[
        str,
        typer.Argument(
            help="PUBLIC rows: a built-in data set, a .csv, a .npz, or openml:NAME.",
            metavar="PUBLIC_DATA",
        ),
    ],
    *,
    terms: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The server's terms: rows become directions as there, and what is left out below"
            " is as there.",
        ),
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="T, how many the server is to answer; else 1000.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Of all answers together; else 1.")] = None,
    delta: Annotated[float | None, typer.Option(help="The same; else 1e-5.")] = None,
    accountant: Annotated[
        Literal["gdp", "rdp"] | None,
        typer.Option(help="gdp, the default: exact. rdp: as in the paper."),
    ] = None,
    kernel: Annotated[
        Literal["cosine", "rbf"] | None,
        typer.Option(help="How alike two directions are; else cosine."),
    ] = None,
    width: Annotated[
        float | None, typer.Option(help="ν² of the RBF; else the paper's, e^1.5.")
    ] = None,
    runs: Annotated[int, typer.Option(help="With different noise, at each pair.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0)] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all pairs as JSON and nothing else.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write all pairs here.", show_default=False),
    ] = None,
) -> None:
    """Find σ2 and τ for a prediction server, as the paper does, on rows that are PUBLIC.

    What is tuned on private rows gives something of them away that no budget pays for. The table is
    split at random: up to T rows, and at most half, are queries, and the others play the private
    rows. Give about as many public rows as there are private ones; with fewer neighbours the best
    pair is another.

    τ is about directions. A server of CSV files scales columns and takes directions from the middle
    of their ranges, so that only with its --terms is what is found here the best there.

    For example:

        veilring tune public.csv --terms predict/terms.toml
        veilring tune digits --epsilon 1 --queries 400
        veilring tune public.npz --kernel rbf --epsilon 2 --runs 3 --json
    """
    import json

    from veilring.deployment.prediction import PredictionSection, PredictionTerms
    from veilring.errors import InputError
    from veilring.privacy.accounting import individual_budget
    from veilring.protocols.prediction.algorithm.filter import FilterParameters
    from veilring.protocols.prediction.algorithm.kernels import Kernel
    from veilring.protocols.prediction.tuning import tune_parameters as search
    from veilring.randomness import Streams

    if out is not None and out.exists():
        raise InputError(
            "out", out, "the path of a file that does not exist; nothing is overwritten"
        )
    agreed = None if terms is None else PredictionTerms.load(terms)
    given = {
        "queries": queries,
        "epsilon": epsilon,
        "delta": delta,
        "accountant": accountant,
        "kernel": kernel,
        "width": width,
    }
    chosen = (PredictionSection() if agreed is None else agreed.prediction).model_copy(
        update={name: each for name, each in given.items() if each is not None}
    )
    streams = Streams(seed)
    public, classes = _public(data, agreed, chosen.queries, streams)
    paid = 0.0 if agreed is None else agreed.origin_price
    budget = individual_budget(chosen.epsilon, chosen.delta, chosen.accountant) - paid
    parameters = FilterParameters(classes, chosen.queries, budget, sigma2=1.0)
    like = Kernel(chosen.kernel, width=chosen.width)
    found = search(public, parameters, like, streams.generator("tune"), runs=runs)
    document = json.dumps([each._asdict() for each in found], indent=2)
    if out is not None:
        out.write_text(document + "\n", encoding="utf-8")
    if as_json:
        typer.echo(document)
    else:
        _show(found, len(public.rows), len(public.queries))


def _public(
    data: str, terms: "PredictionTerms | None", queries: int, streams: "Streams"
) -> "tuple[PublicTable, int]":
    """Split public rows, as a server of these terms takes them, into rows and queries."""
    from veilring.cli.console import load_noting
    from veilring.deployment.prediction import read_labelled
    from veilring.errors import InputError
    from veilring.protocols.prediction.algorithm.features import quantise
    from veilring.protocols.prediction.tuning import PublicTable

    if terms is None:
        table = load_noting(data)
        directions, labels = quantise(table.X), table.y
        classes = len(table.features.classes)
    else:
        directions, labels = read_labelled(Path(data), terms)
        classes = len(terms.classes)
    if len(labels) < 2:  # noqa: PLR2004  (a row and a query)
        raise InputError.because(
            f"the public data has {len(labels)} rows; at least 2 are needed", field="PUBLIC_DATA"
        )
    asked = max(1, min(len(labels) // 2, queries))
    order = streams.generator("split").permutation(len(labels))
    held, rows = order[:asked], order[asked:]
    return PublicTable(directions[rows], labels[rows], directions[held], labels[held]), classes


def _show(found: "list[TriedPair]", rows: int, queries: int) -> None:
    from rich.table import Table

    from veilring.cli.console import make_console

    title = f"{rows:,} public rows, {queries:,} queries: the best of {len(found)} pairs"
    table = Table("sigma2", "tau", "accuracy", title=title, title_justify="left")
    for each in found[:_SHOWN]:
        table.add_row(f"{each.sigma2:g}", f"{each.tau:g}", f"{each.accuracy:.3f}")
    make_console().print(table)


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
        veilring tune news.npz --epsilon 1
        veilring deploy prediction news.npz --out predict
        veilring embed letters.csv --model all-MiniLM-L6-v2 --key patient --out records.npz
        veilring embed questions.csv --model all-MiniLM-L6-v2 --unlabelled --out queries.npz
    """
    from veilring.data.npz import write_vectors
    from veilring.data.sources import embed_csv

    vectors = embed_csv(texts, column, model, key=key, labelled=not unlabelled)
    write_vectors(vectors, out)
    count, dimensions = vectors.features.shape
    typer.echo(f"{count:,} texts in {dimensions} dimensions: {out}")
