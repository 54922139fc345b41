"""Where the marks of a chart are.

Across they are placed in percent of the chart's width and down in pixels, so that a chart fits a
phone and a wide screen alike, while its text stays as large as the page's.
"""

from collections.abc import Iterable, Sequence
from math import ceil, floor
from typing import Final, NamedTuple

from veilring.protocols.system import Estimate
from veilring.scenarios.reporting.tables import Amount
from veilring.scenarios.reporting.words import in_bytes, percent, shortened

INTERVAL_ERRORS: Final = 1.96
"""How many standard errors a normal estimate's 95% interval reaches to either side."""

_ROW: Final = 40  # pixels of a bar and of the line of text above it
# On a phone a number of bytes stands on the same line; the table has the name in full.
_LABEL_LETTERS_MAX: Final = 28
_COLUMNS_HEIGHT: Final = 160
_COLUMN_SHARE: Final = 0.8  # of the distance between two columns; the rest is between them


class Part(NamedTuple):
    """A piece of a bar; `style` is a class of the style sheet."""

    x: float
    width: float
    style: str


class Bar(NamedTuple):
    """A bar that lies."""

    y: int
    label: str
    text: str
    parts: tuple[Part, ...]


class Column(NamedTuple):
    """A bar that stands."""

    x: float
    width: float
    y: float
    height: float
    label: str
    text: str


class Whisker(NamedTuple):
    """An estimate, and the interval around it."""

    y: int
    label: str
    text: str
    low: float
    at: float
    high: float


class Chart(NamedTuple):
    """What is to be drawn, and how high that is."""

    height: int
    marks: Sequence[Bar | Column | Whisker]
    start: float = 0.0
    """The share at the left end, where the chart shows shares."""
    end: float = 1.0
    """The same at the right end."""


def bar_chart(amounts: Sequence[Amount]) -> Chart:
    """Draw the bytes of the protocol, and behind them those of the set-up."""
    most = max((amount.bytes for amount in amounts), default=0) or 1
    bars = []
    for place, amount in enumerate(amounts):
        own, setup = (100 * t.bytes / most for t in (amount.protocol, amount.setup))
        parts = (Part(0.0, own, "protocol"), Part(own, setup, "setup"))
        text = in_bytes(amount.bytes)
        label = shortened(amount.label, _LABEL_LETTERS_MAX)
        bars.append(Bar(place * _ROW, label, text, tuple(p for p in parts if p.width)))
    return Chart(len(bars) * _ROW, bars)


def share_chart(shares: Iterable[tuple[str, float]]) -> Chart:
    """Draw shares from 0 to 1."""
    bars = [
        Bar(place * _ROW, label, percent(share), (Part(0.0, 100 * share, "protocol"),))
        for place, (label, share) in enumerate(shares)
    ]
    return Chart(len(bars) * _ROW, bars)


def column_chart(amounts: Sequence[Amount]) -> Chart:
    """Draw the bytes of the protocol."""
    most = max((amount.protocol.bytes for amount in amounts), default=0) or 1
    step = 100 / max(1, len(amounts))
    columns = []
    for place, amount in enumerate(amounts):
        height = _COLUMNS_HEIGHT * amount.protocol.bytes / most
        top = _COLUMNS_HEIGHT - height
        text = f"{in_bytes(amount.protocol.bytes)} in {amount.protocol.messages:,} messages"
        x = (place + (1 - _COLUMN_SHARE) / 2) * step
        columns.append(Column(x, step * _COLUMN_SHARE, top, height, amount.label, text))
    return Chart(_COLUMNS_HEIGHT, columns)


def interval(estimate: Estimate) -> tuple[float, float]:
    """Return the 95% interval of an estimate that is normal about the truth."""
    reach = INTERVAL_ERRORS * estimate.standard_error
    return estimate.value - reach, estimate.value + reach


def whisker_chart(estimates: Iterable[tuple[str, Estimate]]) -> Chart:
    """Draw shares with their 95% intervals, between the tenths that they lie in."""
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
