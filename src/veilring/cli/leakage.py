"""`veilring leakage`: what a protocol leaks, over a grid of parties and k."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilring.errors import InputError

if TYPE_CHECKING:
    from veilring.scenarios.leakage_grid import GridPoint


def leakage(
    protocol: Annotated[str, typer.Argument(help="Which: ring/pp-topk.", metavar="PROTOCOL")],
    *,
    parties: Annotated[str, typer.Option(metavar="VALUES", help="Such as 3,10,30.")] = "10",
    k: Annotated[str, typer.Option(metavar="VALUES", help="Such as 5, 1..10 or 1..100:10.")] = "5",
    rounds: Annotated[int, typer.Option(help="How often the vector goes round.")] = 2,
    P0: Annotated[float, typer.Option("--P0", help="Probability of noise in round 1.")] = 1.0,
    d: Annotated[float, typer.Option("--d", help="Factor by which it falls each round.")] = 0.5,
    delta: Annotated[float, typer.Option(help="Least range of noise; values are 0 to 1.")] = 0.1,
    rows: Annotated[int, typer.Option(help="Values that each party has.")] = 100,
    trials: Annotated[int, typer.Option(help="Independent runs at each point.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0)] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the points as JSON and nothing else.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Write the points to this file.", show_default=False),
    ] = None,
) -> None:
    """Estimate what a hop leaks to the successor, by three estimators, at each point of a grid.

    Values are uniform. Closed forms stand beside the estimates where they are known. The speed is
    that of all it takes on one core: drawing values, running the rings, counting what they show.

    For example:

        veilring leakage ring/pp-topk --parties 3,10,30,100 --k 1..100:9 --trials 10000

        veilring leakage ring/pp-topk --parties 5 --k 1..10 --P0 0 --rounds 1 --out honest.csv
    """
    from veilring.cli.console import show_progress
    from veilring.scenarios.leakage_grid import SUBJECTS, LeakageGrid, leakage_grid, write_grid

    if protocol not in SUBJECTS:
        raise InputError("protocol", protocol, ", ".join(SUBJECTS))
    if out is not None and out.exists():
        raise InputError(
            "out", out, "the path of a file that does not exist; nothing is overwritten"
        )
    grid = LeakageGrid(
        *_whole_numbers(parties, k), rounds, P0, d, delta=delta, rows=rows, trials=trials
    )
    with show_progress(quiet=as_json) as progress:
        points = list(leakage_grid(grid, seed=seed, progress=progress))
    if out is not None:
        write_grid(points, out)
    if as_json:
        typer.echo(json.dumps([point.as_row() for point in points], indent=2))
    else:
        _show(points, f"{protocol}: {rounds} rounds, P0 = {P0:g}, d = {d:g}, {trials:,} trials")


def _whole_numbers(parties: str, ks: str) -> tuple[list[int], list[int]]:
    from veilring.scenarios.sweep import parse_grid

    grid = parse_grid([f"parties={parties}", f"k={ks}"])
    for name, values in grid.items():
        for value in values:
            if not isinstance(value, int) or isinstance(value, bool):
                raise InputError(name, value, "whole numbers, such as 3,10,30 or 1..100:10")
    return [int(n) for n in grid["parties"]], [int(k) for k in grid["k"]]


def _show(points: "Sequence[GridPoint]", title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from veilring.cli.console import make_console

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for heading in ("n", "k", "exposure", "known", "claim", "LoP", "LoP peak", "party-steps/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in points:
        exact = point.exposure_exact
        known = f"<= {point.exposure_at_most:.4f}" if exact is None else f"= {exact:.4f}"
        claim, lop, peak = (f"{e.value:.4f}" for e in (point.claim, point.lop, point.lop_peak))
        exposure, speed = f"{point.exposure.value:.4f}", f"{point.party_steps_a_second:,.0f}"
        table.add_row(
            f"{point.parties:,}", f"{point.k:,}", exposure, known, claim, lop, peak, speed
        )
    console = make_console()
    console.print(table)
    steps, seconds = (sum(getattr(p, name) for p in points) for name in ("party_steps", "seconds"))
    worst = max(e.standard_error for p in points for e in (p.exposure, p.claim, p.lop, p.lop_peak))
    console.print(
        f"Standard errors are at most {worst:.4f}; --json and --out give each.\n"
        f"{steps:,} party-steps in {seconds:.2f} s of one core: {steps / seconds:,.0f} a second.",
        highlight=False,
        soft_wrap=True,
    )
