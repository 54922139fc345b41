"""The space-time diagram as text: time runs down, and each party is a column."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from veilring.nodes.journal import SETUP_ROUND, Mark, TracedMessage
from veilring.scenarios.reporting.spacetime import lane_order
from veilring.scenarios.reporting.summary import in_bytes, in_seconds

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
