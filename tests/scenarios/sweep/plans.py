"""Small sweeps and their files."""

from pathlib import Path

import polars as pl

from veilring.scenarios.sweep import Engine, Plan, parse_grid

SMALL = ("data.queries=5", "run.leakage_trials=0")
GRID = parse_grid(["protocol.rounds=1..4", "parties.count=3,5,8"])
PLAN = Plan("wine", GRID, 2, SMALL)
TINY = Plan("wine", parse_grid(["parties.count=3..5"]), 2, SMALL)
IN_PROCESS = Engine(workers=1)


def read_frame(path: Path) -> pl.DataFrame:
    """Return the content of a file of results."""
    return pl.read_parquet(path)


def names_in(folder: Path) -> set[str]:
    """Return the names of the files in a folder."""
    return {path.name for path in folder.iterdir()}
