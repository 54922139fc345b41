"""What the commands of `veilring scale` have in common."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from veilring.scenarios.runner import Progress
    from veilring.scenarios.scale import Study

Sizes = Annotated[
    list[int] | None,
    typer.Option("--size", help="Where to measure; may be given many times.", show_default=False),
]
Full = Annotated[bool, typer.Option("--full", help="Measure larger sizes, for minutes.")]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where text, points, models and a picture go: scale-NAME.txt, .csv, .json, .svg.",
        show_default=False,
    ),
]


def show(name: str, measure: "Callable[[Progress | None], Study]", out: Path | None) -> None:
    """Measure, print, and keep what was measured if that is wanted."""
    from veilring.cli.console import show_progress
    from veilring.errors import InputError
    from veilring.scenarios.scale.machine import describe_machine
    from veilring.scenarios.scale.writing import format_study, study_files, write_study

    files = None if out is None else study_files(name, out)  # refused before anything is measured
    with show_progress(quiet=False) as progress:
        try:
            study = measure(progress)
        except InputError as error:
            if error.field != "sizes":
                raise
            raise InputError("--size", error.value, error.allowed) from error
    machine = describe_machine()
    typer.echo(format_study(study, machine), nl=False)
    if files is not None:
        write_study(study, machine, files)
