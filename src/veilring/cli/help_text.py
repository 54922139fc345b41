"""How `--help` looks: paragraphs that fill the terminal, commands line below line, bare flags."""

import inspect
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

import typer

HELP_NAMES: Final = ("-h", "--help")

_INDENT: Final = "    "


def unwrapped(text: str) -> str:
    """Return a docstring whose paragraphs are one line each, for the terminal to wrap once.

    Indented lines, such as commands, stay as they are, without empty lines between them.
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
    """Unwrap the help of a command and of those below it, and show flags without a type."""
    command.help = unwrapped(command.help or "")
    context = typer.Context(command, help_option_names=[*HELP_NAMES])
    bare_flags((*command.params, command.get_help_option(context)))
    for below in getattr(command, "commands", {}).values():
        tidy(below)
