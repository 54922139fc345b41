"""Options and arguments shared by several commands, and the layout of their help."""

import inspect
import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from veilring.errors import InputError

EXIT_INTERRUPTED: Final = 130  # the exit code of shells for a program that Ctrl-C ended
HELP_NAMES: Final = ("-h", "--help")
_INDENT: Final = "    "
FIRST_PORT: Final = 7311
"""The default port of a party, and of the first party of a deployment."""

ConfigFile = Annotated[
    Path, typer.Argument(help="Configuration file of the party.", metavar="CONFIG")
]
ScenarioName = Annotated[
    str,
    typer.Argument(
        help="Built-in scenario (see `veilring scenarios`) or table, such as iris, a path to a"
        " .toml, .csv or .npz, or module:NAME with a role and its inputs.",
        metavar="SCENARIO",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="TABLE.KEY=VALUE", help="Set a key of the scenario; may be repeated."
    ),
]
ProtocolName = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="System to run, such as noisy-votes (see `veilring systems`). Default: the"
        " scenario's.",
    ),
]
RunFolder = Annotated[
    Path,
    typer.Argument(
        help="Folder written by `veilring run --out`.", metavar="DIR", show_default=False
    ),
]
NewFolder = Annotated[Path, typer.Option(metavar="DIR", help="New folder to write to.")]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="COLUMN",
        help="Column of a .csv file with the label of each row: its class, or a number to predict."
        " Default: the last one.",
    ),
]
CellSeparator = Annotated[
    Literal[",", ";", "|", "tab"],
    typer.Option(
        "--separator",
        metavar="CHARACTER",
        help="Separator between the cells of a .csv file: , ; | or tab.",
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        metavar="FILE.toml",
        help="TOML file with the public schema of a .csv or .parquet file (see `veilring schema`),"
        " or terms. Default: all columns as they are, in the ranges of the table.",
    ),
]
_READING: Final = "TOML file with the particulars of the table's file, by which the schema reads it"
ReadingFile = Annotated[
    Path | None, typer.Option("--reading", metavar="FILE.toml", help=f"{_READING}.")
]
ReadingFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--reading",
        metavar="[FILE=]READING.toml",
        help=f"{_READING}; with several files, after the file that it is for. May be repeated.",
    ),
]
KeptColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        metavar="COLUMN",
        help="Column of the file to put beside the labels, besides the identifiers of the schema;"
        " may be repeated. It is not sent.",
    ),
]
TermsFile = Annotated[
    Path | None,
    typer.Option(
        "--terms",
        metavar="FILE.toml",
        help="Terms of a deployment, from which to take the schema and the parameters.",
    ),
]
MeasureNames = Annotated[
    list[str] | None,
    typer.Option(
        "--measure",
        metavar="NAME",
        help="Measure to print with its interval, such as balanced-accuracy, or confusion of a"
        " run. May be repeated. A wrong name lists all; a page and --json have all of them.",
    ),
]
PartiesCount = Annotated[int, typer.Option(help="Number of parties that hold the rows.")]
BatchQueries = Annotated[
    int, typer.Option(help="Maximum number of held-out rows in one batch, under one ε.")
]
RandomSeed = Annotated[int, typer.Option(help="Random seed.", min=0)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
Workers = Annotated[int | None, typer.Option(help="Number of workers. Default: one per core.")]
DaskAddress = Annotated[
    str | None, typer.Option(help="Dask scheduler, such as tcp://10.0.0.5:8786.")
]


def group_of(about: str) -> typer.Typer:
    """Return an empty group of commands."""
    return typer.Typer(help=about, no_args_is_help=True, pretty_exceptions_enable=False)


def protocol_settings(protocol: str | None) -> list[str]:
    """Return the scenario key set by `ProtocolName`, as `Settings`."""
    return [] if protocol is None else [f"protocol.name={json.dumps(protocol)}"]


def runtime_settings(runtime: str | None) -> list[str]:
    """Return the scenario key set by an option `--runtime`, as `Settings`."""
    return [] if runtime is None else [f"network.runtime={json.dumps(runtime)}"]


def readings_of(given: Sequence[str] | None, files: Sequence[str]) -> dict[str, str]:
    """Return the reading of each file that has one."""
    found = dict[str, str]()
    for each in given or ():
        file, equals, path = each.rpartition("=") if len(files) > 1 else (files[0], "=", each)
        if not equals or file not in files:
            allowed = f"FILE=READING.toml, with one of the files {', '.join(files)}"
            raise InputError("--reading", each, allowed)
        found[file] = path
    return found


def table_settings(
    label: str | None, separator: str, schema: Path | None = None, reading: str | None = None
) -> list[str]:
    """Return the scenario keys set by the options of a table, as `Settings`."""
    given = {
        "label": label,
        "separator": None if separator == "," else separator,
        "schema_file": None if schema is None else str(schema),
        "reading_file": reading,
    }
    return [f"data.{key}={json.dumps(each)}" for key, each in given.items() if each is not None]


def unwrapped(text: str) -> str:
    """Return a docstring with one line per paragraph, for the terminal to wrap.

    Indented lines, such as commands, are kept as they are, without empty lines between them.
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    shown: list[str] = []
    for indented, group in groupby(paragraphs, lambda paragraph: paragraph.startswith(_INDENT)):
        if indented:
            shown.append("\n".join(group))
        else:
            shown += [" ".join(map(str.strip, each.splitlines())) for each in group]
    return "\n\n".join(shown)


def bare_flags(options: Iterable[Any]) -> None:
    """Show flags without a type."""
    for option in options:
        if getattr(option, "is_flag", False) and option.metavar is None:
            option.metavar = ""


def tidy(command: Any) -> None:  # noqa: ANN401  (Typer does not export the type of its commands)
    """Unwrap the help of a command and its subcommands, and show flags without a type."""
    command.help = unwrapped(command.help or "")
    context = typer.Context(command, help_option_names=[*HELP_NAMES])
    bare_flags((*command.params, command.get_help_option(context)))
    for below in getattr(command, "commands", {}).values():
        tidy(below)
