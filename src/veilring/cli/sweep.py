"""`veilring sweep`: run a scenario at all points of a grid."""

from pathlib import Path
from typing import Annotated

import typer

from veilring.cli.options import (
    EXIT_INTERRUPTED,
    DaskAddress,
    ProtocolName,
    ScenarioName,
    Settings,
    Workers,
    protocol_settings,
)


def sweep(
    scenario: ScenarioName,
    *,
    protocol: ProtocolName = None,
    grid: Annotated[
        list[str],
        typer.Option(
            metavar="TABLE.KEY=VALUES",
            help="A key and its values: 1..6, 1..100:10 or a,b,c. May be given many times.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE.parquet",
            help="Where the results go. Wall seconds go to FILE.timing.parquet.",
            show_default=False,
        ),
    ],
    trials: Annotated[int, typer.Option(help="Runs at each point, each with its own seed.")] = 1,
    overrides: Settings = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of the sweep; else the scenario's, or else 0.", show_default=False),
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(
            help="memory or simulated; else memory, whatever the scenario says.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where the runs are: local (processes), dask or ray.")
    ] = "local",
    workers: Workers = None,
    dask_address: DaskAddress = None,
) -> None:
    r"""Run a scenario at all points of a grid: one row of a Parquet file for each run.

    Parties live in memory, or on the simulated clock with --runtime simulated. The same arguments
    give the same file, to the byte, on any engine and any number of workers.

    Interrupt it at any time: the same command goes on where it was.

    For example:

        veilring sweep wine --grid protocol.rounds=1..6 --trials 10 --out rounds.parquet

        veilring sweep wine --grid parties.count=3,10,30 --grid protocol.sum=ring,shares \
            --set run.leakage_trials=0 --runtime simulated --out sums.parquet

        veilring sweep digits --grid protocol.k=1..15:2 --engine dask --out k.parquet
    """
    from veilring.cli.console import show_progress
    from veilring.scenarios.sweep import Engine, Files, Plan, parse_grid, run_sweep

    try:
        with show_progress(quiet=False) as progress:
            settings = [*protocol_settings(protocol), *(overrides or ())]
            plan = Plan(scenario, parse_grid(grid), trials, settings, runtime, seed)
            where = Engine(engine, workers, dask_address)
            done = run_sweep(plan, out, engine=where, progress=progress)
    except KeyboardInterrupt:
        journal = Files(out).journal
        kept = f"what is finished is in {journal}" if journal.exists() else "no run is finished"
        typer.echo(f"veilring: stopped; {kept}. The same command goes on from there.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    earlier = f", {done.kept:,} of them from before" if done.kept else ""
    typer.echo(f"{len(done.cells):,} runs{earlier}: {done.files.results}")
    typer.echo(f"Their wall seconds: {done.files.timing}")
