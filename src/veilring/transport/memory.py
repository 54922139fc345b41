"""Endpoints inside one process: the same frames, without a wire."""

import asyncio
from collections.abc import Iterable

from typing_extensions import override

from veilring.errors import EndpointClosed, InputError, PeerLost
from veilring.transport.endpoint import Endpoint, Sink
from veilring.transport.frames import check_frame
from veilring.transport.inbox import Inbox

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
        self._room = asyncio.Event()
        self._room.set()
        self._inbox = Inbox(name, on_room=self._room.set)
        self._gone: dict[str, bool] = {}
        self._sink: Sink | None = None
        self._handing_over = False

    @property
    @override
    def peers(self) -> tuple[str, ...]:
        return tuple(name for name in self._network.names if name != self.name)

    @property
    @override
    def connected(self) -> tuple[str, ...]:
        return tuple(name for name in self.peers if name not in self._gone)

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
        if self._inbox.closed:
            raise EndpointClosed(f"the endpoint of {self.name} is closed")
        if to in self._gone:
            raise PeerLost(to, orderly=self._gone[to])

    @property
    def is_full(self) -> bool:
        """Whether a sender has to wait."""
        return self._inbox.is_full

    async def change(self) -> None:
        """Wait until a frame is taken, a peer is gone or this endpoint ends."""
        await self._room.wait()

    def deliver(self, item: tuple[str, bytes] | PeerLost) -> None:
        """Put a frame, or the news that a peer is gone, behind what has arrived so far."""
        if isinstance(item, PeerLost):
            self._gone[item.peer] = item.orderly
            self._room.set()  # a sender that waits for us may itself be the one that is gone
        self._inbox.put(item)
        if self.is_full:
            self._room.clear()
        if self._sink is not None and not self._handing_over:
            # Not at once: a sender must not run ahead of a receiver that has had no turn.
            self._handing_over = True
            asyncio.get_running_loop().call_soon(self._hand_over, self._sink)

    def _hand_over(self, sink: Sink) -> None:
        self._handing_over = False
        for item in self._inbox.take_all():
            if isinstance(item, PeerLost):
                sink(item.peer, item)
            else:
                sink(*item)

    @override
    def attach(self, sink: Sink) -> None:
        self._sink = sink
        self._hand_over(sink)

    @override
    async def receive(self) -> tuple[str, bytes]:
        return await self._inbox.get()

    @override
    async def close(self) -> None:
        self._end(orderly=True)

    @override
    def abort(self) -> None:
        self._end(orderly=False)

    def _end(self, *, orderly: bool) -> None:
        if not self._inbox.closed:
            self._inbox.close()
            self._network.farewell(self.name, orderly=orderly)
