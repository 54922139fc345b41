"""`veilring export`: a collector's reports as Parquet files."""

from pathlib import Path
from typing import Annotated

import typer

from veilring.cli.estimates import ConfigPath, Without, load_collector

__all__ = ("export",)


def export(
    config: ConfigPath,
    *,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the files go.", show_default=False)
    ],
    without: Without = None,
) -> None:
    """Write all reports that a collector has stored to Parquet files, also while it collects.

    They are noisy reports by question, without ids and without names: what `veilring tally` adds up
    elsewhere, on one machine or a Dask cluster.
    """
    from veilring.deployment.tallying import export_reports

    files = export_reports(load_collector(config, "export"), out, without=without or ())
    typer.echo(f"{len(files):,} {'file' if len(files) == 1 else 'files'}: {out}")
