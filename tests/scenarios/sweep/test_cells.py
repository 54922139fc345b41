"""Grids and cells: syntax, settings, seeds, and mistakes that are refused before any cell runs."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.errors import ScenarioError
from veilring.scenarios.sweep import CELLS_MAX, Grid, Plan, Value, parse_grid
from veilring.scenarios.sweep.cells import check_cell, plan_cells, points, run_cell

VALUES: dict[str, tuple[Value, ...]] = {
    "1..6": (1, 2, 3, 4, 5, 6),
    "-2..1": (-2, -1, 0, 1),
    "4..4": (4,),
    "1..100:33": (1, 34, 67, 100),
    "1..100:40": (1, 41, 81),
    "1..3, 10, 30": (1, 2, 3, 10, 30),
    "3,10,30": (3, 10, 30),
    "0.1,0.25,1e-3": (0.1, 0.25, 0.001),
    "1_000": (1000,),
    "true,false": (True, False),
    "true,1": (True, 1),
    "uniform,distance": ("uniform", "distance"),
    "1,2,auto": (1, 2, "auto"),
    '"a,b",\'c#d\',"1..6"': ("a,b", "c#d", "1..6"),
    '"\\"", e f ': ('"', "e f"),
    "../rows.csv,data/a..b.csv": ("../rows.csv", "data/a..b.csv"),
}
REFUSED = {  # the allowed values, and texts that are none
    "values with commas": ("1,,2", "1,", "[1, 2]", "{c=1}", "1 # one", '"open'),
    "a TOML string": ('"\\q"',),
    "a range whose last value is at least the first": ("6..1",),
    "a step of at least 1": ("1..6:0",),
    "whole numbers as first..last or first..last:step": ("1..6:-1", "0..1:0.1", "1..", "1...6"),
    f"a range of at most {CELLS_MAX} values": ("1..9000000", "0..9223372036854775807"),
    "whole numbers of at most 64 bits": ("9223372036854775808",),
    "finite numbers, true, false and strings": ("nan", "2020-01-01"),
}
FIRST = "table.key=values, such as protocol.rounds=1..6"
LIMIT, LONG = f"the limit is {CELLS_MAX}", "9" * 5000
MISTAKES: dict[tuple[str, ...], str] = {  # options, and the error
    ("protocol.rounds",): f"--grid is 'protocol.rounds'; allowed: {FIRST}",
    ("=1,2",): f"--grid is '=1,2'; allowed: {FIRST}",
    ("protocol..k=1",): f"--grid is 'protocol..k=1'; allowed: {FIRST}",
    ("a.b=1..1000", "a.c=1..1001"): f"--grid: the grid has 1001000 points; {LIMIT}",
    ("a.b=1", "a.b=2"): "a.b: this key has more than one --grid; give one for each key",
    ("a.b=",): "a.b is 'empty'; allowed: values with commas",
    (f"a.b=1..{LONG}",): f"a.b is '{LONG[:200]}'… (5,000 characters); allowed: whole numbers of",
    ("a.b=1,inf",): "a.b is 'inf'; allowed: finite numbers",
    ("a.b=1,2,1",): "a.b: 1 occurs twice in 1,2,1; give each value once",
    ("a.b=1,1.0",): "a.b: 1.0 occurs twice in 1,1.0; give each value once",
    ("a.b=1..3,2",): "a.b: 2 occurs twice in 1..3,2; give each value once",
    **{
        (f"a.b={text}",): f"a.b is {text if text.isdigit() else repr(text)}; allowed: {allowed}"
        for allowed, texts in REFUSED.items()
        for text in texts
    },
}
SMALL = ("data.queries=5", "run.leakage_trials=0")
PLAN = Plan("wine", {"parties.count": (3, 5), "protocol.rounds": (1, 2)}, 2, SMALL)


@pytest.mark.parametrize(("text", "values"), VALUES.items())
def test_values_are_read(text: str, values: tuple[Value, ...]) -> None:
    """Ranges include both ends; a text that is not a TOML scalar is a string."""
    (found,) = parse_grid([f"table.key={text}"]).values()
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize("options", MISTAKES, ids=lambda options: options[0][:40])
def test_a_mistake_names_key_value_and_allowed_values(options: tuple[str, ...]) -> None:
    """An invalid grid is refused before anything else happens."""
    with pytest.raises(ScenarioError) as caught:
        parse_grid(options)
    assert str(caught.value).startswith(MISTAKES[options])
    assert caught.value.field == re.split(": | is ", MISTAKES[options])[0]


@pytest.mark.slow
@given(st.text(max_size=40))
def test_every_text_is_values_or_an_input_error(text: str) -> None:
    """Any text is either a list of values or a mistake in the scenario."""
    try:
        (values,) = parse_grid([f"a.b={text}"]).values()
    except ScenarioError:
        return
    assert values


@given(st.integers(-50, 50), st.integers(0, 60), st.integers(1, 9))
def test_a_range_is_pythons_with_its_end(first: int, width: int, step: int) -> None:
    """`first..last:step` is `range(first, last + 1, step)`."""
    grid = parse_grid([f"a.b={first}..{first + width}:{step}"])
    assert grid["a.b"] == tuple(range(first, first + width + 1, step))


def test_the_first_key_changes_least_often() -> None:
    """Points come in the order of a printed table, and no key is one point."""
    grid = parse_grid(["a.x=1,2", "a.y=u,v"])
    found = [tuple(point.values()) for point in points(grid)]
    assert found == [(1, "u"), (1, "v"), (2, "u"), (2, "v")]
    assert list(points(parse_grid([]))) == [{}]


def test_a_cells_seed_depends_on_its_name_and_the_sweeps_seed_only() -> None:
    """It differs between cells, fits 64 bits, and stays as the grid, its order or 1.0 changes."""
    seeds = {cell.name: cell.seed for cell in plan_cells(PLAN)}
    assert len(set(seeds.values())) == len(seeds) == 8
    assert all(0 <= seed < 2**63 for seed in seeds.values())
    grid = {"protocol.rounds": (3, 2, 1), "parties.count": (5, 4, 3)}
    more = {cell.name: cell.seed for cell in plan_cells(replace(PLAN, grid=grid, trials=4))}
    assert more.items() >= seeds.items()
    whole, broken = (plan_cells(Plan("wine", {"protocol.P0": (p,)})) for p in (1, 1.0))
    assert [(cell.name, cell.seed) for cell in whole] == [(cell.name, cell.seed) for cell in broken]


def test_a_sweeps_own_settings_precede_the_scenarios() -> None:
    """The default seed is zero; it runs in memory even if the scenario's file has processes."""
    own, simulated = ("run.seed=7",), ("network.runtime=simulated",)
    none, zero, seven, scenarios, both = (
        plan_cells(Plan("wine", {"protocol.k": (3,)}, overrides=overrides, seed=seed))[0].seed
        for overrides, seed in (((), None), ((), 0), ((), 7), (own, None), (own, 0))
    )
    assert none == zero == both != seven == scenarios
    given: tuple[Plan, ...] = (
        Plan("wine", {}),
        Plan("wine", {}, runtime="simulated"),
        Plan("wine", {}, overrides=simulated),
    )
    runtimes = [plan_cells(plan)[0].scenario.network.runtime for plan in given]
    assert runtimes == ["memory", "simulated", "simulated"]


TWICE = "this key is set both in the grid and for all cells; set it once"
IMPOSSIBLE = [  # a grid, the other settings of a plan, the key and the allowed values
    ({"protocol.kk": (1,)}, {}, "protocol.kk", "did you mean k?"),
    ({"protocol": (1,)}, {}, "protocol", "a table with the keys"),
    ({"protocol.rounds": (2, 1, 0)}, {}, "protocol.rounds", "at least 1"),
    ({"protocol.rounds": ("all",)}, {}, "protocol.rounds", '"auto"'),
    ({"parties.count": (3, 2)}, {}, "parties.count", "at least 3"),
    ({"protocol.k": ()}, {}, "protocol.k", "give at least one"),
    ({"run.seed": (1, 2)}, {}, "run.seed", "each cell has its own seed"),
    ({"protocol.k": (1, 2)}, {"trials": CELLS_MAX}, "trials", LIMIT),
    ({"protocol.k": (1,)}, {"overrides": ["protocol.k = 2"]}, "protocol.k", TWICE),
    ({"network.runtime": ("memory",)}, {"runtime": "memory"}, "network.runtime", TWICE),
    ({}, {"scenario": "wines"}, "scenario", "breast-cancer"),
    ({}, {"trials": 0}, "trials", "at least 1"),
    ({}, {"seed": -1}, "seed", "at least 0"),
    ({}, {"runtime": "tls"}, "network.runtime", "memory or simulated"),
    ({}, {"runtime": "cloud"}, "network.runtime", "memory, tls"),
]


@pytest.mark.parametrize(("grid", "settings", "key", "allowed"), IMPOSSIBLE)
def test_an_impossible_plan_is_refused(
    grid: Grid, settings: dict[str, Any], key: str, allowed: str
) -> None:
    """Every point's scenario is checked; the error names the key and the allowed values."""
    with pytest.raises(ScenarioError) as caught:
        plan_cells(replace(Plan("wine", grid), **settings))
    assert caught.value.field == key
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    "grid", ["protocol.k=1,500", "network.graph=star,rings", "data.source=wine,missing.csv"]
)
def test_limits_that_depend_on_the_data_are_checked_too(grid: str) -> None:
    """The first value is possible, and the second is not."""
    right, wrong = plan_cells(Plan("wine", parse_grid([grid])))
    check_cell(right)
    with pytest.raises(ScenarioError) as caught:
        check_cell(wrong)
    assert caught.value.field == grid.partition("=")[0]


def test_a_cells_times_are_those_of_its_clock() -> None:
    """They are separate from its results, and include loading and estimating."""
    ticks = iter(range(100))
    outcome = run_cell(plan_cells(PLAN)[0], clock=lambda: float(next(ticks)))
    assert outcome.timing == {"cell_seconds": 4.0, "seconds": 1.0, "start_seconds": 1.0}
    assert not {"seconds", "start_seconds", "labels", "settings"} & set(outcome.results)
