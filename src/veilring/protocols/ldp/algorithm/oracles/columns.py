"""How many rows of packed bits have each bit set, 64 bits at a time."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

# So many bits, then pairs, then nibbles can be added in fields of twice their width: 3, 15, 255.
_LEVELS: Final = ((1, 3, 0x55), (2, 5, 0x33), (4, 17, 0x0F))
_ROWS: Final = math.prod(terms for _, terms, _ in _LEVELS)
# What is worked on at once stays in the second level of a usual processor's cache.
_CHUNK_BYTES: Final = 1 << 17
# Up to so many bits are unpacked and added one by one, before the handful of operations pays: a
# collector's group of single reports has some ten to each question.
_FEW_BITS: Final = 1 << 15


def column_sums(packed: NDArray[np.uint8], columns: int) -> NDArray[np.int64]:
    """Return how many rows have each bit set, shape (columns,).

    Three rows of bits are added as fields of two bits, five of these sums as fields of four, and
    seventeen of those as fields of eight: 255 rows, with a handful of operations a word.

    Args:
        packed: Shape (rows, ceil(columns / 8)), in the order of `numpy.packbits`.
        columns: How many bits of a row count.
    """
    if packed.size * 8 <= _FEW_BITS:
        bits = np.unpackbits(packed, axis=1, count=columns)
        return np.asarray(bits.sum(axis=0, dtype=np.int64))
    width = packed.shape[1]
    together = 8 // math.gcd(width, 8)  # so many rows are a whole number of words
    step = together * _ROWS * max(1, _CHUNK_BYTES // (together * _ROWS * width))
    sums = np.zeros((width, 8), dtype=np.int64)
    for start in range(0, len(packed), step):
        sums += _sums(packed[start : start + step], together)
    return sums.reshape(-1)[:columns]


def _sums(rows: NDArray[np.uint8], together: int) -> NDArray[np.int64]:
    """Return the sums of one chunk, by byte and bit, shape (width, 8)."""
    width = rows.shape[1]
    missing = -len(rows) % (together * _ROWS)
    if missing:
        rows = np.concatenate((rows, np.zeros((missing, width), dtype=np.uint8)))
    fields = {0: np.ascontiguousarray(rows).reshape(-1).view(np.uint64)}
    for shift, terms, mask in _LEVELS:
        halves = np.uint64(mask * 0x0101_0101_0101_0101)
        fields = {
            place + high: _added((words >> np.uint64(high) if high else words) & halves, terms)
            for place, words in fields.items()
            for high in (0, shift)
        }
    # The first bit of a byte is its highest.
    bits = [_by_byte(fields[place], width) for place in range(7, -1, -1)]
    return np.stack(bits, axis=1)


def _added(words: NDArray[np.uint64], terms: int) -> NDArray[np.uint64]:
    total: NDArray[np.uint64] = words.reshape(terms, -1).sum(axis=0)
    return total


def _by_byte(words: NDArray[np.uint64], width: int) -> NDArray[np.int64]:
    sums: NDArray[np.int64] = words.view(np.uint8).reshape(-1, width).sum(axis=0, dtype=np.int64)
    return sums
