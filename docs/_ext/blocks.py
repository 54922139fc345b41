"""The fenced blocks of a page, with the comments directly before them.

Readers do not see HTML comments. The following ones control how a block is run:

| comment | meaning for the block below it |
| --- | --- |
| `<!-- file: NAME -->` | the block is a file that later commands need |
| `<!-- with: NAME from DATA -->` | its commands need a CSV file with any rows (`samples`) |
| `<!-- first: COMMAND -->` | a command that others ran before, on their own machines |
| `<!-- in CI: NEW for OLD -->` | the block is run with other words, to be quick |
| `<!-- stops: FILE -->` | servers to stop before it, by their configurations, or `all` |
| `<!-- same: FILE -->` | it makes the file with this name in the page's folder |
| `<!-- by hand: REASON -->` | the block is not run |
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

MEANINGS: Final = frozenset({"file", "with", "first", "in CI", "stops", "same", "by hand"})
"""The allowed beginnings of a comment before a block."""
RUN: Final = frozenset({"sh", "console", "python"})
"""The languages of blocks that are run."""

_ROOT: Final = Path(__file__).parents[2]
_NOTE: Final = re.compile(r"<!-- ([\w ]+):\s(.*?)\s*-->", re.DOTALL)
_BLOCK: Final = re.compile(
    r"^(?P<notes>(?:<!--(?:(?!-->).)*-->\n+)*)```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class Note(NamedTuple):
    """A comment before a block: its keyword and its text."""

    about: str
    text: str


class Block(NamedTuple):
    """A fenced block of a page.

    Attributes:
        line: The number of its first line, from 1.
        language: The word behind its fence.
        text: Its content.
        notes: The comments before it.
    """

    line: int
    language: str
    text: str
    notes: tuple[Note, ...]

    def said(self, about: str) -> tuple[str, ...]:
        """Return the texts of the comments with a keyword."""
        return tuple(note.text for note in self.notes if note.about == about)

    @property
    def runs(self) -> bool:
        """Whether the block is run."""
        kept = self.said("by hand") or self.said("file")
        return self.language in RUN and not kept


def pages() -> tuple[Path, ...]:
    """Return the README and all pages of the documentation, in alphabetical order."""
    found = _ROOT.glob("docs/**/*.md")
    return (_ROOT / "README.md", *sorted(page for page in found if "_build" not in page.parts))


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page.

    Args:
        page: Its whole text.
    """
    for found in _BLOCK.finditer(page):
        notes = tuple(Note(*note) for note in _NOTE.findall(found["notes"]))
        line = page.count("\n", 0, found.end("notes")) + 1
        yield Block(line, found["language"], found["text"], notes)
