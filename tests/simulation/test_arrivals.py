"""Arrivals of random traffic beside models in plain SimPy, which share no code with the links."""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pytest
import simpy
from simpy.events import Event

from veilring.randomness import Streams
from veilring.simulation import (
    Constant,
    Exponential,
    LinkModel,
    SimulatedNetwork,
    Topology,
    simulate,
)
from veilring.transport.frames import frame_size

PARTIES = tuple("abcdef")
JITTER_SECONDS = 0.02
MESSAGES = 200


class Sent(NamedTuple):
    """A message, which its number and its padding identify."""

    seconds: float
    source: str
    target: str
    frame: bytes


def draw_traffic(rng: np.random.Generator) -> list[Sent]:
    """Draw messages of random sizes among all parties, close enough to wait for each other."""
    seconds = np.cumsum(rng.exponential(0.02, MESSAGES))
    traffic = list[Sent]()
    for number, start in enumerate(seconds.tolist()):
        source, target = rng.permutation(PARTIES)[:2].tolist()
        traffic.append(
            Sent(start, source, target, b"%d " % number + bytes(int(rng.pareto(1) * 50)))
        )
    return traffic


def draw_graph(rng: np.random.Generator) -> "nx.DiGraph[str]":
    """Draw a ring with chords, whose links differ in latency and bandwidth each way."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    pairs = [*zip(PARTIES, PARTIES[1:] + PARTIES[:1], strict=True), ("a", "d"), ("c", "f")]
    for one, other in pairs:
        for link in ((one, other), (other, one)):
            latency, bandwidth = rng.uniform(0.01, 0.1), rng.uniform(1e3, 1e5)
            graph.add_edge(*link, latency_seconds=latency, bandwidth_bytes_per_second=bandwidth)
    return graph


def arrivals(traffic: Sequence[Sent], topology: Topology, seed: int) -> list[tuple[float, bytes]]:
    """Send the traffic between endpoints; return the time of each frame's arrival."""
    arrived = list[tuple[float, bytes]]()

    async def go() -> None:
        clock = asyncio.get_running_loop().time
        network = SimulatedNetwork(PARTIES, Streams(seed), topology=topology)

        async def send(party: str) -> None:
            for sent in traffic:
                if sent.source == party:
                    await asyncio.sleep(sent.seconds - clock())
                    await network.endpoint(party).send(sent.target, sent.frame)

        async def receive(party: str) -> None:
            for _ in range(sum(sent.target == party for sent in traffic)):
                _, frame = await network.endpoint(party).receive()
                arrived.append((clock(), frame))

        async with asyncio.TaskGroup() as group:
            for party in PARTIES:
                group.create_task(send(party))
                group.create_task(receive(party))

    simulate(go())
    return arrived


class Pipe:
    """A link in plain SimPy: a resource sends, and a chain of events keeps the order."""

    def __init__(
        self,
        environment: simpy.Environment,
        latency: float,
        bandwidth: float,
        draw: Callable[[], float],
    ) -> None:
        self._environment, self._latency, self._bandwidth = environment, latency, bandwidth
        self._draw, self._wire = draw, simpy.Resource(environment)
        self._before = environment.event().succeed()

    def carry(self, size: int) -> Generator[Event, Any, None]:
        """Carry a message to the other end, as a process."""
        before, arrived = self._before, self._environment.event()
        self._before = arrived
        with self._wire.request() as turn:
            yield turn
            yield self._environment.timeout(size / self._bandwidth)
        yield self._environment.timeout(self._latency + self._draw()) & before
        arrived.succeed()


def modelled(
    traffic: Sequence[Sent],
    path: Callable[[str, str], Sequence[str]],
    properties: Mapping[tuple[str, str], tuple[float, float]],
    seed: int,
) -> list[tuple[float, bytes]]:
    """Play the traffic in plain SimPy, with the same draws of jitter for each link."""
    environment, arrived = simpy.Environment(), list[tuple[float, bytes]]()
    pipes = dict[tuple[str, str], Pipe]()
    for link, (latency, bandwidth) in properties.items():
        rng = Streams(seed).generator("link", *link)
        draw = partial(rng.exponential, JITTER_SECONDS)
        pipes[link] = Pipe(environment, latency, bandwidth, draw)

    def travel(sent: Sent) -> Generator[Event, Any, None]:
        yield environment.timeout(sent.seconds)
        nodes = path(sent.source, sent.target)
        for link in pairwise(nodes):
            yield environment.process(pipes[link].carry(frame_size(sent.frame)))
        arrived.append((environment.now, sent.frame))

    for sent in traffic:
        environment.process(travel(sent))
    environment.run()
    return arrived


def check(ours: list[tuple[float, bytes]], theirs: list[tuple[float, bytes]]) -> None:
    """Check that the same frames arrive at the same times, up to rounding."""
    assert len(ours) == len(theirs) == MESSAGES
    times = {frame: seconds for seconds, frame in theirs}
    assert [seconds for seconds, _ in ours] == pytest.approx(
        [times[frame] for _, frame in ours], rel=1e-12, abs=1e-9
    )


@pytest.mark.parametrize("seed", range(5))
def test_arrivals_on_equal_links_are_those_of_simpy(seed: int) -> None:
    """Each pair has a link, on which messages wait for the wire and stay in order."""
    rng = np.random.default_rng(seed)
    traffic = draw_traffic(rng)
    links = LinkModel(Constant(0.05), Exponential(JITTER_SECONDS), 2e3)
    pairs = [(one, other) for one in PARTIES for other in PARTIES if one != other]
    expected = modelled(traffic, lambda *ends: ends, dict.fromkeys(pairs, (0.05, 2e3)), seed)
    check(arrivals(traffic, Topology(links), seed), expected)


@pytest.mark.parametrize("seed", range(5))
def test_forwarded_arrivals_are_those_of_simpy(seed: int) -> None:
    """On a graph, messages of several parties share the links of their paths."""
    rng = np.random.default_rng(seed)
    traffic, graph = draw_traffic(rng), draw_graph(rng)

    def path(source: str, target: str) -> Sequence[str]:
        direct = graph.has_edge(source, target)
        return (
            (source, target)
            if direct
            else nx.shortest_path(graph, source, target, "latency_seconds")
        )

    properties = {
        (one, other): (edge["latency_seconds"], edge["bandwidth_bytes_per_second"])
        for one, other, edge in graph.edges(data=True)
    }
    topology = Topology(LinkModel(jitter=Exponential(JITTER_SECONDS)), graph)
    assert any(len(path(sent.source, sent.target)) > 2 for sent in traffic)
    check(arrivals(traffic, topology, seed), modelled(traffic, path, properties, seed))
