"""Every suppression of a check has its reason next to it."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = ("src", "tests", "benchmarks", "docs", ".ci")
SUPPRESSION: Final = re.compile(r"# (?:noqa|type: ignore|pragma: no cover)\b")
REASONED: Final = re.compile(
    r"# noqa: [A-Z]+\d+(?:, [A-Z]+\d+)*  \([^)]"  # with its reason in brackets
    r"|# type: ignore\[[a-z-]+(?:, ?[a-z-]+)*\]  # \w"  # with its reason as a comment
)


def test_every_suppression_has_a_reason() -> None:
    """Each `noqa` and `type: ignore` names its rule, and its reason after it."""
    bare = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if SUPPRESSION.search(line) and not REASONED.search(line)
    ]
    assert not bare
