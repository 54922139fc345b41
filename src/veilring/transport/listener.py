"""Admission of incoming connections before they have proven to be a peer's.

Anyone who reaches the port can connect, send nothing, or start handshakes and leave them. A
connection therefore costs only a socket until it has sent its complete first message. A limited
number of handshakes run concurrently, fewer for one address. A slow handshake is cancelled when
others wait.
"""

import asyncio
import errno
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final

from veilring.errors import AddressTaken, InputError
from veilring.transport.handshake import HUNG_UP, NOT_TLS, TOO_SLOW
from veilring.transport.pacing import SparingLog, TokenBuckets

# Connections that the kernel completes before we accept them: all peers may dial at once.
BACKLOG: Final = 1024
# Concurrent handshakes. Each costs a signature and some 100 KiB.
HALF_OPEN_MAX: Final = 128
# The same for one source address: half, so that no address keeps all others out.
HALF_OPEN_PER_HOST_MAX: Final = HALF_OPEN_MAX // 2
# Connections that have not sent enough to start. Each costs a descriptor; above the
# limit, the address with the most of them loses the one that has been silent longest.
WAITING_MAX: Final = 128
# A handshake takes two round trips, or half a second on a slow line. One that takes much longer
# continues only if nobody is waiting for its slot.
HANDSHAKE_PATIENCE_SECONDS: Final = 2.5
# Failed handshakes of one address, each of which costs us a millisecond or two. A ring on one host
# with a wrong roster has a few for each pair; a flood takes some percent of a core.
FAILURES_MAX: Final = 128
FAILURES_PER_SECOND: Final = 32.0
# The interval for checking waiting connections: a partial message may be complete by then.
LOOK_SECONDS: Final = 0.05
# Out of descriptors, retrying at once is pointless.
ACCEPT_PAUSE_SECONDS: Final = 0.2

_RECORD_HEADER: Final = 5  # of TLS: the type, two bytes of version, two of length
_RECORD_MAX: Final = _RECORD_HEADER + (1 << 14)
_HANDSHAKE: Final = 22  # the type of the record that a TLS client sends first

_log = logging.getLogger("veilring.transport")


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens."""
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
    task: asyncio.Task[bool] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class Listener:
    """Accepts connections from a listening socket, and starts their handshakes in a fair order.

    It uses callbacks rather than `loop.sock_accept`, because a task that is cancelled just as a
    connection arrives would leak it.

    Args:
        admit: A coroutine function that gets each connection and its address, owns it, and returns
            whether it turned out to be a peer's.
        turned_away: Called with the address of each connection that was not admitted, and the
            reason.
        is_tls: Whether connections begin with a TLS handshake.
    """

    def __init__(
        self,
        sock: socket.socket,
        admit: Callable[[socket.socket, str], Coroutine[None, None, bool]],
        turned_away: Callable[[str, str], None],
        seconds: float,
        *,
        is_tls: bool = True,
    ) -> None:
        self._seconds, self._is_tls = seconds, is_tls
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
        """The running handshakes."""
        return [caller.task for caller in self._trying if caller.task is not None]

    def _accept(self) -> None:
        try:
            accepted, address = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # the connection was closed again
        except OSError as error:
            line = "temporarily unable to accept connections: %s"
            self._lines.say(logging.WARNING, "accept", str(error), line, error)
            self._loop.remove_reader(self._sock)
            self._retry = self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._listen)
            return
        accepted.setblocking(False)
        if len(self._waiting) >= WAITING_MAX:
            self._drop(self._most_dispensable(), "it sent nothing while others waited")
        caller = _Caller(accepted, str(address[0]), int(address[1]), self._loop.time())
        self._waiting[caller] = None
        self._loop.add_reader(accepted, self._hear, caller)
        self._keep_looking()

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._sock, self._accept)

    def _most_dispensable(self) -> _Caller:
        """Return the next connection to evict: the oldest silent one of the busiest host."""
        count = Counter(caller.host for caller in self._waiting)
        return max(self._waiting, key=lambda caller: (not caller.is_ready, count[caller.host]))

    def _hear(self, caller: _Caller) -> None:
        """Look at the received bytes; check a partial message again later, not at once."""
        self._loop.remove_reader(caller.sock)
        self._judge(caller)
        self._start()

    def _judge(self, caller: _Caller) -> None:
        """Record whether a connection has sent enough, and end it if that was not TLS."""
        try:
            said = caller.sock.recv(_RECORD_MAX, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            said = b""
        if not said:
            self._drop(caller, HUNG_UP)
        elif not self._is_tls:
            caller.is_ready = True
        elif said[0] != _HANDSHAKE:
            self._drop(caller, NOT_TLS)
        else:
            length = _RECORD_HEADER + int.from_bytes(said[3:_RECORD_HEADER], "big")
            caller.is_ready = len(said) >= min(length, _RECORD_MAX)

    def _keep_looking(self) -> None:
        if self._timer is None and self._waiting and not self._closed:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Drop connections that timed out, and start those that are ready."""
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
        """Start the handshake of a ready connection, the latest first: a flood's are the others.

        One in each turn of the loop, because each costs a signature.
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
        """Return whether a host may start; end an overdue handshake that is in the way."""
        if self._failures.left(host) < 1:
            return False
        rivals = [each for each in self._trying if each.host == host]
        if len(rivals) < HALF_OPEN_PER_HOST_MAX:
            rivals = list(self._trying)
            if len(rivals) < HALF_OPEN_MAX:
                return True
        oldest, patience = rivals[0], HANDSHAKE_PATIENCE_SECONDS
        if oldest.task is not None and self._loop.time() - oldest.since > patience:
            oldest.task.cancel()
        return False

    def _ended(self, caller: _Caller, task: asyncio.Task[bool]) -> None:
        del self._trying[caller]
        if task.cancelled():
            if not caller.has_begun:
                caller.sock.close()  # nobody else owns it
            if not self._closed:
                self._turned_away(caller.address, "it did not continue while others waited")
        elif task.exception() is None and task.result():
            self._failures.refund(caller.host)
        if not self._closed:
            self._start()

    def close(self) -> None:
        """Stop listening and give up all waiting connections and handshakes. Idempotent."""
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
