"""The effort of an audit, and its result: a verdict for each claim, as a page and as files."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import tomli_w

from veilring.errors import InputError
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
    """The outcome of an audit for one claim: see `MEANINGS`."""

    HOLDS = "holds"
    LEAKS = "leaks, as stated"
    CONTRADICTED = "contradicted"
    NOT_CLAIMED = "not claimed"
    NOT_TESTED = "not tested"
    BY_ARGUMENT = "by argument"


MEANINGS: Final = MappingProxyType(
    {
        Verdict.HOLDS: "The claim was tested, and no run contradicts it.",
        Verdict.LEAKS: "The promise states a leak without a bound. The finding shows its size.",
        Verdict.CONTRADICTED: "A run contradicts the claim.",
        Verdict.NOT_CLAIMED: "The promise does not cover this. The evidence shows what happens.",
        Verdict.NOT_TESTED: "This audit did not test the claim. The finding gives the reason.",
        Verdict.BY_ARGUMENT: "No run of this audit tests the claim. The finding names the proof or"
        " the test that supports it.",
    }
)
"""Each verdict in a sentence."""


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


PAGE_FILE: Final = "audit.html"
NUMBERS_FILE: Final = "audit.json"


def outcome(audit: Audit) -> str:
    """Return the result of an audit in one sentence."""
    wrong = [claim.claim for claim in audit.contradicted]
    number = len(audit.claims)
    verb = "is" if len(wrong) == 1 else "are"
    if wrong:
        return f"{len(wrong)} of {number} claims {verb} contradicted: {', '.join(wrong)}."
    return f"None of the {number} claims is contradicted."


def setting(audit: Audit) -> str:
    """Return a line that describes how the audit was run."""
    kind = "quick audit" if audit.quick else "audit"
    return f"{audit.system}: {kind}, seed {audit.seed}, {audit.seconds:.0f} s"


def render_page(audit: Audit) -> str:
    """Return the page, which is equal for equal audits."""
    from veilring.scenarios.reporting.page import make_environment  # noqa: PLC0415  (an extra)

    given = {name: value for name, value in audit.parameters.items() if value is not None}
    return (
        make_environment(__package__)
        .get_template("audit.html.j2")
        .render(
            title=f"Audit of {audit.title}",
            setting=setting(audit),
            outcome=outcome(audit),
            counts=[(verdict, len(audit.of(verdict))) for verdict in Verdict],
            meanings=MEANINGS.items(),
            settings=tomli_w.dumps(given),
            audit=audit,
        )
    )


def require_fresh(out: Path) -> None:
    """Refuse a folder that exists, before a run starts."""
    if out.exists():
        raise InputError("--out", out, "a folder that does not exist; nothing is overwritten")


def write_audit(audit: Audit, out: Path) -> None:
    """Write the page, all numbers, and the worlds that fail to a folder."""
    files = {PAGE_FILE: render_page(audit), NUMBERS_FILE: json.dumps(audit.as_json(), indent=2)}
    for claim in audit.claims:
        files |= claim.files
    try:
        out.mkdir(parents=True)
        for name, text in files.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError("--out", out, f"a folder that can be written ({error})") from error
