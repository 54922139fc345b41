"""Audits: all checks of this package on one system or role, and a verdict for each claim."""

from veilring.testing.auditing.audits import audit
from veilring.testing.auditing.findings import Audit, Claim, RoleClaims, Verdict

__all__ = ("Audit", "Claim", "RoleClaims", "Verdict", "audit")
