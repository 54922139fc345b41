"""Endpoints inside one process: the same frames, without a wire."""

import asyncio
from collections import deque
from collections.abc import Iterable

from typing_extensions import override

from veilring.errors import EndpointClosed, InputError, PeerLost
from veilring.transport.endpoint import QUEUED_FRAMES_MAX, Endpoint
from veilring.transport.frames import check_frame

__all__ = ("MemoryEndpoint", "MemoryNetwork")


class MemoryNetwork:
    """All endpoints of a set of parties that share one event loop.

    Args:
        names: The parties, each named once.

    Raises:
        InputError: If a name occurs twice.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        if len(set(self.names)) != len(self.names):
            raise InputError("names", "a list with repetitions", "each party once")
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
                endpoint.deliver(PeerLost(gone, orderly=orderly))


class MemoryEndpoint(Endpoint):
    """A party's endpoint in a `MemoryNetwork`."""

    def __init__(self, name: str, network: MemoryNetwork) -> None:
        self.name = name
        self._network = network
        self._arrived: deque[tuple[str, bytes] | PeerLost] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._gone: dict[str, bool] = {}
        self._closed = False

    @property
    @override
    def peers(self) -> tuple[str, ...]:
        return tuple(name for name in self._network.names if name != self.name)

    @override
    async def send(self, to: str, frame: bytes) -> None:
        if to == self.name:
            raise InputError("to", to, "another party of this network")
        receiver = self._network.endpoint(to)
        check_frame(frame)
        self._check_open(to)
        while receiver.is_full:
            await receiver.change()
            self._check_open(to)
        receiver.deliver((self.name, bytes(frame)))

    def _check_open(self, to: str) -> None:
        if self._closed:
            raise EndpointClosed(f"the endpoint of {self.name} is closed")
        if to in self._gone:
            raise PeerLost(to, orderly=self._gone[to])

    @property
    def is_full(self) -> bool:
        """Whether a sender has to wait."""
        return len(self._arrived) >= QUEUED_FRAMES_MAX and not self._closed

    async def change(self) -> None:
        """Wait until a frame is taken, a peer is gone or this endpoint ends."""
        await self._room.wait()

    def deliver(self, item: tuple[str, bytes] | PeerLost) -> None:
        """Put a frame, or the news that a peer is gone, behind what has arrived so far."""
        if self._closed:
            return
        if isinstance(item, PeerLost):
            self._gone[item.peer] = item.orderly
            self._room.set()  # a sender that waits for us may itself be the one that is gone
        self._arrived.append(item)
        if self.is_full:
            self._room.clear()
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    @override
    async def receive(self) -> tuple[str, bytes]:
        while not self._arrived:
            if self._closed:
                raise EndpointClosed(f"the endpoint of {self.name} is closed")
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        item = self._arrived.popleft()
        if not self.is_full:
            self._room.set()
        if isinstance(item, PeerLost):
            raise item
        return item

    @override
    async def close(self) -> None:
        self._end(orderly=True)

    @override
    def abort(self) -> None:
        self._end(orderly=False)

    def _end(self, *, orderly: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self._arrived.clear()
        self._room.set()
        self._wake()
        self._network.farewell(self.name, orderly=orderly)
