"""Failures of commands: a JSON object if JSON was requested, exit codes, and full disks."""

import errno
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.cli.invoking import done, invoke

from veilring.cli.answers import write_answer
from veilring.errors import StoreFailed
from veilring.privacy.files import write_whole

SIMULATED: Final = ("run", "wine", "--runtime", "simulated", "--seed", "1")
SMALL: Final = ("parties.count=4", "data.queries=5", "run.leakage_trials=0")
# Honest parties reach round 8 long before the time is up: 12 messages of 100 bytes.
LIMIT: Final = ("--set", "run.session_seconds=15")


def small(*settings: str) -> list[str]:
    """Return the options of a small scenario with more settings."""
    return [word for setting in (*SMALL, *settings) for word in ("--set", setting)]


def silent(first_round: int) -> str:
    """Return the setting with which a party falls silent."""
    return f'adversaries={{party-2={{kind="silent", first_round={first_round}}}}}'


@pytest.mark.parametrize("limit", [(), LIMIT], ids=["no limit", "limit"])
@pytest.mark.parametrize("first_round", [1, 8])
def test_a_silent_party_in_the_simulation_is_named(
    first_round: int, limit: tuple[str, ...], tmp_path: Path
) -> None:
    """The error begins with its name, on the terminal, as JSON, in the folder and on the page.

    The object names the error and each party's result.
    """
    words = (*SIMULATED, *limit, *small(silent(first_round)), "--json")
    code, out, err = invoke(*words, "--out", tmp_path)
    assert code == 1
    assert err.startswith("veilring: party-2 did not send ring.topk.vector to party-")
    error = json.loads(out)
    assert error["culprit"] == "party-2"
    assert set(error) == {"error", "message", "parties", "notes", "culprit"}
    assert err == f"veilring: {error['message']}\n" or error["parties"]
    assert json.loads((tmp_path / "error.json").read_text()) == error
    assert json.loads(invoke(*words)[1])["message"] == error["message"]
    done("report", tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "party-2 did not send ring.topk.vector" in page
    assert ">adversaries: party-2, silent" in page
    shown = invoke("trace", tmp_path)[1]
    assert shown.startswith("The run failed. ")
    assert "adversaries: party-2, silent" in shown


@pytest.mark.slow
def test_a_silent_process_is_named() -> None:
    """At the timeout, the parties' answers about their waits identify the silent one."""
    command = ["run", "wine", "--runtime", "processes", "--seed", "1", *LIMIT, *small(silent(1))]
    code, out, err = invoke(*command, "--json")
    assert code == 1
    assert err.startswith("veilring: party-2 did not send ring.topk.vector to party-")
    assert json.loads(out)["culprit"] == "party-2"


def test_without_a_culprit_no_party_is_named() -> None:
    """If a link stalls until the limit, the error names who waited, and blames no party."""
    stall = "{kind='stall', source='party-1', target='party-2', start_seconds=0, end_seconds=99}"
    code, out, err = invoke(*SIMULATED, *LIMIT, *small(f"faults=[{stall}]"), "--json")
    assert code == 1
    assert err.startswith("veilring: not finished after 15 s: ")
    assert "nobody can be blamed: a message from party-1 to party-2 has" in err
    assert json.loads(out)["culprit"] == ""


def test_a_wrong_option_is_an_object() -> None:
    """A wrong or unknown option is reported as a JSON object, and as text without `--json`."""
    code, out, err = invoke("run", "wine", "--json", "--what")
    assert code == 2
    assert json.loads(out)["message"] == "No such option: --what"
    assert "--what" in err
    code, out, err = invoke("run", "nothing")
    assert (code, out) == (2, "")
    assert err.startswith("veilring: scenario is 'nothing'; allowed: ")


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_ctrl_c_is_reported(monkeypatch: pytest.MonkeyPatch, as_json: list[str]) -> None:
    """It ends a command with code 130 and one line."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("veilring.scenarios.schema.load_experiment", interrupted)
    code, out, err = invoke("run", "wine", *as_json)
    assert (code, err) == (130, "veilring: stopped\n")
    assert (json.loads(out)["error"] == "KeyboardInterrupt") if as_json else not out


def test_an_interrupted_process_reports_it() -> None:
    """A real SIGINT reaches a separate process while a scenario is loaded."""
    program = """
import signal, sys, veilring.cli, veilring.scenarios.schema as scenarios
scenarios.load_experiment = lambda *_: signal.raise_signal(signal.SIGINT)
sys.argv = ["veilring", "run", "wine"]
veilring.cli.main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "veilring: stopped\n")


REMEDY: Final = "ask again: the same request costs nothing"


@pytest.fixture
def full() -> Iterator[None]:
    """Let no file of this process grow beyond 4 KiB, as on a disk that is almost full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("full")
def test_an_answer_that_does_not_fit_leaves_no_file(tmp_path: Path) -> None:
    """The next try is not refused because a file exists already."""
    out = tmp_path / "labels.csv"
    with pytest.raises(StoreFailed, match=f"the labels could not be written .*; {REMEDY}"):
        write_answer("x" * 10_000, out, REMEDY)
    assert list(tmp_path.iterdir()) == []
    write_answer("label\n", out, REMEDY)
    assert out.read_text() == "label\n"
    assert out.stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("full")
def test_a_file_that_is_replaced_stays_whole(tmp_path: Path) -> None:
    """A page or a table that cannot be written leaves the earlier one as it was."""
    page = tmp_path / "report.html"
    write_whole(page, "earlier")
    with pytest.raises(OSError, match="File too large") as caught:
        write_whole(page, "x" * 10_000)
    assert caught.value.errno == errno.EFBIG
    assert page.read_text() == "earlier"
    write_whole(page, "later")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["later"]
    with pytest.raises(FileExistsError):
        write_whole(page, "new", new=True)


@pytest.mark.parametrize("words", [("systems",), ("scenarios",), ("oracles", "--help")])
def test_standard_output_on_a_full_disk_is_one_sentence(words: tuple[str, ...]) -> None:
    """A command whose output cannot be written ends with 1 and without a traceback."""
    command = [sys.executable, "-m", "veilring", *words]
    with Path("/dev/full").open("w") as output:
        ended = subprocess.run(
            command, stdout=output, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.stderr == "veilring: cannot write the output: No space left on device\n"
    assert ended.returncode == 1
