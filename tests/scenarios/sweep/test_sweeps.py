"""Sweeps: their files, journal, command, engines, and interruptions."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import dask
import polars as pl
import pytest
from tests.cli.invoking import invoke
from tests.deployment.commands import SECONDS
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.errors import (
    ClusterError,
    InputError,
    MissingExtra,
    RunFailed,
    ScenarioError,
    SweepFailed,
)
from veilring.nodes.node import Node
from veilring.scenarios.report import Report
from veilring.scenarios.runner import run_scenario
from veilring.scenarios.schema import Scenario
from veilring.scenarios.sweep import SYNC_SECONDS, Engine, Plan, open_journal, parse_grid, run_sweep
from veilring.scenarios.sweep import cells as cells_module
from veilring.scenarios.sweep.cells import CellOutcome
from veilring.scenarios.sweep.dask_backend import local_cluster
from veilring.scenarios.sweep.engine import each_done

SMALL = ("data.queries=5", "run.leakage_trials=0")
SET_SMALL = [part for each in SMALL for part in ("--set", each)]
GRID = parse_grid(["protocol.rounds=1..4", "parties.count=3,5,8"])
PLAN = Plan("wine", GRID, 2, SMALL)
TINY = Plan("wine", parse_grid(["parties.count=3..5"]), 2, SMALL)
IN_PROCESS = Engine(workers=1)


def names_in(folder: Path) -> set[str]:
    """Return the names of the files in a folder."""
    return {path.name for path in folder.iterdir()}


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of a sweep in one process, which no test may change."""
    out = tmp_path_factory.mktemp("alone") / "out.parquet"
    run_sweep(PLAN, out, engine=IN_PROCESS)
    return out


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return the path of a test's own results."""
    return tmp_path / "out.parquet"


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Return the address of a Dask cluster that gives up a task when its worker dies."""
    given_up = {"distributed.scheduler.allowed-failures": 0}
    with dask.config.set(given_up), local_cluster(2) as address:
        yield address


def test_a_row_per_cell_in_the_grids_order(alone: Path) -> None:
    """A cell's point, trial and seed precede its report; its times are the same row elsewhere."""
    frame = pl.read_parquet(alone)
    assert frame.columns[:4] == ["protocol.rounds", "parties.count", "trial", "seed"]
    assert frame.rows()[0][:3] == (1, 3, 0)
    key = frame.select("protocol.rounds", "parties.count", "trial")
    assert key.equals(key.sort("protocol.rounds", "parties.count", "trial"))
    for one, other in (
        ("rounds", "protocol.rounds"),
        ("parties", "parties.count"),
        ("cost.messages", "forecast.messages"),
    ):
        assert (frame[one] == frame[other]).all()
    assert frame["transcript"].n_unique() == len(frame) == 24
    timing = pl.read_parquet(alone.with_name("out.timing.parquet"))
    assert len(timing) == 24
    assert (timing["cell_seconds"] > timing["seconds"]).all()
    assert names_in(alone.parent) == {"out.parquet", "out.timing.parquet"}


def test_each_row_equals_the_run_with_its_seed(alone: Path) -> None:
    """A single cell can be repeated by `veilring run`."""
    row = pl.read_parquet(alone).row(5, named=True)
    settings = [part for key in GRID for part in ("--set", f"{key}={row[key]}")]
    command = ("run", "wine", "--json", "--runtime", "memory", "--seed", str(row["seed"]))
    report = json.loads(invoke(*command, *SET_SMALL, *settings)[1])
    for name in ("transcript", "accuracy", "agreement", "rounds"):
        assert report[name] == row[name]
    assert report["cost"]["messages"] == row["cost.messages"]


def test_values_of_only_some_cells_are_null_in_others(out: Path) -> None:
    """Columns of numbers and words keep words; leakage is present if estimated."""
    grid = parse_grid(["run.leakage_trials=0,20", 'protocol.rounds=1,"auto"'])
    plan = Plan("wine", grid, overrides=("data.queries=5", "parties.count=3"))
    run_sweep(plan, out, engine=IN_PROCESS)
    frame = pl.read_parquet(out)
    assert frame["protocol.rounds"].to_list() == ["1", "auto"] * 2
    exposure = frame["leakage.exposure.value"].is_not_null().to_list()
    assert exposure == [False, False, True, True]


def test_the_simulated_clock_gives_simulated_seconds(tmp_path: Path) -> None:
    """They are reproducible, so they are results."""
    plan = Plan("wine", {"parties.count": (3,)}, 1, SMALL, runtime="simulated")
    first, second = (tmp_path / f"{n}.parquet" for n in (1, 2))
    for each in (first, second):
        run_sweep(plan, each, engine=IN_PROCESS)
    assert first.read_bytes() == second.read_bytes()
    assert pl.read_parquet(first)["simulated_seconds"][0] > 0


def test_a_failed_cell_is_named_and_the_others_are_kept(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated call runs only that cell."""
    failing, ran = {4}, list[int]()

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
    assert names_in(out.parent) == {"out.parquet.journal"}
    failing.clear()
    done = run_sweep(TINY, out, engine=IN_PROCESS)
    assert (done.kept, ran) == (4, [3, 3, 5, 5, 4, 4])


def test_an_error_of_a_cell_leaves_no_file(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the code names cell and seed; a mistake, even about data, is found before any run."""
    monkeypatch.setattr(cells_module, "run_scenario", Mock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError) as caught:
        run_sweep(TINY, out, engine=IN_PROCESS)
    assert "parties.count=3 trial=0 (seed " in caught.value.__notes__[0]
    with pytest.raises(ScenarioError, match="rows of all parties"):
        run_sweep(Plan("wine", {"protocol.k": (3, 500)}, 2, SMALL), out, engine=IN_PROCESS)
    assert names_in(out.parent) == set()


def test_existing_results_are_not_overwritten(alone: Path) -> None:
    """Existing results are overwritten neither by another sweep nor by an equal one."""
    before = alone.read_bytes()
    with pytest.raises(InputError, match="exists"):
        run_sweep(PLAN, alone, engine=IN_PROCESS)
    assert alone.read_bytes() == before


def test_a_death_between_results_and_journal_is_repaired(out: Path) -> None:
    """After a death with a full journal, the results are written and no cell runs."""
    journal, seen = out.with_name("out.parquet.journal"), list[bytes]()

    def watch(_doing: str, done: int, total: int) -> None:
        if done == total:
            seen.append(journal.read_bytes())

    run_sweep(TINY, out, engine=IN_PROCESS, progress=watch)
    first = out.read_bytes()
    journal.write_bytes(seen[-1])
    done = run_sweep(TINY, out, engine=IN_PROCESS)
    assert done.kept == len(done.cells) == 6
    assert out.read_bytes() == first
    assert names_in(out.parent) == {"out.parquet", "out.timing.parquet"}


@pytest.mark.parametrize("where", ["folder", "out.csv", "file/out.parquet"])
def test_an_invalid_path_is_refused(where: str, tmp_path: Path) -> None:
    """The path must end in .parquet, and its folder must exist."""
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"ends in \.parquet"):
        run_sweep(TINY, tmp_path / where, engine=IN_PROCESS)


SWEEP = {"scenario": "wine", "grid": {"protocol.k": [1, 2]}}
FIRST, SECOND = (
    CellOutcome(name, {"accuracy": 0.1 + 0.2, "label": "é\n"}, {"seconds": 1e-9})
    for name in ("first", "second")
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a journal."""
    return tmp_path / "out.parquet.journal"


def _append(path: Path, *outcomes: CellOutcome) -> None:
    with open_journal(path, SWEEP) as journal:
        for outcome in outcomes:
            journal.append(outcome)


def _read(path: Path) -> dict[str, CellOutcome]:
    with open_journal(path, SWEEP) as journal:
        return dict(journal.outcomes)


def test_a_journal_returns_its_cells_exactly(path: Path) -> None:
    """It returns them to the last bit, over several calls, and one is in the file at once."""
    with open_journal(path, SWEEP) as journal:
        journal.append(FIRST)
        assert len(path.read_bytes().splitlines()) == 2
    _append(path, SECOND)
    assert _read(path) == {"first": FIRST, "second": SECOND}


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
    assert _read(path) == {"first": FIRST}
    _append(path, SECOND)
    assert _read(path) == {"first": FIRST, "second": SECOND}


def test_another_sweeps_journal_is_refused_unchanged(path: Path) -> None:
    """So is one in use, while its sweep continues; the error names the argument."""
    with open_journal(path, SWEEP) as journal:
        with pytest.raises(InputError, match="is locked"), open_journal(path, SWEEP):
            pass
        journal.append(FIRST)
    before, other = path.read_bytes(), {**SWEEP, "grid": {"protocol.k": [1, 3]}}
    named = rf"{re.escape(str(path))}.*grid is .*2.* not .*3"
    with pytest.raises(InputError, match=named), open_journal(path, other):
        pass
    assert path.read_bytes() == before
    assert _read(path) == {"first": FIRST}


def test_a_journal_without_a_cell_is_replaced_or_removed(path: Path) -> None:
    """A journal without a cell is worth nothing, because its sweep died before the first one."""
    with open_journal(path, SWEEP):
        assert path.exists()
    assert not path.exists()
    path.write_text(json.dumps({"scenario": "digits"}) + "\n")
    _append(path, FIRST)
    assert json.loads(path.read_text().splitlines()[0]) == SWEEP


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


def test_the_command_prints_the_files_written(tmp_path: Path) -> None:
    """It prints its files at the end, and when it starts and ends unless in a terminal."""
    out = tmp_path / "new" / "out.parquet"
    grid = ("--grid", "parties.count=3,4", "--trials", "2", "--workers", "1")
    command = ["sweep", "wine", *grid, *SET_SMALL, "--out", str(out)]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    first, *_, last = done.stderr.splitlines()
    assert (first, last) == ("Checking the cells: 0 of 2", "Running the cells: 4 of 4")
    assert done.stdout.splitlines()[0] == f"4 runs; results written to {out}"
    assert len(pl.read_parquet(out)) == 4


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--grid", "protocol.rounds=6..1"), "protocol.rounds is '6..1'; allowed: a range"),
        (("--grid", "protocol.round=1"), "did you mean rounds?"),
        (("--grid", "protocol.k=1", "--engine", "cloud"), "local, dask"),
        (("--grid", "protocol.k=1", "--runtime", "tls"), "memory or simulated"),
        ((), "--grid"),
    ],
)
def test_wrong_input_exits_with_two(arguments: tuple[str, ...], named: str, out: Path) -> None:
    """Standard error has the allowed values and no traceback, and no file is created."""
    code, printed, err = invoke("sweep", "wine", *arguments, "--out", out)
    assert (code, printed) == (2, "")
    assert named in err
    assert "Traceback" not in err
    assert names_in(out.parent) == set()


def test_a_failed_cell_exits_with_one(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One paragraph names the cell and the location of the finished ones."""
    monkeypatch.setattr(Node, "_dispatch", lambda *_: None)
    grid = ("--grid", "parties.count=3", "--runtime", "simulated", "--workers", "1")
    code, printed, err = invoke("sweep", "wine", *grid, "--out", out)
    assert (code, printed) == (1, "")
    assert err.startswith("veilring: parties.count=3 trial=0: ")
    assert "0 of 1 cells are kept" in err


STOPPED = Plan("wine", parse_grid(["parties.count=5,8"]), 8, SMALL)
OPTIONS = ("--grid", "parties.count=5,8", "--trials", "8", "--workers", "2")
KEPT = 6
# The command, which ends itself after storing this number of cells, whatever else the machine does,
# and prints no progress, as a busy machine would make it.
ENDING = f"""
import math
import os
from veilring.cli import console, main
from veilring.scenarios.sweep import SweepJournal

append = SweepJournal.append

def append_and_end(journal, outcome):
    append(journal, outcome)
    if len(journal.outcomes) == {KEPT}:
        os.kill(os.getpid(), int(os.environ["NUMBER"]))

SweepJournal.append = append_and_end
console.PROGRESS_SECONDS = math.inf
main()
"""


def _end(out: Path, number: signal.Signals) -> tuple[int, str]:
    """Run a sweep in a separate process that ends itself by a signal.

    Returns:
        Its exit code, and its standard error: a file, as workers may keep it open longer.
    """
    options = [*OPTIONS, *SET_SMALL, "--out", str(out)]
    command = [sys.executable, "-c", ENDING, "sweep", "wine", *options]
    env = {**os.environ, "NUMBER": str(int(number))}
    errors = out.with_suffix(".err")
    with errors.open("w") as stderr:
        done = subprocess.run(command, stderr=stderr, env=env, timeout=SECONDS, check=False)
    return done.returncode, errors.read_text()


@pytest.mark.slow
def test_after_kill_9_no_cell_is_run_twice(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells in the journal are not run again, and the file has the whole sweep."""
    code, err = _end(out, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert "Traceback" not in err
    journal = out.with_name("out.parquet.journal").read_bytes()
    whole = journal[: journal.rfind(b"\n")].splitlines()[1:]
    kept = {entry["cell"]: entry["timing"] for entry in map(json.loads, whole)}
    assert len(kept) == KEPT
    watched = Mock(side_effect=run_scenario)
    monkeypatch.setattr(cells_module, "run_scenario", watched)
    assert run_sweep(STOPPED, out, engine=IN_PROCESS).kept == KEPT
    seeds = [call.kwargs["seed"] for call in watched.call_args_list]
    assert len(set(seeds)) == len(seeds) == 16 - KEPT
    rows = pl.read_parquet(out)
    names = [f"parties.count={p} trial={t}" for p, t in rows.select(rows.columns[:2]).rows()]
    ran = {name for name, seed in zip(names, rows["seed"], strict=True) if seed in seeds}
    assert ran == set(names) - set(kept)
    timing = pl.read_parquet(out.with_name("out.timing.parquet")).rows(named=True)
    for name, times in zip(names, timing, strict=True):
        if name in kept:  # exactly the measurements of the killed process
            assert times.items() >= kept[name].items()
    other = out.with_name("other.parquet")
    run_sweep(STOPPED, other, engine=IN_PROCESS)
    assert out.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_ctrl_c_shows_how_to_continue(out: Path) -> None:
    """It exits with 130 without a traceback, and leaves the journal."""
    code, err = _end(out, signal.SIGINT)
    assert code == 130
    assert "\nveilring: stopped; finished runs are in " in err
    assert "Traceback" not in err
    assert err.endswith("Repeat the command to continue.\n")
    assert len(out.with_name("out.parquet.journal").read_bytes().splitlines()) == 1 + KEPT
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "workers", "is_running"),
    [("local", 2, False), ("dask", None, True), ("dask", 2, False)],
)
def test_every_engine_gives_the_same_bytes(
    name: str, workers: int | None, *, is_running: bool, alone: Path, out: Path, scheduler: str
) -> None:
    """Results do not depend on the place and time of a cell's run: 24 cells, by each engine."""
    engine = Engine(name, workers, scheduler if is_running else None)
    done = run_sweep(PLAN, out, engine=engine)
    assert done.files.results.read_bytes() == alone.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "field", "allowed"),
    [
        (("cloud",), "engine", "local, dask"),
        (("local", 0), "workers", "at least 1"),
        (("local", None, "tcp://127.0.0.1:1"), "dask_address", "needs the engine dask"),
        (("dask", 2, "tcp://127.0.0.1:1"), "workers", "workers of its own"),
    ],
)
def test_an_unknown_engine_is_refused(
    arguments: tuple[str, int | None, str | None], field: str, allowed: str
) -> None:
    """The error names the allowed engines."""
    with pytest.raises(InputError) as caught:
        Engine(*arguments)
    assert caught.value.field == field
    assert allowed in str(caught.value)


def test_a_missing_extra_is_reported_in_one_paragraph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package to install."""
    monkeypatch.setitem(sys.modules, "distributed", None)  # which makes Python's import fail
    with pytest.raises(MissingExtra) as caught, each_done(abs, [-1], Engine("dask")):
        pass
    command = "`pip install '.[dask]'`"
    assert (
        str(caught.value) == f"distributed is not installed; run {command} in a clone of veilring"
    )


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x"])
def test_an_unreachable_scheduler_is_reported(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names its address after the time limit for an answer."""
    monkeypatch.setattr("veilring.scenarios.sweep.dask_backend.SCHEDULER_SECONDS", 1)
    engine = Engine("dask", dask_address=address)
    with pytest.raises(InputError, match=address), each_done(abs, [-1], engine):
        pass


@pytest.mark.parametrize("workers", [1, 2])
def test_every_item_is_called_once(workers: int) -> None:
    """Results arrive in any order; leaving after the first ends the others without a warning."""
    with each_done(abs, list(range(-20, 0)), Engine(workers=workers)) as results:
        assert sorted(results) == list(range(1, 21))
    with each_done(abs, list(range(-200, 0)), Engine(workers=workers)) as results:
        assert next(results) > 0


@pytest.mark.slow
def test_no_worker_outlives_its_sweep() -> None:
    """A worker that ended during the next sweep would lose a call of that sweep."""
    with each_done(_own_process, list(range(8)), Engine(workers=2)) as results:
        workers = set(results)
    assert workers
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def _own_process(_: int) -> int:
    return os.getpid()


def test_a_process_that_dies_is_reported(scheduler: str) -> None:
    """A worker killed by the system ends the sweep with an error, even where joblib would hang."""
    for engine in (Engine(workers=2), Engine("dask", dask_address=scheduler)):
        ended = each_done(os._exit, [3, 3], engine)
        with pytest.raises(ClusterError, match="died"), ended as results:
            list(results)
