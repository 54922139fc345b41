"""Grids and cells: syntax, settings, seeds, and mistakes that are refused before any cell runs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.errors import ScenarioError
from veilring.scenarios import load_scenario, run_scenario
from veilring.scenarios.sweep import CELLS_MAX, Grid, Plan, Value, parse_grid
from veilring.scenarios.sweep.cells import check_cell, plan_cells, points, run_cell


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1..6", (1, 2, 3, 4, 5, 6)),
        ("-2..1", (-2, -1, 0, 1)),
        ("4..4", (4,)),
        ("1..100:33", (1, 34, 67, 100)),
        ("1..100:40", (1, 41, 81)),
        ("1..3, 10, 30", (1, 2, 3, 10, 30)),
        ("3,10,30", (3, 10, 30)),
        ("0.1,0.25,1e-3", (0.1, 0.25, 0.001)),
        ("1_000", (1000,)),
        ("true,false", (True, False)),
        ("true,1", (True, 1)),
        ("uniform,distance", ("uniform", "distance")),
        ("1,2,auto", (1, 2, "auto")),
        ('"a,b",\'c#d\',"1..6"', ("a,b", "c#d", "1..6")),
        ('"\\"", e f ', ('"', "e f")),
        ("../rows.csv,data/a..b.csv", ("../rows.csv", "data/a..b.csv")),
    ],
)
def test_values_are_read(text: str, values: tuple[Value, ...]) -> None:
    """Ranges include both ends; a text that is not a TOML scalar is a string."""
    (found,) = parse_grid([f"table.key={text}"]).values()
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("options", "key", "value", "allowed"),
    [
        (["protocol.rounds"], "--grid", "protocol.rounds", "protocol.rounds=1..6"),
        (["=1,2"], "--grid", "=1,2", "table.key=values"),
        (["protocol..k=1"], "--grid", "protocol..k=1", "table.key=values"),
        (["a.b=1", "a.b=2"], "a.b", "2", "give one for each key"),
        (["a.b="], "a.b", "empty", "values with commas"),
        (["a.b=1,,2"], "a.b", "1,,2", "values with commas"),
        (["a.b=1,"], "a.b", "1,", "values with commas"),
        (["a.b=[1, 2]"], "a.b", "[1, 2]", "values with commas"),
        (["a.b={c=1}"], "a.b", "{c=1}", "values with commas"),
        (["a.b=1 # one"], "a.b", "1 # one", "values with commas"),
        (['a.b="open'], "a.b", '"open', "values with commas"),
        (['a.b="\\q"'], "a.b", '"\\q"', "a TOML string"),
        (["a.b=6..1"], "a.b", "6..1", "last value is at least the first"),
        (["a.b=1..6:0"], "a.b", "1..6:0", "a step of at least 1"),
        (["a.b=1..6:-1"], "a.b", "1..6:-1", "first..last:step"),
        (["a.b=0..1:0.1"], "a.b", "0..1:0.1", "whole numbers as first..last"),
        (["a.b=1.."], "a.b", "1..", "whole numbers as first..last"),
        (["a.b=1...6"], "a.b", "1...6", "whole numbers as first..last"),
        (["a.b=1..9000000"], "a.b", "1..9000000", f"at most {CELLS_MAX}"),
        (["a.b=0..9223372036854775807"], "a.b", "0..9223372036854775807", f"at most {CELLS_MAX}"),
        ([f"a.b=1..{'9' * 5000}"], "a.b", "9" * 5000, "at most 64 bits"),
        (["a.b=9223372036854775808"], "a.b", "9223372036854775808", "at most 64 bits"),
        (["a.b=1..1000", "a.c=1..1001"], "--grid", "1001000 points", f"the limit is {CELLS_MAX}"),
        (["a.b=nan"], "a.b", "nan", "finite numbers"),
        (["a.b=1,inf"], "a.b", "inf", "finite numbers"),
        (["a.b=2020-01-01"], "a.b", "2020-01-01", "finite numbers, true, false and strings"),
        (["a.b=1,2,1"], "a.b", "1,2,1, where 1 is twice", "each value once"),
        (["a.b=1,1.0"], "a.b", "1,1.0, where 1.0 is twice", "each value once"),
        (["a.b=1..3,2"], "a.b", "1..3,2, where 2 is twice", "each value once"),
    ],
)
def test_a_mistake_names_key_value_and_allowed_values(
    options: list[str], key: str, value: str, allowed: str
) -> None:
    """An invalid grid is refused before anything else happens."""
    with pytest.raises(ScenarioError) as caught:
        parse_grid(options)
    assert caught.value.field == key
    assert caught.value.value == value or caught.value.message
    assert allowed in str(caught.value)


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
    """Points come in the order of a printed table."""
    grid = parse_grid(["a.x=1,2", "a.y=u,v"])
    assert [tuple(point.values()) for point in points(grid)] == [
        (1, "u"),
        (1, "v"),
        (2, "u"),
        (2, "v"),
    ]


def test_no_key_is_one_point() -> None:
    """A sweep over trials alone needs no grid."""
    assert list(points(parse_grid([]))) == [{}]


SMALL = ("data.queries=5", "run.leakage_trials=0")
PLAN = Plan("wine", {"parties.count": (3, 5), "protocol.rounds": (1, 2)}, 2, SMALL)


class TestSeeds:
    """A cell's seed depends on the sweep's seed and the cell's name."""

    def test_no_two_cells_share_one(self) -> None:
        """Each point and trial has a different seed that fits a signed 64-bit column."""
        seeds = [cell.seed for cell in plan_cells(PLAN)]
        assert len(set(seeds)) == len(seeds) == 8
        assert all(0 <= seed < 2**63 for seed in seeds)

    def test_other_cells_and_their_order_change_none(self) -> None:
        """More values, more trials and another order of keys do not change the seeds."""
        grid = {"protocol.rounds": (3, 2, 1), "parties.count": (5, 4, 3)}
        more = {cell.name: cell.seed for cell in plan_cells(replace(PLAN, grid=grid, trials=4))}
        for cell in plan_cells(PLAN):
            assert more[cell.name] == cell.seed

    def test_the_same_number_written_otherwise_is_the_same_cell(self) -> None:
        """1 and 1.0 are the same value."""
        whole, broken = (plan_cells(Plan("wine", {"protocol.P0": (p,)})) for p in (1, 1.0))
        assert [(cell.name, cell.seed) for cell in whole] == [
            (cell.name, cell.seed) for cell in broken
        ]

    def test_come_from_the_sweep_or_else_the_scenario(self) -> None:
        """A given seed takes precedence; the final default is zero."""
        point: Grid = {"protocol.k": (3,)}
        (none,) = plan_cells(Plan("wine", point))
        (zero,) = plan_cells(Plan("wine", point, seed=0))
        (seven,) = plan_cells(Plan("wine", point, seed=7))
        (own,) = plan_cells(Plan("wine", point, overrides=["run.seed=7"]))
        (both,) = plan_cells(Plan("wine", point, overrides=["run.seed=7"], seed=0))
        assert none.seed == zero.seed == both.seed != seven.seed == own.seed


class TestRuntimes:
    """The runtime of the parties of a sweep."""

    @pytest.mark.parametrize(
        ("overrides", "runtime", "expected"),
        [
            ((), None, "memory"),
            ((), "simulated", "simulated"),
            (("network.runtime=simulated",), None, "simulated"),
        ],
    )
    def test_is_memory_by_default(
        self, overrides: tuple[str, ...], runtime: str | None, expected: str
    ) -> None:
        """A sweep runs in memory by default, even if the scenario's file asks for processes."""
        (cell,) = plan_cells(Plan("wine", {}, overrides=overrides, runtime=runtime))
        assert cell.scenario.network.runtime == expected


@pytest.mark.parametrize(
    ("plan", "key", "allowed"),
    [
        (Plan("wines", {}), "scenario", "breast-cancer"),
        (Plan("wine", {"protocol.kk": (1,)}), "protocol.kk", "did you mean k?"),
        (Plan("wine", {"protocol": (1,)}), "protocol", "a table with the keys"),
        (Plan("wine", {"protocol.rounds": (2, 1, 0)}), "protocol.rounds", "at least 1"),
        (Plan("wine", {"protocol.rounds": ("all",)}), "protocol.rounds", '"auto"'),
        (Plan("wine", {"parties.count": (3, 2)}), "parties.count", "at least 3"),
        (Plan("wine", {"protocol.k": ()}), "protocol.k", "give at least one"),
        (Plan("wine", {"run.seed": (1, 2)}), "run.seed", "each cell has its own seed"),
        (Plan("wine", {}, trials=0), "trials", "at least 1"),
        (
            Plan("wine", {"protocol.k": (1, 2)}, trials=CELLS_MAX),
            "trials",
            f"the limit is {CELLS_MAX}",
        ),
        (Plan("wine", {}, seed=-1), "seed", "at least 0"),
        (Plan("wine", {}, runtime="tls"), "network.runtime", "memory or simulated"),
        (Plan("wine", {}, runtime="cloud"), "network.runtime", "memory, tls"),
        (
            Plan("wine", {"protocol.k": (1,)}, overrides=["protocol.k = 2"]),
            "protocol.k",
            "set it once",
        ),
        (
            Plan("wine", {"network.runtime": ("memory",)}, runtime="memory"),
            "network.runtime",
            "set it once",
        ),
    ],
)
def test_an_impossible_plan_is_refused(plan: Plan, key: str, allowed: str) -> None:
    """Every point's scenario is checked; the error names the key and the allowed values."""
    with pytest.raises(ScenarioError) as caught:
        plan_cells(plan)
    assert caught.value.field == key
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    ("grid", "key"),
    [
        ("protocol.k=1,500", "protocol.k"),
        ("network.graph=star,rings", "network.graph"),
        ("data.source=wine,missing.csv", "data.source"),
    ],
)
def test_limits_that_depend_on_the_data_are_checked_too(grid: str, key: str) -> None:
    """The first value is possible, and the second is not."""
    right, wrong = plan_cells(Plan("wine", parse_grid([grid])))
    check_cell(right)
    with pytest.raises(ScenarioError) as caught:
        check_cell(wrong)
    assert caught.value.field == key


class TestRunning:
    """The result of a cell."""

    def test_is_the_report_of_the_scenario_with_the_cells_seed(self) -> None:
        """All scalars of the report are included with equal values, except those of the machine."""
        cell = plan_cells(replace(PLAN, overrides=("data.queries=5", "run.leakage_trials=20")))[0]
        outcome = run_cell(cell)
        settings = [*SMALL, "parties.count=3", "protocol.rounds=1", "run.leakage_trials=20"]
        report = run_scenario(load_scenario("wine", settings), runtime="memory", seed=cell.seed)
        assert outcome.results["transcript"] == report.transcript
        assert outcome.results["accuracy"] == report.accuracy
        assert outcome.results["cost.messages"] == report.cost.messages
        assert report.leakage is not None
        exposure = report.leakage.estimates["exposure"]
        assert outcome.results["leakage.exposure.value"] == exposure.value
        assert not {"seconds", "start_seconds", "labels", "settings"} & set(outcome.results)

    def test_seconds_are_separate(self) -> None:
        """The whole cell takes the time of its clock."""
        ticks = iter(range(100))
        outcome = run_cell(plan_cells(PLAN)[0], clock=lambda: float(next(ticks)))
        assert outcome.timing == {"cell_seconds": 4.0, "seconds": 1.0, "start_seconds": 1.0}
