"""The space-time diagram: each party is a line, time runs to the right, messages connect lines.

As text, time runs down, and each party is a column.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from veilring.nodes.journal import SETUP_ROUND, Mark, TracedMessage
from veilring.scenarios.report import in_bytes, in_seconds, shortened, ticks

# More arrows than this hide each other, and make the page larger than a megabyte.
ARROWS_MAX: Final = 2000

_LEFT, _RIGHT = 15.0, 98.0  # percent: the names of parties are to the left of the lines
_TOP: Final = 20  # pixels
_LANE_PIXELS: Final = 26
_LANES_PIXELS_MAX: Final = 960
_TEXT_PIXELS: Final = 13
_NAME_LETTERS_MAX: Final = 12
_STUB: Final = 0.35  # of the way to the receiver: the length of an arrow whose end is unknown
CORRUPT: Final = ("adversary", "coalition")  # kinds of marks shown by the colour of a lane
_SHAPES: Final = {"lost": "lost", "failed": "lost", "stopped": "stopped"}
STYLES: Final = 12  # the number of styles in the style sheet: six colours, each solid and dashed


class Lane(NamedTuple):
    """The line of a party."""

    party: str
    name: str
    """The party's name; empty if lines are too dense for names."""
    y: float
    end: float
    """The right end of the line, where the party was lost."""
    corrupt: bool


class Arrow(NamedTuple):
    """A message."""

    x1: float
    y1: float
    x2: float
    y2: float
    style: int
    end: str
    """`received`, `lost` if it was never received, or `unseen` if its sending was not recorded."""
    title: str
    message: TracedMessage


class Sign(NamedTuple):
    """An event at a party, and its position in the diagram."""

    x: float
    y: float
    shape: str
    """`lost`, `stopped` or `other`."""
    title: str


class Key(NamedTuple):
    """An entry of the legend: a kind of message."""

    kind: str
    style: int


class Tick(NamedTuple):
    """A time on the axis."""

    x: float
    text: str


class Diagram(NamedTuple):
    """The whole diagram; horizontal positions are in percent, vertical ones in pixels."""

    height: int
    left: float
    right: float
    lanes: tuple[Lane, ...]
    arrows: tuple[Arrow, ...]
    signs: tuple[Sign, ...]
    keys: tuple[Key, ...]
    ticks: tuple[Tick, ...]
    total: int
    """The number of messages, some of which may not be drawn."""


def sample(messages: Sequence[TracedMessage], most: int = ARROWS_MAX) -> list[TracedMessage]:
    """Return at most the given number of messages, taken evenly from all sessions and rounds."""
    stride = -(-len(messages) // most)
    in_rounds = sorted(messages, key=lambda message: (message.session, message.round))
    return in_rounds[:: stride or 1]


def draw(
    messages: Sequence[TracedMessage], marks: Iterable[Mark], parties: Sequence[str]
) -> Diagram:
    """Draw messages and marks, or a sample of them if there are many, on lanes in `lane_order`."""
    marks = list(marks)
    order = lane_order(messages, parties)
    scale = _Scale(messages, marks, len(order))
    rows = {party: scale.y(place) for place, party in enumerate(order)}
    kinds = list(dict.fromkeys(message.kind for message in messages))
    styles = {kind: place % STYLES for place, kind in enumerate(kinds)}
    known = [mark for mark in marks if mark.party in rows]
    signed = (mark for mark in known if mark.kind not in CORRUPT)
    return Diagram(
        height=round(scale.y(len(order))) + _TEXT_PIXELS,
        left=_LEFT,
        right=_RIGHT,
        lanes=tuple(_lane(party, place, known, scale) for place, party in enumerate(order)),
        arrows=tuple(_drawn_arrow(m, rows, styles[m.kind], scale) for m in sample(messages)),
        signs=tuple(_sign(mark, rows[mark.party], scale) for mark in signed),
        keys=tuple(Key(kind, styles[kind]) for kind in kinds),
        ticks=tuple(Tick(scale.x(seconds), text) for seconds, text in ticks(scale.span)),
        total=len(messages),
    )


def lane_order(messages: Iterable[TracedMessage], parties: Sequence[str]) -> list[str]:
    """Return the parties in the order of their first messages in the protocol.

    In a ring that is the order of the ring. Parties that never sent one come last.
    """
    spoke = (m.sender for m in messages if m.round != SETUP_ROUND)
    ends = (end for m in messages for end in (m.sender, m.receiver))
    return list(dict.fromkeys((*spoke, *parties, *ends)))


class _Scale:
    """Maps times and lanes to positions."""

    def __init__(
        self, messages: Iterable[TracedMessage], marks: Iterable[Mark], lanes: int
    ) -> None:
        ends = [s for m in messages for s in (m.sent_seconds, m.received_seconds) if s is not None]
        self.span = max([*ends, *(mark.seconds for mark in marks)], default=0.0)
        self.pitch = min(_LANE_PIXELS, _LANES_PIXELS_MAX / max(1, lanes))

    def x(self, seconds: float) -> float:
        share = min(1.0, max(0.0, seconds / self.span)) if self.span else 0.0
        return _LEFT + (_RIGHT - _LEFT) * share

    def y(self, place: int) -> float:
        return _TOP + self.pitch * place


def _lane(party: str, place: int, marks: Iterable[Mark], scale: _Scale) -> Lane:
    own = [mark for mark in marks if mark.party == party]
    lost = [scale.x(mark.seconds) for mark in own if mark.kind == "lost"]
    stride = -(-_TEXT_PIXELS // scale.pitch)
    return Lane(
        party=party,
        name="" if place % stride else shortened(party, _NAME_LETTERS_MAX),
        y=scale.y(place),
        end=min(lost, default=_RIGHT),
        corrupt=any(mark.kind in CORRUPT for mark in own),
    )


def _drawn_arrow(
    message: TracedMessage, rows: dict[str, float], style: int, scale: _Scale
) -> Arrow:
    sent, received = message.sent_seconds, message.received_seconds
    y1, y2 = rows[message.sender], rows[message.receiver]
    x1 = scale.x(message.seconds if sent is None else sent)
    x2 = scale.x(message.seconds if received is None else received)
    end = "received"
    if received is None:
        end, y2 = "lost", y1 + _STUB * (y2 - y1)
    elif sent is None:
        end, y1 = "unseen", y2 + _STUB * (y1 - y2)
    return Arrow(x1, y1, x2, y2, style, end, _title(message), message)


def _title(message: TracedMessage) -> str:
    sent, received = message.sent_seconds, message.received_seconds
    sending = "sending not recorded" if sent is None else f"sent at {in_seconds(sent)}"
    arrival = "not received" if received is None else f"received at {in_seconds(received)}"
    when = "set-up" if message.round == SETUP_ROUND else f"round {message.round}"
    ends = f"{message.sender} to {message.receiver}"
    return f"{message.kind}, {when}: {ends}, {in_bytes(message.bytes)}, {sending}, {arrival}"


def _sign(mark: Mark, y: float, scale: _Scale) -> Sign:
    shape = _SHAPES.get(mark.kind, "other")
    return Sign(
        scale.x(mark.seconds), y, shape, f"{mark.party}, {in_seconds(mark.seconds)}: {mark.what}"
    )


_TIME_LETTERS: Final = 12
_LANE_LETTERS_MIN: Final = 3  # a line, and room for an arrow's shaft on either side
_LANE_LETTERS_MAX: Final = 10
_SAID_LETTERS: Final = 40  # the usual width of the text next to a message


class _Lanes(NamedTuple):
    parties: list[str]
    letters: int
    """Letters of a column."""

    def place(self, party: str) -> int:
        return self.parties.index(party) * self.letters

    def empty(self) -> list[str]:
        return list("│".ljust(self.letters) * len(self.parties))


def text_diagram(
    messages: Sequence[TracedMessage],
    marks: Sequence[Mark],
    parties: Sequence[str],
    *,
    limit: int,
    width: int,
) -> Iterator[str]:
    """Yield the lines of a diagram of the first messages, and of the marks among them.

    Args:
        messages: The messages, in order of time.
        marks: The marks, in order of time.
        width: The number of characters in a line; the text of a mark or a long name may exceed it.
            If the columns of the parties do not fit, each line names the two ends instead.
    """
    shown = messages[:limit]
    order = lane_order(messages, parties)
    room = (width - _TIME_LETTERS - 1 - _SAID_LETTERS) // max(1, len(order))
    if room < _LANE_LETTERS_MIN:
        lanes = None
    else:
        longest = max((len(party) for party in order), default=0) + 1
        lanes = _Lanes(order, min(room, max(_LANE_LETTERS_MIN, min(longest, _LANE_LETTERS_MAX))))
        yield from _head(lanes)
    happened: list[TracedMessage | Mark] = [*shown, *_among(marks, messages, shown)]
    for one in sorted(happened, key=lambda event: event.seconds):
        yield f"{in_seconds(one.seconds):>{_TIME_LETTERS}} {_drawn(one, lanes)}"


def _among(
    marks: Sequence[Mark], messages: Sequence[TracedMessage], shown: Sequence[TracedMessage]
) -> Sequence[Mark]:
    """Return the marks within the time that is shown."""
    if len(shown) == len(messages):
        return marks
    end = shown[-1].seconds if shown else 0.0
    return [mark for mark in marks if mark.seconds <= end]


def _head(lanes: _Lanes) -> Iterator[str]:
    names = lanes.parties
    if max(map(len, names), default=0) >= lanes.letters:
        yield "Columns: " + ", ".join(f"{place} {name}" for place, name in enumerate(names))
        names = [str(place) for place in range(len(names))]
    titles = "".join(name.ljust(lanes.letters) for name in names)
    yield f"{'when':>{_TIME_LETTERS}} {titles}".rstrip()


def _drawn(event: TracedMessage | Mark, lanes: _Lanes | None) -> str:
    if isinstance(event, Mark):
        if lanes is None or event.party not in lanes.parties:
            return f"✗ {event.party}: {event.what}"
        line = lanes.empty()
        line[lanes.place(event.party)] = "✗"
        return f"{''.join(line)} {event.party}: {event.what}"
    if lanes is None:
        return f"{event.sender} → {event.receiver}  {_said(event)}"
    return f"{''.join(_arrow(event, lanes))} {_said(event)}"


def _arrow(message: TracedMessage, lanes: _Lanes) -> list[str]:
    line = lanes.empty()
    start, end = lanes.place(message.sender), lanes.place(message.receiver)
    low, high = sorted((start, end))
    line[low:high] = "─" * (high - low)
    line[start] = "○" if message.sent_seconds is None else "●"
    head = "▶" if end > start else "◀"
    line[end] = "○" if message.received_seconds is None else head
    return line


def _said(message: TracedMessage) -> str:
    when = "set-up" if message.round == SETUP_ROUND else f"round {message.round}"
    lost = ", never received" if message.received_seconds is None else ""
    return f"{message.kind}, {when}, {in_bytes(message.bytes)}{lost}"
