"""`veilring run`: its output, files and exit codes."""

import json
import tomllib
from pathlib import Path

import tomli_w
from tests.cli.invoking import done, invoke, python
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.errors import ScenarioError

SMALL = ("--set", "parties.count=3", "--set", "run.leakage_trials=20")
QUICK = ("--runtime", "memory", *SMALL)


def test_prints_accuracy_beside_the_reference_cost_and_leakage() -> None:
    """One table has everything, and standard error is empty; without a seed, one is shown."""
    code, out, err = invoke("run", "wine", *QUICK)
    assert (code, err) == (0, "")
    costs = ("rounds", "messages", "bytes", "wall time")
    leakage = ("exposure", "claim", "loss of privacy", "Transcript")
    for line in ("accuracy", "pooled kNN", "majority class", *costs, *leakage):
        assert line in out
    assert "To repeat the split and partition: --seed " in out


def test_of_a_csv_it_reports_the_columns(tmp_path: Path) -> None:
    """The first line counts numbers, categories and classes."""
    rows = [f"{n}.5,{'fm'[n % 2]},{n % 3}" for n in range(40)]
    (tmp_path / "mine.csv").write_text("\n".join(["size,sex,ward", *rows, ""]))
    out = done("run", "wine", *QUICK, "--set", f"data.source={tmp_path / 'mine.csv'}")
    columns = "1 of numbers, 1 of categories (sex 2); label 'ward' (3 classes)"
    assert out.splitlines()[0] == f"mine.csv: columns: {columns}"


def test_ranges_replace_the_extremes_of_the_table(tmp_path: Path) -> None:
    """A file with the extremes changes nothing, and one with wider ranges the scaled rows."""
    table, ranges = tmp_path / "mine.csv", tmp_path / "ranges.toml"
    rows = [f"{n % 7},{n % 5},{'xy'[n % 2]}" for n in range(40)]
    table.write_text("\n".join(["a,b,label", *rows, ""]))

    def transcript(*given: str | Path) -> str:
        words = ("run", table, *QUICK, "--seed", "1", "--json", *given)
        return str(json.loads(done(*words))["transcript"])

    def widen(factor: int) -> None:
        ends = {"a": 6 * factor, "b": 4}
        columns = [{"name": name, "low": 0, "high": high} for name, high in ends.items()]
        ranges.write_text(tomli_w.dumps({"features": columns}))

    widen(1)
    assert transcript("--ranges", ranges) == transcript()
    widen(1000)
    assert transcript("--ranges", ranges) != transcript()


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
