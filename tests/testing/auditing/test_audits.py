"""Audits: every claim has a verdict, true claims hold, and planted mistakes are contradicted."""

import json
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tests.testing.auditing.planted import AUDIT, OPEN, Majority, QuietOwner

from veilring.errors import InputError
from veilring.protocols.registry import BUILT_IN, find_system
from veilring.testing import audit
from veilring.testing.auditing import Audit, Auditable, Claim, Verdict, check_faults
from veilring.testing.auditing.findings import (
    QUICK,
    AuditedSystem,
    outcome,
    render_page,
    require_fresh,
    write_audit,
)

OF_ALL = {"cost", "labels", "reproducible", "privacy", "faults", "malicious parties"}


def contradicted(found: Audit) -> set[str]:
    """Return the names of the contradicted claims."""
    return {claim.claim for claim in found.contradicted}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_no_claim_of_a_built_in_system_is_contradicted(name: str) -> None:
    """A quick audit of each system has a verdict for each claim, and contradicts none.

    The privacy of PP-kNN leaks as stated, with an advantage.
    """
    found = audit(find_system(name), quick=True)
    assert found.contradicted == ()
    names = [claim.claim for claim in found.claims]
    bounded = {"unit", "budget"} if find_system(name)().promise().epsilon else set()
    assert OF_ALL | bounded <= set(names)
    assert ("wrong results" in names) == bool(bounded)  # noise decides which labels are right
    assert len(set(names)) == len(names)
    assert all(claim.finding and claim.promised for claim in found.claims)
    tested = [claim for claim in found.claims if claim.verdict is Verdict.HOLDS]
    assert all(claim.power for claim in tested)
    if name == "private-knn":
        privacy = found["privacy"]
        assert privacy.verdict is Verdict.LEAKS
        assert "has an advantage of 0." in privacy.finding
        assert any(line.startswith("loss of privacy") for line in privacy.evidence)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subject", "wrong"),
    [
        (Majority(mistake="leak"), {"cost", "privacy"}),
        (Majority(mistake="label"), {"labels", "faults", "malicious parties"}),
        (Majority(mistake="late"), {"faults"}),
        (QuietOwner, {"privacy"}),
    ],
    ids=["a leak", "a wrong label", "a wrong label if it is late", "noise for four times ε"],
)
def test_a_planted_mistake_is_contradicted(subject: Auditable, wrong: set[str]) -> None:
    """The claims that a planted mistake breaks are contradicted, and no others."""
    assert contradicted(audit(subject, quick=True)) == wrong


def test_a_role_is_audited_with_its_claims() -> None:
    """In a sum without masks, the view of a party reveals the inputs of others."""
    found = audit(OPEN, quick=True)
    assert contradicted(found) == {"privacy"}
    assert found["malicious parties"].verdict is Verdict.NOT_CLAIMED


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("rank-search", "any mistake that"),
        ("data-owner", "any invalid label, disagreement of parties"),
    ],
)
def test_the_power_of_explored_faults_is_that_of_what_is_checked(name: str, found: str) -> None:
    """Where noise decides the labels, an audit does not say that it would find every mistake."""
    system = find_system(name)()
    effort = replace(QUICK, worlds=1, worlds_max=1)
    faults, *_ = check_faults(AuditedSystem(system, system.example()), effort, 0)
    assert f"With a probability of 95%, the audit would find {found}" in faults.power
    assert "A crash never falls between two sends of one step" in faults.power


@pytest.mark.slow
def test_a_plug_in_without_a_mistake_is_not_contradicted() -> None:
    """A system is audited with the defaults, equally by one process and by two."""
    found, other = (audit(Majority, quick=True, workers=workers) for workers in (1, 2))
    assert found.contradicted == ()
    assert found["privacy"].verdict is Verdict.HOLDS
    assert found.claims == other.claims


@pytest.mark.slow
def test_a_leak_to_a_party_in_the_middle_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit with other views, or of a named party, contradicts the claim about its view only.

    A named party is examined instead of the first one, also by a quick audit.
    """
    system = Majority(mistake="leak to the second")
    named = audit(system, quick=True, coalitions=[["party-1"]])
    monkeypatch.setattr("veilring.testing.auditing.QUICK", replace(QUICK, other_views=True))
    every = audit(system, quick=True)
    for found in (named, every):
        assert contradicted(found) == {"cost", "privacy, view of party-1"}
    assert "privacy" not in {claim.claim for claim in named.claims}
    assert every["privacy"].verdict is Verdict.HOLDS
    assert every["privacy, view of party-2"].verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"least": 4}, "least is 4; allowed: 2 to 3"),
        ({"least": 1}, "least is 1; allowed: 2 to 3"),
        (
            {"public": {"masked": True, "hidden": True}},
            "total cannot be called .* unexpected keyword .*'hidden'",
        ),
        ({"public": {}}, "total cannot be called .* missing .*'masked'"),
    ],
)
def test_claims_that_no_run_could_satisfy_are_refused(wrong: dict[str, Any], expected: str) -> None:
    """The error names the argument of the claims, before anything is run."""
    with pytest.raises(InputError, match=expected):
        replace(OPEN, **wrong)


@pytest.mark.parametrize(
    ("subject", "coalition", "expected"),
    [
        (Majority, ["party-1", "party-2"], "allowed: up to 1 of party-0, party-1, party-2"),
        (Majority, ["party-9"], "'party-9'; allowed: up to 1 of party-0"),
        (Majority, [""], "allowed: up to 1 of party-0"),
        (QuietOwner, ["party-1"], "coalition is 'party-1'; allowed: party-0"),
        (OPEN, ["ada"], "a role has one coalition; name it in `RoleClaims`"),
    ],
)
def test_a_coalition_beyond_the_promise_is_refused(
    subject: Auditable, coalition: list[str], expected: str
) -> None:
    """The error names the coalitions that the promise covers, before anything is run."""
    with pytest.raises(InputError, match=expected):
        audit(subject, quick=True, coalitions=[coalition])


def test_the_page_has_every_claim_with_its_verdict() -> None:
    """Each claim is a section with its promise and its finding, escaped."""
    page = render_page(AUDIT)
    assert page.count('<section class="claim"') == len(AUDIT.claims)
    for claim in AUDIT.claims:
        assert f"Promise &lt;{claim.verdict}&gt;." in page
    assert 'mistake = "leak"' in unescape(page)
    assert outcome(AUDIT) == "1 of 6 claims is contradicted: CONTRADICTED."


def test_a_folder_has_the_page_the_numbers_and_the_worlds(tmp_path: Path) -> None:
    """The page links files that reproduce a finding, and nothing is overwritten."""
    claim = Claim("faults", "", Verdict.CONTRADICTED, "wrong", files={"faults.toml": "a = 1\n"})
    found = Audit("majority", "Majority", {}, 7, True, 1e-6, (claim,), 12.0)
    write_audit(found, tmp_path / "out")
    assert 'href="faults.toml"' in (tmp_path / "out" / "audit.html").read_text(encoding="utf-8")
    assert (tmp_path / "out" / "faults.toml").read_text(encoding="utf-8") == "a = 1\n"
    numbers = json.loads((tmp_path / "out" / "audit.json").read_text(encoding="utf-8"))
    assert numbers["system"] == "majority"
    assert [(each["claim"], each["verdict"]) for each in numbers["claims"]] == [
        ("faults", "contradicted")
    ]
    with pytest.raises(InputError, match="nothing is overwritten"):
        require_fresh(tmp_path / "out")
