"""Endpoints on simulated links: the contract of `transport.Endpoint`, on the simulated clock.

A frame occupies its links for as many bytes as on a stream (its prefix and its body, without what
TLS adds). Between each two parties at most `QUEUED_FRAMES_MAX` frames are under way or unread; news
that there is room takes no time.
"""

import asyncio
import functools
from collections import Counter
from collections.abc import Iterable, Iterator

from simpy import Environment
from simpy.events import Event
from typing_extensions import override

from veilring.errors import InputError, PeerLost
from veilring.randomness import Streams
from veilring.simulation.clock import running_environment
from veilring.simulation.conditions import Conditions
from veilring.simulation.topology import Routes, Topology
from veilring.transport.endpoint import QUEUED_FRAMES_MAX, Item, Sink, hand_over
from veilring.transport.frames import GOODBYE, check_frame, frame_size
from veilring.transport.memory import InProcessEndpoint, unique_names


class SimulatedNetwork:
    """All endpoints of a set of parties on one simulated clock.

    Args:
        names: The parties, each named once.
        streams: Where links draw latency and jitter from, each under `("link", source, target)`.
        topology: Which links there are; by default one between every two parties that takes no
            time.
        environment: Where messages travel; that of the running loop if none is given.
        conditions: What happens to links for a while.

    Raises:
        InputError: If a name occurs twice, or the topology has no way between two parties.
        SimulationError: If no environment is given and the running loop, if any, is not simulated.
    """

    def __init__(
        self,
        names: Iterable[str],
        streams: Streams,
        *,
        topology: Topology | None = None,
        environment: Environment | None = None,
        conditions: Conditions | None = None,
    ) -> None:
        self.names = unique_names(names)
        topology = Topology() if topology is None else topology
        topology.check_connects(self.names)
        environment = running_environment() if environment is None else environment
        self.routes = Routes(environment, topology, streams.generator, conditions)
        self._breaks: Counter[frozenset[str]] = Counter()
        self._endpoints = {name: SimulatedEndpoint(name, self) for name in self.names}

    def endpoint(self, name: str) -> "SimulatedEndpoint":
        """Return the endpoint of a party; always the same one.

        Raises:
            InputError: If there is no such party.
        """
        if name not in self._endpoints:
            raise InputError("name", name, "a party of this network")
        return self._endpoints[name]

    def crash(self, name: str) -> None:
        """End a party as if its process had been killed.

        What it sent before still arrives; then, on the same links, the news of its loss.

        Raises:
            InputError: If there is no such party.
        """
        self.endpoint(name).abort()

    def revive(self, name: str) -> "SimulatedEndpoint":
        """Let a party that has crashed come back with a new endpoint, connected with all others.

        Its peers reach it once the news has arrived, behind that of its loss.

        Raises:
            InputError: If there is no such party, or it has not crashed.
        """
        if not self.endpoint(name).inbox.closed:
            raise InputError("name", name, "a party that has crashed")
        revived = self._endpoints[name] = SimulatedEndpoint(name, self)
        for peer, endpoint in self._endpoints.items():
            if endpoint.inbox.closed:
                revived.lose(PeerLost(peer))
            elif peer != name:
                arrival = self.routes.send(name, peer, len(GOODBYE))
                arrival.callbacks.append(functools.partial(_welcome, endpoint, name))
        return revived

    def breaks(self, one: str, other: str) -> int:
        """Return how often the connection of two parties has broken."""
        if not self._breaks:
            return 0
        return self._breaks[frozenset({one, other})]

    def break_connection(self, noticed_by: str, other: str) -> None:
        """Break the connection of two parties; what is under way on it is lost.

        Only one of them notices now: the other's messages vanish until it is told by `lose`, as on
        a connection that is half open.

        Raises:
            InputError: If there is no such party.
        """
        victim = self.endpoint(noticed_by)
        self._breaks[frozenset({noticed_by, other})] += 1
        victim.lose(PeerLost(other))

    def mend_connection(self, one: str, other: str) -> None:
        """Connect two parties again, if both are still there.

        Raises:
            InputError: If there is no such party.
        """
        ends = self.endpoint(one), self.endpoint(other)
        if not any(end.inbox.closed for end in ends):
            ends[0].welcome(other)
            ends[1].welcome(one)

    def shut_down(self) -> None:
        """End all endpoints at once, without goodbyes: no party is left to hear them."""
        for endpoint in self._endpoints.values():
            endpoint.inbox.close()

    def waits(self) -> Iterator[str]:
        """Say what each party waits for, if anything: made for `SimulatedLoop.describe_waits`."""
        for endpoint in self._endpoints.values():
            yield from endpoint.waits()

    def announce_loss(self, gone: str, *, orderly: bool) -> None:
        """Let the news that a party is gone travel to all that are not, behind what it sent."""

        def tell(name: str) -> None:
            self._endpoints[name].lose(PeerLost(gone, orderly=orderly))

        left = [name for name, endpoint in self._endpoints.items() if not endpoint.inbox.closed]
        self.routes.announce(gone, left, len(GOODBYE) if orderly else 0, tell)


class SimulatedEndpoint(InProcessEndpoint):
    """A party's endpoint in a `SimulatedNetwork`."""

    def __init__(self, name: str, network: SimulatedNetwork) -> None:
        super().__init__(name, network.names, on_room=lambda: None)
        self._network = network
        self._window: Counter[str] = Counter()  # frames by sender, under way to us or unread
        self._blocked: dict[str, asyncio.Event] = {}  # our own sends that wait, by receiver
        self._sends: Counter[str] = Counter()  # how many of our sends wait, by receiver

    @override
    async def send(self, to: str, frame: bytes) -> None:
        if to == self.name:
            raise InputError("to", to, "another party of this network")
        receiver = self._network.endpoint(to)
        check_frame(frame)
        self.check_open(to)
        while receiver.has_no_room_for(self.name):
            await self._room(to)
            self.check_open(to)
        receiver.expect(self.name, bytes(frame))

    async def _room(self, to: str) -> None:
        self._sends[to] += 1
        try:
            await self._blocked.setdefault(to, asyncio.Event()).wait()
        finally:
            self._sends[to] -= 1

    def has_no_room_for(self, sender: str) -> bool:
        """Whether a sender has to wait."""
        return self._window[sender] >= QUEUED_FRAMES_MAX

    def expect(self, sender: str, frame: bytes) -> None:
        """Let a frame travel to us; it is lost if the connection breaks meanwhile."""
        if sender in self.gone:
            return  # we have noticed a break that the sender has not
        self._window[sender] += 1
        breaks = self._network.breaks(sender, self.name)
        arrival = self._network.routes.send(sender, self.name, frame_size(frame))
        arrival.callbacks.append(lambda _: self._arrive(sender, frame, breaks))

    def _arrive(self, sender: str, frame: bytes, breaks: int) -> None:
        if breaks == self._network.breaks(sender, self.name):
            self.inbox.put((sender, frame))
        else:
            self._make_room(sender)

    def lose(self, loss: PeerLost) -> None:
        """Learn that a peer is gone, unless that is known."""
        if loss.peer in self.gone:
            return
        self.gone[loss.peer] = loss
        self.inbox.put(loss)
        self.unblock(loss.peer)

    def welcome(self, peer: str) -> None:
        """Learn that a peer that was gone is back."""
        self.gone.pop(peer, None)

    def unblock(self, receiver: str) -> None:
        """Let sends that wait for a receiver look again."""
        if (blocked := self._blocked.pop(receiver, None)) is not None:
            blocked.set()

    @override
    async def receive(self) -> tuple[str, bytes]:
        sender, frame = await self.inbox.get()
        self._make_room(sender)
        return sender, frame

    @override
    def attach(self, sink: Sink) -> None:
        def take(item: Item) -> None:
            if not isinstance(item, PeerLost):
                self._make_room(item[0])
            hand_over(item, sink)

        self.inbox.attach(take)

    def _make_room(self, sender: str) -> None:
        self._window[sender] -= 1
        self._network.endpoint(sender).unblock(self.name)

    def waits(self) -> Iterator[str]:
        """Say what this party waits for, if anything."""
        if self.inbox.is_awaited:
            yield f"{self.name} waits for a frame from anyone"
        for receiver, count in self._sends.items():
            if count:
                yield f"{self.name} waits for {receiver} to read"

    @override
    def end(self, *, orderly: bool) -> None:
        if self.inbox.closed:
            return
        self.inbox.close()
        for receiver in tuple(self._blocked):
            self.unblock(receiver)
        self._network.announce_loss(self.name, orderly=orderly)


def _welcome(endpoint: SimulatedEndpoint, peer: str, _arrival: Event) -> None:
    endpoint.welcome(peer)
