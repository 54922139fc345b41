"""`veilring run`: its output, files and exit codes."""

import json
import tomllib
from pathlib import Path

import pytest
import tomli_w
from tests.cli.invoking import invoke, python
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.errors import ScenarioError

QUICK = ("--runtime", "memory", "--set", "parties.count=3", "--set", "run.leakage_trials=20")


class TestRun:
    """`veilring run`."""

    def test_prints_accuracy_beside_the_reference_cost_and_leakage(self) -> None:
        """One table has everything, and standard error is empty."""
        code, out, err = invoke("run", "wine", *QUICK, "--seed", "1")
        assert (code, err) == (0, "")
        for line in (
            "accuracy",
            "pooled kNN",
            "majority class",
            "rounds",
            "messages",
            "bytes",
            "wall time",
            "exposure",
            "claim",
            "loss of privacy",
            "Transcript",
        ):
            assert line in out

    def test_of_a_csv_it_reports_the_columns(self, tmp_path: Path) -> None:
        """The first line counts numbers, categories and classes."""
        rows = [f"{n}.5,{'fm'[n % 2]},{n % 3}" for n in range(40)]
        (tmp_path / "mine.csv").write_text("\n".join(["size,sex,ward", *rows, ""]))
        _, out, _ = invoke("run", "wine", *QUICK, "--set", f"data.source={tmp_path / 'mine.csv'}")
        columns = "1 of numbers, 1 of categories (sex 2); label 'ward' (3 classes)"
        assert out.splitlines()[0] == f"mine.csv: columns: {columns}"

    def test_ranges_replace_the_extremes_of_the_table(self, tmp_path: Path) -> None:
        """A file with the extremes changes nothing, and one with wider ranges the scaled rows."""
        table, ranges = tmp_path / "mine.csv", tmp_path / "ranges.toml"
        rows = [f"{n % 7},{n % 5},{'xy'[n % 2]}" for n in range(40)]
        table.write_text("\n".join(["a,b,label", *rows, ""]))

        def transcript(*given: str | Path) -> str:
            words = ("run", table, *QUICK, "--seed", "1", "--json", *given)
            return str(json.loads(invoke(*words)[1])["transcript"])

        def widen(factor: int) -> None:
            ends = {"a": 6 * factor, "b": 4}
            columns = [{"name": name, "low": 0, "high": high} for name, high in ends.items()]
            ranges.write_text(tomli_w.dumps({"features": columns}))

        widen(1)
        assert transcript("--ranges", ranges) == transcript()
        widen(1000)
        assert transcript("--ranges", ranges) != transcript()
        code, _, err = invoke("run", table, "--ranges", tmp_path / "none.toml")
        assert code == 2
        assert "data.ranges: there is no file" in err

    def test_json_is_the_whole_output(self) -> None:
        """A program can parse it, and equal seeds give equal transcripts."""
        arguments = ("run", "wine", *QUICK, "--seed", "1", "--json")
        reports = [json.loads(invoke(*arguments)[1]) for _ in range(2)]
        assert reports[0]["transcript"] == reports[1]["transcript"]
        assert reports[0]["parties"] == 3
        assert reports[0]["cost"]["messages"] == 3 * (reports[0]["rounds"] + 3) - 2

    def test_unseeded_it_shows_how_to_repeat_the_split(self) -> None:
        """The output contains the fresh seed."""
        _, out, _ = invoke("run", "wine", *QUICK)
        assert "To repeat the split and partition: --seed " in out

    def test_out_contains_everything_to_repeat_the_run(self, tmp_path: Path) -> None:
        """Report, scenario and versions are written, and the scenario gives the same report."""
        folder = tmp_path / "a" / "b"
        code, _, _ = invoke("run", "wine", *QUICK, "--seed", "4", "--out", str(folder))
        assert code == 0
        first = json.loads((folder / "report.json").read_text())
        assert {"veilring", "numpy", "python"} <= set(
            json.loads((folder / "versions.json").read_text())
        )
        assert tomllib.loads((folder / "scenario.toml").read_text())["run"]["seed"] == 4
        _, out, _ = invoke("run", str(folder / "scenario.toml"), "--json")
        again = json.loads(out)
        assert again["transcript"] == first["transcript"]
        assert again["settings"] == first["settings"]

    def test_out_never_overwrites_a_report(self, tmp_path: Path) -> None:
        """A folder with a report is refused before the run."""
        (tmp_path / "report.json").write_text("mine")
        code, out, err = invoke("run", "wine", *QUICK, "--out", str(tmp_path))
        assert (code, out) == (2, "")
        assert "--out" in err
        assert (tmp_path / "report.json").read_text() == "mine"

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            (("wines",), "breast-cancer"),
            (("wine", "--set", "protocol.kk=3"), "did you mean k?"),
            (("wine", "--runtime", "cloud"), "memory, tls, processes or simulated"),
            (("wine", "--seed", "-1"), "run.seed"),
            (("wine", "--sed", "1"), "--seed"),
        ],
    )
    def test_wrong_input_exits_with_two(self, arguments: tuple[str, ...], named: str) -> None:
        """Standard error has the allowed values and no traceback."""
        code, out, err = invoke("run", *arguments)
        assert (code, out) == (2, "")
        assert named in err
        assert "Traceback" not in err

    def test_debug_shows_the_origin_of_an_error(self) -> None:
        """With --debug the original error is raised."""
        result = CliRunner().invoke(app, ["--debug", "run", "wines"])
        assert isinstance(result.exception, ScenarioError)

    def test_a_failed_run_exits_with_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A run that could not end names the waiting parties, in one paragraph."""
        from veilring.nodes.node import Node  # noqa: PLC0415  (only this test breaks it)

        monkeypatch.setattr(Node, "_dispatch", lambda *_: None)
        code, out, err = invoke("run", "wine", *QUICK, "--runtime", "simulated")
        assert (code, out) == (1, "")
        assert err.startswith("veilring: ")


def test_a_real_process_runs_real_processes() -> None:
    """`python -m veilring run` starts a process per party and leaves stderr empty."""
    command = ("run", "wine", "--json", "--seed", "1")
    small = ("--set", "parties.count=3", "--set", "run.leakage_trials=20")
    done = python("-m", "veilring", *command, *small)
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["runtime"] == "processes"
    in_memory = json.loads(invoke(*command, *QUICK)[1])
    assert report["transcript"] == in_memory["transcript"]
