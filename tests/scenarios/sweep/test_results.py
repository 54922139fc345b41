"""The content of a sweep's files."""

import json
from pathlib import Path

from tests.scenarios.sweep.plans import GRID, IN_PROCESS, SMALL, names_in, read_frame
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.scenarios.sweep import Plan, parse_grid, run_sweep


class TestResults:
    """The content of a sweep's files."""

    def test_a_row_per_cell_in_the_grids_order(self, alone: Path) -> None:
        """The grid's columns come first, then trial and seed, then the report's scalars."""
        frame = read_frame(alone)
        assert frame.columns[:4] == ["protocol.rounds", "parties.count", "trial", "seed"]
        assert frame.rows()[0][:3] == (1, 3, 0)
        key = frame.select("protocol.rounds", "parties.count", "trial")
        assert key.equals(key.sort("protocol.rounds", "parties.count", "trial"))
        assert (frame["rounds"] == frame["protocol.rounds"]).all()
        assert (frame["parties"] == frame["parties.count"]).all()
        assert (frame["cost.messages"] == frame["forecast.messages"]).all()
        assert frame["transcript"].n_unique() == len(frame) == 24

    def test_wall_seconds_are_in_a_separate_file(self, alone: Path) -> None:
        """It has the same rows; no journal and no draft are left."""
        timing = read_frame(alone.with_name("out.timing.parquet"))
        assert len(timing) == 24
        assert (timing["cell_seconds"] > timing["seconds"]).all()
        assert names_in(alone.parent) == {"out.parquet", "out.timing.parquet"}

    def test_each_row_equals_the_run_with_its_seed(self, alone: Path) -> None:
        """A single cell can be repeated by `veilring run`."""
        row = read_frame(alone).row(5, named=True)
        settings = [f"{key}={row[key]}" for key in GRID]
        arguments = [part for each in (*SMALL, *settings) for part in ("--set", each)]
        command = ["run", "wine", "--json", "--runtime", "memory", "--seed", str(row["seed"])]
        report = json.loads(CliRunner().invoke(app, [*command, *arguments]).stdout)
        assert report["transcript"] == row["transcript"]

    def test_values_of_only_some_cells_are_null_in_others(self, tmp_path: Path) -> None:
        """Columns of numbers and words keep words; leakage is present if estimated."""
        grid = parse_grid(["run.leakage_trials=0,20", 'protocol.rounds=1,"auto"'])
        plan = Plan("wine", grid, overrides=("data.queries=5", "parties.count=3"))
        frame = read_frame(
            run_sweep(plan, tmp_path / "out.parquet", engine=IN_PROCESS).files.results
        )
        assert frame["protocol.rounds"].to_list() == ["1", "auto"] * 2
        exposure = frame["leakage.exposure.value"].is_not_null().to_list()
        assert exposure == [False, False, True, True]

    def test_the_simulated_clock_gives_simulated_seconds(self, tmp_path: Path) -> None:
        """They are reproducible, so they are results."""
        plan = Plan("wine", {"parties.count": (3,)}, 1, SMALL, runtime="simulated")
        first, second = (
            run_sweep(plan, tmp_path / f"{n}.parquet", engine=IN_PROCESS).files.results
            for n in (1, 2)
        )
        assert first.read_bytes() == second.read_bytes()
        assert read_frame(first)["simulated_seconds"][0] > 0
