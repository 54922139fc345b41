"""Sweeps: a scenario at all points of a grid, on many processes or machines, one row per run."""

from veilring.scenarios.sweep.cells import CELLS_MAX, Grid, Plan, Value, parse_grid
from veilring.scenarios.sweep.engine import Engine
from veilring.scenarios.sweep.run import Files, run_sweep

__all__ = ("CELLS_MAX", "Engine", "Files", "Grid", "Plan", "Value", "parse_grid", "run_sweep")
