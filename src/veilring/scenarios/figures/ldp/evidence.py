"""Differences between curves, and where they are, taken split by split."""

from collections.abc import Sequence
from math import inf
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilring.scenarios.figures.claims import Evidence, Take
from veilring.scenarios.figures.evidence import linearised
from veilring.scenarios.figures.measured import Key, Measured

Pair: TypeAlias = tuple[Key, Key]
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


def heights(keys: Sequence[Key], *, at: float) -> Take:
    """Take each curve at one point."""

    def take(measured: Measured) -> Evidence:
        return _at(measured, [(key.series, measured.curves[key]) for key in keys], at, at)

    return take


def shares(keys: Sequence[Key], reference: Key, *, low: float) -> Take:
    """Take the ratio of each curve's mean to another's, at each point from `low` on.

    The values of a split are those of `linearised`.
    """

    def take(measured: Measured) -> Evidence:
        other = measured.curves[reference]
        found = [(key.series, linearised(measured.curves[key], other)) for key in keys]
        return _at(measured, found, low, inf)

    return take


def _against(one: Key, other: Key) -> str:
    if one.measure == other.measure:
        return f"{one.measure}: {one.series} over {other.series}"
    return f"{one.series}: {one.measure} over {other.measure}"


def _at(measured: Measured, found: Sequence[_Named], low: float, high: float) -> Evidence:
    """Return what was found at the points from `low` to `high`, a column for each."""
    places = [place for place, x in enumerate(measured.x) if low <= x <= high]
    labels = [f"{name}, epsilon = {measured.x[place]:g}" for name, _ in found for place in places]
    return Evidence(tuple(labels), np.hstack([curve[:, places] for _, curve in found]))
