"""Endpoints: whole frames to and from peers whose identity is proven."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Final

from veilring.errors import EndpointClosed, PeerLost, VeilringError

Sink = Callable[[str, bytes | PeerLost], None]
"""Takes a frame and its sender, or a peer and its loss, at once and without an error."""

# Frames that wait for a node that does not read. Then its peers' sends wait: with frames of 1 MiB
# at most, a stalled node holds 256 MiB at the worst; in practice frames are a few hundred bytes.
QUEUED_FRAMES_MAX: Final = 256


class Endpoint(ABC):
    """One party's door to its peers. This docstring is the contract of every transport.

    *Frames.* A frame is between 1 and `transport.frames.FRAME_BYTES_MAX` bytes. It arrives whole
    or not at all, once, unaltered, and in the order in which its sender sent it; nothing is said
    about the order of frames from different senders.

    *Sender.* The sender that `receive` returns is the one that the transport authenticated, never
    one that a message claims.

    *Backpressure.* `send` waits while the receiver has more than a bounded number of unread frames
    and never drops one. A `send` that returned says that the frame is on its way, not that it was
    read.

    *Loss.* When a peer is gone, every frame that arrived before is still delivered; then `receive`
    raises `PeerLost` exactly once for that peer (`orderly` if it said goodbye) and goes on to serve
    the others. `send` to it raises `PeerLost` each time.

    *Close.* `close` says goodbye to every peer, may be called twice, and wakes a waiting `receive`
    with `EndpointClosed`. `abort` ends without a goodbye: peers see a crash.

    *Cancellation.* A cancelled `receive` loses no frame. A cancelled `send` was either sent whole
    or not at all.

    *Tasks.* One task receives at a time; any number may send at once.
    """

    name: str
    """The roster name of the party that this endpoint belongs to."""

    @property
    @abstractmethod
    def peers(self) -> tuple[str, ...]:
        """The names of all parties that can be sent to, gone or not, without `name`."""

    @property
    @abstractmethod
    def connected(self) -> tuple[str, ...]:
        """The names of those `peers` that can be reached now; one that was lost may come back."""

    @abstractmethod
    async def send(self, to: str, frame: bytes) -> None:
        """Send one frame.

        Raises:
            InputError: If `to` is not one of `peers`.
            FrameError: If the frame is empty or too large. Nothing was sent.
            PeerLost: If the peer is gone.
            EndpointClosed: If this endpoint was closed.
        """

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

        Earlier arrivals are handed over first. A sink is called from the event loop, in the
        order of arrival, and costs no task of its own.
        """

    def rest(self, peer: str, seconds: float) -> None:  # noqa: B027  (not every one can)
        """Hand over nothing of a peer for a while: its frames wait, and are not lost.

        Where peers are in one process this does nothing: their frames would wait in our memory.
        """

    def cut(self, peer: str, why: VeilringError) -> None:  # noqa: B027  (not every one can)
        """End the connection with a peer that broke the rules, and refuse it for a while.

        Peers inside one process belong to one owner and have nothing to connect again: there this
        does nothing, and neither does it where the peer is gone.
        """

    @abstractmethod
    async def close(self) -> None:
        """Say goodbye to all peers and free all resources. Idempotent."""

    @abstractmethod
    def abort(self) -> None:
        """Vanish at once, as if the process had been killed. Idempotent."""


Item = tuple[str, bytes] | PeerLost
"""A sender and its frame, or the loss of a peer."""


def hand_over(item: Item, sink: Sink) -> None:
    """Pass an item to a node's sink."""
    if isinstance(item, PeerLost):
        sink(item.peer, item)
    else:
        sink(*item)


class Inbox:
    """The queue behind an endpoint's `receive`, in the order of arrival.

    It takes whatever it is given and says when it is full; to stop the senders then is for the
    transport, since only the transport knows how.

    Args:
        owner: The party's name.
        on_room: Called whenever the inbox was full and is no longer.
    """

    def __init__(self, owner: str, on_room: Callable[[], None]) -> None:
        self._owner, self._on_room = owner, on_room
        self._arrived: deque[Item] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._sink: Callable[[Item], None] | None = None
        self.closed = False

    @property
    def is_full(self) -> bool:
        """Whether senders have to wait."""
        return len(self._arrived) >= QUEUED_FRAMES_MAX and not self.closed

    def put(self, item: Item) -> None:
        """Append a frame and its sender, or a loss."""
        if self.closed:
            return
        if self._sink is not None:
            self._sink(item)
            return
        self._arrived.append(item)
        self._wake()

    def attach(self, sink: Callable[[Item], None]) -> None:
        """Pass all items, present and future, to a sink; the queue stays empty."""
        while self._arrived:
            sink(self._arrived.popleft())
        self._sink = sink
        self._on_room()

    def forget(self, peer: str) -> None:
        """Drop the frames of a peer."""
        kept = [item for item in self._arrived if isinstance(item, PeerLost) or item[0] != peer]
        self._arrived = deque(kept)
        self._on_room()

    def take_all(self) -> list[Item]:
        """Take all items that are here, without waiting."""
        taken = list(self._arrived)
        self._arrived.clear()
        self._on_room()
        return taken

    async def get(self) -> tuple[str, bytes]:
        """Wait for the next item; a cancelled wait takes none.

        Raises:
            PeerLost: If the item is a loss.
            EndpointClosed: If the inbox was or is closed.
        """
        while not self._arrived:
            if self.closed:
                raise EndpointClosed(f"the endpoint of {self._owner} is closed")
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        item = self._arrived.popleft()
        if len(self._arrived) == QUEUED_FRAMES_MAX - 1:
            self._on_room()
        if isinstance(item, PeerLost):
            raise item
        return item

    def close(self) -> None:
        """Drop all items and wake a waiting `get`."""
        self.closed = True
        self._arrived.clear()
        self._on_room()
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
