"""`python -m papers.leakage`: the leakage of a protocol, over a grid of parties and k."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from papers.__main__ import run_program
from papers.leakage_grid import (
    SEARCH,
    SUBJECTS,
    GridPoint,
    LeakageGrid,
    SearchGrid,
    SearchPoint,
    leakage_grid,
    search_grid,
    write_grid,
)
from veilring.cli.console import make_console, show_progress
from veilring.cli.options import AsJson, RandomSeed
from veilring.errors import InputError
from veilring.scenarios.sweep import parse_grid

_P = TypeVar("_P", GridPoint, SearchPoint)


def leakage(  # noqa: PLR0913  (each option is an argument)
    context: typer.Context,
    protocol: Annotated[
        str, typer.Argument(help="Protocol: ring/pp-topk or rank-search.", metavar="PROTOCOL")
    ],
    *,
    parties: Annotated[
        str, typer.Option(metavar="VALUES", help="Numbers of parties, such as 3,10,30.")
    ] = "10",
    k: Annotated[
        str, typer.Option(metavar="VALUES", help="Values of k, such as 5, 1..10 or 1..100:10.")
    ] = "5",
    rounds: Annotated[int, typer.Option(help="PP-TopK: number of rounds.")] = 2,
    P0: Annotated[
        float, typer.Option("--P0", help="PP-TopK: probability of noise in round 1.")
    ] = 1.0,
    d: Annotated[
        float,
        typer.Option("--d", help="PP-TopK: factor by which that probability falls each round."),
    ] = 0.5,
    delta: Annotated[
        float, typer.Option(help="PP-TopK: smallest range of noise, for values in [0, 1].")
    ] = 0.1,
    rows: Annotated[int, typer.Option(help="Number of values per party.")] = 100,
    trials: Annotated[
        int, typer.Option(help="Number of independent runs at each point.")
    ] = 100_000,
    seed: RandomSeed = 0,
    as_json: AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="File to write the points to.", show_default=False),
    ] = None,
) -> None:
    """Estimate the leakage per hop to the successor, by three estimators, at each point of a grid.

    Values are drawn uniformly. Known closed forms are printed next to the estimates. The speed
    shown is that of one core and includes drawing values, running the rings and evaluating the
    views. For rank search, these estimates are provably 0; its grid shows the leakage of its
    totals.

    For example:

        python -m papers.leakage ring/pp-topk --parties 3,10,30,100 --k 1..100:9 --trials 10000

        python -m papers.leakage ring/pp-topk --parties 5 --P0 0 --rounds 1 --out honest.csv

        python -m papers.leakage rank-search --parties 3,8,30 --k 1,5,20 --trials 10000
    """
    if protocol not in SUBJECTS:
        raise InputError("protocol", protocol, ", ".join(SUBJECTS))
    if out is not None and out.exists():
        raise InputError(
            "out", out, "the path of a file that does not exist; nothing is overwritten"
        )
    numbers = _whole_numbers(parties, k)
    if protocol == SEARCH:
        _refuse_options_of_ring(context)
        searches = SearchGrid(*numbers, rows=rows, trials=trials)
        with show_progress(quiet=as_json) as progress:
            found = list(search_grid(searches, seed=seed, progress=progress))
        _tell(found, f"{protocol}: {trials:,} trials", _search_table, out=out, as_json=as_json)
        return
    grid = LeakageGrid(*numbers, rounds, P0, d, delta=delta, rows=rows, trials=trials)
    with show_progress(quiet=as_json) as progress:
        points = list(leakage_grid(grid, seed=seed, progress=progress))
    title = f"{protocol}: {rounds} rounds, P0 = {P0:g}, d = {d:g}, {trials:,} trials"
    _tell(points, title, _ring_table, out=out, as_json=as_json)


def _refuse_options_of_ring(context: typer.Context) -> None:
    for name in ("rounds", "P0", "d", "delta"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError.because(
                f"--{name} applies only to ring/pp-topk; leave it out", field=name
            )


def _tell(
    points: Sequence[_P],
    title: str,
    table: Callable[[Sequence[_P]], tuple[Sequence[str], Iterable[Sequence[str]], str]],
    *,
    out: Path | None,
    as_json: bool,
) -> None:
    if out is not None:
        write_grid(points, out)
    if as_json:
        typer.echo(json.dumps([point.as_row() for point in points], indent=2))
        return
    headings, rows, closing = table(points)
    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for heading in headings:
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        shown.add_row(*row)
    console = make_console()
    console.print(shown)
    console.print(closing, highlight=False, soft_wrap=True)


def _whole_numbers(parties: str, ks: str) -> tuple[list[int], list[int]]:
    grid = parse_grid([f"parties={parties}", f"k={ks}"])
    for name, values in grid.items():
        for value in values:
            if not isinstance(value, int) or isinstance(value, bool):
                raise InputError(name, value, "whole numbers, such as 3,10,30 or 1..100:10")
    return [int(n) for n in grid["parties"]], [int(k) for k in grid["k"]]


def _ring_table(points: Sequence[GridPoint]) -> tuple[Sequence[str], Iterable[Sequence[str]], str]:
    rows = []
    for point in points:
        exact = point.exposure_exact
        known = f"<= {point.exposure_at_most:.4f}" if exact is None else f"= {exact:.4f}"
        claim, lop, peak = (f"{e.value:.4f}" for e in (point.claim, point.lop, point.lop_peak))
        exposure, speed = f"{point.exposure.value:.4f}", f"{point.party_steps_a_second:,.0f}"
        at = f"{point.parties:,}", f"{point.k:,}"
        rows.append([*at, exposure, known, claim, lop, peak, speed])
    steps, seconds = (sum(getattr(p, name) for p in points) for name in ("party_steps", "seconds"))
    worst = max(e.standard_error for p in points for e in (p.exposure, p.claim, p.lop, p.lop_peak))
    closing = (
        f"Standard errors are at most {worst:.4f}; use --json or --out for each one.\n"
        f"{steps:,} party-steps in {seconds:.2f} s on one core: {steps / seconds:,.0f} per second."
    )
    headings = ("n", "k", "exposure", "known", "claim", "LoP", "LoP peak", "party-steps/s")
    return headings, rows, closing


def _search_table(
    points: Sequence[SearchPoint],
) -> tuple[Sequence[str], Iterable[Sequence[str]], str]:
    rows = [
        [
            *(f"{point.parties:,}", f"{point.k:,}", "0", "0", "0", "0"),
            *(f"{point.radius.value:.4f}", f"{point.above.value:.4f}", f"{point.thresholds:.1f}"),
        ]
        for point in points
    ]
    worst = max(e.standard_error for point in points for e in (point.radius, point.above))
    closing = (
        "Exposure, claim and loss of privacy are provably 0: a view can be simulated from the"
        " totals.\nThe leakage of the totals has standard errors of at most"
        f" {worst:.4f}; use --json or --out for each one."
    )
    headings = ("n", "k", "exposure", "claim", "LoP", "LoP peak", "radius", "above k", "thresholds")
    return headings, rows, closing


if __name__ == "__main__":
    run_program(leakage, "papers.leakage")
