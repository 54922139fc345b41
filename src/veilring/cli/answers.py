"""Answers of the commands that label rows: CSV, on standard output or in a private file."""

import csv
import errno
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from veilring.errors import InputError, StoreFailed

AnswerFile = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="File to write the labels to. Default: standard output."
    ),
]


def or_stdin(path: Path) -> Path:
    """Return the file that an argument names, of which `-` is standard input."""
    return Path("/dev/stdin") if path == Path("-") else path


def require_new(out: Path | None, option: str = "--out") -> None:
    """Refuse an output file that exists already, before any query is sent."""
    if out is not None and out.exists():
        raise InputError(option, out, "a file that does not exist yet; move the old one away")


def as_csv(columns: Mapping[str, Sequence[object]]) -> str:
    """Return the text of a CSV file with a header and these columns of equal length."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def write_answer(text: str, out: Path | None, remedy: str) -> None:
    """Write an answer to a file that only its owner can read, or to standard output.

    Args:
        out: The file; by default standard output.
        remedy: The remedy that the error names if the answer cannot be written.

    Raises:
        StoreFailed: If it cannot be written; no part of a file stays.
    """
    from veilring.privacy.files import write_whole

    try:
        if out is None:
            typer.echo(text, nl=False)
        else:  # labels reveal as much about private rows as the answers do
            write_whole(out, text, new=True, private=True)
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader has enough
            raise
        message = f"the labels could not be written ({error.strerror}); {remedy}"
        raise StoreFailed(message) from error
