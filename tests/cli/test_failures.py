"""Failures of commands: a JSON object if JSON was requested, and exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.invoking import invoke

from veilring.cli.app import EXIT_INPUT, EXIT_RUN
from veilring.cli.options import EXIT_INTERRUPTED

WRONG_INPUT = [
    ("run", "wine", "--set", "protocol.k=0"),
    ("run", "nothing"),
    ("compare", "nothing"),
    ("compare", "wine", "--epsilon", "none"),
    ("tune", "nothing", "--protocol", "ind-knn"),
    ("ledger", "show", "nothing.ledger"),
    ("estimate", "nothing.toml"),
    ("tally", "nothing.toml", "nothing.parquet"),
    ("oracles", "--domain", "0"),
]


@pytest.mark.parametrize("words", WRONG_INPUT, ids=" ".join)
def test_a_wrong_input_is_an_object_with_json(words: tuple[str, ...]) -> None:
    """It has the sentence of standard error, and each wrong input with the allowed values."""
    code, out, err = invoke(*words, "--json")
    assert code == 2
    told = json.loads(out)
    assert err == f"veilring: {told['message']}\n"
    assert told["error"].endswith("Error")
    for wrong in told["inputs"]:
        assert set(wrong) == {"field", "value", "allowed", "message"}
        assert wrong["allowed"] in err


def test_a_run_that_fails_is_an_object(tmp_path: Path) -> None:
    """A failed run is printed as an object that names the error and each party's result."""
    silent = ['adversaries={party-2={kind="silent"}}', "parties.count=7"]
    settings = [word for setting in silent for word in ("--set", setting)]
    words = ("run", "wine", "--runtime", "simulated", "--seed", "1", *settings)
    for more in ((), ("--out", str(tmp_path / "run"))):
        code, out, err = invoke(*words, "--json", *more)
        assert code == 1
        told = json.loads(out)
        assert told["message"] in err
        assert set(told) == {"error", "message", "parties", "notes", "culprit"}


def test_a_wrong_option_is_an_object() -> None:
    """A wrong or unknown option is reported as a JSON object."""
    code, out, err = invoke("run", "wine", "--json", "--what")
    assert code == 2
    assert json.loads(out)["message"] == "No such option: --what"
    assert "--what" in err


def test_without_json_standard_output_stays_empty() -> None:
    """An error is text on standard error."""
    code, out, err = invoke("run", "nothing")
    assert (code, out) == (2, "")
    assert err.startswith("veilring: scenario is 'nothing'; allowed: ")


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_ctrl_c_is_reported(monkeypatch: pytest.MonkeyPatch, as_json: list[str]) -> None:
    """It ends a command with code 130 and one line."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("veilring.scenarios.load_scenario", interrupted)
    code, out, err = invoke("run", "wine", *as_json)
    assert (code, err) == (130, "veilring: stopped\n")
    assert (json.loads(out)["error"] == "KeyboardInterrupt") if as_json else not out


def test_an_interrupted_process_reports_it() -> None:
    """A real SIGINT reaches a separate process while a scenario is loaded."""
    program = """
import signal, sys, veilring.cli, veilring.scenarios as scenarios
scenarios.load_scenario = lambda *_: signal.raise_signal(signal.SIGINT)
sys.argv = ["veilring", "run", "wine"]
veilring.cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "veilring: stopped\n")


def test_exit_codes_are_in_the_help() -> None:
    """The help lists all exit codes."""
    _, out, _ = invoke("--help")
    for code in (EXIT_RUN, EXIT_INPUT, EXIT_INTERRUPTED):
        assert f"{code} " in out
