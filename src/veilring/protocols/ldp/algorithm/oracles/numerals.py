"""Whole numbers as bytes of a report, little-endian."""

import numpy as np
from numpy.typing import NDArray

__all__ = ("decoded", "encoded", "width_of")


def width_of(count: int) -> int:
    """Return how many bytes hold each number from 0 to `count - 1`."""
    return max(1, -(-(count - 1).bit_length() // 8))


def encoded(numbers: NDArray[np.integer], width: int) -> NDArray[np.uint8]:
    """Return numbers as bytes, lowest first, shape (..., width).

    Args:
        numbers: At least 0 and below `256**width`, shape (...).
        width: From 1 to 8.
    """
    words = np.ascontiguousarray(numbers, dtype="<u8")
    return words.view(np.uint8).reshape(*words.shape, 8)[..., :width]


def decoded(digits: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the numbers that `encoded` gave, shape (...), from bytes of shape (..., width < 8)."""
    words = np.zeros((*digits.shape[:-1], 8), dtype=np.uint8)
    words[..., : digits.shape[-1]] = digits
    return words.view("<i8").reshape(digits.shape[:-1]).astype(np.int64, copy=False)
