"""Answers of the commands that label rows: CSV, on standard output or in a private file."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from veilring.errors import InputError

AnswerFile = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="File to write the labels to. Default: standard output."
    ),
]


def require_new(out: Path | None, option: str = "--out") -> None:
    """Refuse an output file that exists already, before any query is sent."""
    if out is not None and out.exists():
        raise InputError(option, out, "a file that does not exist yet")


def as_csv(columns: Mapping[str, Sequence[object]]) -> str:
    """Return the text of a CSV file with a header and these columns of equal length."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def write_answer(text: str, out: Path | None) -> None:
    """Write an answer to a file that only its owner can read, or to standard output."""
    if out is None:
        typer.echo(text, nl=False)
        return
    from veilring.privacy.files import open_private

    with open_private(
        out, "x"
    ) as file:  # labels reveal as much about private rows as the answers do
        file.write(text)
