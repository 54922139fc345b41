"""Small tables for the estimators, each estimator once, and a measured cost as a forecast."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from veilring import estimators
from veilring.arrays import Floats
from veilring.estimators import SystemClassifier

Table = tuple[Floats, NDArray[np.str_]]

COINS = "veilring.estimators.base.Asked.coins"
"""The function that draws a batch's randomness; tests replace it by that of a networked party."""
RANGES = (-4.0, 4.0)
"""The interval that contains all but one in ten thousand of the values of `three_classes`."""
KINDS = [getattr(estimators, name) for name in estimators.__all__ if name != "SystemClassifier"]
ESTIMATORS: list[Any] = [
    kind() for kind in KINDS if isinstance(kind, type) and issubclass(kind, SystemClassifier)
]
"""Each named estimator, with the default parameters."""


def three_classes(rows: int, seed: int = 1) -> Table:
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


each = pytest.mark.parametrize("estimator", ESTIMATORS, ids=named)
