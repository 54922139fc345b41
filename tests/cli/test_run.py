"""`veilring run`, `report` and `trace`: their output, files and exit codes."""

import csv
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import tomli_w
from tests.cli.invoking import done, invoke, python, refused
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.errors import ScenarioError
from veilring.nodes.node import Node

SMALL = ("--set", "parties.count=3", "--set", "run.leakage_trials=20")
QUICK = ("--runtime", "memory", *SMALL)
SEEDED = (*SMALL, "--seed", "1")


def test_prints_accuracy_beside_the_reference_cost_and_leakage() -> None:
    """One table has everything, and standard error is empty; without a seed, one is shown."""
    code, out, err = invoke("run", "wine", *QUICK)
    assert (code, err) == (0, "")
    costs = ("rounds", "messages", "bytes", "wall time")
    leakage = ("exposure", "claim", "loss of privacy", "Transcript")
    for line in ("accuracy", "pooled kNN", "majority class", *costs, *leakage):
        assert line in out
    assert "To repeat the split and partition: --seed " in out


def test_prints_the_measures_asked_for() -> None:
    """Each has a line with its interval; other measures are not printed."""
    names = ("balanced-accuracy", "auc", "confusion")
    asked = [word for name in names for word in ("--measure", name)]
    out = done("run", "wine", *QUICK, "--seed", "1", *asked)
    report = json.loads(done("run", "wine", *QUICK, "--seed", "1", "--json"))["measures"]
    found = report["balanced_accuracy"]
    ends = f"{100 * found['low']:.1f} to {found['high']:.1%}"
    assert f"{found['value']:.1%} ({ends})" in out
    for line in ("balanced accuracy", "AUC", "true class", "class_2"):
        assert line in out
    assert "macro F1" not in out
    assert sum(map(sum, report["confusion"])) == 44


def test_refuses_an_unknown_measure_and_measures_of_a_role() -> None:
    """The error names the measures, or says that a role has no labels."""
    assert "--measure is 'gini'; allowed: accuracy, balanced-accuracy, macro-f1" in refused(
        "run", "wine", *QUICK, "--measure", "gini"
    )
    role = ("run", "tests.roles:add_up", "--runtime", "memory")
    assert "a role has no labels to measure" in refused(*role, "--measure", "auc")


def test_of_a_csv_it_reports_the_columns(tmp_path: Path) -> None:
    """The first line counts numbers, categories and classes."""
    rows = [f"{n}.5,{'fm'[n % 2]},{n % 3}" for n in range(40)]
    (tmp_path / "mine.csv").write_text("\n".join(["size,sex,ward", *rows, ""]))
    out = done("run", "wine", *QUICK, "--set", f"data.source={tmp_path / 'mine.csv'}")
    columns = "1 of numbers, 1 of categories (sex 2); label 'ward' (3 classes)"
    assert out.splitlines()[0] == f"mine.csv: columns: {columns}"


def test_a_schema_replaces_the_extremes_of_the_table(tmp_path: Path) -> None:
    """A schema with the extremes changes nothing, and one with wider ranges the scaled rows."""
    table, schema = tmp_path / "mine.csv", tmp_path / "schema.toml"
    rows = [f"{n % 7},{n % 5},{'xy'[n % 2]}" for n in range(40)]
    table.write_text("\n".join(["a,b,label", *rows, ""]))

    def transcript(*given: str | Path) -> str:
        words = ("run", table, *QUICK, "--seed", "1", "--json", *given)
        return str(json.loads(done(*words))["transcript"])

    def widen(factor: int) -> None:
        ends = {"a": 6 * factor, "b": 4}
        columns = [{"name": name, "low": 0, "high": high} for name, high in ends.items()]
        schema.write_text(tomli_w.dumps({"classes": ["x", "y"], "features": columns}))

    widen(1)
    assert transcript("--schema", schema) == transcript()
    widen(1000)
    assert transcript("--schema", schema) != transcript()


def test_out_has_the_labels_beside_the_identifiers(tmp_path: Path) -> None:
    """They are in a private file, with the row of the table and the true class of each query."""
    lines = [f"P{n},{n % 9},{'ab'[n % 9 > 4]}" for n in range(60)]
    table, schema = tmp_path / "mine.csv", tmp_path / "schema.toml"
    table.write_text("\n".join(["patient,age,label", *lines, ""]))
    done("schema", "make", table, "--out", schema)
    folder = tmp_path / "run"
    done("run", table, *QUICK, "--schema", schema, "--out", folder)
    answers = folder / "labels.csv"
    assert answers.stat().st_mode & 0o077 == 0
    with answers.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [list(row) for row in rows] == [["patient", "row", "truth", "label"]] * 15
    for row in rows:
        patient, _, truth = lines[int(row["row"]) - 1].split(",")
        assert (row["patient"], row["truth"]) == (patient, truth)
    assert tuple(row["label"] for row in rows) == tuple(
        json.loads((folder / "report.json").read_text())["labels"]
    )


def test_runs_the_files_of_parties(tmp_path: Path) -> None:
    """Each party has its own rows, in any order of columns; labels name the party and the row."""
    files = [tmp_path / f"{name}.csv" for name in ("north", "south", "coast")]
    for number, file in enumerate(files):
        rows = (f"{n % 9},{'ab'[n % 9 > 4]}" for n in range(20 + 10 * number))
        file.write_text("\n".join(["age,label", *rows, ""]))
    files[1].write_text("\n".join(["label,age", *("a,3" for _ in range(30)), ""]))
    schema, folder = tmp_path / "schema.toml", tmp_path / "run"
    schema.write_text('label = "label"\nclasses = ["a", "b"]\n[[features]]\nname = "age"\nhigh = 8')
    given = ("--schema", schema, "--seed", "1", *QUICK)
    report = json.loads(done("run", *files, *given, "--json", "--out", folder))
    assert (report["parties"], report["rows"], report["queries"]) == (3, 68, 22)
    with (folder / "labels.csv").open(newline="") as labels:
        answers = list(csv.DictReader(labels))
    assert [list(row) for row in answers] == [["party", "row", "truth", "label"]] * 22
    for row in answers:
        number = int(row["party"].removeprefix("party-"))
        assert 1 <= int(row["row"]) <= 20 + 10 * number
        assert row["truth"] == ("a" if number == 1 else "ab"[(int(row["row"]) - 1) % 9 > 4])
    text = files[2].read_text()
    files[2].write_text(text.replace("age,label", "Alter,Gruppe"))
    reading = tmp_path / "coast.toml"
    reading.write_text('[names]\nage = "Alter"\nlabel = "Gruppe"\n')
    again = json.loads(done("run", *files, *given, "--reading", f"{files[2]}={reading}", "--json"))
    assert (again["labels"], again["transcript"]) == (report["labels"], report["transcript"])
    files[2].write_text(text)
    for wrong, says in (
        ((*given, "--reading", str(reading)), "FILE=READING.toml, with one of the files"),
        (
            (*given, "--set", f'data.other_readings=["{reading}"]'),
            "data.other_readings: give a reading, or an empty text, for each of 2 others",
        ),
        (QUICK, "data.others: the files of parties need a schema_file"),
        (
            (*given, "--set", "parties.count=4"),
            "parties.count is 4; allowed: 3, one for each table",
        ),
    ):
        code, _, err = invoke("run", *files, *wrong)
        assert code == 2
        assert says in err


def test_a_party_without_rows_takes_part_in_a_run(tmp_path: Path) -> None:
    """Its file has only a header; identifiers named like the answers' columns keep their cells."""
    files = [tmp_path / f"{name}.csv" for name in ("north", "empty", "coast")]
    for number, file in enumerate(files):
        rows = (f"r{n},p{n},{n % 9},{'ab'[n % 9 > 4]}" for n in range(30 * (number != 1)))
        file.write_text("\n".join(["row,party,age,label", *rows, ""]))
    schema, folder = tmp_path / "schema.toml", tmp_path / "run"
    columns = 'name = "row"\nkind = "identifier"', 'name = "party"\nkind = "identifier"'
    features = "\n".join(f"[[features]]\n{each}" for each in (*columns, 'name = "age"\nhigh = 8'))
    schema.write_text(f'label = "label"\nclasses = ["a", "b"]\n{features}')
    report = json.loads(done("run", *files, "--schema", schema, *QUICK, "--json", "--out", folder))
    assert (report["parties"], report["rows"]) == (3, 45)
    with (folder / "labels.csv").open(newline="") as labels:
        for row in csv.DictReader(labels):
            assert row["party"] in {"party-0", "party-2"}
            assert row["row of the file"] == f"r{int(row['row']) - 1}"
            assert row["party of the file"] == f"p{int(row['row']) - 1}"


def test_out_contains_everything_to_repeat_the_run(tmp_path: Path) -> None:
    """Report, scenario and versions are written, and the scenario gives the same report."""
    folder = tmp_path / "a" / "b"
    done("run", "wine", *QUICK, "--seed", "4", "--out", folder)
    first = json.loads((folder / "report.json").read_text())
    versions = json.loads((folder / "versions.json").read_text())
    assert {"veilring", "numpy", "python"} <= set(versions)
    assert tomllib.loads((folder / "scenario.toml").read_text())["run"]["seed"] == 4
    again = json.loads(done("run", folder / "scenario.toml", "--json"))
    assert again["transcript"] == first["transcript"]
    assert again["settings"] == first["settings"]


def test_debug_shows_the_origin_of_an_error() -> None:
    """With --debug the original error is raised."""
    result = CliRunner().invoke(app, ["--debug", "run", "wines"])
    assert isinstance(result.exception, ScenarioError)


def test_a_real_process_runs_real_processes() -> None:
    """`python -m veilring run` starts a process per party, and its JSON is the whole output.

    Equal seeds give equal transcripts.
    """
    command = ("run", "wine", "--json", "--seed", "1")
    ended = python("-m", "veilring", *command, *SMALL)
    assert ended.stderr == ""
    report = json.loads(ended.stdout)
    assert report["runtime"] == "processes"
    assert report["parties"] == 3
    assert report["cost"]["messages"] == 3 * (report["rounds"] + 3) - 2
    in_memory = json.loads(done(*command, *QUICK))
    assert report["transcript"] == in_memory["transcript"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a quick run."""
    folder = tmp_path_factory.mktemp("runs") / "wine"
    done("run", "wine", *QUICK, "--seed", "1", "--out", folder)
    return folder


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a run that failed because no message arrived."""
    with monkeypatch.context() as broken:
        broken.setattr(Node, "_dispatch", lambda *_: None)
        code, out, err = invoke(
            "run", "wine", "--runtime", "simulated", *SEEDED, "--out", tmp_path / "failed"
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
    done("run", "wine", *SEEDED, "--out", tmp_path)
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
    assert "error.json" in refused("run", "wine", *SEEDED, "--out", failed)
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
    out = done("run", "wine", *QUICK, "--seed", "1", *malicious, "--out", tmp_path)
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
