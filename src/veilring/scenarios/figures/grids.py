"""Grids that do not depend on the data: where a figure is measured, and where it is quickly."""

from collections.abc import Sequence
from typing import Any

from veilring.scenarios.figures.model import Grid


def points_at(many: Sequence[float], few: Sequence[float] | None = None) -> Grid:
    """Return a grid of these points.

    Args:
        many: Ascending.
        few: Those that are measured quickly; by default the `coarser` ones.
    """
    quickly = coarser(many) if few is None else tuple(few)

    def grid(_data: Any, quick: bool) -> tuple[float, ...]:  # noqa: ANN401, FBT001  (as `Grid` has it)
        return quickly if quick else tuple(many)

    return grid


def coarser(points: Sequence[float]) -> tuple[float, ...]:
    """Return the first point, every third after it, and the last."""
    return tuple(sorted({*points[::3], points[-1]}))
