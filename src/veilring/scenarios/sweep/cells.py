"""The cells of a sweep, one for each point of the grid and trial, all checked before any is run."""

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import tomli_w

from veilring.config import parse_toml, require_key, require_key_that
from veilring.errors import VeilringError
from veilring.nodes import RuntimeName
from veilring.randomness import Streams
from veilring.scenarios.network import make_faults, make_topology
from veilring.scenarios.prepare import prepare
from veilring.scenarios.roles import find_role, run_role
from veilring.scenarios.runner import run_scenario
from veilring.scenarios.schema import RoleScenario, Scenario, load_experiment

Value = bool | int | float | str
Grid = Mapping[str, tuple[Value, ...]]
Point = Mapping[str, Value]

# Every cell is checked before the first one runs and is a row of one table in memory. At a
# millisecond and a kilobyte each, this many take a quarter of an hour and a gigabyte.
CELLS_MAX: Final = 1_000_000
_INT_MIN, _INT_MAX = (
    -(2**63),
    2**63 - 1,
)  # the values that TOML and a column of the results can represent

_ALLOWED: Final = (
    "values with commas between them, such as 3,10,30 or uniform,distance; "
    "whole numbers also as 1..6 or 1..100:10"
)
_OPTION: Final = "table.key=values, such as protocol.rounds=1..6 or parties.count=3,10,30"
# a quoted TOML string, or a run of characters that are not TOML punctuation
_ITEM: Final = r"""\s*("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s,"'#\[\]{}](?:[^,"'#\[\]{}\n]*))\s*"""
_LIST: Final = re.compile(rf"{_ITEM}(?:,{_ITEM})*")
_ITEMS: Final = re.compile(_ITEM)
_RANGE: Final = re.compile(r"([+-]?\d+)\.\.([+-]?\d+)(?::(\d+))?", re.ASCII)
_LIKE_RANGE: Final = re.compile(r"[^/\\]*\.\.[^/\\]*")  # two dots that are not part of a path


def parse_grid(options: Sequence[str]) -> Grid:
    """Parse the values of `--grid`.

    Args:
        options: Each as `table.key=values`. Values are TOML scalars separated by commas; a value
            that is not TOML is a string. `1..6` stands for the whole numbers from 1 to 6, and
            `1..100:10` for every tenth of them from the first.

    Returns:
        The values of each key; keys and values are in the given order.
    """
    grid: dict[str, tuple[Value, ...]] = {}
    for option in options:
        key, equals, text = (part.strip() for part in option.partition("="))
        require_key(bool(equals and key and all(key.split("."))), "--grid", option, _OPTION)
        require_key_that(
            key not in grid, key, "this key has more than one --grid; give one for each key"
        )
        grid[key] = _values(key, text)
    count = math.prod(map(len, grid.values()))
    require_key_that(
        count <= CELLS_MAX, "--grid", f"the grid has {count} points; the limit is {CELLS_MAX}"
    )
    return grid


def points(grid: Grid) -> Iterator[Point]:
    """Yield all combinations of the values; those of the first key change least often."""
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def canonical(value: Value) -> Value:
    """Return one representative of equal values: 1 for 1.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _values(key: str, text: str) -> tuple[Value, ...]:
    require_key(_LIST.fullmatch(text) is not None, key, text or "empty", _ALLOWED)
    values: list[Value] = []
    for item in _ITEMS.findall(text):
        values.extend(_expand(key, item.strip()))
        require_key(len(values) <= CELLS_MAX, key, text, f"at most {CELLS_MAX} values")
    seen: set[tuple[bool, Value]] = set()
    for value in values:
        mark = (isinstance(value, bool), canonical(value))  # True equals 1
        require_key_that(
            mark not in seen, key, f"{value} occurs twice in {text}; give each value once"
        )
        seen.add(mark)
    return tuple(values)


def _expand(key: str, item: str) -> Sequence[Value]:
    bounds = _RANGE.fullmatch(item)
    if bounds is not None:
        return _range(key, item, *bounds.groups(default="1"))
    is_quoted = item[0] in "\"'"
    allowed = "whole numbers as first..last or first..last:step, such as 1..6 or 1..100:10"
    require_key(is_quoted or _LIKE_RANGE.fullmatch(item) is None, key, item, allowed)
    return [_scalar(key, item, is_quoted=is_quoted)]


def _range(key: str, item: str, first: str, last: str, step: str) -> range:
    bounds = range(_whole(key, first), _whole(key, last) + 1)
    require_key(
        bounds.start < bounds.stop, key, item, "a range whose last value is at least the first"
    )
    width = _whole(key, step)
    require_key(width >= 1, key, item, "a step of at least 1")
    count = (bounds.stop - 1 - bounds.start) // width + 1
    require_key(count <= CELLS_MAX, key, item, f"a range of at most {CELLS_MAX} values")
    return bounds[::width]


def _scalar(key: str, item: str, *, is_quoted: bool) -> Value:
    try:
        value = parse_toml(f"value = {item}")["value"]
    except ValueError:
        require_key(not is_quoted, key, item, "a TOML string")
        return item
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return _whole(key, value)
    is_number = isinstance(value, float) and math.isfinite(value)
    require_key(is_number, key, item, "finite numbers, true, false and strings")
    return float(value)


def _whole(key: str, number: str | int) -> int:
    digits_max = 20  # signed, of 64 bits; the time for longer text grows with its square
    is_short = not isinstance(number, str) or len(number) <= digits_max
    allowed = "whole numbers of at most 64 bits"
    require_key(is_short and _INT_MIN <= int(number) <= _INT_MAX, key, number, allowed)
    return int(number)


SWEEP_RUNTIMES: Final[tuple[RuntimeName, ...]] = ("memory", "simulated")

Row = dict[str, Value]

_RUNTIME: Final = "network.runtime"
_SEED: Final = "run.seed"
_SEED_BYTES: Final = 8  # one bit less, so that a signed column of 64 bits can store it
# the fields of a report that depend on the machine rather than the scenario
_WALL_SECONDS: Final = ("seconds", "start_seconds")
# The settings are those of the scenario and the grid's columns, and the seed has a column of its
# own. The results of a role as text may contain the addresses of objects.
_ELSEWHERE: Final = (*_WALL_SECONDS, "settings", "seed", "shown")


@dataclass(frozen=True, slots=True)
class Plan:
    """The definition of a sweep.

    Attributes:
        trials: The number of runs at each point, at least 1.
        runtime: One of `SWEEP_RUNTIMES`. By default that of `overrides` or the grid, otherwise
            memory, even if the scenario's file sets another.
        seed: The seed of the sweep. By default the scenario's, or 0.
    """

    scenario: str
    grid: Grid
    trials: int = 1
    overrides: Sequence[str] = ()
    runtime: RuntimeName | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a cell in its sweep.

    Attributes:
        trial: The number of the run at this point, from 0.
        seed: The seed of all its randomness, which depends only on the sweep's seed and on `name`.
    """

    point: Point
    trial: int
    seed: int

    @property
    def name(self) -> str:
        """The unique name of the cell: the grid's keys in alphabetical order, and the trial."""
        return _cell_name(self.point, self.trial)

    @property
    def key(self) -> Row:
        """The columns that identify the cell, and its seed."""
        return {**self.point, "trial": self.trial, "seed": self.seed}


@dataclass(frozen=True, slots=True)
class Cell(Place):
    """One run of a sweep.

    Attributes:
        scenario: The scenario, except for its seed.
    """

    scenario: Scenario | RoleScenario


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """The outcome of a cell.

    Attributes:
        results: The values that do not depend on where the cell is run.
        failure: The reason for missing results, if the run failed.
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
    """Return all cells with checked scenarios, trial after trial and point after point."""
    trials, seed = plan.trials, plan.seed
    require_key(trials >= 1, "trials", trials, "a whole number of at least 1")
    require_key(seed is None or seed >= 0, "seed", seed, "a whole number of at least 0")
    for key, values in plan.grid.items():
        require_key_that(len(values) >= 1, key, "there are no values; give at least one")
    count = trials * math.prod(map(len, plan.grid.values()))
    require_key_that(
        count <= CELLS_MAX, "trials", f"the grid has {count} cells; the limit is {CELLS_MAX}"
    )
    return tuple(
        Cell(point, place.trial, place.seed, scenario)
        for point, scenario in _scenarios(plan)
        for place in places_at(point, trials, root_seed(plan, scenario))
    )


def root_seed(plan: Plan, scenario: Scenario | RoleScenario) -> int:
    """Return the seed of a sweep."""
    return plan.seed if plan.seed is not None else scenario.run.seed or 0


def places_at(point: Point, trials: int, root: int) -> Iterator[Place]:
    """Yield the places of the cells at a point, trial after trial.

    Args:
        root: The seed of the sweep.
    """
    for trial in range(trials):
        drawn = Streams(root).token("sweep", _cell_name(point, trial), size=_SEED_BYTES)
        yield Place(point, trial, int.from_bytes(drawn, "big") >> 1)


def _settings(plan: Plan) -> list[str]:
    """Return the settings of all points, and refuse keys set in two places."""
    own = [] if plan.runtime is None else [f"{_RUNTIME}={plan.runtime}"]
    taken = {text.partition("=")[0].strip() for text in (*plan.overrides, *own)}
    for key in plan.grid:
        require_key_that(
            key not in taken, key, "this key is set both in the grid and for all cells; set it once"
        )
        require_key_that(
            key != _SEED,
            key,
            "each cell has its own seed, derived from the sweep's seed and its name; leave it out",
        )
    return [f"{_RUNTIME}={SWEEP_RUNTIMES[0]}", *plan.overrides, *own]


def _scenarios(plan: Plan) -> Iterator[tuple[Point, Scenario | RoleScenario]]:
    settings = _settings(plan)
    for point in points(plan.grid):
        at_point = [f"{key}={_as_toml(value)}" for key, value in point.items()]
        scenario = load_experiment(plan.scenario, [*settings, *at_point])
        runtime = scenario.network.runtime
        allowed = f"{' or '.join(SWEEP_RUNTIMES)} in a sweep, where many cells share a machine"
        require_key(runtime in SWEEP_RUNTIMES, _RUNTIME, runtime, allowed)
        yield point, scenario


def _as_toml(value: Value) -> str:
    return tomli_w.dumps({"value": value}).partition("=")[2].strip()


def check_cell(cell: Cell) -> None:
    """Check the data, protocol and links of a cell, or its role, without running it."""
    if isinstance(cell.scenario, RoleScenario):
        parties = find_role(cell.scenario).parties
        make_topology(cell.scenario.network, parties)
        make_faults(cell.scenario, parties, Streams(cell.seed))
        return
    # one query is enough for this check, and takes no time
    data = cell.scenario.data.model_copy(update={"queries": 1})
    prepared = prepare(cell.scenario.model_copy(update={"data": data}), Streams(cell.seed))
    make_topology(cell.scenario.network, prepared.parties)


def run_cell(cell: Cell, clock: Callable[[], float] = time.perf_counter) -> CellOutcome:
    """Run a cell, in this process.

    Returns:
        The results, or the reason for the failure.
    """
    began = clock()
    try:
        if isinstance(cell.scenario, RoleScenario):
            whole = run_role(cell.scenario, seed=cell.seed, clock=clock).as_json()
        else:
            whole = run_scenario(cell.scenario, seed=cell.seed, clock=clock).as_json()
    except VeilringError as error:
        return CellOutcome(cell.name, {}, {}, str(error))
    except Exception as error:
        error.add_note(f"in the cell {cell.name} (seed {cell.seed})")
        raise
    walls: Row = {name: whole[name] for name in _WALL_SECONDS}
    results = _scalars("", {name: whole[name] for name in whole if name not in _ELSEWHERE})
    return CellOutcome(cell.name, dict(results), {"cell_seconds": clock() - began, **walls})


def _scalars(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """Flatten a table to `table.key`; lists and missing values have no column.

    A whole number that a column of numbers cannot hold becomes a text.
    """
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _scalars(f"{prefix}{name}.", value)
        elif isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
            yield prefix + name, str(value)
        elif isinstance(value, bool | int | float | str):
            yield prefix + name, value
