"""Sweeps: a scenario at all points of a grid, on many processes or machines, one row per run."""

from veilring.scenarios.sweep.cells import CELLS_MAX, Cell, Grid, Plan, Point, Value, parse_grid
from veilring.scenarios.sweep.engine import ENGINES, Engine
from veilring.scenarios.sweep.run import Files, Sweep, run_sweep

__all__ = (
    "CELLS_MAX",
    "ENGINES",
    "Cell",
    "Engine",
    "Files",
    "Grid",
    "Plan",
    "Point",
    "Sweep",
    "Value",
    "parse_grid",
    "run_sweep",
)
