"""Small tables for the estimators, and their names in tests."""

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats

RANGES = (-4.0, 4.0)
"""The interval that contains all but one in ten thousand of the values of `three_classes`."""


def three_classes(rows: int, seed: int = 1) -> tuple[Floats, NDArray[np.str_]]:
    """Draw rows of two features around three centres."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(3, size=rows)
    centres = np.array([[-2.0, -1.0], [2.0, -1.0], [0.0, 2.0]])
    return rng.normal(centres[numbers], 0.6), np.array(["ash", "elm", "oak"])[numbers]


def scaled(rows: Floats) -> Floats:
    """Return rows as parties hold them, in the unit cube."""
    low, high = RANGES
    unit: Floats = (np.clip(rows, low, high) - low) / (high - low)
    return unit


def named(estimator: object) -> str:
    """Name a test after its estimator."""
    return type(estimator).__name__
