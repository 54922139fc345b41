"""Quantities that claims are about, each taken from the curves of a figure, split by split."""

from bisect import bisect_right
from collections.abc import Sequence
from math import inf
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilring.papers.claims import CurveKey, Evidence, Measured, Take


def relative(measure: str, series: str, reference: str, x: str) -> Take:
    """Take the ratio of one curve's mean to another's, at each point.

    The values of a split are those of `linearised`.

    Args:
        measure: Of both curves.
        series: The curve.
        reference: What it is compared with.
        x: What the points are called.
    """

    def take(measured: Measured) -> Evidence:
        one, other = (measured.curves[CurveKey(measure, name)] for name in (series, reference))
        return Evidence(_points(measured, x), linearised(one, other))

    return take


def linearised(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a value for each split whose mean is the ratio of two curves' means.

    They are linearised about it, `R + (a - R b) / mean(b)`, so that their spread gives the ratio's
    standard error by the delta method.

    Args:
        one: Shape (splits, points).
        other: The same; what it is compared with.
    """
    mean = other.mean(axis=0)
    ratio = one.mean(axis=0) / mean
    return np.asarray(ratio + (one - ratio * other) / mean)


def slopes(measure: str) -> Take:
    """Take the least-squares slope of each curve of a measure over x."""

    def take(measured: Measured) -> Evidence:
        curves = measured.of(measure)
        x = np.asarray(measured.x) - np.mean(measured.x)
        return Evidence(tuple(curves), _columns([curve @ x / (x @ x) for curve in curves.values()]))

    return take


def at_last(measure: str) -> Take:
    """Take each curve of a measure at the last point."""

    def take(measured: Measured) -> Evidence:
        curves = measured.of(measure)
        return Evidence(tuple(curves), _columns([curve[:, -1] for curve in curves.values()]))

    return take


def lead_over_last(measure: str, *series: str, at: float) -> Take:
    """Take by how much some curves are higher at the last point up to `at` than at the last one."""

    def take(measured: Measured) -> Evidence:
        place = max(0, bisect_right(measured.x, at) - 1)
        curves = [measured.curves[CurveKey(measure, name)] for name in series]
        return Evidence(series, _columns([curve[:, place] - curve[:, -1] for curve in curves]))

    return take


def best_over_last(measure: str, *series: str) -> Take:
    """Take by how much some curves are higher at their best point than at the last one.

    Which point is best for a split is chosen by the mean of those splits that have numbers of the
    other parity, so that no split is measured where it was chosen to be high.
    """

    def take(measured: Measured) -> Evidence:
        curves = [measured.curves[CurveKey(measure, name)] for name in series]
        return Evidence(series, _columns([_best(curve) - curve[:, -1] for curve in curves]))

    return take


def _best(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    best = np.empty(len(curve))
    for parity in (0, 1):
        best[parity::2] = curve[parity::2, curve[1 - parity :: 2].mean(axis=0).argmax()]
    return best


def growth(measure: str) -> Take:
    """Take by how much each curve of a measure is higher at the last point than at the first."""

    def take(measured: Measured) -> Evidence:
        curves = measured.of(measure)
        ends = [curve[:, -1] - curve[:, 0] for curve in curves.values()]
        return Evidence(tuple(curves), _columns(ends))

    return take


def change(measure: str, *series: str) -> Take:
    """Take by how much some curves are higher at the last point than at the first."""

    def take(measured: Measured) -> Evidence:
        curves = [measured.curves[CurveKey(measure, name)] for name in series]
        return Evidence(series, _columns([curve[:, -1] - curve[:, 0] for curve in curves]))

    return take


def values(measure: str, series: str, x: str, *, since: float = -inf) -> Take:
    """Take a curve at each point from `since` on, and at the last."""

    def take(measured: Measured) -> Evidence:
        places = _places(measured, since)
        points = _points(measured, x)
        curve = measured.curves[CurveKey(measure, series)]
        return Evidence(tuple(points[place] for place in places), curve[:, places])

    return take


def lead(measure: str, series: str, over: str, x: str, *, since: float = -inf) -> Take:
    """Take by how much one curve is higher than another, from `since` on, and at the last."""

    def take(measured: Measured) -> Evidence:
        places = _places(measured, since)
        one, other = (measured.curves[CurveKey(measure, name)] for name in (series, over))
        points = _points(measured, x)
        labels = tuple(points[place] for place in places)
        return Evidence(labels, (one - other)[:, places])

    return take


def first_points(measure: str, x: str, *, up_to: float) -> Take:
    """Take each curve of a measure at each of its points up to `up_to`."""

    def take(measured: Measured) -> Evidence:
        places = [place for place, at in enumerate(measured.x) if at <= up_to]
        points = _points(measured, x)
        curves = measured.of(measure)
        labels = tuple(f"{name}, {points[place]}" for name in curves for place in places)
        return Evidence(labels, np.hstack([curve[:, places] for curve in curves.values()]))

    return take


def _places(measured: Measured, since: float) -> list[int]:
    last = len(measured.x) - 1
    return [place for place, at in enumerate(measured.x) if at >= since or place == last]


def _points(measured: Measured, x: str) -> tuple[str, ...]:
    return tuple(f"{x} = {at:g}" for at in measured.x)


def _columns(columns: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.column_stack(columns)


Pair: TypeAlias = tuple[CurveKey, CurveKey]
"""A curve, and the one that it is compared with."""
_Named: TypeAlias = tuple[str, NDArray[np.float64]]


def leads(pairs: Sequence[Pair], *, low: float = 0.0, high: float = inf) -> Take:
    """Take by how much the first of each pair is higher, at each point from `low` to `high`."""

    def take(measured: Measured) -> Evidence:
        found = [
            (_against(*pair), measured.curves[pair[0]] - measured.curves[pair[1]]) for pair in pairs
        ]
        return _at(measured, found, low, high)

    return take


def heights(keys: Sequence[CurveKey], *, at: float) -> Take:
    """Take each curve at one point."""

    def take(measured: Measured) -> Evidence:
        return _at(measured, [(key.series, measured.curves[key]) for key in keys], at, at)

    return take


def shares(keys: Sequence[CurveKey], reference: CurveKey, *, low: float) -> Take:
    """Take the ratio of each curve's mean to another's, at each point from `low` on.

    The values of a split are those of `linearised`.
    """

    def take(measured: Measured) -> Evidence:
        other = measured.curves[reference]
        found = [(key.series, linearised(measured.curves[key], other)) for key in keys]
        return _at(measured, found, low, inf)

    return take


def _against(one: CurveKey, other: CurveKey) -> str:
    if one.measure == other.measure:
        return f"{one.measure}: {one.series} over {other.series}"
    return f"{one.series}: {one.measure} over {other.measure}"


def _at(measured: Measured, found: Sequence[_Named], low: float, high: float) -> Evidence:
    """Return what was found at the points from `low` to `high`, a column for each."""
    places = [place for place, x in enumerate(measured.x) if low <= x <= high]
    labels = [f"{name}, epsilon = {measured.x[place]:g}" for name, _ in found for place in places]
    return Evidence(tuple(labels), np.hstack([curve[:, places] for _, curve in found]))


def height(measure: str, *series: str, at: float) -> Take:
    """Take curves at one point."""

    def take(measured: Measured) -> Evidence:
        return Evidence(
            series, np.stack([_value_at(measured, measure, each, at) for each in series], 1)
        )

    return take


def leads_at(
    measure: str, pairs: Sequence[tuple[str, str]], *, at: float, times: float = 1.0
) -> Take:
    """Take by how much the first of each pair is higher than so many times the second."""

    def take(measured: Measured) -> Evidence:
        found = [
            _value_at(measured, measure, one, at) - times * _value_at(measured, measure, other, at)
            for one, other in pairs
        ]
        labels = tuple(f"{one} over {other}" for one, other in pairs)
        return Evidence(labels, np.stack(found, 1))

    return take


def gain(measures: tuple[str, str], one: str, other: str, *, at: float) -> Take:
    """Take by how much more one curve leads another in the first measure than in the second."""

    def take(measured: Measured) -> Evidence:
        first, second = (
            _value_at(measured, each, one, at) - _value_at(measured, each, other, at)
            for each in measures
        )
        return Evidence((f"{one} over {other}",), (first - second)[:, None])

    return take


def _value_at(measured: Measured, measure: str, series: str, at: float) -> NDArray[np.float64]:
    place = int(np.argmin(np.abs(np.asarray(measured.x) / at - 1)))
    return measured.curves[CurveKey(measure, series)][:, place]
