"""`veilring embed`: texts as directions, for a prediction server."""

from pathlib import Path
from typing import Annotated

import typer


def embed(
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
    from veilring.data.text import embed_csv

    vectors = embed_csv(texts, column, model, key=key, labelled=not unlabelled)
    write_vectors(vectors, out)
    count, dimensions = vectors.features.shape
    typer.echo(f"{count:,} texts in {dimensions} dimensions: {out}")
