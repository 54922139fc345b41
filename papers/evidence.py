"""Evidence for claims: heights of curves, their differences and ratios, split by split."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final, TypeAlias

import numpy as np

from papers.claims import CurveKey, Evidence, Measured, Take
from veilring.arrays import Floats

CurvePair: TypeAlias = tuple[CurveKey, CurveKey]
"""A curve, and the curve that it is compared with."""
PointChoice: TypeAlias = Callable[[Sequence[float]], Sequence[int]]
"""A choice among the points of the axis, given their values."""


def since(low: float) -> PointChoice:
    """Choose the points from a value on, and the last one in any case."""
    return lambda x: [at for at, value in enumerate(x) if value >= low or at == len(x) - 1]


def up_to(high: float) -> PointChoice:
    """Choose the points up to a value."""
    return lambda x: range(bisect_right(x, high))


def near(value: float) -> PointChoice:
    """Choose the single point whose ratio to a value is closest to 1."""
    return lambda x: [int(np.argmin(np.abs(np.asarray(x) / value - 1)))]


EVERYWHERE: Final = since(-inf)
LAST: Final = since(inf)


def heights(measure: str, *series: str, at: PointChoice = EVERYWHERE, x: str = "") -> Take:
    """Take curves of a measure at some points.

    Args:
        measure: The measure of the curves.
        series: The names of the curves; all curves by default.
        at: The choice of points.
        x: The name of the axis, for the labels of several points.
    """
    return lambda measured: _columns(measured, _curves(measured, measure, series), at, x)


def leads(
    pairs: Sequence[CurvePair], *, at: PointChoice = EVERYWHERE, x: str = "", times: float = 1.0
) -> Take:
    """Take the first curve of each pair minus `times` the second."""

    def take(measured: Measured) -> Evidence:
        curves = measured.curves
        found = {
            _versus(one, other, pairs): curves[one] - times * curves[other] for one, other in pairs
        }
        return _columns(measured, found, at, x)

    return take


def in_measure(measure: str, *pairs: tuple[str, str]) -> list[CurvePair]:
    """Return pairs of curves of one measure, by their series."""
    return [(CurveKey(measure, one), CurveKey(measure, other)) for one, other in pairs]


def ratios(measure: str, *series: str, over: str, x: str, at: PointChoice = EVERYWHERE) -> Take:
    """Take the ratio of each curve's mean to the mean of one other curve, at some points.

    The values of a split come from `linearised`.
    """

    def take(measured: Measured) -> Evidence:
        other = measured.curves[CurveKey(measure, over)]
        curves = _curves(measured, measure, series)
        found = {name: linearised(curve, other) for name, curve in curves.items()}
        return _columns(measured, found, at, x)

    return take


def linearised(one: Floats, other: Floats) -> Floats:
    """Return a value for each split whose mean is the ratio of two curves' means.

    The values are linearised about the ratio, `R + (a - R b) / mean(b)`, so that their spread gives
    the ratio's standard error by the delta method.

    Args:
        one: Shape (splits, points).
        other: The curve that it is compared with, of the same shape.
    """
    mean = other.mean(axis=0)
    ratio = one.mean(axis=0) / mean
    return np.asarray(ratio + (one - ratio * other) / mean)


def gain(measures: tuple[str, str], one: str, other: str, *, at: PointChoice) -> Take:
    """Take the lead of one curve over another in the first measure, minus that in the second."""

    def take(measured: Measured) -> Evidence:
        first, second = (
            measured.curves[CurveKey(each, one)] - measured.curves[CurveKey(each, other)]
            for each in measures
        )
        return _columns(measured, {f"{one} over {other}": first - second}, at, "")

    return take


def slopes(measure: str) -> Take:
    """Return evidence with the least-squares slope of each curve of a measure over x."""

    def slope(measured: Measured, curve: Floats) -> Floats:
        x = np.asarray(measured.x) - np.mean(measured.x)
        return np.asarray(curve @ x / (x @ x))

    return _of_each(measure, (), slope)


def changes(measure: str, *series: str) -> Take:
    """Take the change of curves from the first point to the last; all curves by default."""
    return _of_each(measure, series, lambda _measured, curve: curve[:, -1] - curve[:, 0])


def falls_after(at: float, measure: str, *series: str) -> Take:
    """Take the fall of curves from the last point up to `at` to the last point of all."""

    def fall(measured: Measured, curve: Floats) -> Floats:
        return curve[:, max(0, bisect_right(measured.x, at) - 1)] - curve[:, -1]

    return _of_each(measure, series, fall)


def falls_from_best(measure: str, *series: str) -> Take:
    """Take the fall of curves from their best point to the last one.

    The best point for a split is chosen by the mean of the splits with numbers of the other parity,
    so that the choice does not bias the split's own value.
    """

    def fall(_measured: Measured, curve: Floats) -> Floats:
        best = np.empty(len(curve))
        for parity in (0, 1):
            best[parity::2] = curve[parity::2, curve[1 - parity :: 2].mean(axis=0).argmax()]
        return best - curve[:, -1]

    return _of_each(measure, series, fall)


def _of_each(
    measure: str, series: tuple[str, ...], of: Callable[[Measured, Floats], Floats]
) -> Take:
    """Take one number of each curve and split."""

    def take(measured: Measured) -> Evidence:
        curves = _curves(measured, measure, series)
        values = [of(measured, curve) for curve in curves.values()]
        return Evidence(tuple(curves), np.column_stack(values))

    return take


def _curves(measured: Measured, measure: str, series: tuple[str, ...]) -> Mapping[str, Floats]:
    curves = measured.of(measure)
    return {name: curves[name] for name in series or curves}


def _versus(one: CurveKey, other: CurveKey, pairs: Sequence[CurvePair]) -> str:
    """Return the label of a pair, which names the difference between its curves."""
    if one.measure != other.measure:
        return f"{one.series}: {one.measure} over {other.measure}"
    is_alone = len({key.measure for pair in pairs for key in pair}) == 1
    return f"{'' if is_alone else f'{one.measure}: '}{one.series} over {other.series}"


def _columns(measured: Measured, curves: Mapping[str, Floats], at: PointChoice, x: str) -> Evidence:
    """Return a column for each curve and chosen point; a single curve needs no name."""
    places, labels = list(at(measured.x)), list[str]()
    for name in curves:
        points = [f"{x} = {measured.x[place]:g}" for place in places] if x else [""] * len(places)
        curve = "" if x and len(curves) == 1 else name
        labels += [", ".join(filter(None, (curve, point))) for point in points]
    return Evidence(tuple(labels), np.hstack([curve[:, places] for curve in curves.values()]))
