"""The standard streams for people: tables, progress, and notes on files that are read."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import typer
from rich.console import Console

from veilring.data.csv import Separator
from veilring.data.sources import load
from veilring.data.table import Table
from veilring.errors import InputError

_Progress = Callable[[str, int, int], None]

CONSOLE_COLUMNS: Final = 120  # as wide as the lines of a page of the documentation


def make_console() -> Console:
    """Return standard output: as wide as the terminal, and where there is none always the same.

    The variable `COLUMNS` decides, if it is set.
    """
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = CONSOLE_COLUMNS
    return console


# A log of an hour has a hundred lines then, and nobody takes a command for dead.
PROGRESS_SECONDS: Final = 30.0


@contextmanager
def show_progress(
    *, quiet: bool, clock: Callable[[], float] = time.monotonic
) -> Iterator[_Progress | None]:
    """Give what shows progress on standard error: a bar to a person, or else lines now and then.

    Args:
        quiet: Whether nothing is shown.
        clock: The time in seconds.
    """
    console = Console(stderr=True)
    if quiet:
        yield None
        return
    if not console.is_terminal:
        yield _lines(clock)
        return
    from rich.progress import Progress as Bar

    with Bar(console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda doing, done, total: bar.update(
            task, description=doing, completed=done, total=total
        )


def _lines(clock: Callable[[], float]) -> _Progress:
    """Return a callback that prints a line of progress every `PROGRESS_SECONDS`."""
    last = clock()

    def tell(doing: str, done: int, total: int) -> None:
        nonlocal last
        if clock() - last >= PROGRESS_SECONDS:
            last = clock()
            typer.echo(f"{doing}: {done:,} of {total:,}", err=True)

    return tell


def load_noting(source: str, label: str | None = None, separator: Separator = ",") -> Table:
    """Load a data set, and print what may be a mistake in it on standard error.

    Raises:
        InputError: As `load`.
    """
    table = load(source, label=label or None, separator=separator)
    for note in table.notes:
        typer.echo(f"{table.name}: {note}", err=True)
    return table


def show_notes(source: str, label: str | None, separator: Separator) -> None:
    """Print what may be a mistake in a CSV file, if it can be read."""
    if source.lower().endswith(".csv"):
        with suppress(InputError):  # which is raised again where the file is used
            load_noting(source, label, separator)


def show_columns(source: str, label: str | None, separator: Separator) -> None:
    """Print how the columns of a CSV file are read, and nothing of other sources."""
    if source.lower().endswith(".csv"):
        line = load(source, label=label or None, separator=separator).describe()
        make_console().print(line, highlight=False, markup=False, soft_wrap=True)
