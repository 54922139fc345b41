"""What the thesis' claims are about: curves at one point, and how far they are apart there."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veilring.scenarios.figures.claims import Evidence, Take
from veilring.scenarios.figures.measured import Key, Measured


def height(measure: str, *series: str, at: float) -> Take:
    """Take curves at one point."""

    def take(measured: Measured) -> Evidence:
        return Evidence(series, np.stack([_at(measured, measure, each, at) for each in series], 1))

    return take


def leads(measure: str, pairs: Sequence[tuple[str, str]], *, at: float, times: float = 1.0) -> Take:
    """Take by how much the first of each pair is higher than so many times the second."""

    def take(measured: Measured) -> Evidence:
        found = [
            _at(measured, measure, one, at) - times * _at(measured, measure, other, at)
            for one, other in pairs
        ]
        labels = tuple(f"{one} over {other}" for one, other in pairs)
        return Evidence(labels, np.stack(found, 1))

    return take


def gain(measures: tuple[str, str], one: str, other: str, *, at: float) -> Take:
    """Take by how much more one curve leads another in the first measure than in the second."""

    def take(measured: Measured) -> Evidence:
        first, second = (
            _at(measured, each, one, at) - _at(measured, each, other, at) for each in measures
        )
        return Evidence((f"{one} over {other}",), (first - second)[:, None])

    return take


def _at(measured: Measured, measure: str, series: str, at: float) -> NDArray[np.float64]:
    place = int(np.argmin(np.abs(np.asarray(measured.x) / at - 1)))
    return measured.curves[Key(measure, series)][:, place]
