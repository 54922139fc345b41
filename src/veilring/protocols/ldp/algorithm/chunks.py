"""Working on many clients a part at a time, so that memory stays bounded and caches warm."""

from collections.abc import Iterator
from typing import Final

from veilring.errors import InputError

# What a step works on at once: it stays in the second level of a usual processor's cache.
CHUNK_BYTES: Final = 1 << 18


def chunks(clients: int, bytes_each: int) -> Iterator[slice]:
    """Yield slices of the clients' axis that together cover it, each of a bounded size.

    Args:
        clients: How many there are.
        bytes_each: How much the work on one client holds in memory.
    """
    step = max(1, CHUNK_BYTES // bytes_each)
    for start in range(0, clients, step):
        yield slice(start, min(start + step, clients))


def how_many(at_once: int | None, usual: int) -> int:
    """Return how many reports go together: as many as a caller asked for, or as is usual.

    Raises:
        InputError: If it asked for none: with steps of 0 or less, reports would be left out.
    """
    if at_once is not None and at_once < 1:
        raise InputError("at_once", at_once, "an integer of at least 1")
    return usual if at_once is None else at_once
