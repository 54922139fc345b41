"""Sockets: where we listen, and how a host that vanished is noticed."""

import errno
import os
import socket
from typing import Final

from veilring.errors import AddressTaken, InputError

# A host that lost its power says nothing. After 10 s of silence it is asked, three times, 5 s
# apart, so that it counts as lost after 25 s; an idle connection costs six packets a minute.
KEEPALIVE_IDLE_SECONDS: Final = 10
KEEPALIVE_INTERVAL_SECONDS: Final = 5
KEEPALIVE_PROBES: Final = 3
# While data are under way TCP asks nothing and repeats them for up to 15 minutes instead.
UNACKNOWLEDGED_SECONDS: Final = (
    KEEPALIVE_IDLE_SECONDS + KEEPALIVE_INTERVAL_SECONDS * KEEPALIVE_PROBES
)
# Connections that the kernel completes before we take them: all peers may dial at once.
BACKLOG: Final = 1024


def watch(sock: socket.socket) -> None:
    """Send small frames at once and notice a peer whose host has vanished."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_SECONDS * 1000),
    ):
        if hasattr(socket, name):  # not every system has each
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        AddressTaken: If another process has it.
        InputError: If there is no such address here, or we may not have it.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except socket.gaierror as error:
        raise _refused(host, port, str(error.strerror)) from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressTaken(host, port) from error
        raise _refused(host, port, os.strerror(error.errno or 0)) from error


def _refused(host: str, port: int, why: str) -> InputError:
    return InputError("address", f"{host}:{port} ({why})", "an address of this machine")
