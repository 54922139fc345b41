"""Sweeps: their files, their journal, their command, and interruptions."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.cli.invoking import invoke
from tests.deployment.commands import SECONDS
from tests.scenarios.sweep.plans import GRID, IN_PROCESS, PLAN, SMALL, TINY, names_in, read_frame
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.errors import InputError, RunFailed, ScenarioError, SweepFailed
from veilring.nodes.node import Node
from veilring.scenarios.report import Report
from veilring.scenarios.runner import run_scenario
from veilring.scenarios.schema import Scenario
from veilring.scenarios.sweep import Plan, parse_grid, run_sweep
from veilring.scenarios.sweep import cells as cells_module
from veilring.scenarios.sweep.cells import CellOutcome
from veilring.scenarios.sweep.run import SYNC_SECONDS, open_journal


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
        command = ("run", "wine", "--json", "--runtime", "memory", "--seed", str(row["seed"]))
        report = json.loads(invoke(*command, *arguments)[1])
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


SWEEP = {"scenario": "wine", "grid": {"protocol.k": [1, 2]}}
FIRST, SECOND = (
    CellOutcome(name, {"accuracy": 0.1 + 0.2, "label": "é\n"}, {"seconds": 1e-9})
    for name in ("first", "second")
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the journal."""
    return tmp_path / "out.parquet.journal"


def _append(path: Path, *outcomes: CellOutcome) -> None:
    with open_journal(path, SWEEP) as journal:
        for outcome in outcomes:
            journal.append(outcome)


def test_returns_its_cells_exactly(path: Path) -> None:
    """A journal returns its cells to the last bit, over several calls."""
    _append(path, FIRST)
    _append(path, SECOND)
    with open_journal(path, SWEEP) as journal:
        assert journal.outcomes == {"first": FIRST, "second": SECOND}


def test_a_line_is_in_the_file_before_the_next_cell(path: Path) -> None:
    """No line waits in the process until the file is closed."""
    with open_journal(path, SWEEP) as journal:
        journal.append(FIRST)
        assert len(path.read_bytes().splitlines()) == 2


def test_the_disk_is_synchronised_periodically(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only lines at least `SYNC_SECONDS` after the last synchronisation wait for the disk."""
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    now = 0.0
    with open_journal(path, SWEEP, clock=lambda: now) as journal:
        synced.clear()
        journal.append(FIRST)
        now += SYNC_SECONDS / 2
        journal.append(SECOND)
        assert synced == []
        now += SYNC_SECONDS / 2
        journal.append(FIRST)
        assert len(synced) == 1


@pytest.mark.parametrize("lost", [1, 2, 20])
def test_a_torn_last_line_is_cut_off(path: Path, lost: int) -> None:
    """Complete lines stay, and appended lines are complete."""
    _append(path, FIRST, SECOND)
    path.write_bytes(path.read_bytes()[:-lost])
    with open_journal(path, SWEEP) as journal:
        assert set(journal.outcomes) == {"first"}
        journal.append(SECOND)
    with open_journal(path, SWEEP) as journal:
        assert journal.outcomes == {"first": FIRST, "second": SECOND}


def test_another_sweeps_journal_is_refused_unchanged(path: Path) -> None:
    """The error names the argument."""
    _append(path, FIRST)
    before = path.read_bytes()
    other = {**SWEEP, "grid": {"protocol.k": [1, 3]}}
    with (
        pytest.raises(InputError, match=r"grid is .*2.* not .*3") as caught,
        open_journal(path, other),
    ):
        pass
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_a_journal_without_a_cell_is_replaced(path: Path) -> None:
    """A journal without a cell is replaced, because its sweep died before the first one."""
    path.write_text(json.dumps(SWEEP) + "\n")
    with open_journal(path, {"scenario": "digits"}) as journal:
        journal.append(FIRST)
    assert json.loads(path.read_text().splitlines()[0]) == {"scenario": "digits"}


def test_an_empty_journal_is_removed(path: Path) -> None:
    """No cell was stored, so no file is left."""
    with open_journal(path, SWEEP):
        assert path.exists()
    assert not path.exists()


@pytest.mark.parametrize("line", [b"nonsense", b"[1]", b'{"cell": "first"}', b"\xff"])
def test_a_damaged_line_is_reported_without_loss(path: Path, line: bytes) -> None:
    """Only the last line can be torn; an earlier one was damaged by another program."""
    _append(path, FIRST, SECOND)
    header, _, last = path.read_bytes().splitlines()
    damaged = b"\n".join([header, line, last, b""])
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="line 2"), open_journal(path, SWEEP):
        pass
    assert path.read_bytes() == damaged


def test_two_sweeps_cannot_share_one(path: Path) -> None:
    """The second is refused while the first writes, and the first continues."""
    with open_journal(path, SWEEP) as journal:
        with pytest.raises(InputError, match="is locked"), open_journal(path, SWEEP):
            pass
        journal.append(FIRST)
    with open_journal(path, SWEEP) as journal:
        assert set(journal.outcomes) == {"first"}


class TestCommand:
    """`veilring sweep`."""

    def test_prints_the_files_written(self, tmp_path: Path) -> None:
        """The command prints the files written, and no progress unless it runs in a terminal."""
        out = tmp_path / "new" / "out.parquet"
        settings = [part for each in SMALL for part in ("--set", each)]
        grid = ("--grid", "parties.count=3,4", "--trials", "2", "--workers", "1")
        command = ["sweep", "wine", *grid, *settings, "--out", str(out)]
        done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
        first, *_, last = done.stderr.splitlines()
        assert (first, last) == ("Checking the cells: 0 of 2", "Running the cells: 4 of 4")
        assert done.stdout.splitlines()[0] == f"4 runs; results written to {out}"
        assert len(read_frame(out)) == 4

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            (("--grid", "protocol.rounds=6..1"), "protocol.rounds is '6..1'; allowed: a range"),
            (("--grid", "protocol.round=1"), "did you mean rounds?"),
            (("--grid", "protocol.k=1", "--engine", "cloud"), "local, dask, ray"),
            (("--grid", "protocol.k=1", "--runtime", "tls"), "memory or simulated"),
            ((), "--grid"),
        ],
    )
    def test_wrong_input_exits_with_two(
        self, arguments: tuple[str, ...], named: str, tmp_path: Path
    ) -> None:
        """Standard error has the allowed values and no traceback, and no file is created."""
        code, out, err = invoke("sweep", "wine", *arguments, "--out", tmp_path / "out.parquet")
        assert (code, out) == (2, "")
        assert named in err
        assert "Traceback" not in err
        assert names_in(tmp_path) == set()

    def test_a_failed_cell_exits_with_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One paragraph names the cell and the location of the finished ones."""
        monkeypatch.setattr(Node, "_dispatch", lambda *_: None)
        grid = ("--grid", "parties.count=3", "--runtime", "simulated", "--workers", "1")
        code, out, err = invoke("sweep", "wine", *grid, "--out", tmp_path / "out.parquet")
        assert (code, out) == (1, "")
        assert err.startswith("veilring: parties.count=3 trial=0: ")
        assert "0 of 1 cells are kept" in err


STOPPED = Plan("wine", parse_grid(["parties.count=5,8"]), 8, SMALL)
OPTIONS = ("--grid", "parties.count=5,8", "--trials", "8", "--workers", "2")
KEPT = 6
# The command, which waits for a signal after storing this number of cells, so that it cannot end
# before the signal on a busy machine. Nor does it print progress, as a busy machine would make it.
WAITING = f"""
import math
import signal
from veilring.cli import console, main
from veilring.scenarios.sweep.run import SweepJournal

append = SweepJournal.append

def append_and_wait(journal, outcome):
    append(journal, outcome)
    if len(journal.outcomes) == {KEPT}:
        signal.pause()

SweepJournal.append = append_and_wait
console.PROGRESS_SECONDS = math.inf
main()
"""


def _end(out: Path, number: signal.Signals) -> tuple[int, str]:
    """Start a sweep in a separate process, and end it after it has stored some cells.

    Returns:
        Its exit code, and its standard error: a file, as workers may keep it open longer.
    """
    settings = [part for each in SMALL for part in ("--set", each)]
    command = [sys.executable, "-c", WAITING, "sweep", "wine", *OPTIONS, *settings]
    errors = out.with_suffix(".err")
    with (
        errors.open("w") as stderr,
        subprocess.Popen([*command, "--out", str(out)], stderr=stderr) as process,
    ):
        deadline = time.monotonic() + SECONDS
        try:
            while len(_lines_of(out)) <= KEPT and process.poll() is None:  # and a header
                assert time.monotonic() < deadline, errors.read_text()
                time.sleep(0.01)
            process.send_signal(number)
            return process.wait(SECONDS), errors.read_text()
        finally:
            process.kill()


def _lines_of(out: Path) -> Sequence[bytes]:
    journal = out.with_name(f"{out.name}.journal")
    return journal.read_bytes().splitlines() if journal.exists() else []


def _go_on(out: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Run the rest of that sweep here; return the seeds of the cells that were run."""
    seeds: list[int] = []

    def run(scenario: Scenario, *, seed: int, clock: Callable[[], float]) -> Report:
        seeds.append(seed)
        return run_scenario(scenario, seed=seed, clock=clock)

    monkeypatch.setattr(cells_module, "run_scenario", run)
    done = run_sweep(STOPPED, out, engine=IN_PROCESS)
    assert done.kept + len(seeds) == len(done.cells) == 16
    return seeds


class TestProcesses:
    """Real processes and their ends."""

    @pytest.mark.slow
    def test_after_kill_9_no_cell_is_run_twice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Cells in the journal are not run again, and the file has the whole sweep."""
        out = tmp_path / "out.parquet"
        code, err = _end(out, signal.SIGKILL)
        assert code == -signal.SIGKILL
        assert "Traceback" not in err
        journal = out.with_name("out.parquet.journal").read_bytes()
        whole = journal[: journal.rfind(b"\n")].splitlines()[1:]
        kept = {entry["cell"]: entry["timing"] for entry in map(json.loads, whole)}
        assert len(kept) == KEPT
        seeds = _go_on(out, monkeypatch)
        assert len(set(seeds)) == len(seeds) == 16 - len(kept)
        rows = read_frame(out)
        names = [f"parties.count={p} trial={t}" for p, t in rows.select(rows.columns[:2]).rows()]
        ran = {name for name, seed in zip(names, rows["seed"], strict=True) if seed in seeds}
        assert ran == set(names) - set(kept)
        for name, timing in zip(
            names, read_frame(out.with_name("out.timing.parquet")).rows(named=True), strict=True
        ):
            if name in kept:  # exactly the measurements of the killed process
                assert timing.items() >= kept[name].items()
        other = tmp_path / "other.parquet"
        run_sweep(STOPPED, other, engine=IN_PROCESS)
        assert out.read_bytes() == other.read_bytes()

    @pytest.mark.slow
    def test_ctrl_c_shows_how_to_continue(self, tmp_path: Path) -> None:
        """It exits with 130 without a traceback, and leaves the journal."""
        out = tmp_path / "out.parquet"
        code, err = _end(out, signal.SIGINT)
        assert code == 130
        assert "\nveilring: stopped; finished runs are in " in err
        assert "Traceback" not in err
        assert err.endswith("Repeat the command to continue.\n")
        assert len(_lines_of(out)) == 1 + KEPT
        assert not out.exists()
