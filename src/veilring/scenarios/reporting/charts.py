"""Geometry of a page's charts.

Horizontal positions are in percent of the chart's width and vertical ones in pixels, so that a
chart fits a phone and a wide screen alike, while its text keeps the size of the page's. Charts that
are files of their own are drawn by `veilring.scenarios.charts`.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil, floor
from typing import Final, NamedTuple, Protocol

from veilring.protocols.promise import Estimate
from veilring.scenarios.intervals import Interval
from veilring.scenarios.report import Amount, in_bytes, interval_text, percent, shortened

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
    bars = []
    for place, amount in enumerate(amounts):
        own, setup = (100 * t.bytes / most for t in (amount.protocol, amount.setup))
        parts = (BarPart(0.0, own, "protocol"), BarPart(own, setup, "setup"))
        text = in_bytes(amount.bytes)
        label = shortened(amount.label, _LABEL_LETTERS_MAX)
        bars.append(Bar(place * _ROW, label, text, tuple(p for p in parts if p.width)))
    return Chart(len(bars) * _ROW, bars)


def share_chart(shares: Iterable[tuple[str, float]]) -> Chart:
    """Chart shares from 0 to 1."""
    bars = [
        Bar(place * _ROW, label, percent(share), (BarPart(0.0, 100 * share, "protocol"),))
        for place, (label, share) in enumerate(shares)
    ]
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


class AccuracyLine(Protocol):
    """The accuracy of a system, at an ε if it has one."""

    @property
    def system(self) -> str:
        """The system's key."""

    @property
    def name(self) -> str:
        """The system's name."""

    @property
    def label(self) -> str:
        """The name with the ε, if there is one."""

    @property
    def epsilon(self) -> float | None:
        """The ε, if there is one."""

    @property
    def accuracy(self) -> Interval:
        """The mean over splits with its interval."""


class _Scale(NamedTuple):
    low: float

    def y(self, share: float) -> float:
        return ACCURACY_HEIGHT * (1.0 - (share - self.low) / (1.0 - self.low))

    def ends(self, interval: Interval) -> tuple[float, float, float]:
        return self.y(interval.mean), self.y(interval.high), self.y(interval.low)


def accuracy_chart(lines: Sequence[AccuracyLine], epsilons: Sequence[float]) -> AccuracyChart:
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
        placed = [_point(line, style, where[_written(line)] + aside, scale) for line in own]
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


def _written(line: AccuracyLine) -> str:
    return f"{line.epsilon:.10g}"


def _step(epsilons: int) -> float:
    return (_RIGHT - _LEFT) / max(1, epsilons - 1)


def _apart(epsilons: int, systems: int) -> float:
    """Return the distance between the points of one ε, so that none hides another."""
    beyond = 2 * (_EDGE - _RIGHT) / max(1, systems - 1)
    return min(_WIDEST, _SPREAD * _step(epsilons) / systems, beyond)


def _point(line: AccuracyLine, style: int, x: float, scale: _Scale) -> IntervalPoint:
    y, top, bottom = scale.ends(line.accuracy)
    share = f"{percent(line.accuracy.mean)} ({interval_text(line.accuracy)})"
    return IntervalPoint(x, y, top, bottom, style, f"{line.label}: {share}")


def _bands(lines: Sequence[AccuracyLine], scale: _Scale) -> list[LevelBand]:
    """Return a horizontal line for each accuracy, one for all systems that share it."""
    alike: dict[Interval, list[AccuracyLine]] = {}
    for line in lines:
        alike.setdefault(line.accuracy, []).append(line)
    return [
        LevelBand(
            *scale.ends(accuracy), f"{_together(own)}: {percent(accuracy.mean)}", own[0].system
        )
        for accuracy, own in alike.items()
    ]


def _together(lines: Sequence[AccuracyLine]) -> str:
    return ", ".join(line.name for line in lines)


def _down(scale: _Scale) -> list[AxisTick]:
    span = 1.0 - scale.low
    step = next((each for each in _SHARE_STEPS if span / each <= _TICKS_MAX), _SHARE_STEPS[-1])
    count = floor(span / step + 1e-9)
    return [AxisTick(scale.y(1.0 - n * step), f"{1.0 - n * step:.0%}") for n in range(count + 1)]
