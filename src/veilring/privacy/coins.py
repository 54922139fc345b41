"""Coins whose probability is a binary fraction, drawn exactly.

A coin shows heads when its uniform bits, read as a number, are below the numerator. `bernoulli`
compares whole numbers. `packed_bernoulli` compares the bits of 64 coins at a time, highest first,
and stops for a coin at the first bit that differs, which is the second on average: a million
reports of a thousand coins take under a second, whatever the number of bits.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.checks import require
from veilring.privacy.dyadic import Dyadic

Word: TypeAlias = np.uint8 | np.uint16 | np.uint32 | np.uint64

_WIDTHS: Final[tuple[type[Word], ...]] = (np.uint8, np.uint16, np.uint32, np.uint64)
# 256 KiB of words: what is worked on stays in the cache of one core.
_CHUNK_WORDS: Final = 2**15
# From here on few words hold an undecided coin (one in four), and it pays to gather those.
_GATHER_FROM: Final = 8
_ALL: Final = np.uint64(2**64 - 1)


def bernoulli(
    p: Dyadic, shape: int | tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Flip coins that show heads with probability exactly `p`.

    Args:
        p: The probability of `True`.
        shape: The shape of the result.
        rng: Source of the coins; gives one number of 8, 16, 32 or 64 bits a coin.
    """
    if p.numerator in {0, 2**p.bits}:
        return np.full(shape, p.numerator != 0)
    dtype = next(width for width in _WIDTHS if np.iinfo(width).bits >= p.bits)
    bound = dtype(p.numerator << (np.iinfo(dtype).bits - p.bits))
    draws = rng.integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)
    return np.asarray(draws < bound)


def packed_bernoulli(
    p: Dyadic, rows: int, columns: int, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Flip masses of coins that show heads with probability exactly `p`, eight to a byte.

    Args:
        p: The probability of a bit that is set.
        rows: How many rows, 0 or more.
        columns: How many coins a row, 0 or more.
        rng: Source of the coins.

    Returns:
        Shape (rows, ceil(columns / 8)), in the order of `numpy.packbits`; padding bits are 0.

    Raises:
        InputError: If a size is negative.
    """
    require(rows >= 0, "rows", rows, "a whole number of at least 0")
    require(columns >= 0, "columns", columns, "a whole number of at least 0")
    width = -(-columns // 8)
    words = np.empty(-(-rows * width // 8), dtype=np.uint64)
    for chunk in _chunks(words.size):
        words[chunk] = _coins(p, words[chunk].size, rng)
    packed = words.view(np.uint8)[: rows * width].reshape(rows, width)
    if columns % 8:
        packed[:, -1] &= np.uint8(0xFF << (8 - columns % 8) & 0xFF)
    return packed


def _coins(p: Dyadic, size: int, rng: np.random.Generator) -> NDArray[np.uint64]:
    """Return words whose bits are coins."""
    if p.numerator == 2**p.bits:
        return np.full(size, _ALL)
    heads, undecided = np.zeros(size, dtype=np.uint64), np.full(size, _ALL)
    where: NDArray[np.intp] | slice = slice(None)
    for place, bit in enumerate(_bits(p)):
        if place >= _GATHER_FROM:
            left = np.flatnonzero(undecided)
            where = left if isinstance(where, slice) else where[left]
            undecided = undecided[left]
        # A coin's bit that is set is one that differs from the bit of `p`.
        differs = rng.integers(0, _ALL, undecided.size, dtype=np.uint64, endpoint=True)
        if bit:
            heads[where] |= undecided & differs
        undecided &= ~differs
    return heads


def _bits(p: Dyadic) -> Iterator[bool]:
    """Yield the bits of `p`, highest first, up to the last that is set: the rest decide nothing."""
    for place in range(p.bits - 1, -1, -1):
        if p.numerator & ((1 << (place + 1)) - 1) == 0:
            return
        yield bool(p.numerator >> place & 1)


def _chunks(words: int) -> Iterator[slice]:
    return (slice(first, first + _CHUNK_WORDS) for first in range(0, words, _CHUNK_WORDS))
