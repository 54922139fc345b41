"""Tables of given, of uniform, and of interlocking rows."""

import numpy as np

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows

# Losses are sums of a few logarithms of probabilities: rounding is far below this.
ROUNDING = 1e-11

Kind = tuple[tuple[float, ...], int]


def rows_of(kinds: tuple[Kind, ...], features: int) -> Rows:
    """Return a table of rows, given as places and labels."""
    places = np.array([place for place, _ in kinds], dtype=np.float64).reshape(-1, features)
    return Rows(places, np.array([label for _, label in kinds], dtype=np.int64))


def some_rows(rows: int, features: int, seed: int, classes: int = 3) -> Rows:
    """Return uniform rows."""
    rng = np.random.default_rng(seed)
    return Rows(rng.random((rows, features)), rng.integers(classes, size=rows))


def banana(rows: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Return two interlocking crescents in the unit square, with their classes."""
    labels = rng.integers(2, size=rows)
    turn = rng.random(rows) * np.pi
    x = np.where(labels == 0, np.cos(turn), 1 - np.cos(turn))
    y = np.where(labels == 0, np.sin(turn), 0.5 - np.sin(turn))
    noisy = np.column_stack([x, y]) + rng.normal(0, 0.2, (rows, 2))
    lows, ranges = np.array([-1.7, -1.2]), np.array([4.4, 3.0])
    return np.clip((noisy - lows) / ranges, 0.0, 1.0), labels
