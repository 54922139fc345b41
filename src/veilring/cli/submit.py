"""`veilring submit`: hand in the reports of many clients."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from veilring.deployment.submitter import Submitted


def submit(
    config: Annotated[
        Path, typer.Argument(help="The submitter's configuration.", metavar="CONFIG")
    ],
    rows: Annotated[Path, typer.Argument(help="A CSV file with one row a client.", metavar="ROWS")],
    *,
    single: Annotated[
        bool, typer.Option("--single", help="Send each report in a message of its own.")
    ] = False,
) -> None:
    """Make one noisy report for each row of a CSV file, and hand it to a collector.

    The configuration names the submitter's own key and the collector:

        role      = "submitter"

        identity  = "clinic.key"

        roster    = "roster.toml"

        collector = "census"

        budget    = 1.0              # what one client's reports may ever spend together

        key       = "patient"        # the column that says whose row it is, or "row number"

        outbox    = "outbox.sqlite"  # what was made, and what each client has spent

    The rows never leave this machine. A report is kept in the outbox before it is sent, and the
    same bytes are sent until the collector says that they are stored: interrupt it at any time, and
    the same command goes on. No row is ever reported twice to the same task.
    """
    import asyncio
    import logging

    from veilring.cli.output import show_progress
    from veilring.deployment import load_config_of
    from veilring.deployment.submitter import SubmitterConfig, submit_rows

    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s: %(message)s")
    loaded = load_config_of(config, SubmitterConfig, "veilring submit")
    with show_progress(quiet=False) as progress:
        done = asyncio.run(
            submit_rows(loaded, rows, at_once=1 if single else None, progress=progress)
        )
    _say(done)
    if not done.is_complete:
        raise typer.Exit(1)


def _say(done: "Submitted") -> None:
    from veilring.protocols.ldp.messages import REASONS

    typer.echo(f"task {done.task.hex()}, epsilon {done.epsilon:g} a report")
    typer.echo(f"{done.kept:,} reports are stored and count")
    for verdict, number in done.verdicts.items():
        if verdict is not None and not verdict.is_kept:
            typer.echo(f"{number:,} were refused: {REASONS[verdict]}")
    if done.refused:
        typer.echo(f"{done.refused:,} rows were not reported: their clients have spent the budget")
