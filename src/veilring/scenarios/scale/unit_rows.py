"""Rows that look like embeddings: directions around the centres of classes."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.protocols.prediction.algorithm.features import quantise


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Classes of directions, some two in three of whose rows are near other ones of their class.

    Attributes:
        centres: Shape (classes, features).
    """

    centres: NDArray[np.float32]

    @classmethod
    def draw(cls, classes: int, features: int, rng: Generator) -> Self:
        """Draw the centres."""
        return cls(rng.standard_normal((classes, features)).astype(np.float32))

    def rows(self, count: int, rng: Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Draw rows: quantised features, shape (count, features), and labels, shape (count,)."""
        classes, features = self.centres.shape
        labels = rng.integers(0, classes, count)
        spread = rng.uniform(1.0, 3.0, (count, 1)).astype(np.float32)
        drawn = rng.standard_normal((count, features), dtype=np.float32)
        drawn *= spread
        drawn += self.centres[labels]
        return quantise(drawn), labels
