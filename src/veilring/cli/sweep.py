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
            help="Key and its values: 1..6, 1..100:10 or a,b,c. May be repeated.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE.parquet",
            help="Parquet file to write. Wall-clock times go to FILE.timing.parquet.",
            show_default=False,
        ),
    ],
    trials: Annotated[
        int, typer.Option(help="Number of runs at each point, each with its own seed.")
    ] = 1,
    overrides: Settings = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Random seed of the sweep. Default: the scenario's, or 0.", show_default=False
        ),
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(
            help="Runtime: memory or simulated. Default: memory, even if the scenario differs.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where to run: local (processes), dask or ray.")
    ] = "local",
    workers: Workers = None,
    dask_address: DaskAddress = None,
) -> None:
    r"""Run a scenario at all points of a grid, and write one row per run to a Parquet file.

    Parties run in memory, or in the simulation with --runtime simulated. Equal arguments give the
    same file, to the byte, on any engine and any number of workers.

    You can interrupt a sweep at any time: the same command continues it.

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
        kept = f"finished runs are in {journal}" if journal.exists() else "no run is finished"
        typer.echo(f"veilring: stopped; {kept}. Repeat the command to continue.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    earlier = f", {done.kept:,} of them finished earlier" if done.kept else ""
    typer.echo(f"{len(done.cells):,} runs{earlier}; results written to {done.files.results}")
    typer.echo(f"Wall-clock times written to {done.files.timing}")
