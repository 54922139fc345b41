"""Measurements in processes apart, of this machine, and the history of their results."""

import json
import math
import os
import platform
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from benchmarks.__main__ import app
from benchmarks.collecting import Drive, drive_collection
from benchmarks.history import Record, add_record, make_record, read_history
from benchmarks.measurement import Bound, Measurement, apart, describe_machine, peak_mib, ratios
from tests.deployment.commands import SECONDS
from typer.testing import CliRunner

from benchmarks import exploring, history, hops
from veilring.errors import InputError

ROOT = Path(__file__).parents[2]
DAY = date(2026, 11, 20)
HERE, ELSEWHERE = "2 cores", "8 cores"
LAST = Measurement("hop", "x", (1.0, 1.2, 1.1))


def test_a_separate_process_computes_in_one_thread() -> None:
    """It has one thread and its own peak memory; the machine is described without its name."""
    before = os.environ.get("OMP_NUM_THREADS")
    assert apart(os.getenv, "OMP_NUM_THREADS") == "1"
    assert os.environ.get("OMP_NUM_THREADS") == before
    assert 0 < apart(peak_mib) < peak_mib()
    assert math.isnan(peak_mib(2**22 + 1))
    line = describe_machine()
    assert f"{os.cpu_count()} cores" in line
    assert platform.python_version() in line
    assert "\n" not in line
    assert platform.node() not in line.split()


@pytest.mark.slow
def test_a_quick_benchmark_writes_its_numbers(tmp_path: Path) -> None:
    """A single benchmark prints its table, and its file has ratios with their spread."""
    output = tmp_path / "results.json"
    options = ("--quick", "--only", "simulated", "--output", str(output))
    command = [sys.executable, "-m", "benchmarks", *options]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=SECONDS
    )
    document = json.loads(output.read_text(encoding="utf-8"))
    assert document["quick"] is True
    assert list(document["results"]) == ["simulated"]
    for measured in document["results"]["simulated"]:
        assert measured["name"] in done.stdout
        assert measured["unit"] == "x"
        assert 0 < measured["min"] <= measured["median"] <= measured["max"]
        assert len(measured["values"]) == 7
        assert measured["verdict"] in {"held", "missed"}


def test_only_a_clone_is_compared(tmp_path: Path) -> None:
    """A folder without the package is refused before anything is played."""
    done = CliRunner().invoke(app, ["explored", str(tmp_path)])
    assert done.exit_code == 2
    assert "the folder of a clone of veilring" in done.output


@pytest.mark.slow
def test_worlds_of_two_checkouts_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code plays the same worlds on both sides, in runs of some processor time each."""
    monkeypatch.setattr(exploring, "SUBJECTS", exploring.SUBJECTS[:2])  # a role and a system
    found = exploring.compare(ROOT, worlds=1, plays=1)
    assert len(found) == 2 * len(exploring.SUBJECTS)
    for worlds, runs in zip(found[::2], found[1::2], strict=True):
        assert worlds.values == pytest.approx(runs.values)
        assert worlds.values[0] > 0


@pytest.mark.slow
def test_every_report_of_a_driven_collection_is_durable() -> None:
    """One collector stores a survey client's reports over TLS; bytes and memory include both."""
    seen = list[int]()

    def spent(process: int) -> float:
        seen.append(process)
        return 10.0 * len(seen)

    found = drive_collection(200, Drive(survey_clients=1, at_once=64, spent=spent))
    assert found.reports == 200
    assert found.seconds > 0
    # An id of 16 bytes each, and its report.
    assert found.wire_bytes > 200 * 16 < found.disk_bytes
    assert found.mib > 10
    assert found.spent == 10.0
    assert seen[0] == seen[1] != os.getpid()


def _record(*measurements: Measurement, days: int = 0, quick: bool = False) -> Record:
    taken = DAY + timedelta(days=days)
    return make_record(measurements, taken=taken, version="0.1.0", machine=HERE, quick=quick)


@pytest.mark.parametrize(
    ("last", "noise"),
    [
        (LAST, 3 * 2**0.5 * 1.25 * 0.2 / 3),
        (Measurement("hop", "x", (1.0, 1.2, 1.1) * 20), 0.05 * 1.1),
        (Measurement("hop", "x", (-4.0, -4.0)), 0.2),
    ],
)
def test_the_noise_is_three_errors_of_a_difference_of_medians(
    last: Measurement, noise: float
) -> None:
    """It falls with the repetitions of the record, down to 5 % of the median."""
    assert _record(last).results["hop"].noise == pytest.approx(noise)


def test_the_range_of_normal_numbers_bounds_their_median() -> None:
    """Of 4,000 pairs of records of equal runs, 0.05 to 2 % differ by more than the noise."""
    rng = np.random.default_rng(0)
    for repetitions in (5, 7, 15):
        values = rng.normal(100.0, 20.0, size=(2, 4_000, repetitions))
        noise = history.NOISE * np.ptp(values[0], axis=1) / repetitions
        worse = np.median(values[1], axis=1) > np.median(values[0], axis=1) + noise
        assert 0.0005 < worse.mean() < 0.02, (repetitions, worse.mean())


def _speed(*values: float) -> Measurement:
    return Measurement("hop", "x", values, faster=True)


@pytest.mark.parametrize(
    ("now", "last", "machine", "verdict"),
    [
        (Measurement("hop", "x", (1.3, 9.0, 0.1)), LAST, HERE, "inside"),
        (Measurement("hop", "x", (0.7,)), LAST, HERE, "better"),
        (Measurement("hop", "x", (1.5,)), LAST, HERE, "worse"),
        (Measurement("hop", "x", (1.5,)), LAST, ELSEWHERE, "another machine"),
        (LAST, Measurement("hop", "x", (1.1,)), HERE, "one repetition"),
        (_speed(0.7), LAST, HERE, "worse"),
        (_speed(1.5), LAST, HERE, "better"),
        (Measurement("hop", "/s", (9.0,)), Measurement("hop", "/s", (10.0, 10.0)), HERE, "worse"),
    ],
)
def test_a_median_is_bounded_by_the_last_record_of_this_machine(
    now: Measurement, last: Measurement, machine: str, verdict: history.Verdict
) -> None:
    """Costs must not rise by more than the noise, and speeds must not fall by more."""
    (change,) = history.compare([now], [_record(last)], machine=machine, quick=False)
    assert change.verdict == verdict
    assert change.factor == pytest.approx(now.median / last.median)
    assert (change.bound is None) == (verdict in {"another machine", "one repetition"})
    if change.bound is not None:
        assert change.bound.holds(now.median) == (verdict != "worse")


def test_a_record_of_this_machine_goes_before_a_later_one_of_another() -> None:
    """Without one, the last record of another machine is shown and bounds nothing."""
    elsewhere = _record(LAST, days=1).model_copy(update={"machine": ELSEWHERE})
    records = [_record(LAST), elsewhere]
    (change,) = history.compare([LAST], records, machine=HERE, quick=False)
    assert (change.taken, change.verdict) == (DAY, "inside")
    (change,) = history.compare([LAST], records[1:], machine=HERE, quick=False)
    assert (change.taken, change.verdict) == (DAY + timedelta(days=1), "another machine")


@pytest.mark.parametrize(
    ("measurement", "better"),
    [
        (Measurement("hop", "x", (1.0,), Bound("at most", 1.0)), "lower"),
        (Measurement("hop", "x", (1.0,), Bound("at least", 1.0)), "higher"),
        (Measurement("hop", "s", (1.0,)), "lower"),
        (Measurement("hop", "rows/s", (1.0,)), "higher"),
        (ratios("hop", [(1.0, 2.0)], faster=True), "higher"),
        (ratios("hop", [(1.0, 2.0)]), "lower"),
    ],
)
def test_a_target_or_the_kind_of_number_says_which_are_better(
    measurement: Measurement, better: str
) -> None:
    """Speeds are better if higher, and everything else if lower."""
    assert measurement.better == better


def test_the_last_record_of_each_measurement_counts() -> None:
    """Newer ones without it, or of another size or unit, are skipped; from 0 there is no factor."""
    zero = Measurement("log", "lines", (0.0, 0.0))
    records = [
        _record(Measurement("hop", "x", (5.0,)), zero),
        _record(LAST, days=1),
        _record(Measurement("hop", "x", (7.0,)), days=2, quick=True),
        _record(Measurement("hop", "s", (7.0,)), days=3),
        _record(Measurement("ring", "x", (7.0,)), days=4),
    ]
    now = [LAST, Measurement("new", "x", (1.0,)), zero]
    hop, other, log = history.compare(now, records, machine=HERE, quick=False)
    assert (hop.taken, hop.factor) == (DAY + timedelta(days=1), 1.0)
    assert (other.last, other.taken, other.verdict, other.factor) == (None, None, None, None)
    assert (log.factor, log.verdict) == (None, "inside")


def test_added_records_are_read_again(tmp_path: Path) -> None:
    """A file has one record per line, in the order of addition; the stored one has several days."""
    path = tmp_path / "history.jsonl"
    records = [_record(LAST), _record(LAST, days=1, quick=True)]
    for record in records:
        add_record(path, record)
    assert read_history(path) == records
    assert len(path.read_text().splitlines()) == 2
    stored = read_history(history.HISTORY)
    assert len({record.taken for record in stored}) >= 2
    assert all("cores" in record.machine and record.results for record in stored)


def test_a_damaged_history_is_refused(tmp_path: Path) -> None:
    """The error names the line of a record out of order, a wrong interval, or no record."""
    path = tmp_path / "history.jsonl"
    with pytest.raises(InputError, match="--history"):
        read_history(path)
    add_record(path, _record(LAST, days=1))
    add_record(path, _record(LAST))
    with pytest.raises(InputError, match=r"line 2 .* is older"):
        read_history(path)
    wrong = _record(LAST).model_dump(mode="json")
    wrong["results"]["hop"]["min"] = 2.0
    for text, reason in (("{}", "taken"), (json.dumps(wrong), "between min and max")):
        path.write_text(text)
        with pytest.raises(InputError, match=rf"line 1 .*{reason}"):
            read_history(path)


def test_a_run_is_compared_and_then_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table shows the last record beside the run, and a worse run fails and names its rows."""
    values = iter([(1.4, 1.6), (3.0, 3.0), (1.5, 1.5)])

    def measured(*, quick: bool) -> list[Measurement]:
        return [Measurement("hop", "x", next(values))] * quick

    monkeypatch.setattr(hops, "measure_hop", measured)
    path, output = tmp_path / "history.jsonl", tmp_path / "results.json"
    path.touch()
    command = ["--quick", "--only", "hop", "--history", str(path), "--output", str(output)]

    def compared(*more: str, fails: bool = False) -> str:
        ran = CliRunner().invoke(app, [*command, "--compare", *more])
        assert ran.exit_code == int(fails)
        assert ("worse than the last record: hop" in ran.output) == fails
        return ran.stdout

    assert "no record" in compared("--record")
    (record,) = read_history(path)
    assert (record.quick, record.machine) == (True, describe_machine())
    assert abs(record.taken - datetime.now(UTC).date()) <= timedelta(days=1)
    second = compared(fails=True)
    assert "+100.0%" in second
    assert "at most" in second
    assert json.loads(output.read_text())["results"]["hop"][0]["median"] == 3.0
    assert "inside" in compared()
    assert len(read_history(path)) == 1
