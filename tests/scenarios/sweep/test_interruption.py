"""Finished cells of a sweep survive any number of interruptions."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.scenarios.sweep.plans import IN_PROCESS, PLAN, SMALL, TINY, names_in

from veilring.errors import InputError, RunFailed, ScenarioError, SweepFailed
from veilring.scenarios.report import Report
from veilring.scenarios.runner import run_scenario
from veilring.scenarios.schema import Scenario
from veilring.scenarios.sweep import Plan, run_sweep
from veilring.scenarios.sweep import cells as cells_module


class TestInterruption:
    """Finished cells stay finished."""

    def test_a_failed_cell_is_named_and_the_others_are_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A repeated call runs only that cell."""
        out, ran = tmp_path / "out.parquet", list[int]()
        failing = {4}

        def run(scenario: Scenario, *, seed: int, clock: Callable[[], float]) -> Report:
            parties = len(scenario.parties.all)
            if parties in failing:
                raise RunFailed({"party-0": InputError("its field", "wrong", "right")})
            ran.append(parties)
            return run_scenario(scenario, seed=seed, clock=clock)

        monkeypatch.setattr(cells_module, "run_scenario", run)
        with pytest.raises(SweepFailed) as caught:
            run_sweep(TINY, out, engine=IN_PROCESS)
        assert set(caught.value.failures) == {f"parties.count=4 trial={n}" for n in (0, 1)}
        assert (caught.value.kept, caught.value.total) == (4, 6)
        assert "parties.count=4 trial=0: party-0: its field is 'wrong'" in str(caught.value)
        assert names_in(tmp_path) == {"out.parquet.journal"}
        failing.clear()
        done = run_sweep(TINY, out, engine=IN_PROCESS)
        assert (done.kept, ran) == (4, [3, 3, 5, 5, 4, 4])

    def test_an_error_of_the_code_names_the_cell(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error keeps its traceback, with the cell and its seed."""

        def run(*_: object, **__: object) -> Report:
            raise ZeroDivisionError

        monkeypatch.setattr(cells_module, "run_scenario", run)
        with pytest.raises(ZeroDivisionError) as caught:
            run_sweep(TINY, tmp_path / "out.parquet", engine=IN_PROCESS)
        assert "parties.count=3 trial=0 (seed " in caught.value.__notes__[0]
        assert names_in(tmp_path) == set()

    def test_a_mistake_of_any_cell_is_reported_before_one_runs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """This includes mistakes that depend on the data; no file is left."""
        monkeypatch.delattr(cells_module, "run_scenario")
        plan = Plan("wine", {"protocol.k": (3, 500)}, 2, SMALL)
        with pytest.raises(ScenarioError, match="rows of all parties"):
            run_sweep(plan, tmp_path / "out.parquet", engine=IN_PROCESS)
        assert names_in(tmp_path) == set()

    def test_existing_results_are_not_overwritten(self, alone: Path) -> None:
        """Existing results are overwritten neither by another sweep nor by an equal one."""
        before = alone.read_bytes()
        with pytest.raises(InputError, match="exists"):
            run_sweep(PLAN, alone, engine=IN_PROCESS)
        assert alone.read_bytes() == before

    def test_a_death_between_results_and_journal_is_repaired(self, tmp_path: Path) -> None:
        """After a death with a full journal, the results are written and no cell runs."""
        out = tmp_path / "out.parquet"
        journal = _journal_of(TINY, out)
        first = out.read_bytes()
        (tmp_path / "out.parquet.journal").write_bytes(journal)
        done = run_sweep(TINY, out, engine=IN_PROCESS)
        assert done.kept == len(done.cells) == 6
        assert out.read_bytes() == first
        assert names_in(tmp_path) == {"out.parquet", "out.timing.parquet"}

    @pytest.mark.parametrize("where", ["folder", "out.csv", "file/out.parquet"])
    def test_an_invalid_path_is_refused(self, where: str, tmp_path: Path) -> None:
        """The path must end in .parquet, and its folder must exist."""
        (tmp_path / "file").touch()
        with pytest.raises(InputError, match=r"ends in \.parquet"):
            run_sweep(TINY, tmp_path / where, engine=IN_PROCESS)


def _journal_of(plan: Plan, out: Path) -> bytes:
    """Run a sweep and return the journal's content after the last cell."""
    seen: list[bytes] = []

    def watch(_doing: str, done: int, total: int) -> None:
        if done == total:
            seen.append(out.with_name(f"{out.name}.journal").read_bytes())

    run_sweep(plan, out, engine=IN_PROCESS, progress=watch)
    return seen[-1]
