"""`veilring ask`: the client of whatever is served."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from veilring.deployment.roles import Columns

__all__ = ("ask",)


def ask(
    config: Annotated[Path, typer.Argument(help="The client's configuration.", metavar="CONFIG")],
    queries: Annotated[
        Path, typer.Argument(help="A CSV file with the rows to label.", metavar="QUERIES")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the labels here and not to standard output."),
    ] = None,
) -> None:
    """Have the rows of a CSV file labelled by parties that are being served.

    The configuration names the client's own key and the party that it asks:

        role     = "client"

        identity = "clerk.key"

        roster   = "roster.toml"

        terms    = "terms.toml"

        ask      = "ada"

    All parties of the ring see the queries; the client sees the labels and nothing else. The
    answer is a CSV file with the one column `label`.

    For an analyst of a data owner:

        role     = "analyst"

        identity = "ann.key"

        roster   = "roster.toml"

        terms    = "terms.toml"

        ask      = "clinic"

        epsilon  = 0.5       # what the file of queries may cost, as one batch

        r        = 0.2       # the radius within which rows vote; or k, how many neighbours

    The same command again gets the same labels and pays nothing, whatever went wrong before.
    """
    import asyncio

    from veilring.deployment import asking, load_config

    text = _csv(asyncio.run(asking(load_config(config), queries)))
    if out is None:
        typer.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")


def _csv(columns: "Columns") -> str:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
