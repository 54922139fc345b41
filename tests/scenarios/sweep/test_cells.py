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
    """A cell's seed follows from the sweep's seed and the cell's own name."""

    def test_no_two_cells_share_one(self) -> None:
        """Each point and each trial has its own, and each fits a signed column of 64 bits."""
        seeds = [cell.seed for cell in plan_cells(PLAN)]
        assert len(set(seeds)) == len(seeds) == 8
        assert all(0 <= seed < 2**63 for seed in seeds)

    def test_other_cells_and_their_order_change_none(self) -> None:
        """More values, more trials and another order of the keys leave the seeds as they are."""
        grid = {"protocol.rounds": (3, 2, 1), "parties.count": (5, 4, 3)}
        more = {cell.name: cell.seed for cell in plan_cells(replace(PLAN, grid=grid, trials=4))}
        for cell in plan_cells(PLAN):
            assert more[cell.name] == cell.seed

    def test_the_same_number_written_otherwise_is_the_same_cell(self) -> None:
        """1 and 1.0 are one value."""
        whole, broken = (plan_cells(Plan("wine", {"protocol.P0": (p,)})) for p in (1, 1.0))
        assert [(cell.name, cell.seed) for cell in whole] == [
            (cell.name, cell.seed) for cell in broken
        ]

    def test_come_from_the_sweeps_else_the_scenarios_else_zero(self) -> None:
        """A seed that is given goes first."""
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
    def test_is_memory_unless_told_otherwise(
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
def test_a_plan_that_cannot_be_is_refused(plan: Plan, key: str, allowed: str) -> None:
    """Every point's scenario is checked, and the mistake names its key and what is allowed."""
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
def test_what_only_the_data_can_tell_is_checked_too(grid: str, key: str) -> None:
    """The first value can be, the second cannot."""
    right, wrong = plan_cells(Plan("wine", parse_grid([grid])))
    check_cell(right)
    with pytest.raises(ScenarioError) as caught:
        check_cell(wrong)
    assert caught.value.field == key


class TestRunning:
    """The result of a cell."""

    def test_is_the_report_of_the_scenario_with_the_cells_seed(self) -> None:
        """All scalars of the report are there, by the same values, and none of the machine's."""
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

    def test_seconds_are_apart(self) -> None:
        """The whole cell takes as long as its clock says."""
        ticks = iter(range(100))
        outcome = run_cell(plan_cells(PLAN)[0], clock=lambda: float(next(ticks)))
        assert outcome.timing == {"cell_seconds": 4.0, "seconds": 1.0, "start_seconds": 1.0}
