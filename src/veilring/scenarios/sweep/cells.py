"""Cells: one point of the grid and one trial each, planned and checked before any is run."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tomli_w

from veilring.config import require_key
from veilring.errors import VeilringError
from veilring.randomness import Streams
from veilring.scenarios.network import make_topology
from veilring.scenarios.prepare import prepare
from veilring.scenarios.report import Report
from veilring.scenarios.runner import run_scenario
from veilring.scenarios.schema import Scenario, load_scenario
from veilring.scenarios.sweep.grid import CELLS_MAX, Grid, Point, Value, canonical, points

RUNTIMES: Final = ("memory", "simulated")

Row = dict[str, Value]

_RUNTIME: Final = "network.runtime"
_SEED: Final = "run.seed"
_SEED_BYTES: Final = 8  # less one bit, so that a signed column of 64 bits holds it
# What a report says of the machine and not of the scenario.
_WALL_SECONDS: Final = ("seconds", "start_seconds")
# The settings are the scenario's, the grid's columns and the seed, which has a column of its own.
_ELSEWHERE: Final = (*_WALL_SECONDS, "settings", "seed")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sweep goes through.

    Attributes:
        scenario: A built-in scenario or a path to a `.toml`.
        grid: The values of each key, by its dotted name: see `parse_grid`.
        trials: How many runs at each point; at least 1.
        overrides: Keys to set at all points: see `load_scenario`.
        runtime: One of `RUNTIMES`. Without it, what `overrides` or the grid says, or else memory,
            whatever the scenario's file says.
        seed: Of the sweep. Without it, the scenario's, or else 0.
    """

    scenario: str
    grid: Grid
    trials: int = 1
    overrides: Sequence[str] = ()
    runtime: str | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a sweep.

    Attributes:
        point: The values of the grid's keys.
        trial: Which of the runs at this point, from 0.
        scenario: What is run, but for its seed.
        seed: Of all its randomness. It depends on the sweep's seed and on `name` only.
    """

    point: Point
    trial: int
    scenario: Scenario
    seed: int

    @property
    def name(self) -> str:
        """What tells it from all others: the grid's keys in alphabetic order, and the trial."""
        return _cell_name(self.point, self.trial)

    @property
    def key(self) -> Row:
        """The columns that tell it from all others, and its seed."""
        return {**self.point, "trial": self.trial, "seed": self.seed}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a cell.

    Attributes:
        cell: Its name.
        results: All that is the same wherever the cell is run.
        timing: Wall seconds, which are not.
        failure: Why there are no results, if there are none.
    """

    cell: str
    results: Row
    timing: Row
    failure: str = ""


def _cell_name(point: Point, trial: int) -> str:
    """Return the name of a cell: see `Cell.name`."""
    values = (f"{key}={json.dumps(canonical(point[key]))}" for key in sorted(point))
    return " ".join((*values, f"trial={trial}"))


def plan_cells(plan: Plan) -> tuple[Cell, ...]:
    """Return all cells with checked scenarios, trial after trial and point after point.

    Raises:
        ScenarioError: If the plan or a point's scenario is wrong, or a key is set in two places.
    """
    trials, seed = plan.trials, plan.seed
    require_key(trials >= 1, "trials", trials, "a whole number of at least 1")
    require_key(seed is None or seed >= 0, "seed", seed, "a whole number of at least 0")
    for key, values in plan.grid.items():
        require_key(len(values) >= 1, key, "empty", "at least one value")
    count = trials * math.prod(map(len, plan.grid.values()))
    allowed = f"so many that there are at most {CELLS_MAX} cells, not {count}"
    require_key(count <= CELLS_MAX, "trials", trials, allowed)
    return tuple(
        Cell(point, trial, scenario, _seed(seed, scenario, _cell_name(point, trial)))
        for point, scenario in _scenarios(plan)
        for trial in range(trials)
    )


def _settings(plan: Plan) -> list[str]:
    """Return what is set at all points, and refuse what is set in two places."""
    own = [] if plan.runtime is None else [f"{_RUNTIME}={plan.runtime}"]
    taken = {text.partition("=")[0].strip() for text in (*plan.overrides, *own)}
    for key, values in plan.grid.items():
        once = "either the grid or one value for all cells, not both"
        require_key(key not in taken, key, list(values), once)
        none = "no values: each cell has a seed of its own, from the sweep's seed and its name"
        require_key(key != _SEED, key, list(values), none)
    return [f"{_RUNTIME}={RUNTIMES[0]}", *plan.overrides, *own]


def _scenarios(plan: Plan) -> Iterator[tuple[Point, Scenario]]:
    settings = _settings(plan)
    for point in points(plan.grid):
        at_point = [f"{key}={_as_toml(value)}" for key, value in point.items()]
        scenario = load_scenario(plan.scenario, [*settings, *at_point])
        runtime = scenario.network.runtime
        allowed = f"{' or '.join(RUNTIMES)} in a sweep, where many cells share a machine"
        require_key(runtime in RUNTIMES, _RUNTIME, runtime, allowed)
        yield point, scenario


def _as_toml(value: Value) -> str:
    return tomli_w.dumps({"value": value}).partition("=")[2].strip()


def _seed(seed: int | None, scenario: Scenario, name: str) -> int:
    root = seed if seed is not None else scenario.run.seed or 0
    return int.from_bytes(Streams(root).token("sweep", name, size=_SEED_BYTES), "big") >> 1


def check_cell(cell: Cell) -> None:
    """Check all that can be known of a cell without running it: data, protocol and links.

    Raises:
        ScenarioError: If they cannot be as the scenario says.
    """
    # One query is enough for that, and takes no time.
    data = cell.scenario.data.model_copy(update={"queries": 1})
    prepared = prepare(cell.scenario.model_copy(update={"data": data}), Streams(cell.seed))
    make_topology(cell.scenario.network, prepared.parties)


def run_cell(cell: Cell, clock: Callable[[], float] = time.perf_counter) -> Outcome:
    """Run a cell, in whatever process this is.

    Args:
        cell: What to run.
        clock: Gives wall seconds.

    Returns:
        Its results; or, if the run failed, why.
    """
    began = clock()
    try:
        report = run_scenario(cell.scenario, seed=cell.seed, clock=clock)
    except VeilringError as error:
        return Outcome(cell.name, {}, {}, str(error))
    except Exception as error:
        error.add_note(f"in the cell {cell.name} (seed {cell.seed})")
        raise
    walls: Row = {name: getattr(report, name) for name in _WALL_SECONDS}
    return Outcome(cell.name, _results(report), {"cell_seconds": clock() - began, **walls})


def _results(report: Report) -> Row:
    whole = report.as_json()
    return dict(_scalars("", {name: whole[name] for name in whole if name not in _ELSEWHERE}))


def _scalars(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """Flatten a table to `table.key`; lists, and what there is not, have no column."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _scalars(f"{prefix}{name}.", value)
        elif isinstance(value, bool | int | float | str):
            yield prefix + name, value
