"""One TLS connection, from its greeting to its goodbye.

TLS does not distinguish a stream that ended from one that was cut: asyncio shows both as a clean
close. A deliberate end is therefore announced and answered in our own frames (`frames.GOODBYE`),
and any other end is a loss. The answer is as important as the announcement: while a peer is still
sending, closing a socket resets the connection and discards our own last frames. The side that
leaves first therefore keeps reading until the other's goodbye confirms that all frames arrived.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, cast

from cryptography import x509
from typing_extensions import override

from veilring.errors import FrameError, VeilringError
from veilring.transport.frames import GOODBYE, FrameReader, check_frame, on_stream, prefix
from veilring.transport.handshake import (
    PROTOCOL_VERSION,
    REASON_CHARACTERS_MAX,
    About,
    ConnectionRefusal,
    Greeting,
    Hello,
    OtherHello,
    Refuse,
    Welcome,
    check_hello,
    greeting,
    printable,
    read_greeting,
)
from veilring.transport.links import Links
from veilring.transport.roster import fingerprint_of

# A goodbye takes one round trip; a peer that does not read or is gone must not delay us longer.
GOODBYE_SECONDS: Final = 2.0
# The unsent bytes that a send may leave in our memory while the network is slow; beyond it the next
# send waits.
WRITE_BUFFER_BYTES: Final = 1 << 18
# Every layer below copies its input, and large copies may each need fresh pages from the system,
# which take longer than the copying: larger frames are written in slices of this size.
SLICE_BYTES: Final = 1 << 18
# A host that lost its power sends nothing. After 10 s of silence it is probed three times, 5 s
# apart, so it counts as lost after 25 s; an idle connection costs six packets a minute.
KEEPALIVE_IDLE_SECONDS: Final = 10
KEEPALIVE_INTERVAL_SECONDS: Final = 5
KEEPALIVE_PROBES: Final = 3
# While data are in flight TCP does not probe, and would retransmit for up to 15 minutes instead.
UNACKNOWLEDGED_SECONDS: Final = (
    KEEPALIVE_IDLE_SECONDS + KEEPALIVE_INTERVAL_SECONDS * KEEPALIVE_PROBES
)


class Connection(asyncio.Protocol):
    """Either side of one connection: greeting, frames, goodbye.

    Both sides have one class: CPython specialises the code that each frame runs through for the
    class of its object, and would take half a microsecond more with two classes in turn.

    Args:
        dialled: The peer that this side has dialled; empty if this side was dialled.

    Attributes:
        peer: The name of the member whose key the other side proved to have; empty before that.
        key: The fingerprint of that key.
        own: The fingerprint of our own key.
        has_dialled: Whether this side has dialled.
        greeted: A future with `None` once the connection is open, or with the reason why it is not.
    """

    def __init__(self, hub: Links, dialled: str = "") -> None:
        self.has_dialled, self._dialled = bool(dialled), dialled
        self.peer, self.key, self.own = "", "", hub.own
        self.greeted: asyncio.Future[ConnectionRefusal | None] = (
            asyncio.get_running_loop().create_future()
        )
        self.is_open = False
        self._hub, self._turns = hub, hub.turns
        self._reader = FrameReader()
        self._frames = _NONE  # those that have arrived, behind the next one
        self._next: bytes | None = None  # a frame that has to wait
        self._is_paused = self._is_in_use = self._is_stopped = False
        self._wake: asyncio.TimerHandle | None = None
        self._end: _End | None = None
        self._take: Callable[[bytes], bool] = self._greet
        self._transport: asyncio.Transport | None = None
        self._outlet: asyncio.Transport | None = None  # while frames can be sent at once
        self._writable = asyncio.Event()
        self._writable.set()
        self._said_goodbye = False
        self._deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._hub.track(self)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        enable_keepalive(cast(socket.socket, transport.get_extra_info("socket")))
        proof = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        self.key = fingerprint_of(x509.load_der_x509_certificate(proof))
        member = self._hub.roster.owner(self.key)
        if member is None:
            self.refuse(ConnectionRefusal("the key of the certificate is not in the roster"))
            return
        self.peer = member.name
        if self.key == member.fingerprint or member.accepts_previous(self._hub.today):
            if self.has_dialled:  # the dialler speaks first
                self._say_hello()
        else:
            ended = f"the previous key of {member.name} was accepted until {member.previous_until}"
            self.refuse(ConnectionRefusal(f"{ended}; let {member.name} use its new key"))

    @override
    def data_received(self, data: bytes) -> None:
        self._frames = self._reader.feed(data)  # none are left: nothing arrives during a pause
        self.process()
        if self._frames is not _NONE and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()  # TCP will make the peer wait

    def process(self) -> None:
        """Process the frames that have arrived, until something is in the way."""
        try:
            while not self._is_stopped:
                frame = self._next or next(self._frames, None)
                if frame is None:
                    self._frames = _NONE
                    if self._is_paused or self._reader.finished or self._end is not None:
                        self._caught_up()
                    return
                self._next = None
                if not self._turns.admit(self):
                    self._next = frame
                    return
                if not self._take(frame):
                    self._next = frame
                    self._turns.block(self)
                    return
        except FrameError as error:
            self._drop()
            self._fail(error)

    def _caught_up(self) -> None:
        if self._reader.finished:
            self._heard_goodbye()
        if self._end is not None:
            self._leave(self._end)
        elif self._is_paused and self._transport is not None:
            self._is_paused = False
            if not self._transport.is_closing():  # otherwise it cannot resume, and need not
                self._transport.resume_reading()

    def hold(self) -> None:
        """Process nothing until `release`: the earlier connection has frames to deliver."""
        self._is_stopped = True

    def release(self) -> None:
        """Process the frames that have arrived, from the loop's next turn on."""
        asyncio.get_running_loop().call_soon(self._go_on)

    def hand_over(self, seconds: float) -> None:
        """Send nothing more, but deliver the peer's frames up to its goodbye within some time.

        The side that dialled says goodbye first: only it knows that both have the other connection.
        """
        self.is_open = False
        self.resume_writing()
        if self.has_dialled:
            self._write_goodbye()
        self._end_within(seconds)

    def _end_within(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _drop(self) -> None:
        """Forget frames that have arrived and were not processed."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        self._frames, self._next = _NONE, None
        self._is_stopped = False

    @override
    def pause_writing(self) -> None:
        self._outlet = None
        self._writable.clear()

    @override
    def resume_writing(self) -> None:
        self._outlet = self._transport if self.is_open else None
        self._writable.set()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._conclude(ConnectionRefusal.by(exc))
        self._transport = None
        self.is_open = False
        self.resume_writing()
        self._end = _End(orderly=False, cause=exc)
        if self._frames is _NONE:  # frames that arrived before the end are processed before it
            self._leave(self._end)
        self._hub.ended(self)

    async def room(self) -> None:
        """Wait until the peer has read enough for more to be sent, or the connection has ended."""
        await self._writable.wait()

    def write(self, data: bytes | memoryview) -> None:
        """Send bytes of the stream: all of them, unless the connection breaks and is lost."""
        if self._transport is not None:
            self._transport.write(data)

    def send_now(self, frame: bytes) -> bool:
        """Send a frame if that takes no wait, and return whether it was sent.

        If the connection breaks, it may be lost.

        Raises:
            FrameError: If the frame is empty or too large.
        """
        if self._outlet is None:
            return False
        if len(frame) <= SLICE_BYTES:
            self._outlet.write(on_stream(frame))
        else:
            self._write_slices(frame)
        return True

    def _write_slices(self, frame: bytes) -> None:
        check_frame(frame)
        head = prefix(frame)
        view = memoryview(bytes(frame))  # a copy only if the caller's buffer can still change
        self.write(head + view[:SLICE_BYTES])
        for start in range(SLICE_BYTES, len(view), SLICE_BYTES):
            self.write(view[start : start + SLICE_BYTES])

    def open(self) -> None:
        """Start to carry frames."""
        self.is_open = self._is_in_use = True
        self.resume_writing()
        self._take = partial(self._hub.inbox.offer, self.peer)
        self._hub.opened(self)
        self._conclude(None)

    def refuse(self, refusal: ConnectionRefusal) -> None:
        """Refuse the connection with a reason; if the greeting is over already, do nothing."""
        if not self.greeted.done():
            reason = refusal.reason[:REASON_CHARACTERS_MAX]
            self.write(greeting(Refuse(reason=reason, again=refusal.again)))
            self.turn_away(refusal)

    def turn_away(self, refusal: ConnectionRefusal) -> None:
        """End a connection that was never open."""
        self._conclude(refusal)
        self._take = _ignore
        if self._transport is not None:
            self._transport.close()

    def say_goodbye(self) -> None:
        """Leave in order: the connection ends when the peer has answered."""
        self.is_open = self._is_in_use = False
        self.resume_writing()
        self._take = _ignore
        self._write_goodbye()

    def rest(self, seconds: float) -> None:
        """Process nothing for a while; frames wait here, and at the peer once this side is full."""
        if self._is_in_use and not self._is_stopped:
            self._is_stopped = True
            self._wake = asyncio.get_running_loop().call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._wake, self._is_stopped = None, False
        self.process()

    def cut(self, error: VeilringError) -> None:
        """End a connection whose peer violated the protocol, and drop its frames."""
        self._drop()
        self._leave(_End(orderly=False, cause=error))
        self.abort()

    def abort(self) -> None:
        """End at once; unsent bytes are lost."""
        self.is_open = self._is_in_use = False
        self._drop()
        self.resume_writing()
        if self._transport is not None:
            self._transport.abort()

    def _greet(self, frame: bytes) -> bool:
        message = read_greeting(frame)
        if isinstance(message, Refuse):
            reason = printable(message.reason)
            self.turn_away(ConnectionRefusal(f"it refused us: {reason}", again=message.again))
        elif self.has_dialled:
            self._hear_answer(message)
        else:
            self._hear_hello(message)
        return True

    def _say_hello(self) -> None:
        """Greet, or refuse a member that was not dialled."""
        me = self._hub.me
        if self.peer == me:
            reached = f"{me} reached itself at the address of {self._dialled}"
            self.refuse(ConnectionRefusal(reached))
        elif self.peer != self._dialled:
            found = f"the address of {self._dialled} answered with the key of {self.peer}"
            self.refuse(ConnectionRefusal(found))
        else:
            hello = Hello(
                version=PROTOCOL_VERSION,
                roster=b"".join(self._hub.roster.hashes(self._hub.today)),
                sender=me,
                receiver=self.peer,
                about=self._hub.about.text,
            )
            self.write(greeting(hello))

    def _hear_answer(self, message: Greeting) -> None:
        if isinstance(message, Welcome):
            self._hub.compare(self.peer, About.read(message.about))
            self.open()
        else:
            self.refuse(ConnectionRefusal("its answer to our greeting does not match"))

    def _hear_hello(self, message: Greeting) -> None:
        if not isinstance(message, Hello | OtherHello):
            self.refuse(ConnectionRefusal("its welcome came before any greeting"))
            return
        hub = self._hub
        refusal = check_hello(
            message, hub.roster, me=hub.me, peer=self.peer, ours=hub.about, today=hub.today
        )
        refusal = refusal or hub.objection(self.peer, self) or hub.rate_objection(self.peer)
        if refusal is not None:
            self.refuse(refusal)
        elif isinstance(message, Hello):
            hub.compare(self.peer, About.read(message.about))
            self.write(greeting(Welcome(about=hub.about.without_terms.text)))
            self.open()

    def _conclude(self, outcome: ConnectionRefusal | None) -> None:
        if not self.greeted.done():
            self.greeted.set_result(outcome)

    def _fail(self, error: FrameError) -> None:
        if self.greeted.done():
            self._hub.cut(self.peer, error)
        else:
            self.refuse(ConnectionRefusal(f"its greeting was invalid: {error}"))

    def _leave(self, end: "_End") -> None:
        self.is_open = False
        self.resume_writing()
        if self._is_in_use:
            self._is_in_use = False
            self._take = _ignore
            self._hub.lost(self, orderly=end.orderly, cause=end.cause)

    def _heard_goodbye(self) -> None:
        self._conclude(
            ConnectionRefusal("it closed the connection instead of greeting", again=True)
        )
        self._leave(_End(orderly=True, cause=None))
        if self._transport is None:
            return
        if self._said_goodbye:
            self._transport.close()
        else:
            # the side that left first closes the socket, once it has our answer
            self._write_goodbye()
            self._end_within(GOODBYE_SECONDS)

    def _write_goodbye(self) -> None:
        if not self._said_goodbye:
            self._said_goodbye = True
            self.write(GOODBYE)


_NONE: Final[Iterator[bytes]] = iter(())
"""The frames of a connection that has processed all that have arrived."""


class _End(NamedTuple):
    """The way a connection ended."""

    orderly: bool
    cause: Exception | None


def _ignore(_frame: bytes) -> bool:
    """Ignore a frame after the end."""
    return True


async def complete_handshake(
    connection: Connection, attempt: Awaitable[object], seconds: float
) -> ConnectionRefusal | None:
    """Complete TLS and greeting of a connection, within the given time."""
    try:
        async with asyncio.timeout(seconds):
            await attempt
            # unshielded, a timeout would look like an outcome
            return await asyncio.shield(connection.greeted)
    except OSError as error:
        refusal = ConnectionRefusal.by(error)
        connection.refuse(refusal)
        return refusal
    except asyncio.CancelledError:
        connection.abort()
        raise


def enable_keepalive(sock: socket.socket) -> None:
    """Send small frames at once, and detect a peer whose host has vanished."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_SECONDS * 1000),
    ):
        if hasattr(socket, name):  # not every system has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
