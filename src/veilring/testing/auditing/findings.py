"""The effort of an audit, and its result: a verdict for each claim, with the evidence for it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from veilring.privacy.bounds import ALARM


@dataclass(frozen=True, slots=True)
class Effort:
    """The size of each part of an audit.

    Attributes:
        runs: The runs of each comparison of two worlds, both together; a multiple of 4.
        drawn: The views of each comparison that a system draws in one process, both worlds
            together; a multiple of 8.
        other_views: Whether the views of parties in other places are also examined, if these may
            differ from the client's.
    """

    runs: int
    drawn: int
    worlds: int
    worlds_max: int
    every_message: bool
    other_views: bool
    long_views: bool
    alarm: float = ALARM

    def shared_by(self, tests: int) -> "Effort":
        """Return the effort whose false alarms are divided among statistical tests."""
        return replace(self, alarm=self.alarm / max(1, tests))


QUICK: Final = Effort(
    runs=1_600,
    drawn=8_000,
    worlds=20,
    worlds_max=100,
    every_message=False,
    other_views=False,
    long_views=False,
)
"""About 20 s on two idle cores."""
FULL: Final = Effort(
    runs=8_000,
    drawn=60_000,
    worlds=200,
    worlds_max=400,
    every_message=True,
    other_views=True,
    long_views=True,
)
"""Between 16 s and about 6 minutes of CPU time, depending on the system."""


class Verdict(StrEnum):
    """The outcome of an audit for one claim."""

    HOLDS = "holds"
    """The claim was tested, and nothing contradicts it."""
    LEAKS = "leaks, as stated"
    """The promise states a leak that nothing bounds; it was measured."""
    CONTRADICTED = "contradicted"
    """A run contradicts it."""
    NOT_CLAIMED = "not claimed"
    """The promise does not cover it; the evidence shows what happens."""
    NOT_TESTED = "not tested"
    """The audit did not test it; the finding gives the reason."""
    BY_ARGUMENT = "by argument"
    """No run can test it; the finding names the proof or the test that supports it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a promise or a forecast, and the verdict on it.

    Attributes:
        power: The violations that the audit would have found, as sentences; empty if it tested
            nothing.
    """

    claim: str
    promised: str
    verdict: Verdict
    finding: str
    power: str = ""
    evidence: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Audit:
    """The verdicts on all claims of a system or a role.

    Attributes:
        seconds: The duration, in seconds of wall time.
    """

    system: str
    title: str
    parameters: Mapping[str, Any]
    seed: int
    quick: bool
    alarm: float
    claims: tuple[Claim, ...]
    seconds: float

    @property
    def contradicted(self) -> tuple[Claim, ...]:
        """The claims that a run contradicts."""
        return self.of(Verdict.CONTRADICTED)

    def of(self, verdict: Verdict) -> tuple[Claim, ...]:
        """Return the claims with a verdict."""
        return tuple(claim for claim in self.claims if claim.verdict is verdict)

    def __getitem__(self, claim: str) -> Claim:
        """Return a claim by its name."""
        for each in self.claims:
            if each.claim == claim:
                return each
        raise KeyError(claim)

    def as_json(self) -> dict[str, Any]:
        """Return the audit as a JSON object, with the names of files only."""
        tables = asdict(self)
        for claim in tables["claims"]:
            claim["files"] = list(claim["files"])
        return tables
