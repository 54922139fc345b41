"""One TLS connection, from its greeting to its goodbye.

TLS does not tell a stream that ended from one that was cut: asyncio shows both as a clean close.
So an end on purpose is said and answered in our own frames (`frames.GOODBYE`), and any other end is
a loss. The answer matters as much as the word: while a peer still sends, closing a socket resets
the connection and takes our own last frames with it, so that the side that leaves first keeps
reading until the other's goodbye says that all of it arrived.
"""

import asyncio
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol, cast

from cryptography import x509
from typing_extensions import override

from veilring.errors import FrameError, VeilringError
from veilring.transport.frames import GOODBYE, FrameReader, on_stream, prefix
from veilring.transport.handshake import (
    REASON_CHARACTERS_MAX,
    Hello,
    Refusal,
    Refuse,
    Welcome,
    greeting,
    read_greeting,
)
from veilring.transport.identity import fingerprint_of
from veilring.transport.pacing import Step
from veilring.transport.roster import Roster
from veilring.transport.sockets import watch

# A goodbye takes one round trip; a peer that does not read or is gone must not keep us longer.
GOODBYE_SECONDS: Final = 2.0
# What a send leaves in our memory while the network is slow; beyond it the next send waits.
WRITE_BUFFER_BYTES: Final = 1 << 18
# Every layer below copies what it is given, and large copies may each need fresh pages from the
# system, which take longer than the copying: larger frames are written in slices of this size.
SLICE_BYTES: Final = 1 << 18


class Hub(Protocol):
    """What a connection needs of the endpoint that it belongs to."""

    me: str
    roster: Roster
    terms: str

    @property
    def is_full(self) -> bool:
        """Whether the node has enough to read."""

    def objection(self, peer: str) -> Refusal | None:
        """Say why a connection with a peer cannot start now, if so."""

    def alive(self, connection: "Connection") -> None:
        """Take note that a connection has a socket."""

    def opened(self, connection: "Connection") -> None:
        """Take a connection whose greeting went well."""

    def arrived(self, peer: str, frame: bytes) -> None:
        """Take a frame."""

    def turn(self, connection: "Connection") -> None:
        """Let a connection take the frames that it has, when it is its turn."""

    def cut(self, peer: str, why: VeilringError) -> None:
        """End the connection with a peer that broke the rules, and refuse it for a while."""

    def haste(self, peer: str) -> Refusal | None:
        """Say whether a peer that connects does so too often."""

    def lost(self, connection: "Connection", *, orderly: bool, cause: Exception | None) -> None:
        """Take note that an open connection is not open any more."""

    def ended(self, connection: "Connection") -> None:
        """Take note that a connection's socket is gone."""


class Connection(asyncio.Protocol, ABC):
    """Either side of one connection: greeting, frames, goodbye.

    Args:
        hub: The endpoint that it belongs to.

    Attributes:
        peer: The name of the member whose key the other side proved to have; empty before that.
        greeted: Done once it is known whether the connection is open (`None`) or why not.
        is_open: Whether frames may be sent and are delivered.
    """

    def __init__(self, hub: Hub) -> None:
        self.peer = ""
        self.greeted: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self.is_open = False
        self._hub = hub
        self._reader = FrameReader()
        self._frames: Iterator[bytes] = iter(())
        self._unread: deque[bytes] = deque()
        self._held: bytes | None = None
        self._is_behind = self._is_resting = self._is_in_use = False
        self._wake: asyncio.TimerHandle | None = None
        self._end: _End | None = None
        self._take: Callable[[bytes], None] = self._greet
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None
        self._said_goodbye = False
        self._deadline: asyncio.TimerHandle | None = None

    @abstractmethod
    def secured(self) -> None:
        """Do what comes first once the peer is known."""

    @abstractmethod
    def heard(self, message: Hello | Welcome | Refuse) -> None:
        """Do what a greeting asks for."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._hub.alive(self)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        watch(cast(socket.socket, transport.get_extra_info("socket")))
        proof = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        member = self._hub.roster.owner(fingerprint_of(x509.load_der_x509_certificate(proof)))
        if member is None:
            self.refuse(Refusal("the key of the certificate is not in the roster"))
        else:
            self.peer = member.name
            self.secured()

    @override
    def data_received(self, data: bytes) -> None:
        self._unread.append(data)
        self._is_behind = True
        self._hub.turn(self)
        if self._is_behind and self._transport is not None:
            self._is_resting = True
            self._transport.pause_reading()  # TCP will make the peer wait

    def step(self) -> Step:
        """Take one frame of what has arrived, unless the node has enough to read."""
        if self._wake is not None:
            return Step.NONE_LEFT
        try:
            frame = self._next_frame()
            if frame is None:
                self._caught_up()
                return Step.NONE_LEFT
            if self._is_in_use and self._hub.is_full:
                self._held = frame
                return Step.BLOCKED
            self._take(frame)
        except FrameError as error:
            self._drop()
            self._fail(error)
            return Step.NONE_LEFT
        return Step.TAKEN

    def _next_frame(self) -> bytes | None:
        frame, self._held = self._held, None
        frame = next(self._frames, None) if frame is None else frame
        while frame is None and self._unread:
            self._frames = self._reader.feed(self._unread.popleft())
            frame = next(self._frames, None)
        return frame

    def _caught_up(self) -> None:
        self._is_behind = False
        if self._reader.finished:
            self._heard_goodbye()
        if self._end is not None:
            self._leave(self._end)
        elif self._is_resting and self._transport is not None:
            self._is_resting = False
            self._transport.resume_reading()

    def _drop(self) -> None:
        """Forget what has arrived and was not taken."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        self._unread.clear()
        self._frames, self._held = iter(()), None
        self._is_behind = False

    @override
    def pause_writing(self) -> None:
        self._writable.clear()

    @override
    def resume_writing(self) -> None:
        self._writable.set()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._conclude(Refusal.by(exc))
        self._writable.set()
        self._transport = None
        self.is_open = False
        self._end = _End(orderly=False, cause=exc)
        if not self._is_behind:  # what arrived before the end is taken before it
            self._leave(self._end)
        self._hub.ended(self)

    @property
    def is_blocked(self) -> bool:
        """Whether a send has to wait for `room`."""
        return not self._writable.is_set()

    async def room(self) -> None:
        """Wait until the peer has read enough for more to be sent, or the connection is over."""
        await self._writable.wait()

    def write(self, data: bytes | memoryview) -> None:
        """Send bytes of the stream: all of them or, if the connection breaks, a loss follows."""
        if self._transport is not None:
            self._transport.write(data)

    def write_frame(self, frame: bytes) -> None:
        """Send a frame, as `write`.

        Raises:
            FrameError: If it is empty or too long; nothing was sent.
        """
        if len(frame) <= SLICE_BYTES:
            self.write(on_stream(frame))
            return
        head = prefix(frame)
        view = memoryview(bytes(frame))  # a copy only if the caller's buffer can still change
        self.write(head + view[:SLICE_BYTES])
        for start in range(SLICE_BYTES, len(view), SLICE_BYTES):
            self.write(view[start : start + SLICE_BYTES])

    def open(self) -> None:
        """Begin to carry frames."""
        self.is_open = self._is_in_use = True
        self._take = self._deliver
        self._hub.opened(self)
        self._conclude(None)

    def refuse(self, refusal: Refusal) -> None:
        """Tell the other side why not, and end; if the greeting is over already, do nothing."""
        if not self.greeted.done():
            reason = refusal.reason[:REASON_CHARACTERS_MAX]
            self.write(greeting(Refuse(reason=reason, again=refusal.again)))
            self.turn_away(refusal)

    def turn_away(self, refusal: Refusal) -> None:
        """End a connection that never opened."""
        self._conclude(refusal)
        self._take = _ignore
        if self._transport is not None:
            self._transport.close()

    def say_goodbye(self) -> None:
        """Leave in an orderly way: the connection ends when the peer has answered."""
        self.is_open = self._is_in_use = False
        self._writable.set()
        self._take = _ignore
        self._write_goodbye()

    def rest(self, seconds: float) -> None:
        """Take nothing for a while; what comes meanwhile waits, at last at the peer."""
        if self._wake is None and self._is_in_use:
            self._wake = asyncio.get_running_loop().call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._wake = None
        if self._is_behind:
            self._hub.turn(self)

    def cut(self, error: VeilringError) -> None:
        """End a connection whose peer broke the rules; what it has sent is dropped."""
        self._drop()
        self._leave(_End(orderly=False, cause=error))
        self.abort()

    def abort(self) -> None:
        """End at once; what is not sent yet never will be."""
        self.is_open = self._is_in_use = False
        self._drop()
        self._writable.set()
        if self._transport is not None:
            self._transport.abort()

    def _greet(self, frame: bytes) -> None:
        message = read_greeting(frame)
        if isinstance(message, Refuse):
            reason = "".join(c if c.isprintable() else "?" for c in message.reason)
            self.turn_away(Refusal(f"it refused us: {reason}", again=message.again))
        else:
            self.heard(message)

    def _deliver(self, frame: bytes) -> None:
        self._hub.arrived(self.peer, frame)

    def _conclude(self, outcome: Refusal | None) -> None:
        if not self.greeted.done():
            self.greeted.set_result(outcome)

    def _fail(self, error: FrameError) -> None:
        if self.greeted.done():
            self._hub.cut(self.peer, error)
        else:
            self.refuse(Refusal(f"no greeting was understood: {error}"))

    def _leave(self, end: "_End") -> None:
        self._writable.set()
        self.is_open = False
        if self._is_in_use:
            self._is_in_use = False
            self._take = _ignore
            self._hub.lost(self, orderly=end.orderly, cause=end.cause)

    def _heard_goodbye(self) -> None:
        self._conclude(Refusal("it said goodbye instead of a greeting", again=True))
        self._leave(_End(orderly=True, cause=None))
        if self._transport is None:
            return
        if self._said_goodbye:
            self._transport.close()
        else:
            # whoever left first closes the socket, once it has our answer
            self._write_goodbye()
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(GOODBYE_SECONDS, self._transport.abort)

    def _write_goodbye(self) -> None:
        if not self._said_goodbye:
            self._said_goodbye = True
            self.write(GOODBYE)


class _End(NamedTuple):
    """How a connection ended."""

    orderly: bool
    cause: Exception | None


def _ignore(_frame: bytes) -> None:
    """Drop what comes after the end."""
