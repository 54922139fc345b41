"""The types of arrays, by what they hold. Shapes are in the docstrings of functions."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
"""Features, values, noise, probabilities."""
Ints: TypeAlias = NDArray[np.int64]
"""Labels, votes, counts, positions."""
Bools: TypeAlias = NDArray[np.bool_]
"""Choices."""
