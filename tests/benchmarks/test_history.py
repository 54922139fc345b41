"""The history of benchmark results, and the comparison of a run with it."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from benchmarks.__main__ import app
from benchmarks.history import (
    HISTORY,
    Record,
    Verdict,
    add_record,
    compare,
    make_record,
    read_history,
)
from benchmarks.measurement import Measurement, describe_machine
from typer.testing import CliRunner

from benchmarks import hops
from veilring.errors import InputError

DAY = date(2026, 11, 20)
HERE = "2 cores"
LAST = Measurement("hop", "x", (1.0, 1.2, 1.1))


def _record(*measurements: Measurement, days: int = 0, quick: bool = False) -> Record:
    taken = DAY + timedelta(days=days)
    return make_record(measurements, taken=taken, version="0.1.0", machine=HERE, quick=quick)


@pytest.mark.parametrize(
    ("now", "last", "machine", "verdict"),
    [
        (Measurement("hop", "x", (1.15, 9.0, 0.1)), LAST, "8 cores", "inside"),
        (Measurement("hop", "x", (0.99,)), LAST, HERE, "below"),
        (Measurement("hop", "x", (1.21,)), LAST, HERE, "above"),
        (LAST, Measurement("hop", "x", (1.1,)), HERE, "one repetition"),
        (Measurement("hop", "s", (9.0,)), Measurement("hop", "s", (1.0, 2.0)), HERE, "above"),
        (
            Measurement("hop", "s", (9.0,)),
            Measurement("hop", "s", (1.0, 2.0)),
            "8 cores",
            "another machine",
        ),
    ],
)
def test_a_median_is_judged_by_the_recorded_interval(
    now: Measurement, last: Measurement, machine: str, verdict: Verdict
) -> None:
    """Ratios are compared on any machine, seconds only on the recorded one."""
    (change,) = compare([now], [_record(last)], machine=machine, quick=False)
    assert change.verdict == verdict
    assert change.factor == pytest.approx(now.median / last.median)


def test_the_last_record_of_each_measurement_counts() -> None:
    """Newer records without the measurement, or of another size or unit, are skipped."""
    history = [
        _record(Measurement("hop", "x", (5.0,))),
        _record(LAST, days=1),
        _record(Measurement("hop", "x", (7.0,)), days=2, quick=True),
        _record(Measurement("hop", "s", (7.0,)), days=3),
        _record(Measurement("ring", "x", (7.0,)), days=4),
    ]
    hop, other = compare(
        [LAST, Measurement("new", "x", (1.0,))], history, machine=HERE, quick=False
    )
    assert hop.taken == DAY + timedelta(days=1)
    assert hop.factor == 1.0
    assert (other.last, other.taken, other.verdict, other.factor) == (None, None, None, None)


def test_a_recorded_zero_has_no_factor() -> None:
    """The change of a count that was 0 is empty."""
    zero = Measurement("log", "lines", (0.0, 0.0))
    (change,) = compare([zero], [_record(zero)], machine=HERE, quick=False)
    assert change.factor is None
    assert change.verdict == "inside"


def test_added_records_are_read_again(tmp_path: Path) -> None:
    """A file has one record per line, in the order of addition."""
    path = tmp_path / "history.jsonl"
    records = [_record(LAST), _record(LAST, days=1, quick=True)]
    for record in records:
        add_record(path, record)
    assert read_history(path) == records
    assert len(path.read_text().splitlines()) == 2


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


def test_the_stored_history_has_several_days() -> None:
    """It is readable, and its machines are described in words."""
    history = read_history(HISTORY)
    assert len({record.taken for record in history}) >= 2
    assert all("cores" in record.machine and record.results for record in history)


def test_a_run_is_compared_and_then_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table shows the last record beside the run, or that there is no record yet."""
    values = iter([(1.0, 2.0), (3.0, 3.0), (1.5, 1.5)])

    def measured(*, quick: bool) -> list[Measurement]:
        return [Measurement("hop", "x", next(values))] * quick

    monkeypatch.setattr(hops, "measure_hop", measured)
    path, output = tmp_path / "history.jsonl", tmp_path / "results.json"
    path.touch()
    command = ["--quick", "--only", "hop", "--history", str(path), "--output", str(output)]
    runner = CliRunner()
    first = runner.invoke(app, [*command, "--compare", "--record"])
    assert "no record" in first.stdout
    (record,) = read_history(path)
    assert (record.quick, record.machine) == (True, describe_machine())
    assert abs(record.taken - datetime.now(UTC).date()) <= timedelta(days=1)
    second = runner.invoke(app, [*command, "--compare"]).stdout
    assert "+100.0%" in second
    assert "above" in second
    assert "inside" in runner.invoke(app, [*command, "--compare"]).stdout
    assert len(read_history(path)) == 1
