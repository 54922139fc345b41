"""An audit as one self-contained page of HTML, and as files."""

import json
from pathlib import Path
from types import MappingProxyType
from typing import Final

import tomli_w

from veilring.errors import InputError
from veilring.scenarios.reporting.page import make_environment
from veilring.testing.auditing.findings import Audit, Verdict

PAGE_FILE: Final = "audit.html"
NUMBERS_FILE: Final = "audit.json"
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
