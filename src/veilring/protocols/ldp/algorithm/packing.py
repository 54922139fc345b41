"""Reports as bytes: bitmaps and numerals, packed, unpacked and counted in bounded memory."""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Ints
from veilring.errors import InputError

# The bytes that a step processes at once, which fit into a typical second-level cache.
CHUNK_BYTES: Final = 1 << 18


def client_slices(clients: int, bytes_each: int) -> Iterator[slice]:
    """Yield slices of bounded size that together cover the clients' axis."""
    step = max(1, CHUNK_BYTES // bytes_each)
    for start in range(0, clients, step):
        yield slice(start, min(start + step, clients))


def reports_at_once(at_once: int | None, usual: int) -> int:
    """Return the number of reports per group: the caller's choice, or the usual number."""
    if at_once is not None and at_once < 1:
        raise InputError("at_once", at_once, "an integer of at least 1")
    return usual if at_once is None else at_once


def bitmap_bytes(bits: int) -> int:
    """Return the size of a bitmap."""
    return -(-bits // 8)


def bit_of(numbers: Ints) -> tuple[Ints, NDArray[np.uint8]]:
    """Return the position of each bit: its byte in a bitmap, and its mask in that byte."""
    return numbers >> 3, np.right_shift(np.uint8(0x80), (numbers & 7).astype(np.uint8))


def is_padded(bitmaps: NDArray[np.uint8], bits: int) -> Bools:
    """Return whether each bitmap has no bit set beyond the last, shape (bitmaps,)."""
    padding = np.uint8(0xFF >> (bits - 1) % 8 + 1)
    return np.asarray(bitmaps[:, -1] & padding == 0)


_NUMBER_BYTES: Final = 32  # per number: its bytes, padded, and the number itself


def width_of(count: int) -> int:
    """Return the number of bytes needed for each number from 0 to `count - 1`."""
    return max(1, -(-(count - 1).bit_length() // 8))


def encoded(numbers: NDArray[np.integer], width: int) -> NDArray[np.uint8]:
    """Return numbers, below `256**width`, as bytes: lowest first, shape (..., width)."""
    words = np.ascontiguousarray(numbers, dtype="<u8")
    return words.view(np.uint8).reshape(*words.shape, 8)[..., :width]


def decoded(digits: NDArray[np.uint8]) -> Ints:
    """Return the numbers that `encoded` took, shape (...), from bytes of shape (..., width < 8)."""
    words = np.zeros((*digits.shape[:-1], 8), dtype=np.uint8)
    words[..., : digits.shape[-1]] = digits
    return words.view("<i8").reshape(digits.shape[:-1]).astype(np.int64, copy=False)


def counted(digits: NDArray[np.uint8], count: int) -> Ints:
    """Return how often each number from 0 to `count - 1` occurs in the output of `encoded`."""
    sums = np.zeros(count, dtype=np.int64)
    for chunk in client_slices(len(digits), _NUMBER_BYTES):
        # With a large count, a histogram of each chunk (`bincount`) would be larger than the chunk.
        np.add.at(sums, decoded(digits[chunk]), 1)
    return sums


# Bits, then pairs, then nibbles that can be added in fields of twice their width: 3, 15, 255.
_LEVELS: Final = ((1, 3, 0x55), (2, 5, 0x33), (4, 17, 0x0F))
_ROWS: Final = math.prod(terms for _, terms, _ in _LEVELS)
_COLUMN_BYTES: Final = 1 << 17
# Up to this size, bits are unpacked and added one by one: a collector's group of single reports has
# about ten to each question, too few for the word operations to pay off.
_FEW_BITS: Final = 1 << 15


def column_sums(packed: NDArray[np.uint8], columns: int) -> Ints:
    """Return the number of rows with each bit set, shape (columns,).

    Three rows of bits are added as fields of two bits, five of these sums as fields of four, and
    seventeen of those as fields of eight: 255 rows, with a handful of operations per word.
    """
    if packed.size * 8 <= _FEW_BITS:
        bits = np.unpackbits(packed, axis=1, count=columns)
        return np.asarray(bits.sum(axis=0, dtype=np.int64))
    width = packed.shape[1]
    together = 8 // math.gcd(width, 8)  # rows that fill a whole number of words
    step = together * _ROWS * max(1, _COLUMN_BYTES // (together * _ROWS * width))
    sums = np.zeros((width, 8), dtype=np.int64)
    for start in range(0, len(packed), step):
        sums += _sums(packed[start : start + step], together)
    return sums.reshape(-1)[:columns]


def _sums(rows: NDArray[np.uint8], together: int) -> Ints:
    """Return the sums of one chunk, by byte and bit, shape (width, 8)."""
    width = rows.shape[1]
    missing = -len(rows) % (together * _ROWS)
    if missing:
        rows = np.concatenate((rows, np.zeros((missing, width), dtype=np.uint8)))
    fields = {0: np.ascontiguousarray(rows).reshape(-1).view(np.uint64)}
    for shift, terms, mask in _LEVELS:
        halves = np.uint64(mask * 0x0101_0101_0101_0101)
        fields = {
            place + high: (
                ((words >> np.uint64(high) if high else words) & halves)
                .reshape(terms, -1)
                .sum(axis=0)
            )
            for place, words in fields.items()
            for high in (0, shift)
        }
    # The first bit of a byte is the highest.
    counts = (fields[place].view(np.uint8).reshape(-1, width) for place in range(7, -1, -1))
    return np.stack([each.sum(axis=0, dtype=np.int64) for each in counts], axis=1)
