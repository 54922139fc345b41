"""Cells: their settings, their seeds, and the mistakes refused before any cell runs."""

from dataclasses import replace

import pytest

from veilring.errors import ScenarioError
from veilring.scenarios import load_scenario, run_scenario
from veilring.scenarios.sweep import CELLS_MAX, Grid, Plan, parse_grid
from veilring.scenarios.sweep.cells import check_cell, plan_cells, run_cell

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
