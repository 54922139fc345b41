"""Admission of incoming connections before they have proven to be a peer's.

Anybody who reaches the port can connect, say nothing, or begin handshakes and leave them. So a
connection costs a socket until it has sent its whole first message. A limited number of handshakes
run at once, fewer for one address. A slow handshake is cancelled when others wait.
"""

import asyncio
import errno
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final

from veilring.errors import AddressTaken, InputError
from veilring.transport.handshake import HUNG_UP, NOT_TLS, TOO_SLOW
from veilring.transport.pacing import SparingLog, TokenBuckets

# Connections that the kernel completes before we take them: all peers may dial at once.
BACKLOG: Final = 1024
# Handshakes under way. Each costs a signature and some 100 KiB.
HALF_OPEN_MAX: Final = 128
# The same of one source address: half, so that no address keeps all others out.
HALF_OPEN_PER_HOST_MAX: Final = HALF_OPEN_MAX // 2
# Connections that have not said enough to begin. Each costs a descriptor; when there are more, the
# one that has been silent longest goes, of the address that has most of them.
WAITING_MAX: Final = 128
# A handshake takes two round trips, or half a second on a slow line. One that takes much longer
# goes on only if nobody wants its place.
HANDSHAKE_PATIENCE_SECONDS: Final = 2.5
# Handshakes of one address that come to nothing, each of which costs us a millisecond or two. A
# ring on one host with a wrong roster has a few for each pair; a flood takes some percent of a
# core.
FAILURES_MAX: Final = 128
FAILURES_PER_SECOND: Final = 32.0
# How often those who wait are looked at: what was half said a moment ago may be whole now.
LOOK_SECONDS: Final = 0.05
# Out of descriptors, there is no use in asking again at once.
ACCEPT_PAUSE_SECONDS: Final = 0.2

_RECORD_HEADER: Final = 5  # of TLS: the type, two bytes of version, two of length
_RECORD_MAX: Final = _RECORD_HEADER + (1 << 14)
_HANDSHAKE: Final = 22  # the type of the record that a TLS client sends first

_log = logging.getLogger("veilring.transport")


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
    return InputError.because(
        f"cannot listen at {host}:{port} ({why}); use an address of this machine", field="address"
    )


@dataclass(eq=False, slots=True)
class _Caller:
    """An accepted connection and its state."""

    sock: socket.socket
    host: str
    port: int
    since: float
    is_ready: bool = False
    has_begun: bool = False
    task: asyncio.Task[bool] | None = field(default=None)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class Listener:
    """Takes connections from a listening socket, and lets them try in a fair order.

    Callbacks and not `loop.sock_accept`: a task that is cancelled just as a connection arrives
    would lose it unclosed.

    Args:
        sock: Bound and listening. It belongs to the listener from now on.
        admit: A coroutine function that is given each connection and its address, owns it, and
            returns whether it turned out to be a peer's.
        turned_away: Told the address of each connection that was not admitted, and why.
        seconds: The time for which a connection may stay silent while no other waits.
    """

    def __init__(
        self,
        sock: socket.socket,
        admit: Callable[[socket.socket, str], Coroutine[None, None, bool]],
        turned_away: Callable[[str, str], None],
        seconds: float,
    ) -> None:
        self._seconds = seconds
        self._sock, self._admit, self._turned_away = sock, admit, turned_away
        self._loop = asyncio.get_running_loop()
        self._failures = TokenBuckets(FAILURES_MAX, FAILURES_PER_SECOND, self._loop.time)
        self._lines = SparingLog(_log, self._loop.time)
        self._waiting: dict[_Caller, None] = {}  # the oldest first
        self._trying: dict[_Caller, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False
        sock.setblocking(False)
        self._loop.add_reader(sock, self._accept)

    @property
    def admissions(self) -> list[asyncio.Task[bool]]:
        """The handshakes under way."""
        return [caller.task for caller in self._trying if caller.task is not None]

    def _accept(self) -> None:
        try:
            accepted, address = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # it went away again
        except OSError as error:
            line = "cannot accept connections for a moment: %s"
            self._lines.say(logging.WARNING, "accept", str(error), line, error)
            self._loop.remove_reader(self._sock)
            self._retry = self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._listen)
            return
        accepted.setblocking(False)
        if len(self._waiting) >= WAITING_MAX:
            self._drop(self._most_dispensable(), "it said nothing while others waited")
        caller = _Caller(accepted, str(address[0]), int(address[1]), self._loop.time())
        self._waiting[caller] = None
        self._loop.add_reader(accepted, self._hear, caller)
        self._keep_looking()

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._sock, self._accept)

    def _most_dispensable(self) -> _Caller:
        """Return the next to evict: among the silent, the oldest of the host that has most."""
        count = Counter(caller.host for caller in self._waiting)
        return max(self._waiting, key=lambda caller: (not caller.is_ready, count[caller.host]))

    def _hear(self, caller: _Caller) -> None:
        """Look at the bytes that have come; at a partial message again later, not at once."""
        self._loop.remove_reader(caller.sock)
        self._judge(caller)
        self._start()

    def _judge(self, caller: _Caller) -> None:
        """Note whether a connection has said enough, and end it if that was no TLS."""
        try:
            said = caller.sock.recv(_RECORD_MAX, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            said = b""
        if not said:
            self._drop(caller, HUNG_UP)
        elif said[0] != _HANDSHAKE:
            self._drop(caller, NOT_TLS)
        else:
            length = _RECORD_HEADER + int.from_bytes(said[3:_RECORD_HEADER], "big")
            caller.is_ready = len(said) >= min(length, _RECORD_MAX)

    def _keep_looking(self) -> None:
        if self._timer is None and self._waiting and not self._closed:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Drop callers whose time is up, and start those that are ready."""
        self._timer = None
        horizon = self._loop.time() - self._seconds
        for caller in list(self._waiting):
            if caller.since < horizon:
                self._drop(caller, TOO_SLOW)
            elif not caller.is_ready:
                self._judge(caller)
        self._start()
        self._keep_looking()

    def _drop(self, caller: _Caller, why: str) -> None:
        del self._waiting[caller]
        self._loop.remove_reader(caller.sock)
        caller.sock.close()
        self._turned_away(caller.address, why)

    def _start(self) -> None:
        """Start a ready caller's handshake, the latest first: in a flood, older ones are its own.

        One in a turn of the loop, since each costs a signature.
        """
        for caller in reversed(self._waiting):
            if caller.is_ready and self._has_place(caller.host):
                break
        else:
            return
        del self._waiting[caller]
        self._loop.remove_reader(caller.sock)
        self._failures.spend(caller.host)
        caller.since = self._loop.time()
        caller.task = self._loop.create_task(self._try(caller))
        self._trying[caller] = None
        caller.task.add_done_callback(lambda task: self._ended(caller, task))
        self._loop.call_soon(self._start)

    async def _try(self, caller: _Caller) -> bool:
        caller.has_begun = True
        return await self._admit(caller.sock, caller.address)

    def _has_place(self, host: str) -> bool:
        """Say whether a host may try; if one that has had its time is in the way, end it."""
        if self._failures.left(host) < 1:
            return False
        rivals = [each for each in self._trying if each.host == host]
        if len(rivals) < HALF_OPEN_PER_HOST_MAX:
            rivals = list(self._trying)
            if len(rivals) < HALF_OPEN_MAX:
                return True
        oldest = rivals[0]
        if (
            oldest.task is not None
            and self._loop.time() - oldest.since > HANDSHAKE_PATIENCE_SECONDS
        ):
            oldest.task.cancel()
        return False

    def _ended(self, caller: _Caller, task: asyncio.Task[bool]) -> None:
        del self._trying[caller]
        if task.cancelled():
            if not caller.has_begun:
                caller.sock.close()  # nobody else has it
            if not self._closed:
                self._turned_away(caller.address, "it did not go on while others waited")
        elif task.exception() is None and task.result():
            self._failures.refund(caller.host)
        if not self._closed:
            self._start()

    def close(self) -> None:
        """Stop listening and give up all that wait or try. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for timer in (self._retry, self._timer):
            if timer is not None:
                timer.cancel()
        for sock in (self._sock, *(caller.sock for caller in self._waiting)):
            self._loop.remove_reader(sock)
            sock.close()
        self._waiting.clear()
        for task in self.admissions:
            task.cancel()
