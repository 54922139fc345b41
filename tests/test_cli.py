"""The command line: what it prints, writes and exits with."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.errors import ScenarioError
from veilring.scenarios import scenario_names, scenario_text

QUICK = ("--runtime", "memory", "--set", "parties.count=3", "--set", "run.leakage_trials=20")


def _invoke(*arguments: str) -> tuple[int, str, str]:
    """Run a command; return its exit code, standard output and standard error."""
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "100", "VEILRING_DEBUG": ""})
    return result.exit_code, result.stdout, result.stderr


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter and wait for it to succeed."""
    command = [sys.executable, *arguments]
    return subprocess.run(  # noqa: S603  (our own program)
        command, check=True, capture_output=True, text=True, timeout=120
    )


class TestHelp:
    """What teaches."""

    def test_of_the_program_shows_examples_and_exit_codes(self) -> None:
        """The first thing to try is in it, and so is what exit codes mean."""
        code, out, _ = _invoke("--help")
        assert code == 0
        assert "veilring run wine" in out
        assert "2 the input was wrong" in out

    def test_of_run_shows_how_to_set_a_key(self) -> None:
        """So is a run of one's own data."""
        code, out, _ = _invoke("run", "--help")
        assert code == 0
        assert "--set data.source=my.csv" in out

    def test_does_not_import_what_is_slow(self) -> None:
        """Help, and a party's process, get by without SciPy, scikit-learn, polars and NumPy."""
        slow = "{'scipy', 'sklearn', 'polars', 'numpy'}"
        _python("-c", f"import sys, veilring.cli.app; assert not {slow} & set(sys.modules)")
        light = "import sys, veilring.cli; assert not {'typer', 'rich'} & set(sys.modules)"
        _python("-c", light)


class TestScenarios:
    """`veilring scenarios`."""

    def test_lists_each_on_one_line(self) -> None:
        """Its name and what it is."""
        code, out, _ = _invoke("scenarios")
        assert code == 0
        assert tuple(line.split()[0] for line in out.splitlines()) == scenario_names()

    def test_prints_one_as_it_is(self) -> None:
        """The output is the file, ready to be edited."""
        code, out, _ = _invoke("scenarios", "wine")
        assert (code, out) == (0, scenario_text("wine"))

    def test_an_unknown_name_is_wrong_input(self) -> None:
        """It names those that are."""
        code, out, err = _invoke("scenarios", "wines")
        assert (code, out) == (2, "")
        assert "breast-cancer" in err


class TestRun:
    """`veilring run`."""

    def test_prints_accuracy_beside_the_reference_cost_and_leakage(self) -> None:
        """A person finds everything in one table, and nothing on standard error."""
        code, out, err = _invoke("run", "wine", *QUICK, "--seed", "1")
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

    def test_json_is_the_whole_output(self) -> None:
        """A program can read it, and equal seeds give equal transcripts."""
        arguments = ("run", "wine", *QUICK, "--seed", "1", "--json")
        reports = [json.loads(_invoke(*arguments)[1]) for _ in range(2)]
        assert reports[0]["transcript"] == reports[1]["transcript"]
        assert reports[0]["parties"] == 3
        assert reports[0]["cost"]["messages"] == 3 * (reports[0]["rounds"] + 3) - 2

    def test_unseeded_it_says_how_to_repeat_the_split(self) -> None:
        """The fresh seed is printed."""
        _, out, _ = _invoke("run", "wine", *QUICK)
        assert "The same split and partition: --seed " in out

    def test_out_holds_what_is_needed_to_repeat_it(self, tmp_path: Path) -> None:
        """Report, scenario and versions are written, and the scenario runs to the same report."""
        folder = tmp_path / "a" / "b"
        code, _, _ = _invoke("run", "wine", *QUICK, "--seed", "4", "--out", str(folder))
        assert code == 0
        first = json.loads((folder / "report.json").read_text())
        assert {"veilring", "numpy", "python"} <= set(
            json.loads((folder / "versions.json").read_text())
        )
        assert tomllib.loads((folder / "scenario.toml").read_text())["run"]["seed"] == 4
        _, out, _ = _invoke("run", str(folder / "scenario.toml"), "--json")
        again = json.loads(out)
        assert again["transcript"] == first["transcript"]
        assert again["settings"] == first["settings"]

    def test_out_never_overwrites_a_report(self, tmp_path: Path) -> None:
        """A folder with a report is refused before anything is run."""
        (tmp_path / "report.json").write_text("mine")
        code, out, err = _invoke("run", "wine", *QUICK, "--out", str(tmp_path))
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
        """What is allowed is on standard error, and no trace."""
        code, out, err = _invoke("run", *arguments)
        assert (code, out) == (2, "")
        assert named in err
        assert "Traceback" not in err

    def test_debug_shows_where_an_error_came_from(self) -> None:
        """With --debug the error itself comes out."""
        result = CliRunner().invoke(app, ["--debug", "run", "wines"])
        assert isinstance(result.exception, ScenarioError)

    def test_a_failed_run_exits_with_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A run that could not end says who waited for what, in one paragraph."""
        from veilring.nodes.node import Node  # noqa: PLC0415  (only this test breaks it)

        monkeypatch.setattr(Node, "_dispatch", lambda *_: None)
        code, out, err = _invoke("run", "wine", *QUICK, "--runtime", "simulated")
        assert (code, out) == (1, "")
        assert err.startswith("veilring: ")


def test_a_real_process_runs_real_processes() -> None:
    """`python -m veilring run` starts a process for each party and leaves nothing on stderr."""
    command = ("run", "wine", "--json", "--seed", "1")
    small = ("--set", "parties.count=3", "--set", "run.leakage_trials=20")
    done = _python("-m", "veilring", *command, *small)
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["runtime"] == "processes"
    in_memory = json.loads(_invoke(*command, *QUICK)[1])
    assert report["transcript"] == in_memory["transcript"]
