"""Endpoints inside one process: the same frames, without a network."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable

from typing_extensions import override

from veilring.errors import EndpointClosed, InputError, PeerLost
from veilring.transport.endpoint import Endpoint, Inbox, Item, Sink, hand_over
from veilring.transport.frames import check_frame


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a network's parties."""
    listed = tuple(names)
    if len(set(listed)) != len(listed):
        raise InputError.because("a party is named twice", field="names")
    return listed


class InProcessEndpoint(Endpoint):
    """An endpoint whose peers are in the same process; a subclass carries frames to them."""

    def __init__(self, name: str, parties: tuple[str, ...], on_room: Callable[[], None]) -> None:
        self.name = name
        self.inbox = Inbox(name, on_room)
        self.gone: dict[str, PeerLost] = {}
        self._parties = parties

    @property
    @override
    def peers(self) -> tuple[str, ...]:
        return tuple(name for name in self._parties if name != self.name)

    @property
    @override
    def connected(self) -> tuple[str, ...]:
        return tuple(name for name in self.peers if name not in self.gone)

    def check_open(self, to: str) -> None:
        """Refuse to send if the message could not arrive.

        Raises:
            EndpointClosed: If this endpoint was closed.
            PeerLost: If the peer is gone.
        """
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
    """All endpoints of a set of parties that share one event loop.

    Args:
        names: The parties, once each.

    Raises:
        InputError: If a name occurs twice.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = unique_names(names)
        self._endpoints = {name: MemoryEndpoint(name, self) for name in self.names}

    def endpoint(self, name: str) -> "MemoryEndpoint":
        """Return the endpoint of a party; always the same one.

        Raises:
            InputError: If there is no such party.
        """
        if name not in self._endpoints:
            raise InputError("name", name, "a party of this network")
        return self._endpoints[name]

    def farewell(self, gone: str, *, orderly: bool) -> None:
        """Tell every other endpoint, once, that a party is gone."""
        for name, endpoint in self._endpoints.items():
            if name != gone:
                endpoint.deliver(PeerLost(gone, orderly=orderly))


class MemoryEndpoint(InProcessEndpoint):
    """A party's endpoint in a `MemoryNetwork`."""

    def __init__(self, name: str, network: MemoryNetwork) -> None:
        self._room = asyncio.Event()
        self._room.set()
        super().__init__(name, network.names, on_room=self._room.set)
        self._network = network
        self._sink: Sink | None = None
        self._handing_over = False

    @override
    async def send(self, to: str, frame: bytes) -> None:
        if to == self.name:
            raise InputError("to", to, "another party of this network")
        receiver = self._network.endpoint(to)
        check_frame(frame)
        self.check_open(to)
        while receiver.inbox.is_full:
            await receiver.change()
            self.check_open(to)
        receiver.deliver((self.name, bytes(frame)))

    async def change(self) -> None:
        """Wait until a frame is read, a peer is gone or this endpoint ends."""
        await self._room.wait()

    def deliver(self, item: Item) -> None:
        """Append a frame, or the loss of a peer, to the inbox."""
        if isinstance(item, PeerLost):
            self.gone[item.peer] = item
            self._room.set()  # a sender that waits for us may itself be the one that is gone
        self.inbox.put(item)
        if self.inbox.is_full:
            self._room.clear()
        if self._sink is not None and not self._handing_over:
            # Not at once: a sender must not run ahead of a receiver that has had no turn.
            self._handing_over = True
            asyncio.get_running_loop().call_soon(self._hand_over, self._sink)

    def _hand_over(self, sink: Sink) -> None:
        self._handing_over = False
        for item in self.inbox.take_all():
            hand_over(item, sink)

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
