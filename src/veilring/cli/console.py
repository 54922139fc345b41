"""Where commands print what people read."""

import os
from typing import Final

from rich.console import Console

COLUMNS: Final = 120  # as wide as the lines of a page of the documentation


def make_console() -> Console:
    """Return standard output: as wide as the terminal, and where there is none always the same.

    The variable `COLUMNS` decides, if it is set.
    """
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = COLUMNS
    return console
