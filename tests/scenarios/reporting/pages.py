"""A page as parsed with Python's parser, and the look-ups of its script."""

from collections.abc import Sequence
from html.parser import HTMLParser

from typing_extensions import override

from veilring.scenarios.reporting.stepping import Flight, Moment, Story

_VOID = ("meta", "link", "br", "img", "input", "hr")
# A slash at its end closes one of these, and the page always writes it.
_CLOSED = ("rect", "line", "circle", "path")


class Page(HTMLParser):
    """The content of a page, and whether its tags are balanced.

    Attributes:
        tags: All opened elements, by name.
        ids: Their ids, in order.
        attributes: All their attributes.
        described: The ids of pictures that have the title and description that they name.
        tables: The cells of each table that has an id, row by row.
        text: All visible text.
        headings: Levels of headings, in order.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.headings: list[int] = []
        self.text = ""
        self._labels: list[Sequence[str]] = []
        self._open: list[str] = []
        self._table: list[list[str]] | None = None
        self.feed(html)
        self.close()
        assert self._open == [], self._open

    @property
    def described(self) -> list[str]:
        """The id prefixes of those pictures that have all their labels."""
        return [
            labels[0].removesuffix("-title") for labels in self._labels if {*labels} <= {*self.ids}
        ]

    @property
    def policy(self) -> str:
        """The content security policy of the page."""
        contents = [value for name, value in self.attributes if name == "content"]
        return next((value for value in contents if "-src" in value), "")

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes.extend(given.items())
        if "id" in given:
            self.ids.append(given["id"])
        if given.get("role") == "img":
            self._labels.append(given["aria-labelledby"].split())
        if tag in {"h1", "h2", "h3"}:
            self.headings.append(int(tag[1]))
        if tag == "table":
            self._table = self.tables.setdefault(given.get("id", ""), [])
        if self._table is not None and tag == "tr":
            self._table.append([])
        if self._table is not None and tag in {"td", "th"}:
            self._table[-1].append("")
        if tag not in _VOID:
            self._open.append(tag)

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _CLOSED, tag
        self.handle_starttag(tag, attrs)
        self._open.pop()

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, tag
        if tag == "table":
            self._table = None

    @override
    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in {"script", "style"}:
            self.text += data
        if self._table is not None and self._table and self._table[-1]:
            self._table[-1][-1] += data.strip()


def in_flight(story: Story, step: int) -> list[Flight]:
    """Return the messages that are in flight at a step, in the order in which they were sent."""
    return [each for each in story.flights if each.first <= step < each.last]


def stand(story: Story, party: str, step: int) -> Moment:
    """Return the state of a party at a step."""
    moments = story.moments[story.parties.index(party)]
    return next(moment for moment in reversed(moments) if moment.step <= step)
