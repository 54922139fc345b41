"""What has arrived at a party and waits for its node: frames, and the news that a peer is gone."""

import asyncio
from collections import deque
from collections.abc import Callable

from veilring.errors import EndpointClosed, PeerLost
from veilring.transport.endpoint import QUEUED_FRAMES_MAX, Sink

Item = tuple[str, bytes] | PeerLost
"""A sender and its frame, or the loss of a peer."""


def hand_over(item: Item, sink: Sink) -> None:
    """Give a node what has arrived."""
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
        """Put a frame and its sender, or a loss, behind what has arrived so far."""
        if self.closed:
            return
        if self._sink is not None:
            self._sink(item)
            return
        self._arrived.append(item)
        self._wake()

    def attach(self, sink: Callable[[Item], None]) -> None:
        """Hand over what is here and all that comes; nothing waits here any more."""
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
        """Take what is here, without waiting."""
        taken = list(self._arrived)
        self._arrived.clear()
        self._on_room()
        return taken

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for what comes next."""
        return self._waiting is not None and not self._waiting.done()

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
        """Drop what is left and wake whoever waits."""
        self.closed = True
        self._arrived.clear()
        self._on_room()
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
