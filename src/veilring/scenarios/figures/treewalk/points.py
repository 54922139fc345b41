"""What the figures are about: points without labels, drawn at random or read from a CSV file."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.csv import read_cells
from veilring.errors import InputError
from veilring.scenarios.figures.model import Subject

SIDE: Final = 1e9
"""The longest side of the domain, as in the thesis: distances and radii are in parts of it."""
UNIFORM: Final = "uniform"
_COUNT: Final = 100_000
_COUNT_MIN: Final = 257  # a tree of nine levels, so that walks may stop eight levels early
_PLANE: Final = 2
_DEGREES: Final = ("lat", "lon")


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Points of a server.

    Attributes:
        name: Where they came from.
        count: How many there are.
        own: Those of a file, scaled; none if they are drawn anew for each split.
    """

    name: str
    count: int
    own: NDArray[np.float64] | None = None

    def draw(self, dimensions: int, times: int, rng: Generator) -> NDArray[np.float64]:
        """Return the points of a split, shape (points, dimensions), in [0, `SIDE`].

        Args:
            dimensions: Of a file, its first so many columns.
            times: How many times `count` there are.
            rng: Draws them, if they are no file's.

        Raises:
            InputError: If a file has fewer columns, or more points than it has are asked for.
        """
        if self.own is None:
            return rng.random((times * self.count, dimensions)) * SIDE
        if times > 1:
            allowed = f"{UNIFORM} or {UNIFORM}:N, since {times} times as many points are drawn, too"
            raise InputError("data", self.name, allowed)
        if self.own.shape[1] < dimensions:
            raise InputError("data", self.name, f"points of {dimensions} coordinates")
        return self.own[:, :dimensions]


@cache  # one object for each source, so that figures can share what was measured of it
def load_points(source: str) -> Points:
    """Load points.

    Args:
        source: `uniform` or `uniform:N`, drawn anew for each split; or the path of a CSV file of
            numbers, which ends in `.csv`. Its first two columns are coordinates. If they are `lat`
            and `lon`, in degrees, they are drawn on a plane with the right proportions in their
            middle.

    Raises:
        InputError: If there is no such source, or it is no file of points.
    """
    kind, _, count = source.partition(":")
    if kind == UNIFORM and (count.isdecimal() or not count):
        drawn = int(count or _COUNT)
        if drawn < _COUNT_MIN:
            raise InputError("data", source, f"at least {_COUNT_MIN} points")
        return Points(f"{drawn:,} uniform points", drawn)
    if not source.lower().endswith(".csv"):
        raise InputError("data", source, "uniform, uniform:N, or the path of a .csv of points")
    return _read(Path(source))


def _read(path: Path) -> Points:
    cells = read_cells(path)
    names = list(cells)[:_PLANE]
    try:
        columns = [cells[name].astype(np.float64) for name in names]
    except ValueError:
        raise InputError("data", path, f"numbers in the columns {', '.join(names)}") from None
    points = np.stack(columns, axis=1)
    if len(points) < _COUNT_MIN or not np.isfinite(points).all():
        raise InputError("data", path, f"at least {_COUNT_MIN} points, all finite")
    if (points == points[0]).all(axis=0).any():
        raise InputError("data", path, f"more than one value in each of {', '.join(names)}")
    if tuple(names) == _DEGREES:
        points[:, 1] *= np.cos(np.radians(points[:, 0].mean()))
    points -= points.min(axis=0)
    return Points(path.name, len(points), points / points.max() * SIDE)


POINTS: Final = Subject(load_points, lambda points: points, f"{UNIFORM}:{_COUNT}")
