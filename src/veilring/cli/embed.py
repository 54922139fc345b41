"""`veilring embed`: texts as directions, for a prediction server."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ("embed",)


def embed(
    texts: Annotated[
        Path, typer.Argument(help="A CSV file whose last column is the label.", metavar="TEXTS.csv")
    ],
    *,
    model: Annotated[
        Path, typer.Option(help="The folder of a sentence-transformers model.", metavar="DIR")
    ],
    column: Annotated[str, typer.Option(help="The column that holds the texts.")] = "text",
    out: Annotated[Path, typer.Option(metavar="FILE.npz", help="A new file.")],
) -> None:
    """Embed texts with a model that you have; nothing is fetched.

    The extra `text` has to be installed.

    For example:

        veilring embed news.csv --model all-MiniLM-L6-v2 --out news.npz

        veilring tune news.npz --epsilon 1
    """
    from veilring.data.text import embed_csv, write_npz

    table = embed_csv(texts, column, model)
    write_npz(table, out)
    typer.echo(f"{len(table)} texts in {len(table.feature_names)} dimensions: {out}")
