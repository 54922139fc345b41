"""The folder of a run: written and read back."""

import shutil
from pathlib import Path

import polars as pl
import pytest

from veilring.errors import Deadlock, InputError, RunFailed
from veilring.nodes.journal import Journal
from veilring.nodes.run import Failure
from veilring.scenarios import load_scenario, run_scenario
from veilring.scenarios.reporting import read_folder, write_failure


def test_a_written_folder_is_read_back(finished: Path) -> None:
    """Report and trace are exact: a second run of the same seed is equal to them."""
    run, journal = read_folder(finished), Journal()
    report = run_scenario(run.scenario, journal=journal)
    assert run.report is not None
    seconds = {name: getattr(run.report, name) for name in ("seconds", "start_seconds")}
    assert run.report.as_json() == report.as_json() | seconds
    assert run.messages == tuple(journal.messages)
    assert (run.name, run.failure, run.marks) == ("finished", None, ())


def test_a_failed_run_is_named_with_its_parties(crashed: Path) -> None:
    """The report of a failed run contains its error, each party's outcome and the trace."""
    run = read_folder(crashed)
    assert run.report is None
    assert run.failure is not None
    assert run.failure.error == "RunFailed"
    assert "party-9 was lost" in run.failure.message
    assert set(run.failure.parties) == set(run.scenario.parties.all)
    assert {mark.party for mark in run.marks if mark.kind == "lost"} == {"party-9"}
    assert {mark.party for mark in run.marks if mark.kind == "coalition"} == {"party-3", "party-7"}
    assert run.marks == tuple(sorted(run.marks))
    assert any(message.received_seconds is None for message in run.messages)


def test_a_failure_reveals_no_data(tmp_path: Path) -> None:
    """Only errors of the package keep their text; a role's own errors keep the name."""
    waiting = "every party is waiting and no message is in flight: a waits for b"
    parties = {"a": "ValueError"}
    for error, failure in (
        (Deadlock(("a waits for b",)), Failure("Deadlock", waiting, {})),
        (RunFailed({"a": ValueError("row 7")}), Failure("RunFailed", "a: ValueError", parties)),
    ):
        write_failure(error, load_scenario("wine"), Journal(), tmp_path)
        run = read_folder(tmp_path)
        assert (run.failure, run.messages) == (failure, ())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("report.json", b"{}"),
        ("report.json", b"[]"),
        ("report.json", b"not json"),
        ("versions.json", b'{"numpy": 2}'),
        ("events.json", b'[{"seconds": "soon"}]'),
        ("scenario.toml", b"[data"),
        ("scenario.toml", b"\xff"),
        ("trace.parquet", b"PAR1"),
    ],
)
def test_a_foreign_file_is_refused(
    name: str, content: bytes, finished: Path, tmp_path: Path
) -> None:
    """The error names the file, for any content and if it is missing."""
    folder = Path(shutil.copytree(finished, tmp_path / "copy"))
    for damage in (lambda path: path.write_bytes(content), Path.unlink):
        damage(folder / name)
        with pytest.raises(InputError, match=name):
            read_folder(folder)


def test_a_foreign_table_is_refused(finished: Path, tmp_path: Path) -> None:
    """A foreign table is refused, and so is one with a message that neither end recorded."""
    folder = Path(shutil.copytree(finished, tmp_path / "copy"))
    frame = pl.read_parquet(folder / "trace.parquet")
    never = dict.fromkeys(("sent_seconds", "received_seconds"), pl.lit(None, pl.Float64))
    for wrong in (frame.drop("kind"), frame.with_columns(**never)):
        wrong.write_parquet(folder / "trace.parquet")
        with pytest.raises(InputError, match=r"trace\.parquet"):
            read_folder(folder)
