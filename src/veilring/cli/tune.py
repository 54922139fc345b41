"""`veilring tune`: choose the noise and the threshold of a prediction server, on public data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

if TYPE_CHECKING:
    from veilring.deployment.prediction import PredictionTerms
    from veilring.protocols.prediction.tuning import PublicTable, TriedPair
    from veilring.randomness import Streams

_SHOWN: Final = 10  # pairs; all are in the file


def tune(  # noqa: PLR0913  (the options of a command)
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
        raise InputError("out", out, "a file that is not there yet: nothing is overwritten")
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
    from veilring.cli.output import load_noting
    from veilring.deployment.prediction import read_labelled
    from veilring.errors import InputError
    from veilring.protocols.prediction.algorithm.features import quantise
    from veilring.protocols.prediction.tuning import PublicTable

    if terms is None:
        table = load_noting(data)
        directions, labels = quantise(table.features), table.labels
        classes = len(table.class_names)
    else:
        directions, labels = read_labelled(Path(data), terms)
        classes = len(terms.classes)
    if len(labels) < 2:  # noqa: PLR2004  (a row and a query)
        raise InputError("PUBLIC_DATA", f"{len(labels)} rows", "at least 2")
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
