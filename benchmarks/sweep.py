"""A sweep of 200 cells: in two worker processes, beside one process alone."""

import tempfile
import time
from pathlib import Path

from benchmarks.measurement import Bound, Measurement, Skipped, Timed, pairs, ratios
from veilring.scenarios.sweep import Engine, Plan, parse_grid, run_sweep

CELLS = 200
GRID = ("parties.count=5,10", "protocol.rounds=1..4")
SETTINGS = ("data.queries=5", "run.leakage_trials=0")
# Of the two-fold that two cores allow, the starts of the workers and the parent's own work take
# some; below this, a second worker would hardly be worth its memory.
TIMES_FASTER = 1.3


def measure(*, quick: bool) -> list[Measurement]:
    """Compare two workers with one, which is this process; once only if it has to be quick."""
    import joblib  # noqa: PLC0415  (it takes 0.1 s, and no other benchmark needs it)

    if joblib.cpu_count() < 2:
        raise Skipped("two workers take two cores")
    grid = parse_grid(GRID)
    points = len(grid["parties.count"]) * len(grid["protocol.rounds"])
    plan = Plan("wine", grid, CELLS // points, SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        timed = pairs(
            _sweep(plan, 2, Path(folder)), _sweep(plan, 1, Path(folder)), 1 if quick else 5
        )
    name = f"a sweep of {CELLS} cells, two workers beside one, times faster"
    return [ratios(name, timed, Bound("at least", TIMES_FASTER), faster=True, per=CELLS)]


def _sweep(plan: Plan, workers: int, folder: Path) -> Timed:
    def sweep() -> float:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            start = time.perf_counter()
            run_sweep(plan, Path(place) / "out.parquet", engine=Engine(workers=workers))
            return time.perf_counter() - start

    return sweep
