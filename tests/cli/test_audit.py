"""`veilring audit` and `veilring explore`: systems and roles of the user's own."""

import json
from pathlib import Path

import pytest
from tests.cli.invoking import done, invoke
from tests.testing.auditing.planted import let_audits_be_short

from veilring.testing.auditing import Verdict

HASTY = "docs.examples.secure_maximum:HASTY"
PLANTED = "tests.testing.auditing.planted"
ONE_WORKER = ("--workers", "1")


@pytest.mark.slow
def test_a_system_of_a_module_is_audited_with_its_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong forecast is contradicted with exit code 1, as JSON and in a folder."""
    let_audits_be_short(monkeypatch)
    subject = f"{PLANTED}:Majority"
    given = ("--quick", *ONE_WORKER, "--set", "mistake=forecast", "--json")
    code, out, _ = invoke("audit", subject, *given, "--out", tmp_path / "out")
    assert code == 1
    found = json.loads(out)
    verdicts = {claim["claim"]: claim["verdict"] for claim in found["claims"]}
    assert {claim for claim, said in verdicts.items() if said == "contradicted"} == {"cost"}
    assert verdicts["privacy"] == "holds"
    assert set(verdicts.values()) <= set(Verdict)
    assert found["parameters"]["mistake"] == "forecast"
    assert json.loads((tmp_path / "out" / "audit.json").read_text(encoding="utf-8")) == found
    assert (tmp_path / "out" / "audit.html").is_file()


@pytest.mark.slow
def test_a_role_without_a_mistake_ends_with_exit_code_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """A role is named like a system, and its verdicts form a table."""
    let_audits_be_short(monkeypatch)
    out = done("audit", f"{PLANTED}:MASKED", "--quick", *ONE_WORKER)
    assert "None of the 6 claims is contradicted." in out


def test_a_role_of_the_user_is_explored_by_name() -> None:
    """A role that is right in all worlds is reported as one.

    Each class of fault is applied to each message of the role with its own inputs.
    """
    _, out, _ = invoke("explore", f"{PLANTED}:MASKED", "--seeds", "3", *ONE_WORKER)
    assert out.startswith("seeds: 3, of which 0 went wrong; runs: ")
    assert "state that a party keeps from one run to the next may be missed" in " ".join(
        out.split()
    )
    assert "of which 0 went wrong" in done("explore", f"{PLANTED}:MASKED", "--every-message")


def test_the_smallest_failing_world_of_a_role_is_printed() -> None:
    """A role that is wrong after a fault fails, with two parties and one fault in the message."""
    code, _, error = invoke("explore", HASTY, "--seeds", "20", *ONE_WORKER)
    assert code == 1
    assert f"replay: veilring explore {HASTY} --seed " in error
    assert ": 2 parties, 1 run, " in error


def test_a_system_of_the_user_is_explored_with_its_parameters() -> None:
    """Its parameters are set like those of a built-in system, and so are keys of the scenario."""
    given = ("--set", "protocol.mistake=label", "--set", "parties.count=3")
    _, out, error = invoke("explore", f"{PLANTED}:Majority", "--seed", "1", *given, *ONE_WORKER)
    assert out.startswith("seeds: 1, of which 1 went wrong")
    assert "the labels of party-0 differ from those of `Setup.label`" in error


def test_errors_from_faults_are_expected() -> None:
    """An exploration with faults that stop runs reports these errors as expected."""
    code, out, _ = invoke("explore", "--seeds", "2")
    assert "went wrong; runs: " in out.splitlines()[0]
    assert ("0 ended in named errors" in out) != ("named errors are expected" in out)
    assert code in {0, 1}  # two seeds may lack a class of faults
