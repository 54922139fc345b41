"""`veilring tune`: choose the noise and the threshold of a prediction server, on public data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

if TYPE_CHECKING:
    from veilring.protocols.prediction.tuning import Found, Public
    from veilring.randomness import Streams

__all__ = ("tune",)

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
    queries: Annotated[int, typer.Option(help="T, how many the server is to answer.")] = 1000,
    epsilon: Annotated[float, typer.Option(help="Of all answers together.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The same.")] = 1e-5,
    accountant: Annotated[
        Literal["gdp", "rdp"], typer.Option(help="gdp: exact. rdp: as in the paper.")
    ] = "gdp",
    kernel: Annotated[
        Literal["cosine", "rbf"], typer.Option(help="How alike two directions are.")
    ] = "cosine",
    width: Annotated[
        float | None, typer.Option(help="ν² of the RBF; the paper's is e^1.5.", show_default=False)
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

    For example:

        veilring tune digits --epsilon 1 --queries 400

        veilring tune public.npz --kernel rbf --epsilon 2 --runs 3 --json
    """
    import json

    from veilring.errors import InputError
    from veilring.privacy.accounting import individual_budget
    from veilring.protocols.prediction.algorithm import PAPER_WIDTH, IndKNN, Kernel
    from veilring.protocols.prediction.tuning import tune as search
    from veilring.randomness import Streams

    if out is not None and out.exists():
        raise InputError("out", out, "a file that is not there yet: nothing is overwritten")
    streams = Streams(seed)
    public, classes = _public(data, queries, streams)
    budget = individual_budget(epsilon, delta, accountant)
    parameters = IndKNN(classes, queries, budget, sigma2=1.0)
    like = Kernel(kernel, width=PAPER_WIDTH if width is None else width)
    found = search(public, parameters, like, streams.generator("tune"), runs=runs)
    document = json.dumps([each._asdict() for each in found], indent=2)
    if out is not None:
        out.write_text(document + "\n", encoding="utf-8")
    if as_json:
        typer.echo(document)
    else:
        _show(found, len(public.rows), len(public.queries))


def _public(data: str, queries: int, streams: "Streams") -> "tuple[Public, int]":
    """Split a table into rows and queries."""
    from veilring.data import load_table, split
    from veilring.protocols.prediction.algorithm import quantise
    from veilring.protocols.prediction.tuning import Public

    table = load_table(data)
    share = min(0.5, queries / len(table))
    rows, held_out = split(table, share, streams.generator("split"))
    directions = quantise(rows.features), quantise(held_out.features)
    public = Public(directions[0], rows.labels, directions[1], held_out.labels)
    return public, len(table.class_names)


def _show(found: "list[Found]", rows: int, queries: int) -> None:
    from rich.console import Console
    from rich.table import Table

    title = f"{rows:,} public rows, {queries:,} queries: the best of {len(found)} pairs"
    table = Table("sigma2", "tau", "accuracy", title=title, title_justify="left")
    for each in found[:_SHOWN]:
        table.add_row(f"{each.sigma2:g}", f"{each.tau:g}", f"{each.accuracy:.3f}")
    Console().print(table)
