"""The files of a run on the command line: `run --out`, `report` and `trace`."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.cli.invoking import done, invoke, refused

from veilring.nodes.node import Node

QUICK = ("--set", "parties.count=3", "--set", "run.leakage_trials=20", "--seed", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a quick run."""
    folder = tmp_path_factory.mktemp("runs") / "wine"
    done("run", "wine", "--runtime", "memory", *QUICK, "--out", folder)
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


def read(path: Path) -> Any:
    """Return the content of a file in JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


def page(folder: Path) -> str:
    """Write the page of a run, and return it."""
    done("report", folder)
    return (folder / "report.html").read_text(encoding="utf-8")


def test_a_run_writes_the_time_of_each_message(folder: Path) -> None:
    """There is a row per message, and no events without incidents."""
    cost = read(folder / "report.json")["cost"]
    messages = pl.read_parquet(folder / "trace.parquet")
    assert len(messages) == cost["messages"] + cost["setup_messages"]
    assert messages["sent_seconds"].is_sorted()
    assert read(folder / "events.json") == []


def test_real_processes_are_traced_too(tmp_path: Path) -> None:
    """On a real clock and several processes, no message arrives before it is sent."""
    done("run", "wine", *QUICK, "--out", tmp_path)
    messages = pl.read_parquet(tmp_path / "trace.parquet")
    assert messages["received_seconds"].null_count() == 0
    assert (messages["received_seconds"] >= messages["sent_seconds"]).all()


def test_a_failed_run_keeps_its_error_and_its_messages(failed: Path) -> None:
    """A failed run has no report; its error and messages are stored and never overwritten.

    Page and trace show the error, which comes first.
    """
    files = {"error.json", "events.json", "scenario.toml", "trace.parquet", "versions.json"}
    assert {path.name for path in failed.iterdir()} == files
    error = read(failed / "error.json")
    assert error["error"] == "RunFailed"
    assert "party-1 is waiting for" in error["message"]
    messages = pl.read_parquet(failed / "trace.parquet")
    assert len(messages) > 0
    assert messages["received_seconds"].null_count() == len(messages)
    assert "error.json" in refused("run", "wine", *QUICK, "--out", failed)
    assert "no message is in flight" in page(failed)
    out = done("trace", failed)
    assert out.startswith("The run failed. RunFailed: ")
    assert "never received" in out


def test_without_a_seed_a_failure_names_the_splits_seed(tmp_path: Path) -> None:
    """The error, trace and page of an unseeded failed run show the seed of the split."""
    crash = "faults=[{kind='crash', party='party-2', start_seconds=0.05}]"
    settings = ("parties.count=4", "data.queries=5", "run.leakage_trials=0", crash)
    command = ["run", "wine", "--runtime", "simulated"]
    for setting in settings:
        command += ["--set", setting]
    code, _, err = invoke(*command, "--out", tmp_path)
    (note,) = read(tmp_path / "error.json")["notes"]
    assert code == 1
    assert re.fullmatch(r"To repeat the split and partition: --seed \d+\.", note)
    assert note in err
    assert note in done("trace", tmp_path)
    assert note in page(tmp_path)
    again = invoke(*command, "--seed", note.split()[-1].strip("."), "--out", tmp_path / "again")
    assert again[0] == 1
    assert read(tmp_path / "again" / "error.json")["notes"] == []


def test_a_report_is_a_page_beside_the_run_or_elsewhere(folder: Path, tmp_path: Path) -> None:
    """It prints the path, and does the same if repeated; a page cannot replace a folder."""
    for _ in range(2):
        code, out, err = invoke("report", folder)
        assert (code, err) == (0, "")
        assert "report.html" in out
    written = page(folder)
    assert written.startswith("<!DOCTYPE html>")
    assert read(folder / "report.json")["transcript"] in written
    done("report", folder, "--out", tmp_path / "page.html")
    assert "<h1>wine: 3 parties, memory</h1>" in (tmp_path / "page.html").read_text()
    assert str(tmp_path) in refused("report", folder, "--out", tmp_path)


def test_a_trace_shows_sums_and_the_first_messages(folder: Path) -> None:
    """It prints tables by party and kind, then the requested number of lines, or all."""
    code, out, err = invoke("trace", folder, "--limit", "7")
    assert (code, err) == (0, "")
    for word in ("party-2", "ring.topk.vector", "set-up bytes"):
        assert word in out
    assert sum("●" in line for line in out.splitlines()) == 7
    assert "The first 7 of " in out
    out = done("trace", folder, "--limit", "9999")
    assert "The first" not in out
    cost = read(folder / "report.json")["cost"]
    drawn = sum("●" in line for line in out.splitlines())
    assert drawn == cost["messages"] + cost["setup_messages"]


def test_malicious_parties_are_named_by_run_report_and_trace(tmp_path: Path) -> None:
    """The terminal, page and trace begin with the malicious parties."""
    malicious = ("--set", 'adversaries.party-1={kind="take-over", by=5, entry=2}')
    out = done("run", "wine", "--runtime", "memory", *QUICK, *malicious, "--out", tmp_path)
    told = "adversaries: party-1, take-over"
    first, second, *_ = out.splitlines()
    assert (first.rstrip(), second.rstrip()) == ("wine: 3 parties, memory", told)
    (mark,) = read(tmp_path / "events.json")
    assert (mark["party"], mark["what"]) == ("party-1", "adversary: take-over")
    shown = page(tmp_path)
    assert shown.index("<h1>") < shown.index(f">{told}<") < shown.index("<dt>accuracy</dt>")
    out = done("trace", tmp_path)
    assert out.startswith(f"{told}\n")
    assert "party-1: adversary: take-over" in out


def test_a_coalition_is_named_by_run_report_and_trace(tmp_path: Path) -> None:
    """The terminal, folder, page and trace name the colluding and the lost parties."""
    out = done("run", "coalition", "--set", "run.leakage_trials=20", "--out", tmp_path)
    for word in ("votes exposed", "1 of 1 took effect", "party-9", "with failed attempts"):
        assert word in out
    report = read(tmp_path / "report.json")
    assert report["recovery"]["without"] == ["party-9"]
    assert report["coalition"]["members"] == report["settings"]["parties"]["coalition"]
    kinds = [mark["what"] for mark in read(tmp_path / "events.json")]
    assert "coalition: with party-4, party-7, party-10" in kinds
    assert "Findings of the coalition" in page(tmp_path)
    out = done("trace", tmp_path, "--limit", "9999")
    for word in ("votes exposed: ", "left out: party-9; ", "party-2: coalition: with party-4"):
        assert word in out


def test_without_a_retry_the_folder_has_the_crash(tmp_path: Path) -> None:
    """The run fails by name, and the trace has the messages before the crash."""
    settings = ("--set", "run.leakage_trials=0", "--set", "run.retries=0")
    code, _, err = invoke("run", "coalition", *settings, "--out", tmp_path)
    assert code == 1
    assert "party-9 was lost" in err
    out = done("trace", tmp_path, "--limit", "9999")
    assert out.startswith("The run failed. RunFailed: ")
    assert "fault: crash" in out
