"""Reports that are a bit a value, in the order of `numpy.packbits`; padding bits are 0."""

import numpy as np
from numpy.typing import NDArray


def bitmap_bytes(bits: int) -> int:
    """Return how many bytes a bitmap of so many bits has."""
    return -(-bits // 8)


def bit_of(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where each bit is: the place of its byte in a bitmap, and its mask in that byte."""
    return numbers >> 3, np.right_shift(np.uint8(0x80), (numbers & 7).astype(np.uint8))


def is_padded(bitmaps: NDArray[np.uint8], bits: int) -> NDArray[np.bool_]:
    """Return which bitmaps have no bit set beyond the last, shape (bitmaps,)."""
    padding = np.uint8(0xFF >> (bits - 1) % 8 + 1)
    return np.asarray(bitmaps[:, -1] & padding == 0)
