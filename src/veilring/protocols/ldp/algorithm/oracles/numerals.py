"""Whole numbers as bytes of a report, little-endian."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ldp.algorithm.chunks import chunks

_WORK_BYTES: Final = 32  # of a number: its bytes, padded, and the number itself


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


def counted(digits: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    """Return how often each number from 0 to `count - 1` occurs, shape (count,).

    Args:
        digits: What `encoded` gave of such numbers, shape (numbers, width).
        count: How many numbers there are.
    """
    sums = np.zeros(count, dtype=np.int64)
    for chunk in chunks(len(digits), _WORK_BYTES):
        # A histogram a chunk (`bincount`) would be larger than the chunk for a large count.
        np.add.at(sums, decoded(digits[chunk]), 1)
    return sums
