"""The report of `veilring run` on a silent party: as text, as JSON and on the page."""

import json
from pathlib import Path
from typing import Final

import pytest
from tests.cli.invoking import invoke

# Honest parties reach round 8 long before the time is up: 12 messages of 100 bytes.
LIMIT: Final = ("--set", "run.session_seconds=15")
SMALL: Final = ("parties.count=4", "data.queries=5", "run.leakage_trials=0")
SILENT: Final = 'adversaries={party-2={kind="silent", first_round=%d}}'


def settings(first_round: int) -> list[str]:
    """Return the options for a small scenario in which a party falls silent."""
    given = [*SMALL, SILENT % first_round]
    return [word for setting in given for word in ("--set", setting)]


@pytest.mark.parametrize("limit", [(), LIMIT], ids=["no limit", "limit"])
@pytest.mark.parametrize("first_round", [1, 8])
def test_a_silent_party_in_the_simulation_is_named(
    first_round: int, limit: tuple[str, ...], tmp_path: Path
) -> None:
    """The error begins with its name, on the terminal, as JSON, in the folder and on the page."""
    command = ["run", "wine", "--runtime", "simulated", "--seed", "1", *limit]
    command += settings(first_round)
    code, out, err = invoke(*command, "--json", "--out", tmp_path)
    assert code == 1
    assert err.startswith("veilring: party-2 did not send ring.topk.vector to party-")
    error = json.loads(out)
    assert error["culprit"] == "party-2"
    assert err == f"veilring: {error['message']}\n" or error["parties"]
    assert json.loads((tmp_path / "error.json").read_text()) == error
    assert invoke("report", tmp_path)[0] == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "party-2 did not send ring.topk.vector" in page
    assert invoke("trace", tmp_path)[1].startswith("The run failed. ")


@pytest.mark.slow
def test_a_silent_process_is_named() -> None:
    """At the timeout, the parties' answers about their waits identify the silent one."""
    command = ["run", "wine", "--runtime", "processes", "--seed", "1", *LIMIT, *settings(1)]
    code, out, err = invoke(*command, "--json")
    assert code == 1
    assert err.startswith("veilring: party-2 did not send ring.topk.vector to party-")
    assert json.loads(out)["culprit"] == "party-2"


def test_without_a_culprit_no_party_is_named() -> None:
    """If a link stalls until the limit, the error names who waited, and blames no party."""
    stall = "{kind='stall', source='party-1', target='party-2', start_seconds=0, end_seconds=99}"
    faults = ("--set", f"faults=[{stall}]")
    command = ["run", "wine", "--runtime", "simulated", "--seed", "1", *LIMIT, *faults]
    code, out, err = invoke(*command, *(w for s in SMALL for w in ("--set", s)), "--json")
    assert code == 1
    assert err.startswith("veilring: not finished after 15 s: ")
    assert "nobody can be blamed: a message from party-1 to party-2 has" in err
    assert json.loads(out)["culprit"] == ""
