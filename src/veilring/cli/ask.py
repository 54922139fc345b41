"""`veilring ask`: the client of whatever is served."""

from pathlib import Path
from typing import Annotated

import typer

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
    """
    import asyncio

    from veilring.deployment import ClientConfig, load_config
    from veilring.deployment import ask as ask_ring
    from veilring.errors import ScenarioError

    loaded = load_config(config)
    if not isinstance(loaded, ClientConfig):
        raise ScenarioError("role", loaded.role, "client, for `veilring ask`")
    labels = asyncio.run(ask_ring(loaded, queries))
    text = "\n".join(["label", *labels]) + "\n"
    if out is None:
        typer.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")
