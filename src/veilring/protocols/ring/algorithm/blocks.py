"""Working through many rows a block at a time, so that what is computed of them stays in cache."""

from collections.abc import Iterator
from typing import Final

# 512 KiB of numbers: what is computed of them mostly stays in a core's second cache, and the calls
# of a block cost little beside its work.
BLOCK_ENTRIES: Final = 2**16


def cut_rows(rows: int, width: int) -> Iterator[slice]:
    """Yield slices of at most `BLOCK_ENTRIES` entries, and of one row at least.

    Args:
        rows: How many there are in all.
        width: Entries of a row, at least 1.
    """
    step = max(1, BLOCK_ENTRIES // width)
    return (slice(first, min(first + step, rows)) for first in range(0, rows, step))
