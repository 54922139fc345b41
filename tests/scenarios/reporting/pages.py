"""A page as parsed with Python's parser, and the look-ups of its script."""

from html.parser import HTMLParser
from typing import Final
from xml.etree import ElementTree as ET

from typing_extensions import override

from veilring.scenarios.reporting.stepping import Flight, Moment, Story

_VOID: Final = {"meta", "link", "br", "img", "input", "hr"}
# A slash at its end closes one of these, and the page always writes it.
_CLOSED: Final = {"rect", "line", "circle", "path"}


class Page(HTMLParser):
    """The content of a page whose tags are balanced.

    Attributes:
        text: All visible text.
        tags: All opened elements, by name.
        attributes: All their attributes.
        ids: Their ids, in order.
        headings: Levels of headings, in order.
        described: The ids of pictures that have the title and description that they name.
        tables: The cells of each table, by its id, row by row.
        policy: The content security policy of the page.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self._open: list[str] = []
        self._tree = ET.TreeBuilder()
        self.feed(html)
        self.close()
        assert self._open == [], self._open
        elements = [*self._tree.close().iter()]
        self.tags = [element.tag for element in elements]
        self.attributes = [pair for element in elements for pair in element.items()]
        self.ids = [value for name, value in self.attributes if name == "id"]
        self.headings = [int(tag[1]) for tag in self.tags if tag in {"h1", "h2", "h3"}]
        pictures = (each for each in elements if each.get("role") == "img")
        labels = [each.attrib["aria-labelledby"].split() for each in pictures]
        self.described = [
            names[0].removesuffix("-title") for names in labels if {*names} <= {*self.ids}
        ]
        self.tables = {
            table.get("id", ""): [
                ["".join(map(str.strip, cell.itertext())) for cell in row]
                for row in table.iter("tr")
            ]
            for table in elements
            if table.tag == "table"
        }
        contents = (value for name, value in self.attributes if name == "content")
        self.policy = next((value for value in contents if "-src" in value), "")

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tree.start(tag, {name: value or "" for name, value in attrs})
        if tag in _VOID:
            self._tree.end(tag)
        else:
            self._open.append(tag)

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _CLOSED, tag
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, tag
        self._tree.end(tag)

    @override
    def handle_data(self, data: str) -> None:
        self._tree.data(data)
        if self._open and self._open[-1] not in {"script", "style"}:
            self.text += data


def in_flight(story: Story, step: int) -> list[Flight]:
    """Return the messages that are in flight at a step, in the order in which they were sent."""
    return [each for each in story.flights if each.first <= step < each.last]


def stand(story: Story, party: str, step: int) -> Moment:
    """Return the state of a party at a step."""
    moments = story.moments[story.parties.index(party)]
    return next(moment for moment in reversed(moments) if moment.step <= step)
