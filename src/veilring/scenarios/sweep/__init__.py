"""Sweeps: a scenario at all points of a grid, on many processes or machines, one row a run."""

from veilring.scenarios.sweep.cells import Cell, Plan
from veilring.scenarios.sweep.engine import ENGINES, Engine
from veilring.scenarios.sweep.grid import CELLS_MAX, Grid, Point, Value, parse_grid
from veilring.scenarios.sweep.run import Sweep, run_sweep
from veilring.scenarios.sweep.store import Files

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
