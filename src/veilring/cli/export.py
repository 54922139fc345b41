"""`veilring export`: a collector's reports as Parquet files."""

from pathlib import Path
from typing import Annotated

import typer

from veilring.cli.estimates import ConfigPath, Without, load_collector


def export(
    config: ConfigPath,
    *,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where the Parquet files go.", show_default=False),
    ] = None,
    backup: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead, copy an SQLite store into one complete file.",
            show_default=False,
        ),
    ] = None,
    without: Without = None,
) -> None:
    """Write all reports that a collector has stored to Parquet files, also while it collects.

    They are noisy reports by question, without ids and without names: what `veilring tally` adds up
    elsewhere, on one machine or a Dask cluster.

    To put a copy of --backup back, stop the collector and move four files away: the store and,
    beside it, those that end in -wal, -shm and .lock. Then put the copy in the store's place.
    Reports that were stored since the copy are lost.
    """
    from veilring.deployment.estimating import export_reports
    from veilring.errors import InputError
    from veilring.protocols.ldp.store import back_up_reports

    loaded = load_collector(config, "export")
    if (out is None) == (backup is None):
        raise InputError("--out", out, "exactly one of --out and --backup")
    if backup is not None:
        back_up_reports(loaded.store, backup)
        typer.echo(f"copy of the store: {backup}")
    if out is not None:
        files = export_reports(loaded, out, without=without or ())
        typer.echo(f"{len(files):,} {'file' if len(files) == 1 else 'files'}: {out}")
