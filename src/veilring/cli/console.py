"""Standard streams for people: tables, progress, and notes on files that were read."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import typer
from rich.console import Console

from veilring.data.sources import load
from veilring.data.table import Table
from veilring.errors import InputError

_Progress = Callable[[str, int, int], None]
_FILES: Final = (".csv", ".parquet")

CONSOLE_COLUMNS: Final = 120  # as wide as the code blocks of the documentation


def make_console() -> Console:
    """Return standard output as a console as wide as the terminal, or of a fixed width without one.

    The variable `COLUMNS` takes precedence if it is set.
    """
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = CONSOLE_COLUMNS
    return console


# A log stays short then, and a command shows early how long it will take.
PROGRESS_LINES: Final = 20


@contextmanager
def show_progress(*, quiet: bool) -> Iterator[_Progress | None]:
    """Yield a progress callback for standard error: a bar on a terminal, otherwise some lines.

    The lines depend on the work alone, and not on the time that it takes: two runs of a command
    print the same ones.
    """
    console = Console(stderr=True)
    if quiet:
        yield None
        return
    if not console.is_terminal:
        yield _lines()
        return
    from rich.progress import Progress as Bar

    with Bar(console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda doing, done, total: bar.update(
            task, description=doing, completed=done, total=total
        )


def _lines() -> _Progress:
    """Return a callback that prints at most `PROGRESS_LINES` lines a stage, and its beginning."""
    reached = dict[str, int]()

    def tell(doing: str, done: int, total: int) -> None:
        part = done * PROGRESS_LINES // max(total, 1)
        if part > reached.get(doing, -1):
            reached[doing] = part
            typer.echo(f"{doing}: {done:,} of {total:,}", err=True)

    return tell


def load_noting(source: str, *, needs_label: bool = True, **given: Any) -> Table:
    """Load a data set as `load` does, and print notes on possible mistakes on standard error."""
    table = load(source, needs_label=needs_label, **given)
    for note in table.notes:
        typer.echo(f"{table.name}: {note}", err=True)
    return table


def show_notes(*sources: str, **given: Any) -> None:
    """Print notes on possible mistakes in files, if they can be read as `given` for `load`."""
    for source in sources:
        if source.lower().endswith(_FILES):
            with suppress(InputError):  # which is raised again where the file is used
                load_noting(source, **given)


def show_columns(source: str, **given: Any) -> None:
    """Print how the columns of a file are read; do nothing for other sources."""
    if source.lower().endswith(_FILES):
        line = load(source, **given).describe()
        make_console().print(line, highlight=False, markup=False, soft_wrap=True)
