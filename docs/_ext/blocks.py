"""The fenced blocks of a page, and what the page says of each in comments directly before it.

A reader does not see an HTML comment. These have a meaning:

| comment | what it says of the block below it |
| --- | --- |
| `<!-- file: NAME -->` | it is the text of a file that the commands after it need |
| `<!-- with: NAME from DATA -->` | its commands need a CSV file, and any rows will do: `samples` |
| `<!-- first: COMMAND -->` | what others did before, on machines of their own |
| `<!-- in CI: NEW for OLD -->` | it is run with other words than it shows, to be quick |
| `<!-- stops: FILE -->` | servers that it finds stopped, by their configurations, or `all` |
| `<!-- same: FILE -->` | it makes the file of this name that lies in the page's folder |
| `<!-- by hand: REASON -->` | it is not run |
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

MEANINGS: Final = frozenset({"file", "with", "first", "in CI", "stops", "same", "by hand"})
"""What a comment before a block may begin with."""
RUN: Final = frozenset({"sh", "console", "python"})
"""The languages of blocks that are run."""

_ROOT: Final = Path(__file__).parents[2]
_NOTE: Final = re.compile(r"<!-- ([\w ]+):\s(.*?)\s*-->", re.DOTALL)
_BLOCK: Final = re.compile(
    r"^(?P<notes>(?:<!--(?:(?!-->).)*-->\n+)*)```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class Note(NamedTuple):
    """A comment before a block: what it is about, and what it says."""

    about: str
    text: str


class Block(NamedTuple):
    """A fenced block of a page.

    Attributes:
        line: Where it begins, from 1.
        language: What stands behind its fence.
        text: What is in it.
        notes: What is said of it.
    """

    line: int
    language: str
    text: str
    notes: tuple[Note, ...]

    def said(self, about: str) -> tuple[str, ...]:
        """Return what the comments before it say about something."""
        return tuple(note.text for note in self.notes if note.about == about)

    @property
    def runs(self) -> bool:
        """Whether there is something to be run in it."""
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
