"""Options and arguments that several commands have, each said once."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ("NewFolder", "ScenarioName", "Settings")

ScenarioName = Annotated[
    str,
    typer.Argument(
        help="A built-in scenario (see `veilring scenarios`) or a path to a .toml file.",
        metavar="SCENARIO",
        show_default=False,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="TABLE.KEY=VALUE",
        help="Set a key of the scenario; may be given many times.",
        show_default=False,
    ),
]
NewFolder = Annotated[
    Path, typer.Option(metavar="DIR", help="A folder that does not exist yet.", show_default=False)
]
