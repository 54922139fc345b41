"""The command line: `python -m papers`, in a clone of the repository."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from papers.reproduce import FIGURES, find_figure, reproduce_figure
from veilring.cli.app import EXIT_INPUT, EXIT_RUN
from veilring.cli.console import show_progress
from veilring.cli.options import RandomSeed, tidy
from veilring.errors import InputError, MissingExtra, VeilringError


def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            help="Figures, such as ring/figure-2; see --list.", metavar="FIGURE", show_default=False
        ),
    ] = None,
    *,
    show_list: Annotated[
        bool, typer.Option("--list", help="List all figures without measuring any.")
    ] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH_OR_NAME",
            help="Built-in data set, a .csv, a .npz, or openml:NAME; for treewalk, uniform:N or "
            "a .csv of points. May be repeated. Default: wine, or uniform:100000.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure 10 splits at a few points only.")
    ] = False,
    seed: RandomSeed = 0,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder to write the numbers and plots to.")
    ] = Path("figures"),
) -> None:
    """Reproduce figures of the papers, plot them, and check the papers' claims.

    Each claim is tested on each data set, with intervals over random splits. A claim that does not
    hold is a result, not an error.

    For example:

        python -m papers --list

        python -m papers ring/figure-2 --quick

        python -m papers ring/figure-3 ring/figure-4 --data wine --data my.csv --out plots
    """
    if show_list:
        for figure in FIGURES.values():
            typer.echo(f"{figure.name:24} {figure.title}")
        return
    if not figures:
        raise InputError.because(
            "no figure is given; name at least one, or use --list", field="FIGURE"
        )
    for name in figures:
        find_figure(name)  # refuse all unknown names before measuring the first figure
    for name in figures:
        with show_progress(quiet=False) as progress:
            done = reproduce_figure(
                name, data or [], out, quick=quick, seed=seed, progress=progress
            )
        typer.echo(f"{done.figure.name}: {done.figure.title}")
        for verdict in done.verdicts:
            typer.echo(f"  {verdict}")
        typer.echo(f"  {', '.join(str(file) for file in done.files)}")


def run_program(
    command: Callable[..., None], module: str, arguments: Sequence[str] | None = None
) -> None:
    """Run a command as `python -m MODULE`, on `sys.argv` unless arguments are given, and exit."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(command)
    program = typer.main.get_command(app)
    tidy(program)
    try:
        program(arguments, prog_name=f"python -m {module}")
    except VeilringError as error:
        typer.echo(f"papers: {error}", err=True)
        sys.exit(EXIT_INPUT if isinstance(error, InputError | MissingExtra) else EXIT_RUN)


if __name__ == "__main__":
    run_program(reproduce, "papers")
