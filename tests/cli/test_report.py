"""The files of a run on the command line: `run --out`, `report` and `trace`."""

import json
import re
from pathlib import Path

import polars as pl
import pytest
from tests.cli.invoking import invoke

from veilring.nodes.node import Node

QUICK = ("--set", "parties.count=3", "--set", "run.leakage_trials=20", "--seed", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a quick run."""
    folder = tmp_path_factory.mktemp("runs") / "wine"
    assert invoke("run", "wine", "--runtime", "memory", *QUICK, "--out", folder)[0] == 0
    return folder


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a run that failed because no message arrived."""
    with monkeypatch.context() as broken:
        broken.setattr(Node, "_dispatch", lambda *_: None)
        code, out, err = invoke(
            "run", "wine", "--runtime", "simulated", *QUICK, "--out", tmp_path / "failed"
        )
    assert (code, out) == (1, "")
    assert "is waiting for" in err
    return tmp_path / "failed"


class TestRun:
    """`veilring run --out`."""

    def test_writes_the_time_of_each_message(self, folder: Path) -> None:
        """There is a row per message, and no events without incidents."""
        cost = json.loads((folder / "report.json").read_text())["cost"]
        messages = pl.read_parquet(folder / "trace.parquet")
        assert len(messages) == cost["messages"] + cost["setup_messages"]
        assert messages["sent_seconds"].is_sorted()
        assert json.loads((folder / "events.json").read_text()) == []

    def test_real_processes_are_traced_too(self, tmp_path: Path) -> None:
        """On a real clock and several processes, no message arrives before it is sent."""
        assert invoke("run", "wine", *QUICK, "--out", tmp_path)[0] == 0
        messages = pl.read_parquet(tmp_path / "trace.parquet")
        assert messages["received_seconds"].null_count() == 0
        assert (messages["received_seconds"] >= messages["sent_seconds"]).all()

    def test_a_failed_run_keeps_its_error_and_its_messages(self, failed: Path) -> None:
        """A failed run has no report; its error and messages are stored and never overwritten."""
        files = {path.name for path in failed.iterdir()}
        assert files == {
            "error.json",
            "events.json",
            "scenario.toml",
            "trace.parquet",
            "versions.json",
        }
        error = json.loads((failed / "error.json").read_text())
        assert error["error"] == "RunFailed"
        assert "party-1 is waiting for" in error["message"]
        messages = pl.read_parquet(failed / "trace.parquet")
        assert len(messages) > 0
        assert messages["received_seconds"].null_count() == len(messages)
        code, _, err = invoke("run", "wine", *QUICK, "--out", failed)
        assert (code, "error.json" in err) == (2, True)

    def test_without_a_seed_a_failure_names_the_splits_seed(self, tmp_path: Path) -> None:
        """The error, trace and page of an unseeded failed run show the seed of the split."""
        crash = "faults=[{kind='crash', party='party-2', start_seconds=0.05}]"
        settings = ("parties.count=4", "data.queries=5", "run.leakage_trials=0", crash)
        command = ["run", "wine", "--runtime", "simulated"]
        for setting in settings:
            command += ["--set", setting]
        code, _, err = invoke(*command, "--out", tmp_path)
        (note,) = json.loads((tmp_path / "error.json").read_text())["notes"]
        assert code == 1
        assert re.fullmatch(r"To repeat the split and partition: --seed \d+\.", note)
        assert note in err
        assert note in invoke("trace", tmp_path)[1]
        assert invoke("report", tmp_path)[0] == 0
        assert note in (tmp_path / "report.html").read_text(encoding="utf-8")
        again = invoke(*command, "--seed", note.split()[-1].strip("."), "--out", tmp_path / "again")
        assert again[0] == 1
        assert json.loads((tmp_path / "again" / "error.json").read_text())["notes"] == []

    def test_wrong_input_leaves_nothing(self, tmp_path: Path) -> None:
        """A run that never started has not failed: the folder can be reused."""
        wrong = ("--set", "data.source=missing.csv")
        code, _, _ = invoke("run", "wine", *QUICK, *wrong, "--out", tmp_path)
        assert code == 2
        assert not any(tmp_path.iterdir())


class TestReport:
    """`veilring report`."""

    def test_writes_a_page_beside_the_run(self, folder: Path) -> None:
        """It prints the path, and does the same if repeated."""
        for _ in range(2):
            code, out, err = invoke("report", folder)
            assert (code, err) == (0, "")
            assert "report.html" in out
        page = (folder / "report.html").read_text(encoding="utf-8")
        assert page.startswith("<!DOCTYPE html>")
        assert json.loads((folder / "report.json").read_text())["transcript"] in page

    def test_writes_a_page_elsewhere(self, folder: Path, tmp_path: Path) -> None:
        """The page is written to the path of `--out`."""
        assert invoke("report", folder, "--out", tmp_path / "page.html")[0] == 0
        assert "<h1>wine: 3 parties, memory</h1>" in (tmp_path / "page.html").read_text()

    def test_of_a_failed_run_names_the_error(self, failed: Path) -> None:
        """The page exists and shows the error."""
        assert invoke("report", failed)[0] == 0
        assert "no message is in flight" in (failed / "report.html").read_text(encoding="utf-8")

    def test_needs_the_folder_of_a_run(self, folder: Path, tmp_path: Path) -> None:
        """Other folders, and a page that cannot be written, are input errors."""
        for arguments in ((tmp_path,), (tmp_path / "none",), (folder, "--out", tmp_path)):
            code, out, err = invoke("report", *arguments)
            assert (code, out) == (2, "")
            assert str(tmp_path) in err


class TestTrace:
    """`veilring trace`."""

    def test_shows_sums_and_the_first_messages(self, folder: Path) -> None:
        """It prints tables by party and kind, then the requested number of lines."""
        code, out, err = invoke("trace", folder, "--limit", "7")
        assert (code, err) == (0, "")
        for word in ("party-2", "ring.topk.vector", "set-up bytes"):
            assert word in out
        assert sum("●" in line for line in out.splitlines()) == 7
        assert "The first 7 of " in out

    def test_shows_all_below_the_limit(self, folder: Path) -> None:
        """With fewer rows than the limit, all are shown and no limit is mentioned."""
        _, out, _ = invoke("trace", folder, "--limit", "9999")
        assert "The first" not in out
        report = json.loads((folder / "report.json").read_text())
        drawn = sum("●" in line for line in out.splitlines())
        assert drawn == report["cost"]["messages"] + report["cost"]["setup_messages"]

    def test_of_a_failed_run_names_the_error(self, failed: Path) -> None:
        """The error comes first."""
        code, out, _ = invoke("trace", failed)
        assert code == 0
        assert out.startswith("The run failed. RunFailed: ")
        assert "never received" in out


class TestAdversaries:
    """A run with a malicious party, from the command to the trace."""

    def test_are_named_by_run_report_and_trace(self, tmp_path: Path) -> None:
        """The terminal, page and trace begin with the malicious parties."""
        malicious = ("--set", 'adversaries.party-1={kind="take-over", by=5, entry=2}')
        command = ("run", "wine", "--runtime", "memory", *QUICK, *malicious)
        code, out, _ = invoke(*command, "--out", tmp_path)
        assert code == 0
        told = "adversaries: party-1, take-over"
        first, second, *_ = out.splitlines()
        assert (first.rstrip(), second.rstrip()) == ("wine: 3 parties, memory", told)
        (mark,) = json.loads((tmp_path / "events.json").read_text())
        assert (mark["party"], mark["what"]) == ("party-1", "adversary: take-over")
        assert invoke("report", tmp_path)[0] == 0
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert page.index("<h1>") < page.index(f">{told}<") < page.index("<dt>accuracy</dt>")
        code, out, _ = invoke("trace", tmp_path)
        assert code == 0
        assert out.startswith(f"{told}\n")
        assert "party-1: adversary: take-over" in out

    def test_are_named_for_a_run_that_failed(self, tmp_path: Path) -> None:
        """No party has a result, and the page still names the malicious parties."""
        silent = ("--set", "adversaries.party-1={kind='silent'}", "--runtime", "simulated")
        assert invoke("run", "wine", *QUICK, *silent, "--out", tmp_path)[0] == 1
        assert invoke("report", tmp_path)[0] == 0
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert ">adversaries: party-1, silent<" in page
        assert "adversaries: party-1, silent" in invoke("trace", tmp_path)[1]


class TestCoalition:
    """A run with a coalition, a crash and a retry, from the command to the trace."""

    def test_is_named_by_run_report_and_trace(self, tmp_path: Path) -> None:
        """The terminal, folder, page and trace name the colluding and the lost parties."""
        settings = ("--set", "run.leakage_trials=20")
        code, out, _ = invoke("run", "coalition", *settings, "--out", tmp_path)
        assert code == 0
        for word in ("votes exposed", "1 of 1 took effect", "party-9", "with failed attempts"):
            assert word in out
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["recovery"]["without"] == ["party-9"]
        assert report["coalition"]["members"] == report["settings"]["parties"]["coalition"]
        kinds = [mark["what"] for mark in json.loads((tmp_path / "events.json").read_text())]
        assert "coalition: with party-4, party-7, party-10" in kinds
        assert invoke("report", tmp_path)[0] == 0
        assert "Findings of the coalition" in (tmp_path / "report.html").read_text()
        code, out, _ = invoke("trace", tmp_path, "--limit", "9999")
        assert code == 0
        for word in ("votes exposed: ", "left out: party-9; ", "party-2: coalition: with party-4"):
            assert word in out

    def test_without_a_retry_the_folder_has_the_crash(self, tmp_path: Path) -> None:
        """The run fails by name, and the trace has the messages before the crash."""
        settings = ("--set", "run.leakage_trials=0", "--set", "run.retries=0")
        code, _, err = invoke("run", "coalition", *settings, "--out", tmp_path)
        assert code == 1
        assert "party-9 was lost" in err
        code, out, _ = invoke("trace", tmp_path, "--limit", "9999")
        assert code == 0
        assert out.startswith("The run failed. RunFailed: ")
        assert "fault: crash" in out
