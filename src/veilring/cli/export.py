"""`veilring export`: a collector's reports as Parquet files."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ("export",)


def export(
    config: Annotated[
        Path, typer.Argument(help="The collector's configuration.", metavar="CONFIG")
    ],
    *,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the files go.", show_default=False)
    ],
) -> None:
    """Write all reports that a collector has stored to Parquet files, also while it collects.

    They are noisy reports by question, without ids and without names: what `veilring tally` adds up
    elsewhere, on one machine or a Dask cluster.
    """
    from veilring.deployment import CollectorConfig, load_config
    from veilring.deployment.tallying import export_reports
    from veilring.errors import ScenarioError

    loaded = load_config(config)
    if not isinstance(loaded, CollectorConfig):
        raise ScenarioError("role", loaded.role, "collector, for `veilring export`")
    files = export_reports(loaded, out)
    typer.echo(f"{len(files):,} {'file' if len(files) == 1 else 'files'}: {out}")
