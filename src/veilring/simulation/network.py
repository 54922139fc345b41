"""The simulated network: its links, the paths of messages, and endpoints on it.

Endpoints fulfil the contract of `transport.Endpoint` on the simulated clock. A frame occupies its
links for its size on a stream (its prefix and its body, without the overhead of TLS). Between each
two parties at most `QUEUED_FRAMES_MAX` frames are in flight or unread; the news that there is room
again takes no time.
"""

import asyncio
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from numpy.random import Generator
from simpy import Environment
from simpy.events import Event, Timeout
from typing_extensions import override

from veilring.errors import InputError, PeerLost
from veilring.randomness import Streams
from veilring.simulation.links import (
    Constant,
    DelayDistribution,
    Link,
    LinkModel,
    NetworkConditions,
    Uniform,
)
from veilring.simulation.loop import running_environment, timeout_at, wait_event
from veilring.simulation.tcp import Tcp
from veilring.transport.endpoint import QUEUED_FRAMES_MAX, InProcessEndpoint, Sink, unique_names
from veilring.transport.frames import GOODBYE, check_frame, frame_size
from veilring.transport.messages import KnownFrames

if TYPE_CHECKING:
    import networkx as nx

_INSTANT: Final = LinkModel()


class Topology:
    """Links between parties: equal for every pair, or those of a graph.

    Args:
        default: The properties of links that the graph does not define; without a graph, of all
            links.
        graph: A graph of networkx with the parties' names as nodes. An undirected edge is a link
            each way. Edge attributes, each optional, override the default: `latency` and `jitter`
            (a `DelayDistribution`), or `latency_seconds` (a constant) and `jitter_seconds` (uniform
            from 0), `bandwidth_bytes_per_second`, `tcp` (a `Tcp`) and its `loss`. Others are
            ignored. The graph is read once, at construction.
    """

    def __init__(self, default: LinkModel = _INSTANT, graph: "nx.Graph[str] | None" = None) -> None:
        self._default = default
        self._graph: nx.DiGraph[str] | None = None if graph is None else _directed(graph, default)

    def check_connects(self, names: Iterable[str]) -> None:
        """Check that there is a path from each of these parties to every other."""
        if self._graph is None:
            return
        import networkx as nx

        parties = tuple(names)
        for name in parties:
            if name not in self._graph:
                raise InputError.because(
                    f"the graph lacks {name}; each party must be a node", field="graph"
                )
        if parties and not nx.is_strongly_connected(self._graph):
            raise InputError.because("the graph is not connected", field="graph")

    def model(self, source: str, target: str) -> LinkModel:
        """Return the properties of the direct link."""
        if self._graph is None:
            return self._default
        if not self._graph.has_edge(source, target):
            raise InputError.because(
                f"{source} and {target} have no link: the graph lacks that edge", field="link"
            )
        model: LinkModel = self._graph.edges[source, target]["model"]
        return model

    def path(self, source: str, target: str) -> tuple[str, ...]:
        """Return the parties on the path of a message, including both ends.

        The path is direct if there is a link, otherwise the one with the lowest expected latency.
        """
        if self._graph is None or self._graph.has_edge(source, target):
            return (source, target)
        import networkx as nx

        try:
            _, nodes = nx.bidirectional_dijkstra(self._graph, source, target, weight="seconds")
        except (nx.NetworkXNoPath, nx.NodeNotFound):
            pair = f"{source} to {target}"
            raise InputError.because(f"the graph has no path from {pair}", field="graph") from None
        return tuple(nodes)

    def expected_seconds(self, source: str) -> Callable[[str], float]:
        """Return a function from a target to the expected time of an empty message to it."""
        if self._graph is None:
            return lambda _target: self._default.expected_seconds
        import networkx as nx

        ways = nx.single_source_dijkstra_path_length(self._graph, source, weight="seconds")
        direct = {to: edge["seconds"] for to, edge in self._graph.adj[source].items()}
        return lambda target: direct[target] if target in direct else ways[target]


class Routes:
    """The links of a topology, each created on first use: most pairs never communicate.

    A message without a direct link is stored and forwarded: it enters each link of its path after
    it has left the previous one, and shares them with all other traffic.

    Args:
        generator: A function that returns the stream of randomness for a name; called with
            `("link", source, target)`, like `veilring.randomness.Streams.generator`.
    """

    def __init__(
        self,
        environment: Environment,
        topology: Topology,
        generator: Callable[..., Generator],
        conditions: NetworkConditions | None = None,
    ) -> None:
        self._environment, self._topology, self._generator = environment, topology, generator
        self._conditions = NetworkConditions() if conditions is None else conditions
        self._links: dict[tuple[str, str], Link] = {}
        self._paths: dict[tuple[str, str], tuple[Link, ...]] = {}
        self._first: dict[str, list[Link]] = {}
        self._shared: set[Link] = set()

    def send(self, source: str, target: str, size_bytes: int, message: object = None) -> Event:
        """Send a message; the event that is its arrival carries it as its value."""
        return self.along(self.links(source, target))(size_bytes, message)

    def along(self, links: tuple[Link, ...]) -> Callable[..., Event]:
        """Return a function that sends a message along the links of a path, like `Link.send`."""
        return links[0].send if len(links) == 1 else functools.partial(self._forward, links)

    def _forward(self, links: tuple[Link, ...], size_bytes: int, message: object = None) -> Event:
        arrival = Event(self._environment)

        def pass_on(rest: tuple[Link, ...]) -> None:
            if rest:
                passed = rest[0].send(size_bytes, message)
                passed.callbacks.append(lambda _: pass_on(rest[1:]))
            else:
                arrival.succeed(message)

        pass_on(links)
        return arrival

    def links(self, source: str, target: str) -> tuple[Link, ...]:
        """Return the links of the path of a message."""
        return self._paths.get((source, target)) or self._find(source, target)

    async def departed(self, source: str, target: str) -> None:
        """Wait until the latest message has left its sender."""
        departure = self.links(source, target)[0].departure_seconds
        if departure > self._environment.now:
            await wait_event(timeout_at(self._environment, departure))

    def cut(self, source: str) -> float:
        """Forget the messages that have not left a sender, and return the time.

        Links that forward messages of others keep their schedule, and so the order of arrivals.
        """
        for link in self._first.get(source, ()):
            if link not in self._shared:
                link.cut()
        return self._environment.now

    def reconnect(self, one: str, other: str) -> None:
        """Let two parties begin a new connection, where they have a link that forwards nothing."""
        for pair in ((one, other), (other, one)):
            links = self._paths.get(pair, ())
            if len(links) == 1 and links[0] not in self._shared:
                links[0].reconnect()

    def announce(
        self, source: str, targets: Iterable[str], size_bytes: int, tell: Callable[[str], None]
    ) -> None:
        """Send news to many parties; `tell(target)` is called when it arrives at each.

        On links in use it travels behind earlier messages. To parties that `source` never sent to,
        it takes the expected latency, without creating a link: the news may go from all parties to
        all.
        """
        expected = self._topology.expected_seconds(source)
        others: dict[float, list[str]] = {}
        for target in targets:
            if (source, target) in self._paths:
                arrival: Event = self.send(source, target, size_bytes)
                arrival.callbacks.append(functools.partial(_notify, tell, [target]))
            else:
                others.setdefault(expected(target), []).append(target)
        for seconds, group in others.items():
            arrival = Timeout(self._environment, seconds)
            arrival.callbacks.append(functools.partial(_notify, tell, group))

    def _find(self, source: str, target: str) -> tuple[Link, ...]:
        nodes = self._topology.path(source, target)
        links = tuple(self._link(*pair) for pair in itertools.pairwise(nodes))
        self._paths[source, target] = links
        self._first.setdefault(source, []).append(links[0])
        self._shared.update(links[1:])
        return links

    def _link(self, source: str, target: str) -> Link:
        pair = (source, target)
        if pair not in self._links:
            model = self._topology.model(source, target)
            self._links[pair] = Link(
                self._environment,
                model,
                functools.partial(self._generator, "link", source, target),
                self._conditions.of(source, target),
                back_seconds=self._topology.expected_seconds(target)(source) if model.tcp else None,
            )
        return self._links[pair]


def _ignore() -> None:
    """Ignore that an inbox has room: the wires to it count their own frames."""


def _notify(tell: Callable[[str], None], targets: list[str], _arrival: Event) -> None:
    for target in targets:
        tell(target)


def _directed(graph: "nx.Graph[str]", default: LinkModel) -> "nx.DiGraph[str]":
    import networkx as nx

    if graph.is_multigraph():
        raise InputError.because("the graph has more than one edge for a pair", field="graph")
    links: nx.DiGraph[str] = nx.DiGraph()
    links.add_nodes_from(graph.nodes)
    for source, target, attributes in graph.edges(data=True):
        model = _model(f"edges[{source}, {target}]", attributes, default)
        links.add_edge(source, target, model=model, seconds=model.expected_seconds)
        if not graph.is_directed():
            links.add_edge(target, source, model=model, seconds=model.expected_seconds)
    return links


def _model(edge: str, attributes: Mapping[str, Any], default: LinkModel) -> LinkModel:
    bandwidth = attributes.get("bandwidth_bytes_per_second", default.bandwidth_bytes_per_second)
    try:
        return LinkModel(
            latency=_delay(attributes, "latency", Constant, default.latency),
            jitter=_delay(attributes, "jitter", lambda high: Uniform(0.0, high), default.jitter),
            bandwidth_bytes_per_second=_number("bandwidth_bytes_per_second", bandwidth),
            tcp=_tcp(attributes, default.tcp),
        )
    except InputError as error:
        raise InputError.of(error, f"{edge}.{error.field}") from None


def _tcp(attributes: Mapping[str, Any], default: Tcp | None) -> Tcp | None:
    tcp = attributes.get("tcp", default)
    if not isinstance(tcp, Tcp | None):
        raise InputError("tcp", tcp, "a Tcp, or None")
    if "loss" not in attributes:
        return tcp
    return replace(tcp or Tcp(), loss=_number("loss", attributes["loss"]))


def _delay(
    attributes: Mapping[str, Any],
    name: str,
    make: Callable[[float], DelayDistribution],
    default: DelayDistribution,
) -> DelayDistribution:
    seconds = f"{name}_seconds"
    if name in attributes and seconds in attributes:
        raise InputError.because(f"give either {name} or {seconds}, not both", field=seconds)
    if seconds in attributes:
        return make(_number(seconds, attributes[seconds]))
    distribution = attributes.get(name, default)
    if not isinstance(distribution, DelayDistribution):
        raise InputError(name, distribution, f"a distribution; for plain seconds use {seconds}")
    return distribution


def _number(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InputError(field, value, "a number")
    return float(value)


class SimulatedNetwork:
    """All endpoints of a set of parties on one simulated clock.

    Args:
        streams: The randomness of latency and jitter, under `("link", source, target)`.
        topology: The links; by default one without delay between every two parties.
        environment: The SimPy environment; by default the running loop's.
    """

    def __init__(
        self,
        names: Iterable[str],
        streams: Streams,
        *,
        topology: Topology | None = None,
        environment: Environment | None = None,
        conditions: NetworkConditions | None = None,
    ) -> None:
        self.names = unique_names(names)
        topology = Topology() if topology is None else topology
        topology.check_connects(self.names)
        environment = running_environment() if environment is None else environment
        self.routes = Routes(environment, topology, streams.generator, conditions)
        self.frames = KnownFrames()
        self._endpoints = {name: SimulatedEndpoint(name, self) for name in self.names}

    def endpoint(self, name: str) -> "SimulatedEndpoint":
        """Return the endpoint of a party; always the same one."""
        try:
            return self._endpoints[name]
        except KeyError:
            raise InputError("name", name, "a party of this network") from None

    def connect(self, source: str, target: str) -> "Wire":
        """Return the wire between two parties, which has to be there before the first frame."""
        if source == target:
            raise InputError("to", target, "another party of this network")
        wire = Wire(source, self.endpoint(target), self.routes)
        self.endpoint(source).wires[target] = wire
        return wire

    def unblock(self, sender: str, receiver: str) -> None:
        """Let sends of a party that wait for another one try again."""
        if sender in self._endpoints:
            self._endpoints[sender].unblock(receiver)

    def revive(self, name: str) -> "SimulatedEndpoint":
        """Let a party that crashed return with a new endpoint, connected to all others.

        Its peers can reach it once they received the news of its return, after that of its loss.
        """
        if not self.endpoint(name).inbox.closed:
            raise InputError("name", name, "a party that has crashed")
        before, revived = self.endpoint(name), SimulatedEndpoint(name, self)
        self._endpoints[name], revived.wires = revived, before.wires
        for peer, endpoint in self._endpoints.items():
            endpoint.wires.pop(name, None)  # it led to the endpoint of the life before
            if endpoint.inbox.closed:
                revived.lose(PeerLost(peer))
            elif peer != name:
                self.routes.reconnect(name, peer)
                arrival = self.routes.send(name, peer, len(GOODBYE))
                arrival.callbacks.append(functools.partial(_notify, endpoint.welcome, [name]))
        return revived

    def break_connection(self, noticed_by: str, other: str) -> None:
        """Break the connection of two parties; messages in flight on it are lost.

        Only one of them notices now: the other's messages vanish until it is told by `lose`, as on
        a half-open connection.
        """
        victim = self.endpoint(noticed_by)
        for source, target in ((noticed_by, other), (other, noticed_by)):
            if (wire := self.endpoint(source).wires.get(target)) is not None:
                wire.breaks += 1
        victim.lose(PeerLost(other))

    def mend_connection(self, one: str, other: str) -> None:
        """Connect two parties again, if both still exist."""
        ends = self.endpoint(one), self.endpoint(other)
        if not any(end.inbox.closed for end in ends):
            self.routes.reconnect(one, other)
            ends[0].welcome(other)
            ends[1].welcome(one)

    def shut_down(self) -> None:
        """End all endpoints at once, without goodbyes, because no party is left to receive them."""
        for endpoint in self._endpoints.values():
            endpoint.inbox.close()
            endpoint.wires.clear()
        self._endpoints.clear()  # so that no cycle keeps them

    def announce_loss(self, gone: str, *, orderly: bool) -> None:
        """Send the news of a party's loss to all others, after its own messages."""
        left = {name: each for name, each in self._endpoints.items() if not each.inbox.closed}

        def tell(name: str) -> None:
            # Not to the endpoint of a later life, which never had the connection that ended.
            left[name].lose(PeerLost(gone, orderly=orderly))

        self.routes.announce(gone, list(left), len(GOODBYE) if orderly else 0, tell)


class Wire:
    """The frames of one party that are in flight to an endpoint, or unread there."""

    __slots__ = ("_link", "_receiver", "_routes", "_send", "_source", "breaks", "frames")
    _link: Link
    _send: Callable[[int], Event]

    def __init__(self, source: str, receiver: "SimulatedEndpoint", routes: Routes) -> None:
        self._source, self._receiver = source, receiver
        self._routes: Routes | None = routes  # until the first frame
        self.frames = self.breaks = 0

    def carry(self, sender: "SimulatedEndpoint", frame: bytes) -> bool:
        """Let a frame travel if there is room for it, and return whether there was.

        It is lost if the connection breaks meanwhile, or the sender crashes before it has left.
        """
        if self.frames >= QUEUED_FRAMES_MAX:
            return False
        if self._source in self._receiver.gone:
            return True  # the receiver has noticed a break that the sender has not
        if self._routes is not None:
            links = self._routes.links(self._source, self._receiver.name)
            self._link, self._send, self._routes = links[0], self._routes.along(links), None
        self.frames += 1
        send = self._send
        arrival = send(frame_size(frame))
        departure = self._link.departure_seconds
        arrive = functools.partial(self._arrive, sender, frame, departure, self.breaks)
        arrival.callbacks.append(arrive)
        return True

    def _arrive(
        self,
        sender: "SimulatedEndpoint",
        frame: bytes,
        departure: float,
        breaks: int,
        _arrival: Event,
    ) -> None:
        inbox = self._receiver.inbox
        sink = inbox.sink
        if departure > sender.crashed_seconds or breaks != self.breaks:
            self.release()
        elif sink is None:
            inbox.put(self._source, frame)
        else:
            self.release()
            sink(self._source, frame)

    def release(self) -> None:
        """Make room for a frame, because one was read or lost."""
        self.frames -= 1
        if self.frames == QUEUED_FRAMES_MAX - 1:
            self._receiver.network.unblock(self._source, self._receiver.name)


class SimulatedEndpoint(InProcessEndpoint):
    """A party's endpoint in a `SimulatedNetwork`."""

    def __init__(self, name: str, network: SimulatedNetwork) -> None:
        super().__init__(name, network.names, network.frames, on_room=_ignore)
        self.network = network
        self.wires: dict[str, Wire] = {}
        """The wires to its peers that were used, by their names."""
        self._blocked: dict[str, asyncio.Event] = {}  # our own waiting sends, by receiver
        self._sends_left = 0
        self._then: Callable[[], None] | None = None
        self.crashed_seconds = math.inf
        """The time at which the party crashed: what it had not sent then is lost."""

    def _post(self, to: str, frame: bytes) -> bool:
        """Send a frame if there is room for it; return whether there was."""
        if self.inbox.closed or to in self.gone:  # a network that was shut down knows no parties
            self.check_open(to)
        wire = self.wires.get(to) or self.network.connect(self.name, to)
        check_frame(frame)
        return wire.carry(self, bytes(frame))

    @override
    def send_now(self, to: str, frame: bytes) -> bool:
        return self._then is None and self._post(to, frame)

    @override
    async def send(self, to: str, frame: bytes) -> None:
        while not self._post(to, frame):
            await self._blocked.setdefault(to, asyncio.Event()).wait()
        if self._then is None:
            return
        self._sends_left -= 1
        if not self._sends_left:
            await self.network.routes.departed(self.name, to)
            self._then()
            self.check_open(to)

    def after_sends(self, sends: int, then: Callable[[], None]) -> None:
        """Call a function after a number of further messages were sent, at least 1."""
        self._sends_left, self._then = sends, then

    def lose(self, loss: PeerLost) -> None:
        """Record that a peer is gone, unless that is known."""
        if loss.peer in self.gone:
            return
        self.gone[loss.peer] = loss
        self.inbox.put(loss.peer, loss)
        self.unblock(loss.peer)

    def welcome(self, peer: str) -> None:
        """Record that a lost peer has returned."""
        self.gone.pop(peer, None)

    def unblock(self, receiver: str) -> None:
        """Let sends that wait for a receiver try again."""
        if (blocked := self._blocked.pop(receiver, None)) is not None:
            blocked.set()

    @override
    async def receive(self) -> tuple[str, bytes]:
        sender, frame = await self.inbox.get()
        self.network.endpoint(sender).wires[self.name].release()
        return sender, frame

    @override
    def attach(self, sink: Sink) -> None:
        for peer, item in self.inbox.take_all():
            if not isinstance(item, PeerLost):
                self.network.endpoint(peer).wires[self.name].release()
            sink(peer, item)
        self.inbox.attach(sink)

    @override
    def end(self, *, orderly: bool) -> None:
        if self.inbox.closed:
            return
        self.inbox.close()
        for receiver in tuple(self._blocked):
            self.unblock(receiver)
        if not orderly:
            self.crashed_seconds = self.network.routes.cut(self.name)
        self.network.announce_loss(self.name, orderly=orderly)
