"""Ports for servers that a test starts in processes of their own.

A port that the system chose for a moment may belong to another program by the time that a server
listens there. These are held until the process ends: of ten ports in a row the first is listened
at, and whoever has it has the other nine. They lie below those that any system gives by itself.
"""

import socket
from typing import Final

from veilring.errors import AddressTaken, InputError
from veilring.transport.listener import bind
from veilring.transport.tls import LOOPBACK

# Linux gives ports from 32,768 on by itself, other systems from 49,152. Many programs listen below
# 12,000 by default.
_BLOCKS: Final = range(12_000, 32_000, 10)
PORTS_MAX: Final = 9
"""The most ports that can be reserved in a row."""

_guards: Final = list[socket.socket]()
_left: Final = list[int]()


def reserve_ports(count: int = 1) -> int:
    """Return the first of some ports in a row at `LOOPBACK`, which this process alone is given.

    Args:
        count: The number of ports, at most `PORTS_MAX`.

    Raises:
        InputError: If it is another number.
        AddressTaken: If all ports are taken.
    """
    if not 1 <= count <= PORTS_MAX:
        raise InputError("count", count, f"1 to {PORTS_MAX} ports")
    if len(_left) < count:
        _left[:] = _reserve_block()
    first = _left[0]
    del _left[:count]
    return first


def _reserve_block() -> range:
    """Take ten ports that nobody listens at, and return those after the first."""
    for first in _BLOCKS:
        try:
            guard = bind(LOOPBACK, first)
        except AddressTaken:
            continue
        ports = range(first + 1, first + 1 + PORTS_MAX)
        if all(map(_is_free, ports)):
            _guards.append(guard)
            return ports
        guard.close()
    raise AddressTaken(LOOPBACK, _BLOCKS.start)


def _is_free(port: int) -> bool:
    try:
        bind(LOOPBACK, port).close()
    except AddressTaken:
        return False
    return True
