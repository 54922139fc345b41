"""The command lines of comparisons and of tuning: `veilring compare` and `veilring tune`."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.cli.invoking import done, invoke
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.cli.console import PROGRESS_LINES

QUICK = ("--parties", "3", "--seeds", "2", "--workers", "1")
COMPARED = (*QUICK, "--epsilon", "1", "--queries", "4", "--seed", "1")
TUNED = (*QUICK, "--queries", "10")


def said(*words: str | Path) -> str:
    """Return the output of a command that prints nothing on standard error."""
    code, out, err = invoke(*words)
    assert (code, err) == (0, "")
    return out


def _compare(*options: str | Path) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(said("compare", "iris", *COMPARED, "--json", *options))
    return plain


@pytest.mark.slow
def test_prints_a_line_per_system_and_the_decision() -> None:
    """It prints the table, the sentences, omitted lines, and the effect of the seed on ε.

    Without a terminal, the first line on standard error is the number of jobs, and the last one
    their end.
    """
    shown = CliRunner().invoke(app, ["compare", "iris", *COMPARED, "--measure", "macro-f1"])
    assert shown.exit_code == 0
    assert "macro-f1" in shown.stdout
    for name in ("pooled 5-NN", "majority class", "PP-kNN", "noisy votes", "LDP naive Bayes"):
        assert name in shown.stdout
    assert "Do not compare across guarantees" in shown.stdout
    assert "Left out: tree walk" in shown.stdout
    assert shown.stdout.count("All noise here was drawn from the seed") == 1
    assert "--seed 1" in shown.stdout
    progress = shown.stderr.splitlines()
    jobs = progress[0].removeprefix("Comparing: 0 of ")
    assert progress[-1] == f"Comparing: {jobs} of {jobs}"
    assert 2 < len(progress) <= PROGRESS_LINES + 1


def test_compares_the_files_of_parties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each party keeps its own rows, read by one schema; a file may have a reading of its own."""
    monkeypatch.setattr(
        "veilring.scenarios.comparison.contenders.system_names", lambda: ("release",)
    )
    files = [tmp_path / f"{name}.csv" for name in ("north", "south", "coast")]
    for number, file in enumerate(files):
        rows = (f"{n % 9},{'ab'[n % 9 > 4]}" for n in range(20 + 10 * number))
        file.write_text("\n".join([f"{'Alter' if number == 2 else 'age'},label", *rows, ""]))
    schema, reading = tmp_path / "schema.toml", tmp_path / "reading.toml"
    schema.write_text('label = "label"\nclasses = ["a", "b"]\n[[features]]\nname = "age"\nhigh = 8')
    reading.write_text('names = { age = "Alter" }')
    options = ("--seeds", "2", "--queries", "4", "--epsilon", "1", "--no-hindsight", "--json")
    given = ("--schema", schema, "--reading", f"{files[2]}={reading}", "--workers", "1")
    found = json.loads(said("compare", *files, *given, *options))
    assert found["facts"]["name"] == "north, south, coast"
    assert (found["question"]["parties"], found["facts"]["rows"]) == (3, 90)
    code, _, err = invoke("compare", *files)
    assert code == 2
    assert "give the public schema of all with --schema" in err
    code, _, err = invoke("compare", *files, "--schema", schema, "--reading", reading)
    assert code == 2
    assert "allowed: FILE=READING.toml, with one of the files" in err


def test_refuses_a_measure_that_has_no_column() -> None:
    """A matrix is of one run; the error names the others, before anything is run."""
    code, _, err = invoke("compare", "iris", "--measure", "confusion")
    assert code == 2
    assert "--measure is 'confusion'; allowed: balanced-accuracy, macro-f1, auc" in err


@pytest.mark.slow
def test_writes_a_folder_with_page_picture_and_json(tmp_path: Path) -> None:
    """The folder has the page, the printed numbers, and the picture in two formats.

    Batch times follow the latency of the links of a network from a file.
    """
    path, out, plot = tmp_path / "wan.toml", tmp_path / "runs" / "iris", tmp_path / "accuracy.svg"
    path.write_text('latency = { distribution = "constant", seconds = 0.5 }\n')
    printed = _compare("--out", out, "--plot", plot, "--network", path, "--no-hindsight")
    files = {"report.html", "comparison.json", "accuracy.svg"}
    assert {path.name for path in out.iterdir()} == files
    assert json.loads((out / "comparison.json").read_text()) == printed
    assert (out / "accuracy.svg").read_text() == plot.read_text()
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")
    owner = next(line for line in printed["lines"] if line["system"] == "data-owner")
    assert owner["cost"]["simulated_seconds"] == pytest.approx(1.0)
    assert printed["question"]["network"]["latency"]["seconds"] == 0.5


def test_tuning_prints_the_best_and_a_table_to_paste() -> None:
    """It prints the choices, the accuracy with its interval, and a TOML table `protocol`."""
    out = said("tune", "iris", "--protocol", "data-owner", "--epsilon", "4", *TUNED)
    assert "on splits not used for the choice" in out
    table = tomllib.loads(out[out.index("[protocol]") :])["protocol"]
    assert (table["name"], table["epsilon"]) == ("data-owner", 4.0)


def test_tuning_writes_what_it_prints_as_json_and_overwrites_nothing(tmp_path: Path) -> None:
    """The file has the printed content, and a second run is refused."""
    out = tmp_path / "tuned.json"
    command = ("tune", "iris", "--protocol", "rank-search", *TUNED, "--json", "--out", out)
    plain = json.loads(said(*command))
    assert plain == json.loads(out.read_text(encoding="utf-8"))
    assert plain["tried"][0]["accuracy"] == max(each["accuracy"] for each in plain["tried"])
    assert plain["low"] <= plain["accuracy"] <= plain["high"]
    assert invoke(*command)[0] == 2


def test_tuning_begins_with_the_parameters_of_terms(tmp_path: Path) -> None:
    """Rows are read as the server reads them, and parameters not searched keep their values."""
    done("deploy", "prediction", "iris", "--epsilon", "9", "--out", tmp_path / "new")
    data, terms = tmp_path / "new" / "records.csv", tmp_path / "new" / "terms.toml"
    out = said("tune", data, "--protocol", "ind-knn", "--terms", terms, *TUNED, "--json")
    assert json.loads(out)["protocol"]["epsilon"] == 9.0


def test_tuning_does_not_search_set_parameters() -> None:
    """A parameter of --set keeps its value in all choices."""
    words = ("tune", "iris", "--protocol", "data-owner", "--set", "protocol.k=0", *TUNED, "--json")
    assert all("k" not in each["parameters"] for each in json.loads(done(*words))["tried"])
