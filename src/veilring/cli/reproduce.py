"""`veilring reproduce`: measure the figures of the papers again."""

from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            help="Such as ring/figure-2; see --list.", metavar="FIGURE...", show_default=False
        ),
    ] = None,
    *,
    show_list: Annotated[
        bool, typer.Option("--list", help="List all figures, and measure none.")
    ] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH_OR_NAME",
            help="A built-in data set, a .csv, a .npz, or openml:NAME; for treewalk, uniform:N or "
            "a .csv of points. May be given many times; else wine, or uniform:100000.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="10 splits at few points, not all at many.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0)] = 0,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the numbers and the plots go.")
    ] = Path("figures"),
) -> None:
    """Measure figures of the papers again, plot them, and say whether their claims hold.

    A claim is tested on every data set by itself, with intervals over random splits. That one does
    not hold is a result and no error.

    For example:

        veilring reproduce --list

        veilring reproduce ring/figure-2 --quick

        veilring reproduce ring/figure-3 ring/figure-4 --data wine --data my.csv --out plots
    """
    from veilring.cli.console import show_progress
    from veilring.errors import InputError
    from veilring.papers.reproduce import FIGURES, find_figure, reproduce_figure

    if show_list:
        for figure in FIGURES.values():
            typer.echo(f"{figure.name:24} {figure.title}")
        return
    if not figures:
        raise InputError.because(
            "no figure is given; name at least one, or use --list", field="FIGURE"
        )
    for name in figures:
        find_figure(name)  # all are refused before the first one is measured
    for name in figures:
        with show_progress(quiet=False) as progress:
            done = reproduce_figure(
                name, data or [], out, quick=quick, seed=seed, progress=progress
            )
        typer.echo(f"{done.figure.name}: {done.figure.title}")
        for verdict in done.verdicts:
            typer.echo(f"  {verdict}")
        typer.echo(f"  {', '.join(str(file) for file in done.files)}")
