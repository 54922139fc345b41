"""`veilring report`: one page about a run."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            help="A folder that `veilring run --out` wrote.", metavar="DIR", show_default=False
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="Where to write the page; by default report.html in DIR.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a page about a run: what it cost, what it leaked, and which message passed when.

    The page is one file that needs no network. It is written anew each time.

    For example:

        veilring run wine --out runs/wine

        veilring report runs/wine

        veilring report runs/wine --out wine.html
    """
    from veilring.errors import InputError
    from veilring.scenarios.reporting import read_folder
    from veilring.scenarios.reporting.page import render

    page = render(read_folder(folder))
    path = folder / "report.html" if out is None else out
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError("--out", path, f"a file that can be written ({error})") from error
    typer.echo(f"Written: {path}")
