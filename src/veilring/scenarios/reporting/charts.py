"""Geometry of a page's charts.

Horizontal positions are in percent of the chart's width and vertical ones in pixels, so that a
chart fits a phone and a wide screen alike, while its text keeps the size of the page's. Charts that
are files of their own are drawn by `veilring.scenarios.charts`.

In the space-time diagram, each party is a line, time runs to the right, and messages connect lines.
As text, time runs down, and each party is a column.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil, floor
from typing import TYPE_CHECKING, Final, NamedTuple

from veilring.nodes.journal import SETUP_ROUND, Mark, TracedMessage
from veilring.protocols.promise import Estimate
from veilring.scenarios.report import (
    Amount,
    in_bytes,
    in_seconds,
    interval_text,
    percent,
    shortened,
    ticks,
)

if TYPE_CHECKING:
    from veilring.scenarios.comparison.lines import Line
    from veilring.scenarios.comparison.tuning import Interval

INTERVAL_ERRORS: Final = 1.96
"""The distance from a normal estimate to each end of its 95% interval, in standard errors."""

_ROW: Final = 40  # pixels of a bar and of the line of text above it
# On a phone a number of bytes shares the line; the table has the full name.
_LABEL_LETTERS_MAX: Final = 28
_COLUMNS_HEIGHT: Final = 160
_COLUMN_SHARE: Final = 0.8  # of the distance between two columns; the rest is the gap
ACCURACY_HEIGHT: Final = 260
"""Pixels between the highest and the lowest share."""
_LEFT: Final = (
    22.0  # percent: position of the first ε and the points around it, to the right of the shares
)
_RIGHT: Final = 88.0
_EDGE: Final = 99.0  # percent: right end of the points that belong to the last ε
_SPREAD: Final = 0.55  # share of the distance between two ε that the points of one ε take up
_WIDEST: Final = 5.0  # percent between two points of one ε, when there are few
_SHARE_STEPS: Final = (0.05, 0.1, 0.2)
_TICKS_MAX: Final = 7


class BarPart(NamedTuple):
    """A part of a bar; `style` is a class of the style sheet."""

    x: float
    width: float
    style: str


class Bar(NamedTuple):
    """A horizontal bar."""

    y: int
    label: str
    text: str
    parts: tuple[BarPart, ...]


class ChartColumn(NamedTuple):
    """A vertical bar."""

    x: float
    width: float
    y: float
    height: float
    label: str
    text: str


class Whisker(NamedTuple):
    """An estimate with the interval around it."""

    y: int
    label: str
    text: str
    low: float
    at: float
    high: float


class Chart(NamedTuple):
    """A chart's marks and its height."""

    height: int
    marks: Sequence[Bar | ChartColumn | Whisker]
    start: float = 0.0
    """The share at the left end, if the chart shows shares."""
    end: float = 1.0
    """The share at the right end."""


def bar_chart(amounts: Sequence[Amount]) -> Chart:
    """Chart the bytes of the protocol, followed by those of the set-up."""
    most = max((amount.bytes for amount in amounts), default=0) or 1
    rows = []
    for amount in amounts:
        own, setup = (100 * t.bytes / most for t in (amount.protocol, amount.setup))
        parts = (BarPart(0.0, own, "protocol"), BarPart(own, setup, "setup"))
        label = shortened(amount.label, _LABEL_LETTERS_MAX)
        rows.append((label, in_bytes(amount.bytes), tuple(part for part in parts if part.width)))
    return _bars(rows)


def share_chart(shares: Iterable[tuple[str, float]]) -> Chart:
    """Chart shares from 0 to 1."""
    return _bars(
        (label, percent(share), (BarPart(0.0, 100 * share, "protocol"),)) for label, share in shares
    )


def _bars(rows: Iterable[tuple[str, str, tuple[BarPart, ...]]]) -> Chart:
    bars = [Bar(place * _ROW, *row) for place, row in enumerate(rows)]
    return Chart(len(bars) * _ROW, bars)


def column_chart(amounts: Sequence[Amount]) -> Chart:
    """Chart the bytes of the protocol."""
    most = max((amount.protocol.bytes for amount in amounts), default=0) or 1
    step = 100 / max(1, len(amounts))
    columns = []
    for place, amount in enumerate(amounts):
        height = _COLUMNS_HEIGHT * amount.protocol.bytes / most
        top = _COLUMNS_HEIGHT - height
        text = f"{in_bytes(amount.protocol.bytes)} in {amount.protocol.messages:,} messages"
        x = (place + (1 - _COLUMN_SHARE) / 2) * step
        columns.append(ChartColumn(x, step * _COLUMN_SHARE, top, height, amount.label, text))
    return Chart(_COLUMNS_HEIGHT, columns)


def interval(estimate: Estimate) -> tuple[float, float]:
    """Return the 95% interval of an estimate with normal errors."""
    reach = INTERVAL_ERRORS * estimate.standard_error
    return estimate.value - reach, estimate.value + reach


def whisker_chart(estimates: Iterable[tuple[str, Estimate]]) -> Chart:
    """Chart shares with their 95% intervals, on an axis between the enclosing tenths."""
    named = list(estimates)
    intervals = [interval(estimate) for _, estimate in named]
    start = min(0.0, *(floor(10 * low) / 10 for low, _ in intervals))
    end = min(1.0, max(start + 0.1, *(ceil(10 * high) / 10 for _, high in intervals)))
    whiskers = []
    for place, ((label, estimate), ends) in enumerate(zip(named, intervals, strict=True)):
        low, at, high = (
            100 * (min(share, end) - start) / (end - start)
            for share in (ends[0], estimate.value, ends[1])
        )
        whiskers.append(Whisker(place * _ROW, label, percent(estimate.value), low, at, high))
    return Chart(len(whiskers) * _ROW, whiskers, start, end)


class AxisTick(NamedTuple):
    """A position on an axis and its text."""

    at: float
    text: str


class IntervalPoint(NamedTuple):
    """A mean with its interval; `style` is the number of the system."""

    x: float
    y: float
    top: float
    bottom: float
    style: int
    title: str


class PointJoin(NamedTuple):
    """A line from one point of a system to the next."""

    x1: float
    y1: float
    x2: float
    y2: float
    style: int


class LevelBand(NamedTuple):
    """A result without an ε: a horizontal line with its interval."""

    y: float
    top: float
    bottom: float
    label: str
    style: str


class LegendKey(NamedTuple):
    """An entry of the legend."""

    style: int
    name: str


class AccuracyChart(NamedTuple):
    """All marks of the accuracy chart."""

    height: int
    bands: Sequence[LevelBand]
    points: Sequence[IntervalPoint]
    segments: Sequence[PointJoin]
    keys: Sequence[LegendKey]
    across: Sequence[AxisTick]
    down: Sequence[AxisTick]


class _Scale(NamedTuple):
    low: float

    def y(self, share: float) -> float:
        above = max(0.0, share - self.low)  # an R² may be negative
        return ACCURACY_HEIGHT * (1.0 - above / (1.0 - self.low))

    def ends(self, interval: "Interval") -> tuple[float, float, float]:
        return self.y(interval.mean), self.y(interval.high), self.y(interval.low)


def accuracy_chart(lines: "Sequence[Line]", epsilons: Sequence[float]) -> AccuracyChart:
    """Chart accuracy against ε: systems with an ε as points, the others as horizontal lines.

    Args:
        epsilons: The values of ε on the axis, ascending.
    """
    scale = _Scale(max(0.0, floor(10 * min(line.accuracy.low for line in lines)) / 10))
    bounded = [line for line in lines if line.epsilon is not None]
    names = list(dict.fromkeys(line.name for line in bounded))
    across = _across(epsilons)
    where = {tick.text: tick.at for tick in across}
    points, segments = list[IntervalPoint](), list[PointJoin]()
    for style, name in enumerate(names):
        own = [line for line in bounded if line.name == name]
        aside = (style - (len(names) - 1) / 2) * _apart(len(across), len(names))
        placed = [_point(line, style, where[f"{line.epsilon:.10g}"] + aside, scale) for line in own]
        points += placed
        segments += [PointJoin(a.x, a.y, b.x, b.y, style) for a, b in pairwise(placed)]
    return AccuracyChart(
        ACCURACY_HEIGHT,
        _bands([line for line in lines if line.epsilon is None], scale),
        points,
        segments,
        [LegendKey(style, name) for style, name in enumerate(names)],
        across,
        _down(scale),
    )


def _across(epsilons: Sequence[float]) -> list[AxisTick]:
    """Return the position of each ε, evenly spaced whatever their ratios."""
    first = (_LEFT + _RIGHT) / 2 if len(epsilons) == 1 else _LEFT
    step = _step(len(epsilons))
    return [AxisTick(first + place * step, f"{each:.10g}") for place, each in enumerate(epsilons)]


def _step(epsilons: int) -> float:
    return (_RIGHT - _LEFT) / max(1, epsilons - 1)


def _apart(epsilons: int, systems: int) -> float:
    """Return the distance between the points of one ε, so that none hides another."""
    beyond = 2 * (_EDGE - _RIGHT) / max(1, systems - 1)
    return min(_WIDEST, _SPREAD * _step(epsilons) / systems, beyond)


def _point(line: "Line", style: int, x: float, scale: _Scale) -> IntervalPoint:
    y, top, bottom = scale.ends(line.accuracy)
    share = f"{percent(line.accuracy.mean)} ({interval_text(line.accuracy)})"
    return IntervalPoint(x, y, top, bottom, style, f"{line.label}: {share}")


def _bands(lines: "Sequence[Line]", scale: _Scale) -> list[LevelBand]:
    """Return a horizontal line for each accuracy, one for all systems that share it."""
    alike: dict[Interval, list[Line]] = {}
    for line in lines:
        alike.setdefault(line.accuracy, []).append(line)
    return [
        LevelBand(
            *scale.ends(accuracy),
            f"{', '.join(line.name for line in own)}: {percent(accuracy.mean)}",
            own[0].system,
        )
        for accuracy, own in alike.items()
    ]


def _down(scale: _Scale) -> list[AxisTick]:
    span = 1.0 - scale.low
    step = next((each for each in _SHARE_STEPS if span / each <= _TICKS_MAX), _SHARE_STEPS[-1])
    count = floor(span / step + 1e-9)
    return [AxisTick(scale.y(1.0 - n * step), f"{1.0 - n * step:.0%}") for n in range(count + 1)]


# More arrows than this hide each other, and make the page larger than a megabyte.
ARROWS_MAX: Final = 2000

_LANES_LEFT, _LANES_RIGHT = 15.0, 98.0  # percent: the names of parties are to the left of the lines
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


class Diagram(NamedTuple):
    """The whole diagram; horizontal positions are in percent, vertical ones in pixels."""

    height: int
    left: float
    right: float
    lanes: tuple[Lane, ...]
    arrows: tuple[Arrow, ...]
    signs: tuple[Sign, ...]
    keys: tuple[LegendKey, ...]
    ticks: tuple[AxisTick, ...]
    total: int
    """The number of messages, some of which may not be drawn."""


def sample(messages: Sequence[TracedMessage], most: int = ARROWS_MAX) -> list[TracedMessage]:
    """Return at most the given number of messages, taken evenly from all sessions and rounds."""
    stride = -(-len(messages) // most)
    in_rounds = sorted(messages, key=lambda message: (message.session, message.round))
    return in_rounds[:: stride or 1]


def draw_spacetime(
    messages: Sequence[TracedMessage], marks: Iterable[Mark], parties: Sequence[str]
) -> Diagram:
    """Draw messages and marks, or a sample of them if there are many, on lanes in `lane_order`."""
    marks = list(marks)
    order = lane_order(messages, parties)
    scale = _TimeScale(messages, marks, len(order))
    rows = {party: scale.y(place) for place, party in enumerate(order)}
    kinds = list(dict.fromkeys(message.kind for message in messages))
    styles = {kind: place % STYLES for place, kind in enumerate(kinds)}
    known = [mark for mark in marks if mark.party in rows]
    signed = (mark for mark in known if mark.kind not in CORRUPT)
    return Diagram(
        height=round(scale.y(len(order))) + _TEXT_PIXELS,
        left=_LANES_LEFT,
        right=_LANES_RIGHT,
        lanes=tuple(_lane(party, place, known, scale) for place, party in enumerate(order)),
        arrows=tuple(_drawn_arrow(m, rows, styles[m.kind], scale) for m in sample(messages)),
        signs=tuple(_sign(mark, rows[mark.party], scale) for mark in signed),
        keys=tuple(LegendKey(styles[kind], kind) for kind in kinds),
        ticks=tuple(AxisTick(scale.x(seconds), text) for seconds, text in ticks(scale.span)),
        total=len(messages),
    )


def lane_order(messages: Iterable[TracedMessage], parties: Sequence[str]) -> list[str]:
    """Return the parties in the order of their first messages in the protocol.

    In a ring that is the order of the ring. Parties that never sent one come last.
    """
    spoke = (m.sender for m in messages if m.round != SETUP_ROUND)
    ends = (end for m in messages for end in (m.sender, m.receiver))
    return list(dict.fromkeys((*spoke, *parties, *ends)))


class _TimeScale:
    """Maps times and lanes to positions."""

    def __init__(
        self, messages: Iterable[TracedMessage], marks: Iterable[Mark], lanes: int
    ) -> None:
        ends = [s for m in messages for s in (m.sent_seconds, m.received_seconds) if s is not None]
        self.span = max([*ends, *(mark.seconds for mark in marks)], default=0.0)
        self.pitch = min(_LANE_PIXELS, _LANES_PIXELS_MAX / max(1, lanes))

    def x(self, seconds: float) -> float:
        share = min(1.0, max(0.0, seconds / self.span)) if self.span else 0.0
        return _LANES_LEFT + (_LANES_RIGHT - _LANES_LEFT) * share

    def y(self, place: int) -> float:
        return _TOP + self.pitch * place


def _lane(party: str, place: int, marks: Iterable[Mark], scale: _TimeScale) -> Lane:
    own = [mark for mark in marks if mark.party == party]
    lost = [scale.x(mark.seconds) for mark in own if mark.kind == "lost"]
    stride = -(-_TEXT_PIXELS // scale.pitch)
    return Lane(
        party=party,
        name="" if place % stride else shortened(party, _NAME_LETTERS_MAX),
        y=scale.y(place),
        end=min(lost, default=_LANES_RIGHT),
        corrupt=any(mark.kind in CORRUPT for mark in own),
    )


def _drawn_arrow(
    message: TracedMessage, rows: dict[str, float], style: int, scale: _TimeScale
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


def _sign(mark: Mark, y: float, scale: _TimeScale) -> Sign:
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
