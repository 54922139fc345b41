"""Sweeps: the same file wherever they run and however often they are interrupted."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.errors import InputError, RunFailed, ScenarioError, SweepFailed
from veilring.nodes.node import Node
from veilring.scenarios.report import Report
from veilring.scenarios.runner import run_scenario
from veilring.scenarios.schema import Scenario
from veilring.scenarios.sweep import Engine, Plan, parse_grid, run_sweep
from veilring.scenarios.sweep import cells as cells_module
from veilring.scenarios.sweep.dask_backend import local_cluster

SMALL = ("data.queries=5", "run.leakage_trials=0")
GRID = parse_grid(["protocol.rounds=1..4", "parties.count=3,5,8"])
PLAN = Plan("wine", GRID, 2, SMALL)
TINY = Plan("wine", parse_grid(["parties.count=3..5"]), 2, SMALL)
IN_PROCESS = Engine(workers=1)

# Eight quick cells, then eight that take 0.2 s each: time to end a process that has done the first.
SLOW = Plan("wine", parse_grid(["parties.count=5,60"]), 8, SMALL)
SLOW_OPTIONS = ("--grid", "parties.count=5,60", "--trials", "8", "--workers", "2")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of a sweep in one process."""
    out = tmp_path_factory.mktemp("alone") / "out.parquet"
    run_sweep(PLAN, out, engine=IN_PROCESS)
    return out


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Give the address of a Dask cluster of two processes."""
    with local_cluster(2) as address:
        yield address


def _frame(path: Path) -> pl.DataFrame:
    return pl.read_parquet(path)


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class TestEngines:
    """24 cells, in one process, in two, on Dask, and on Ray."""

    def test_two_processes_give_the_same_bytes(self, alone: Path, tmp_path: Path) -> None:
        """Nothing of where a cell ran, or when, is in the results."""
        done = run_sweep(PLAN, tmp_path / "two.parquet", engine=Engine(workers=2))
        assert done.files.results.read_bytes() == alone.read_bytes()

    def test_a_dask_cluster_gives_the_same_bytes(
        self, alone: Path, tmp_path: Path, scheduler: str
    ) -> None:
        """Nor on a cluster that is there already."""
        engine = Engine("dask", dask_address=scheduler)
        done = run_sweep(PLAN, tmp_path / "dask.parquet", engine=engine)
        assert done.files.results.read_bytes() == alone.read_bytes()

    def test_dask_on_this_machine_gives_the_same_bytes(self, alone: Path, tmp_path: Path) -> None:
        """Nor on one that the sweep starts and stops itself."""
        engine = Engine("dask", workers=2)
        done = run_sweep(PLAN, tmp_path / "dask.parquet", engine=engine)
        assert done.files.results.read_bytes() == alone.read_bytes()

    @pytest.mark.timeout(120)
    def test_ray_on_this_machine_gives_the_same_bytes(self, alone: Path, tmp_path: Path) -> None:
        """Nor on Ray, where that is installed."""
        pytest.importorskip("ray", reason="Ray is an extra that not every Python has a wheel of")
        done = run_sweep(PLAN, tmp_path / "ray.parquet", engine=Engine("ray", workers=2))
        assert done.files.results.read_bytes() == alone.read_bytes()


class TestResults:
    """What the files hold."""

    def test_a_row_a_cell_in_the_grids_order(self, alone: Path) -> None:
        """The grid's columns come first, then trial and seed, then the report's scalars."""
        frame = _frame(alone)
        assert frame.columns[:4] == ["protocol.rounds", "parties.count", "trial", "seed"]
        assert frame.rows()[0][:3] == (1, 3, 0)
        key = frame.select("protocol.rounds", "parties.count", "trial")
        assert key.equals(key.sort("protocol.rounds", "parties.count", "trial"))
        assert (frame["rounds"] == frame["protocol.rounds"]).all()
        assert (frame["parties"] == frame["parties.count"]).all()
        assert (frame["cost.messages"] == frame["forecast.messages"]).all()
        assert frame["transcript"].n_unique() == len(frame) == 24

    def test_wall_seconds_are_in_a_file_of_their_own(self, alone: Path) -> None:
        """It has the same rows; no journal and no draft are left."""
        timing = _frame(alone.with_name("out.timing.parquet"))
        assert len(timing) == 24
        assert (timing["cell_seconds"] > timing["seconds"]).all()
        assert _files(alone.parent) == {"out.parquet", "out.timing.parquet"}

    def test_each_row_is_the_run_with_its_seed(self, alone: Path) -> None:
        """A single cell can be repeated by `veilring run`."""
        row = _frame(alone).row(5, named=True)
        settings = [f"{key}={row[key]}" for key in GRID]
        arguments = [part for each in (*SMALL, *settings) for part in ("--set", each)]
        command = ["run", "wine", "--json", "--runtime", "memory", "--seed", str(row["seed"])]
        report = json.loads(CliRunner().invoke(app, [*command, *arguments]).stdout)
        assert report["transcript"] == row["transcript"]

    def test_what_only_some_cells_have_is_null_in_others(self, tmp_path: Path) -> None:
        """Columns of numbers and words hold words; leakage is there where it was estimated."""
        grid = parse_grid(["run.leakage_trials=0,20", 'protocol.rounds=1,"auto"'])
        plan = Plan("wine", grid, overrides=("data.queries=5", "parties.count=3"))
        frame = _frame(run_sweep(plan, tmp_path / "out.parquet", engine=IN_PROCESS).files.results)
        assert frame["protocol.rounds"].to_list() == ["1", "auto"] * 2
        exposure = frame["leakage.exposure.value"].is_not_null().to_list()
        assert exposure == [False, False, True, True]

    def test_the_simulated_clock_gives_simulated_seconds(self, tmp_path: Path) -> None:
        """They are the same each time, and so they are results."""
        plan = Plan("wine", {"parties.count": (3,)}, 1, SMALL, runtime="simulated")
        first, second = (
            run_sweep(plan, tmp_path / f"{n}.parquet", engine=IN_PROCESS).files.results
            for n in (1, 2)
        )
        assert first.read_bytes() == second.read_bytes()
        assert _frame(first)["simulated_seconds"][0] > 0


class TestInterruption:
    """What is finished stays finished."""

    def test_a_failed_cell_is_named_and_the_others_are_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The same call afterwards runs that cell and no other."""
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
        assert "parties.count=4 trial=0: party-0: its field is wrong" in str(caught.value)
        assert _files(tmp_path) == {"out.parquet.journal"}
        failing.clear()
        done = run_sweep(TINY, out, engine=IN_PROCESS)
        assert (done.kept, ran) == (4, [3, 3, 5, 5, 4, 4])

    def test_an_error_of_the_code_names_the_cell(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It keeps its trace, and with it goes which cell and seed it was."""

        def run(*_: object, **__: object) -> Report:
            raise ZeroDivisionError

        monkeypatch.setattr(cells_module, "run_scenario", run)
        with pytest.raises(ZeroDivisionError) as caught:
            run_sweep(TINY, tmp_path / "out.parquet", engine=IN_PROCESS)
        assert "parties.count=3 trial=0 (seed " in caught.value.__notes__[0]
        assert _files(tmp_path) == set()

    def test_a_mistake_of_any_cell_is_told_before_one_runs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Even one that only the data can tell; and no file is left."""
        monkeypatch.delattr(cells_module, "run_scenario")
        plan = Plan("wine", {"protocol.k": (3, 500)}, 2, SMALL)
        with pytest.raises(ScenarioError, match="rows of all parties"):
            run_sweep(plan, tmp_path / "out.parquet", engine=IN_PROCESS)
        assert _files(tmp_path) == set()

    def test_results_that_are_there_are_not_overwritten(self, alone: Path) -> None:
        """Neither by another sweep nor by the same."""
        before = alone.read_bytes()
        with pytest.raises(InputError, match="exists"):
            run_sweep(PLAN, alone, engine=IN_PROCESS)
        assert alone.read_bytes() == before

    def test_a_death_between_results_and_journal_is_made_good(self, tmp_path: Path) -> None:
        """With a full journal beside them the results are written once more, and no cell runs."""
        out = tmp_path / "out.parquet"
        journal = _journal_of(TINY, out)
        first = out.read_bytes()
        (tmp_path / "out.parquet.journal").write_bytes(journal)
        done = run_sweep(TINY, out, engine=IN_PROCESS)
        assert done.kept == len(done.cells) == 6
        assert out.read_bytes() == first
        assert _files(tmp_path) == {"out.parquet", "out.timing.parquet"}

    @pytest.mark.parametrize("where", ["folder", "out.csv", "file/out.parquet"])
    def test_a_place_that_cannot_be_is_refused(self, where: str, tmp_path: Path) -> None:
        """It has to end in .parquet, and its folder has to be one."""
        (tmp_path / "file").touch()
        with pytest.raises(InputError, match=r"ends in \.parquet"):
            run_sweep(TINY, tmp_path / where, engine=IN_PROCESS)


def _journal_of(plan: Plan, out: Path) -> bytes:
    """Run a sweep and return what its journal held when the last cell was done."""
    seen: list[bytes] = []

    def watch(_doing: str, done: int, total: int) -> None:
        if done == total:
            seen.append(out.with_name(f"{out.name}.journal").read_bytes())

    run_sweep(plan, out, engine=IN_PROCESS, progress=watch)
    return seen[-1]


def _end(out: Path, number: signal.Signals) -> tuple[int, str]:
    """Start a sweep in a process of its own, and end it when it has kept some cells.

    Returns:
        Its exit code, and what it wrote to standard error: a file, as workers may hold it longer.
    """
    settings = [part for each in SMALL for part in ("--set", each)]
    command = [sys.executable, "-m", "veilring", "sweep", "wine", *SLOW_OPTIONS, *settings]
    errors = out.with_suffix(".err")
    with (
        errors.open("w") as stderr,
        subprocess.Popen([*command, "--out", str(out)], stderr=stderr) as process,  # noqa: S603  (our own program)
    ):
        deadline = time.monotonic() + 60
        while len(_lines(out)) < 6 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        return process.wait(timeout=60), errors.read_text()


def _lines(out: Path) -> Sequence[bytes]:
    journal = out.with_name(f"{out.name}.journal")
    return journal.read_bytes().splitlines() if journal.exists() else []


def _go_on(out: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Run the rest of that sweep here; return the seeds of the cells that were run."""
    seeds: list[int] = []

    def run(scenario: Scenario, *, seed: int, clock: Callable[[], float]) -> Report:
        seeds.append(seed)
        return run_scenario(scenario, seed=seed, clock=clock)

    monkeypatch.setattr(cells_module, "run_scenario", run)
    done = run_sweep(SLOW, out, engine=IN_PROCESS)
    assert done.kept + len(seeds) == len(done.cells) == 16
    return seeds


class TestProcesses:
    """Real processes, and what ends them."""

    def test_after_kill_9_no_cell_is_run_twice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Cells that were in the journal are not run again, and the file is the whole sweep's."""
        out = tmp_path / "out.parquet"
        assert _end(out, signal.SIGKILL) == (-signal.SIGKILL, "")
        journal = out.with_name("out.parquet.journal").read_bytes()
        whole = journal[: journal.rfind(b"\n")].splitlines()[1:]
        kept = {entry["cell"]: entry["timing"] for entry in map(json.loads, whole)}
        assert 5 <= len(kept) < 16
        seeds = _go_on(out, monkeypatch)
        assert len(set(seeds)) == len(seeds) == 16 - len(kept)
        rows = _frame(out)
        names = [f"parties.count={p} trial={t}" for p, t in rows.select(rows.columns[:2]).rows()]
        ran = {name for name, seed in zip(names, rows["seed"], strict=True) if seed in seeds}
        assert ran == set(names) - set(kept)
        for name, timing in zip(
            names, _frame(out.with_name("out.timing.parquet")).rows(named=True), strict=True
        ):
            if name in kept:  # to the bit what the process that was killed had measured
                assert timing.items() >= kept[name].items()
        other = tmp_path / "other.parquet"
        run_sweep(SLOW, other, engine=IN_PROCESS)
        assert out.read_bytes() == other.read_bytes()

    def test_ctrl_c_says_how_to_go_on(self, tmp_path: Path) -> None:
        """It exits with 130, without a trace, and leaves the journal."""
        out = tmp_path / "out.parquet"
        code, err = _end(out, signal.SIGINT)
        assert code == 130
        assert err.startswith("veilring: stopped; what is finished is in ")
        assert err.endswith("The same command goes on from there.\n")
        assert 6 <= len(_lines(out)) < 16
        assert not out.exists()


class TestCommand:
    """`veilring sweep`."""

    @staticmethod
    def _sweep(*arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(
            app, ["sweep", *arguments], env={"COLUMNS": "200", "VEILRING_DEBUG": ""}
        )
        return result.exit_code, result.stdout, result.stderr

    def test_says_what_it_wrote(self, tmp_path: Path) -> None:
        """And nothing on standard error, where nobody watches."""
        out = tmp_path / "new" / "out.parquet"
        settings = [part for each in SMALL for part in ("--set", each)]
        grid = ("--grid", "parties.count=3,4", "--trials", "2", "--workers", "1")
        code, text, err = self._sweep("wine", *grid, *settings, "--out", str(out))
        assert (code, err) == (0, "")
        assert text.splitlines()[0] == f"4 runs: {out}"
        assert len(_frame(out)) == 4

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            (("--grid", "protocol.rounds=6..1"), "protocol.rounds is 6..1; allowed: a range"),
            (("--grid", "protocol.round=1"), "did you mean rounds?"),
            (("--grid", "protocol.k=1", "--engine", "cloud"), "local, dask, ray"),
            (("--grid", "protocol.k=1", "--runtime", "tls"), "memory or simulated"),
            ((), "--grid"),
        ],
    )
    def test_wrong_input_exits_with_two(
        self, arguments: tuple[str, ...], named: str, tmp_path: Path
    ) -> None:
        """What is allowed is on standard error, no trace is, and no file is made."""
        code, out, err = self._sweep("wine", *arguments, "--out", str(tmp_path / "out.parquet"))
        assert (code, out) == (2, "")
        assert named in err
        assert "Traceback" not in err
        assert _files(tmp_path) == set()

    def test_a_failed_cell_exits_with_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One paragraph names the cell and says where the others are."""
        monkeypatch.setattr(Node, "_dispatch", lambda *_: None)
        grid = ("--grid", "parties.count=3", "--runtime", "simulated", "--workers", "1")
        code, out, err = self._sweep("wine", *grid, "--out", str(tmp_path / "out.parquet"))
        assert (code, out) == (1, "")
        assert err.startswith("veilring: parties.count=3 trial=0: ")
        assert "0 of 1 cells are kept" in err
