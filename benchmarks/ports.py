"""Ports for servers that a benchmark or a test starts in separate processes.

Another program may take a port that the system assigned for a moment before a server listens on it.
These ports are reserved until the process ends: the process listens on the first of ten consecutive
ports, and the holder of that port owns the other nine. They are below the ports that any system
assigns automatically.
"""

import atexit
from typing import Final

from veilring.errors import AddressTaken
from veilring.privacy.checks import require
from veilring.transport.listener import bind
from veilring.transport.tls import LOOPBACK

# Linux assigns ports from 32,768, other systems from 49,152. Many programs listen below 12,000 by
# default.
_BLOCKS: Final = range(12_000, 32_000, 10)
PORTS_MAX: Final = 9
"""The maximum number of consecutive ports that can be reserved."""

_left: Final = list[int]()


def reserve_ports(count: int = 1) -> int:
    """Return the first of some consecutive ports at `LOOPBACK`, which only this process is given.

    Args:
        count: The number of ports, at most `PORTS_MAX`.

    Raises:
        AddressTaken: If all ports are taken.
    """
    require(1 <= count <= PORTS_MAX, "count", count, f"1 to {PORTS_MAX} ports")
    if len(_left) < count:
        _left[:] = _reserve_block()
    first = _left[0]
    del _left[:count]
    return first


def _reserve_block() -> range:
    """Reserve ten free ports by listening on the first, and return the others."""
    for first in _BLOCKS:
        try:
            guard = bind(LOOPBACK, first)
        except AddressTaken:
            continue
        ports = range(first + 1, first + 1 + PORTS_MAX)
        if all(map(_is_free, ports)):
            atexit.register(guard.close)
            return ports
        guard.close()
    raise AddressTaken(LOOPBACK, _BLOCKS.start)


def _is_free(port: int) -> bool:
    try:
        bind(LOOPBACK, port).close()
    except AddressTaken:
        return False
    return True
