"""Sockets: where we listen, and how a host that vanished is noticed."""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Final

from veilring.errors import AddressTaken, InputError

__all__ = (
    "ACCEPT_PAUSE_SECONDS",
    "BACKLOG",
    "HALF_OPEN_MAX",
    "KEEPALIVE_IDLE_SECONDS",
    "KEEPALIVE_INTERVAL_SECONDS",
    "KEEPALIVE_PROBES",
    "UNACKNOWLEDGED_SECONDS",
    "Listener",
    "bind",
    "watch",
)

# A host that lost its power says nothing. After 10 s of silence it is asked, three times, 5 s
# apart, so that it counts as lost after 25 s; an idle connection costs six packets a minute.
KEEPALIVE_IDLE_SECONDS: Final = 10
KEEPALIVE_INTERVAL_SECONDS: Final = 5
KEEPALIVE_PROBES: Final = 3
# While data are under way TCP asks nothing and repeats them for up to 15 minutes instead.
UNACKNOWLEDGED_SECONDS: Final = (
    KEEPALIVE_IDLE_SECONDS + KEEPALIVE_INTERVAL_SECONDS * KEEPALIVE_PROBES
)
# Handshakes under way. Each costs a signature and a socket that is not known to be a peer's; more
# wait in the kernel's backlog, so that a flood of strangers cannot take all our descriptors.
HALF_OPEN_MAX: Final = 64
# Connections that the kernel completes before we take them: all peers may dial at once.
BACKLOG: Final = 1024
# Out of descriptors, there is no use in asking again at once.
ACCEPT_PAUSE_SECONDS: Final = 0.2

_log = logging.getLogger("veilring.transport")


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


class Listener:
    """Takes connections from a listening socket, `HALF_OPEN_MAX` at a time.

    Callbacks and not `loop.sock_accept`: a task that is cancelled just as a connection arrives
    would lose it unclosed.

    Args:
        sock: Bound and listening. It belongs to the listener from now on.
        admit: A coroutine function that is given each connection and its address, and owns it.
    """

    def __init__(
        self,
        sock: socket.socket,
        admit: Callable[[socket.socket, str], Coroutine[None, None, None]],
    ) -> None:
        self._sock, self._admit = sock, admit
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._retry: asyncio.TimerHandle | None = None
        self.admissions: set[asyncio.Task[None]] = set()
        sock.setblocking(False)
        self._loop.add_reader(sock, self._accept)

    def _accept(self) -> None:
        try:
            accepted, address = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # it went away again
        except OSError as error:
            _log.warning("cannot accept connections for a moment: %s", error)
            self._loop.remove_reader(self._sock)
            self._retry = self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._listen)
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._admit(accepted, f"{address[0]}:{address[1]}"))
        self.admissions.add(task)
        task.add_done_callback(self._admitted)
        if len(self.admissions) >= HALF_OPEN_MAX:
            self._loop.remove_reader(self._sock)

    def _admitted(self, task: asyncio.Task[None]) -> None:
        self.admissions.discard(task)
        if len(self.admissions) == HALF_OPEN_MAX - 1:
            self._listen()

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._sock, self._accept)

    def close(self) -> None:
        """Stop listening and give up the handshakes under way. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        for task in self.admissions:
            task.cancel()
