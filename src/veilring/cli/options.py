"""Options and arguments that several commands have, each said once."""

import json
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

EXIT_INTERRUPTED: Final = 130  # what shells give a program that Ctrl-C ended

ScenarioName = Annotated[
    str,
    typer.Argument(
        help="A built-in scenario (see `veilring scenarios`), or a path to a .toml, .csv or .npz.",
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
ProtocolName = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="The system to run, such as noisy-votes: see `veilring systems`. By default the"
        " scenario's.",
        show_default=False,
    ),
]
NewFolder = Annotated[
    Path, typer.Option(metavar="DIR", help="A folder that does not exist yet.", show_default=False)
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="COLUMN",
        help="In a .csv: the column with the class of each row. By default the last one.",
        show_default=False,
    ),
]
CellSeparator = Annotated[
    Literal[",", ";", "|", "tab"],
    typer.Option(
        "--separator",
        metavar="CHARACTER",
        help="In a .csv: what stands between the cells of a line: , ; | or tab.",
    ),
]
RangesFile = Annotated[
    Path | None,
    typer.Option(
        "--ranges",
        metavar="FILE.toml",
        help="Public ranges of the columns: features with name, low and high, as terms have them."
        " By default the extremes of the table stand in for them.",
        show_default=False,
    ),
]
TermsFile = Annotated[
    Path | None,
    typer.Option(
        "--terms",
        metavar="FILE.toml",
        help="Terms of a deployment: rows are read as they say, and parameters are as there.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None, typer.Option(help="How many at a time; else one a core.", show_default=False)
]
DaskAddress = Annotated[
    str | None,
    typer.Option(help="A Dask scheduler, such as tcp://10.0.0.5:8786.", show_default=False),
]


def protocol_settings(protocol: str | None) -> list[str]:
    """Return the key that a scenario has for `ProtocolName`, as `Settings`."""
    return [] if protocol is None else [f"protocol.name={json.dumps(protocol)}"]


def table_settings(label: str | None, separator: str) -> list[str]:
    """Return the keys that a scenario has for `LabelColumn` and `CellSeparator`, as `Settings`."""
    given = {"label": label, "separator": None if separator == "," else separator}
    return [f"data.{key}={json.dumps(each)}" for key, each in given.items() if each is not None]
