"""What was measured for a figure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Key(NamedTuple):
    """One curve of a figure."""

    measure: str
    series: str


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """All curves of a figure on one data set.

    Attributes:
        data: The data set.
        x: Where they were measured, ascending, shape (points,).
        curves: What was measured in each split, shape (splits, points).
    """

    data: str
    x: tuple[float, ...]
    curves: Mapping[Key, NDArray[np.float64]]

    @property
    def splits(self) -> int:
        """How many splits were measured."""
        return len(next(iter(self.curves.values())))

    def of(self, measure: str) -> dict[str, NDArray[np.float64]]:
        """Return the curves of one measure by their series."""
        return {key.series: curve for key, curve in self.curves.items() if key.measure == measure}
