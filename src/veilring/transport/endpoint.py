"""Endpoints: exchange of whole frames with authenticated peers, and that within one process."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from typing_extensions import override

from veilring.errors import EndpointClosed, InputError, PeerLost, VeilringError
from veilring.transport.frames import check_frame
from veilring.transport.messages import Envelope, KnownFrames, Message, encode, open_frame

Sink = Callable[[str, bytes | PeerLost], None]
"""A callback for a frame with its sender, or a peer with its loss; it returns at once, without an
error."""

# Frames queued for a node that does not read; its peers' sends then wait. With frames of at most 1
# MiB, a stalled node holds at most 256 MiB; in practice frames have a few hundred bytes.
QUEUED_FRAMES_MAX: Final = 256


class Endpoint(ABC):
    """One party's connection to its peers. This docstring is the contract of every transport.

    *Frames.* A frame is between 1 and `transport.frames.FRAME_BYTES_MAX` bytes. It arrives whole or
    not at all, once, unaltered, and in the order in which its sender sent it; frames from different
    senders have no defined order.

    *Sender.* The sender that `receive` returns is authenticated by the transport, never claimed by
    a message.

    *Backpressure.* `send` waits while the receiver has more than a bounded number of unread frames
    and never drops one. When `send` returns, the frame is on its way, but not necessarily read.

    *Loss.* When a peer is gone, every frame that arrived before is still delivered; then `receive`
    raises `PeerLost` exactly once for that peer (`orderly` if it said goodbye) and continues to
    serve the others. `send` to it raises `PeerLost` each time.

    *Close.* `close` says goodbye to every peer, may be called twice, and wakes a waiting `receive`
    with `EndpointClosed`. `abort` ends without a goodbye: peers see a crash.

    *Cancellation.* A cancelled `receive` loses no frame. A cancelled `send` was sent completely or
    not at all.

    *Tasks.* One task receives at a time; any number may send concurrently.
    """

    name: str
    """The roster name of the endpoint's party."""
    encode: Callable[[bytes, Message], bytes] = staticmethod(encode)
    """Returns the frame of a session's message, or raises `FrameError`."""
    open: Callable[[bytes], Envelope] = staticmethod(open_frame)
    """Reads a frame up to the session and the kind of its message, or raises `FrameError`."""

    @property
    @abstractmethod
    def peers(self) -> tuple[str, ...]:
        """The names of all other parties that can be addressed, connected or not."""

    @property
    @abstractmethod
    def connected(self) -> tuple[str, ...]:
        """The names of those `peers` that are reachable now; a lost one may return."""

    @abstractmethod
    async def send(self, to: str, frame: bytes) -> None:
        """Send one frame.

        Raises:
            InputError: If `to` is not one of `peers`.
            FrameError: If the frame is empty or too large. Nothing was sent.
            PeerLost: If the peer is gone.
            EndpointClosed: If this endpoint was closed.
        """

    def send_now(self, to: str, frame: bytes) -> bool:  # noqa: ARG002  (not every one can)
        """Send one frame if that takes no wait, and return whether it was sent.

        If it was not, `send` waits or raises the error.
        """
        return False

    @abstractmethod
    async def receive(self) -> tuple[str, bytes]:
        """Wait for the next frame and return `(sender, frame)`.

        Raises:
            PeerLost: Once for each peer that is gone.
            EndpointClosed: If this endpoint was or is closed.
        """

    @abstractmethod
    def attach(self, sink: Sink) -> None:
        """Pass arrivals to a callback instead of `receive`, from now on.

        Earlier arrivals are handed over first. A sink is called from the event loop, in the order
        of arrival, without a task of its own.
        """

    def rest(self, peer: str, seconds: float) -> None:  # noqa: B027  (not every one can)
        """Hand over no frames of a peer for a while; they wait, and are not lost.

        If peers share one process this does nothing: their frames would wait in our memory.
        """

    def cut(self, peer: str, why: VeilringError) -> None:  # noqa: B027  (not every one can)
        """End the connection to a peer that violated the protocol, and refuse it for a while.

        Peers inside one process belong to one owner and have no connection to restore: for them,
        and for a peer that is gone, this does nothing.
        """

    @abstractmethod
    async def close(self) -> None:
        """Say goodbye to all peers and free all resources. Idempotent."""

    @abstractmethod
    def abort(self) -> None:
        """Disappear at once, as if the process had been killed. Idempotent."""


class Inbox:
    """The queue behind an endpoint's `receive`, in the order of arrival.

    It accepts every item and reports when it is full; stopping the senders is up to the transport,
    the only one that can.
    """

    __slots__ = ("_arrived", "_on_room", "_owner", "_waiting", "closed", "sink")

    def __init__(self, owner: str, on_room: Callable[[], None]) -> None:
        self._owner, self._on_room = owner, on_room
        self._arrived: deque[tuple[str, bytes | PeerLost]] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self.sink: Sink | None = None
        """The callback of an open inbox to which items are passed, if one is attached."""
        self.closed = False

    @property
    def is_full(self) -> bool:
        """Whether senders must wait."""
        return len(self._arrived) >= QUEUED_FRAMES_MAX and not self.closed

    def offer(self, peer: str, frame: bytes) -> bool:
        """Append a frame of a peer if there is room, and return whether there was."""
        if self.sink is not None:
            self.sink(peer, frame)
        elif len(self._arrived) >= QUEUED_FRAMES_MAX:
            return False
        elif not self.closed:
            self._arrived.append((peer, frame))
            self._wake()
        return True

    def put(self, peer: str, item: bytes | PeerLost) -> None:
        """Append a frame of a peer, or its loss."""
        if self.sink is not None:
            self.sink(peer, item)
        elif not self.closed:
            self._arrived.append((peer, item))
            self._wake()

    def attach(self, sink: Sink) -> None:
        """Pass all items, present and future, to a sink; the queue stays empty."""
        while self._arrived:
            sink(*self._arrived.popleft())
        self.sink = None if self.closed else sink
        self._on_room()

    def forget(self, peer: str) -> None:
        """Drop the frames of a peer."""
        kept = [each for each in self._arrived if each[0] != peer or isinstance(each[1], PeerLost)]
        self._arrived = deque(kept)
        self._on_room()

    def take_all(self) -> list[tuple[str, bytes | PeerLost]]:
        """Take all available items, without waiting."""
        taken = list(self._arrived)
        self._arrived.clear()
        self._on_room()
        return taken

    async def get(self) -> tuple[str, bytes]:
        """Wait for the next item; a cancelled wait takes none."""
        while not self._arrived:
            if self.closed:
                raise EndpointClosed(f"the endpoint of {self._owner} is closed")
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        peer, item = self._arrived.popleft()
        if len(self._arrived) == QUEUED_FRAMES_MAX - 1:
            self._on_room()
        if isinstance(item, PeerLost):
            raise item
        return peer, item

    def close(self) -> None:
        """Drop all items and wake a waiting `get`."""
        self.closed, self.sink = True, None
        self._arrived.clear()
        self._on_room()
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a network's parties."""
    listed = tuple(names)
    if len(set(listed)) != len(listed):
        raise InputError.because("a party is named twice", field="names")
    return listed


class InProcessEndpoint(Endpoint):
    """An endpoint whose peers are in the same process; a subclass carries frames to them."""

    def __init__(
        self, name: str, parties: tuple[str, ...], frames: KnownFrames, on_room: Callable[[], None]
    ) -> None:
        self.name = name
        self.encode, self.open = frames.encode, frames.open
        self.inbox = Inbox(name, on_room)
        self.gone: dict[str, PeerLost] = {}
        self._parties = parties

    @property
    @override
    def peers(self) -> tuple[str, ...]:
        return tuple([name for name in self._parties if name != self.name])

    @property
    @override
    def connected(self) -> tuple[str, ...]:
        return tuple([name for name in self.peers if name not in self.gone])

    def check_open(self, to: str) -> None:
        """Refuse to send if the message could not arrive."""
        if self.inbox.closed:
            raise EndpointClosed(f"the endpoint of {self.name} is closed")
        if to in self.gone:
            raise PeerLost(to, orderly=self.gone[to].orderly)

    @abstractmethod
    def end(self, *, orderly: bool) -> None:
        """End, and notify the peers, unless this has ended before."""

    @override
    async def close(self) -> None:
        self.end(orderly=True)

    @override
    def abort(self) -> None:
        self.end(orderly=False)


class MemoryNetwork:
    """All endpoints of a set of parties that share one event loop."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names, self.frames = unique_names(names), KnownFrames()
        self._endpoints = {name: MemoryEndpoint(name, self) for name in self.names}

    def endpoint(self, name: str) -> "MemoryEndpoint":
        """Return the endpoint of a party; always the same one."""
        if name not in self._endpoints:
            raise InputError("name", name, "a party of this network")
        return self._endpoints[name]

    def farewell(self, gone: str, *, orderly: bool) -> None:
        """Tell every other endpoint, once, that a party is gone."""
        for name, endpoint in self._endpoints.items():
            if name != gone:
                endpoint.deliver(gone, PeerLost(gone, orderly=orderly))


class MemoryEndpoint(InProcessEndpoint):
    """A party's endpoint in a `MemoryNetwork`."""

    def __init__(self, name: str, network: MemoryNetwork) -> None:
        self._room = asyncio.Event()
        self._room.set()
        super().__init__(name, network.names, network.frames, on_room=self._room.set)
        self._network = network
        self._sink: Sink | None = None
        self._handing_over = False

    @override
    def send_now(self, to: str, frame: bytes) -> bool:
        if to == self.name:
            raise InputError("to", to, "another party of this network")
        receiver = self._network.endpoint(to)
        check_frame(frame)
        self.check_open(to)
        if receiver.inbox.is_full:
            return False
        receiver.deliver(self.name, bytes(frame))
        return True

    @override
    async def send(self, to: str, frame: bytes) -> None:
        while not self.send_now(to, frame):
            await self._network.endpoint(to).change()

    async def change(self) -> None:
        """Wait until a frame is read, a peer is gone or this endpoint ends."""
        await self._room.wait()

    def deliver(self, peer: str, item: bytes | PeerLost) -> None:
        """Append a frame, or the loss of a peer, to the inbox."""
        if isinstance(item, PeerLost):
            self.gone[peer] = item
            self._room.set()  # a sender that waits for us may itself be the one that is gone
        self.inbox.put(peer, item)
        if self.inbox.is_full:
            self._room.clear()
        if self._sink is not None and not self._handing_over:
            # Not at once: a sender must not run ahead of a receiver that has had no turn.
            self._handing_over = True
            asyncio.get_running_loop().call_soon(self._hand_over, self._sink)

    def _hand_over(self, sink: Sink) -> None:
        self._handing_over = False
        for peer, item in self.inbox.take_all():
            sink(peer, item)

    @override
    def attach(self, sink: Sink) -> None:
        self._sink = sink
        self._hand_over(sink)

    @override
    async def receive(self) -> tuple[str, bytes]:
        return await self.inbox.get()

    @override
    def end(self, *, orderly: bool) -> None:
        if not self.inbox.closed:
            self.inbox.close()
            self._network.farewell(self.name, orderly=orderly)
