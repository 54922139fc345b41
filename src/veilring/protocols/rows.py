"""A party's private table."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError


@dataclass(frozen=True, slots=True, repr=False)
class Rows:
    """Rows of a common schema, as one party holds them. Their values are never shown.

    Attributes:
        features: Shape (rows, features), scaled by public bounds into [0, 1].
        labels: Shape (rows,), class numbers from 0.

    Raises:
        InputError: If the shapes do not fit, a feature is outside [0, 1] or a label is negative.
    """

    features: NDArray[np.float64]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.labels.shape != self.features.shape[:1]:  # noqa: PLR2004 (a table has two axes)
            shapes = f"of shape {self.features.shape} with labels {self.labels.shape}"
            raise InputError("rows", shapes, "features (rows, features) and labels (rows,)")
        if not in_unit_cube(self.features):
            raise InputError("rows.features", "a table with others", "numbers from 0 to 1")
        if self.labels.size and self.labels.min() < 0:
            raise InputError("rows.labels", "a negative class", "class numbers from 0")

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Rows({len(self)} rows of {self.features.shape[1]} features)"


def in_unit_cube(features: NDArray[np.float64]) -> bool:
    """Return whether all values are numbers from 0 to 1."""
    return bool(np.all((features >= 0.0) & (features <= 1.0)))
