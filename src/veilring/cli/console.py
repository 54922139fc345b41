"""Standard streams for people: tables, progress, and notes on files that were read."""

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

CONSOLE_COLUMNS: Final = 120  # as wide as the code blocks of the documentation


def make_console() -> Console:
    """Return standard output as a console as wide as the terminal, or of a fixed width without one.

    The variable `COLUMNS` takes precedence if it is set.
    """
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = CONSOLE_COLUMNS
    return console


# An hour's log has a hundred lines then, and the command still shows that it is alive.
PROGRESS_SECONDS: Final = 30.0


@contextmanager
def show_progress(
    *, quiet: bool, clock: Callable[[], float] = time.monotonic
) -> Iterator[_Progress | None]:
    """Yield a progress callback for standard error: a bar on a terminal, otherwise some lines.

    Args:
        quiet: Whether to show nothing.
        clock: A clock in seconds.
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


def load_noting(
    source: str, label: str | None = None, separator: Separator = ",", *, needs_label: bool = True
) -> Table:
    """Load a data set, and print notes on possible mistakes in it on standard error.

    Raises:
        InputError: As raised by `load`.
    """
    table = load(source, label=label or None, separator=separator, needs_label=needs_label)
    for note in table.notes:
        typer.echo(f"{table.name}: {note}", err=True)
    return table


def show_notes(source: str, label: str | None, separator: Separator) -> None:
    """Print notes on possible mistakes in a CSV file, if it can be read."""
    if source.lower().endswith(".csv"):
        with suppress(InputError):  # which is raised again where the file is used
            load_noting(source, label, separator)


def show_columns(source: str, label: str | None, separator: Separator) -> None:
    """Print how the columns of a CSV file are read; do nothing for other sources."""
    if source.lower().endswith(".csv"):
        line = load(source, label=label or None, separator=separator).describe()
        make_console().print(line, highlight=False, markup=False, soft_wrap=True)
