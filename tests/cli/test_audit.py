"""`veilring audit`: names, parameters, exit codes and files."""

import json
from pathlib import Path

import pytest
from tests.cli.invoking import invoke

from veilring.testing.auditing import Verdict

PLANTED = "tests.testing.auditing.planted"


@pytest.mark.slow
def test_a_system_of_a_module_is_audited_with_its_parameters(tmp_path: Path) -> None:
    """A wrong forecast is contradicted with exit code 1, as JSON and in a folder."""
    subject = f"{PLANTED}:Majority"
    given = ("--quick", "--workers", "1", "--set", "mistake=forecast", "--json")
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
def test_a_role_without_a_mistake_ends_with_exit_code_0() -> None:
    """A role is named like a system, and its verdicts form a table."""
    code, out, _ = invoke("audit", f"{PLANTED}:MASKED", "--quick", "--workers", "1")
    assert code == 0
    assert "None of the 5 claims is contradicted." in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no-such",), "tree-walk, or module:NAME"),
        (("no.such:thing",), "cannot be imported"),
        (("shop/mine.py:CLAIMS",), "such as mine:CLAIMS"),
        (("json:dumps",), "with veilring.testing.auditing.RoleClaims"),
        (("data-owner", "--set", "epsilon"), "KEY=VALUE"),
        (("data-owner", "--set", "epsilon=0"), "epsilon"),
        ((f"{PLANTED}:MASKED", "--set", "masked=false"), "leave out --set"),
        (("release", "--coalition", "party-1,party-9"), "of party-0, party-1, party-2"),
        ((f"{PLANTED}:MASKED", "--coalition", "ada"), "name it in `RoleClaims`"),
        (("data-owner", "--out", "."), "nothing is overwritten"),
    ],
)
def test_wrong_input_is_refused_before_the_audit(arguments: tuple[str, ...], said: str) -> None:
    """A wrong name, parameter or folder ends the command with exit code 2."""
    code, _, error = invoke("audit", *arguments)
    assert code == 2
    assert said in error
