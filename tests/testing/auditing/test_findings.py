"""The result of an audit as text."""

from veilring.privacy.bounds import ALARM
from veilring.testing.auditing import Audit, Claim, Verdict


def test_an_audit_prints_a_line_for_each_claim() -> None:
    """A line has the claim and its verdict, and the finding only if a run contradicts it."""
    claims = (
        Claim("result", "", Verdict.HOLDS, "The results satisfy the invariant."),
        Claim("privacy", "", Verdict.CONTRADICTED, "The view of ada reveals the world."),
    )
    found = Audit("role", "a role", {}, 0, True, ALARM, claims, 1.0)
    assert str(found).splitlines() == [
        "a role: 1 of 2 claims is contradicted: privacy.",
        "  result             holds",
        "  privacy            contradicted: The view of ada reveals the world.",
    ]
