"""Sweeps in separate processes, and interruptions."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.deployment.commands import SECONDS
from tests.scenarios.sweep.plans import IN_PROCESS, SMALL, read_frame

from veilring.scenarios.report import Report
from veilring.scenarios.runner import run_scenario
from veilring.scenarios.schema import Scenario
from veilring.scenarios.sweep import Plan, parse_grid, run_sweep
from veilring.scenarios.sweep import cells as cells_module

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
            while len(_lines(out)) <= KEPT and process.poll() is None:  # the first is the sweep's
                assert time.monotonic() < deadline, errors.read_text()
                time.sleep(0.01)
            process.send_signal(number)
            return process.wait(SECONDS), errors.read_text()
        finally:
            process.kill()


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
        assert len(_lines(out)) == 1 + KEPT
        assert not out.exists()
