"""Where the marks of the picture are: accuracy over ε.

As in all charts of the report, marks are placed in percent across and in pixels down, so that text
keeps its size on a phone and on a wide screen.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import floor
from typing import Final, NamedTuple

from veilring.scenarios.comparison.comparison import Comparison, Line
from veilring.scenarios.comparison.words import reach
from veilring.scenarios.intervals import Interval
from veilring.scenarios.reporting.words import percent

HEIGHT: Final = 260
"""Pixels between the highest and the lowest share."""
_LEFT: Final = 22.0  # percent: the first ε, with its points around it, beside the shares
_RIGHT: Final = 88.0
_SPREAD: Final = 0.55  # of the distance of two ε: what the points of one of them take
_WIDEST: Final = 5.0  # percent between two points of one ε, where there are few
_STEPS: Final = (0.05, 0.1, 0.2)
_LINES_MAX: Final = 7


class Tick(NamedTuple):
    """A place on an axis, and what is written there."""

    at: float
    text: str


class Point(NamedTuple):
    """A mean with its interval; `style` numbers the system."""

    x: float
    y: float
    top: float
    bottom: float
    style: int
    title: str


class Segment(NamedTuple):
    """A line from one point of a system to its next."""

    x1: float
    y1: float
    x2: float
    y2: float
    style: int


class Band(NamedTuple):
    """What has no ε: a line across, with its interval."""

    y: float
    top: float
    bottom: float
    label: str
    style: str


class Key(NamedTuple):
    """What a style means."""

    style: int
    name: str


class Picture(NamedTuple):
    """All that is to be drawn."""

    height: int
    bands: Sequence[Band]
    points: Sequence[Point]
    segments: Sequence[Segment]
    keys: Sequence[Key]
    across: Sequence[Tick]
    down: Sequence[Tick]


class _Scale(NamedTuple):
    low: float

    def y(self, share: float) -> float:
        return HEIGHT * (1.0 - (share - self.low) / (1.0 - self.low))

    def ends(self, interval: Interval) -> tuple[float, float, float]:
        return self.y(interval.mean), self.y(interval.high), self.y(interval.low)


def picture(comparison: Comparison) -> Picture:
    """Place the marks: systems with an ε as points, those without as lines across."""
    lines = comparison.lines
    scale = _Scale(max(0.0, floor(10 * min(line.accuracy.low for line in lines)) / 10))
    bounded = [line for line in lines if line.epsilon is not None]
    names = {line.system: line.name for line in bounded}
    across = _across(comparison.question.epsilon)
    where = {tick.text: tick.at for tick in across}
    points, segments = list[Point](), list[Segment]()
    for style, system in enumerate(names):
        own = [line for line in bounded if line.system == system]
        aside = (style - (len(names) - 1) / 2) * _apart(len(across), len(names))
        placed = [_point(line, style, where[_written(line)] + aside, scale) for line in own]
        points += placed
        segments += [Segment(a.x, a.y, b.x, b.y, style) for a, b in pairwise(placed)]
    return Picture(
        HEIGHT,
        _bands([line for line in lines if line.epsilon is None], scale),
        points,
        segments,
        [Key(style, name) for style, name in enumerate(names.values())],
        across,
        _down(scale),
    )


def _across(epsilons: Sequence[float]) -> list[Tick]:
    """Return where each ε stands, evenly spaced whatever their ratios."""
    first = (_LEFT + _RIGHT) / 2 if len(epsilons) == 1 else _LEFT
    step = _step(len(epsilons))
    return [Tick(first + place * step, f"{each:.10g}") for place, each in enumerate(epsilons)]


def _written(line: Line) -> str:
    return f"{line.epsilon:.10g}"


def _step(epsilons: int) -> float:
    return (_RIGHT - _LEFT) / max(1, epsilons - 1)


def _apart(epsilons: int, systems: int) -> float:
    """Return how far the points of one ε stand from each other, so that none hides another."""
    return min(_WIDEST, _SPREAD * _step(epsilons) / systems)


def _point(line: Line, style: int, x: float, scale: _Scale) -> Point:
    y, top, bottom = scale.ends(line.accuracy)
    share = f"{percent(line.accuracy.mean)} ({reach(line.accuracy)})"
    return Point(x, y, top, bottom, style, f"{line.label}: {share}")


def _bands(lines: Sequence[Line], scale: _Scale) -> list[Band]:
    """Return a line across for each accuracy, whoever has the same one."""
    alike: dict[Interval, list[Line]] = {}
    for line in lines:
        alike.setdefault(line.accuracy, []).append(line)
    return [
        Band(*scale.ends(accuracy), f"{_together(own)}: {percent(accuracy.mean)}", own[0].system)
        for accuracy, own in alike.items()
    ]


def _together(lines: Sequence[Line]) -> str:
    return ", ".join(line.name for line in lines)


def _down(scale: _Scale) -> list[Tick]:
    span = 1.0 - scale.low
    step = next((each for each in _STEPS if span / each <= _LINES_MAX), _STEPS[-1])
    count = floor(span / step + 1e-9)
    return [Tick(scale.y(1.0 - n * step), f"{1.0 - n * step:.0%}") for n in range(count + 1)]
