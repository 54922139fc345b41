"""The simulated network: links, their delays, routes over them, and endpoints."""

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator
from scipy import stats
from simpy import Environment
from simpy.events import Event
from tests.simulation.running import simulated

from veilring.errors import EndpointClosed, FrameError, InputError, PeerLost
from veilring.protocols.masks import MaskedWords
from veilring.randomness import Streams
from veilring.simulation import (
    Constant,
    Exponential,
    Link,
    LinkModel,
    LogNormal,
    Normal,
    Routes,
    SimulatedNetwork,
    Topology,
    Uniform,
)
from veilring.simulation.links import Condition, DelayDistribution, LinkConditions
from veilring.transport.frames import frame_size
from veilring.transport.messages import Message, encode


class Token(Message, kind="simulated.token"):
    """A message of a number."""

    number: int


SENDS = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 10_000)), max_size=30)


def fixed() -> Generator:
    """Return the same stream each time."""
    return np.random.default_rng(1)


class Arrivals(list[tuple[float, Any]]):
    """The instants and values of messages that arrive in an environment, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.environment = Environment()

    def note(self, value: object) -> None:
        """Note a value that arrives now."""
        self.append((self.environment.now, value))

    def wait_for(self, arrival: Event) -> None:
        """Note the message when it arrives."""
        arrival.callbacks.append(lambda event: self.note(event.value))


def arrivals(
    model: LinkModel, sends: list[tuple[float, int]], conditions: LinkConditions | None = None
) -> list[tuple[float, int]]:
    """Send messages at the given intervals; return `(instant, index)` of arrivals."""
    arrived = Arrivals()
    link = Link(arrived.environment, model, fixed, conditions)
    for index, (pause, size) in enumerate(sends):
        arrived.environment.run(arrived.environment.timeout(pause))
        arrived.wait_for(link.send(size, index))
    arrived.environment.run()
    return arrived


@given(SENDS)
def test_constant_distribution_has_a_closed_form(sends: list[tuple[float, int]]) -> None:
    """With constant latency each arrival is the end of its departure plus latency, to the bit."""
    expected, clock, free = [], 0.0, -math.inf
    for index, (pause, size) in enumerate(sends):
        clock += pause
        free = max(clock, free) + size / 1e4
        expected.append((free + 0.05, index))
    model = LinkModel(latency=Constant(0.05), bandwidth_bytes_per_second=1e4)
    assert arrivals(model, sends) == expected


@given(SENDS, st.sampled_from([math.inf, 1e3, 1e6]), st.floats(0, 10))
def test_messages_stay_in_order(
    sends: list[tuple[float, int]], bandwidth: float, mean_seconds: float
) -> None:
    """At any jitter, each message arrives once, and after the messages sent before it."""
    model = LinkModel(Uniform(0, 1), Exponential(mean_seconds), bandwidth)
    arrived = arrivals(model, sends)
    assert [index for _, index in arrived] == list(range(len(sends)))
    assert arrived == sorted(arrived)


# One slows bytes down, one delays messages, one stops the link; latency and jitter are 60 ms, and a
# message of 1,000 bytes takes 100 ms to depart.
SLOW = Condition(start=1.0, end=2.0, cause=0, slowdown=3.0)
LATE = Condition(start=1.0, end=2.0, cause=1, extra_seconds=0.2)
STALLED = Condition(start=3.0, end=4.0, cause=2, stalled=True)


@pytest.mark.parametrize(
    ("conditions", "sends", "expected"),
    [
        ((), [(1.0, 1_000)], [1.16]),
        ((SLOW,), [(1.0, 1_000)], [1.36]),
        ((SLOW,), [(1.0, 1_000), (0.0, 1_000)], [1.36, 1.66]),
        ((SLOW,), [(1.9, 1_000), (0.0, 1_000)], [2.26, 2.36]),
        ((SLOW, SLOW), [(1.0, 1_000)], [1.96]),
        ((LATE,), [(1.0, 1_000)], [1.36]),
        ((LATE,), [(1.95, 1_000), (0.0, 1_000)], [2.31, 2.31]),
        ((LATE, SLOW), [(1.0, 1_000)], [1.56]),
        ((STALLED,), [(2.9, 1_000)], [4.0]),
        ((STALLED,), [(3.5, 1_000)], [4.16]),
        ((SLOW, LATE, STALLED), [(0.5, 1_000), (0.5, 1_000), (2.5, 1_000)], [0.66, 1.56, 4.16]),
    ],
)
def test_conditions_have_a_closed_form(
    conditions: tuple[Condition, ...], sends: list[tuple[float, int]], expected: list[float]
) -> None:
    """Departures, jitter, delays and waits for a link give the expected arrival times."""
    model = LinkModel(Constant(0.05), Constant(0.01), bandwidth_bytes_per_second=1e4)
    assert model.expected_seconds == pytest.approx(0.06)
    arrived = arrivals(model, sends, LinkConditions(conditions, set()))
    assert [instant for instant, _ in arrived] == pytest.approx(expected)


# Each statistical check fails by chance with this probability, were its seed not fixed.
FALSE_ALARM = 1e-6
DRAWS = 20_000


@pytest.mark.parametrize(
    ("distribution", "reference"),
    [
        (Uniform(0.01, 0.05), stats.uniform(0.01, 0.04)),
        (Normal(0.05, 0.02), stats.truncnorm(-2.5, math.inf, 0.05, 0.02)),
        (Normal(0.05, 0.02, 0.05), stats.truncnorm(0, math.inf, 0.05, 0.02)),
        (LogNormal(0.03, 0.7), stats.lognorm(0.7, scale=0.03)),
        (Exponential(0.02), stats.expon(scale=0.02)),
    ],
    ids=lambda parameter: repr(parameter) if isinstance(parameter, DelayDistribution) else "",
)
def test_draws_follow_the_distribution(
    distribution: DelayDistribution, reference: stats.rv_continuous
) -> None:
    """Draws pass a Kolmogorov-Smirnov test against SciPy's distribution and have its mean."""
    draw = distribution.sampler(fixed)
    draws = [draw() for _ in range(DRAWS)]
    assert min(draws) >= 0
    assert stats.kstest(draws, reference.cdf).pvalue > FALSE_ALARM
    assert distribution.expected_seconds == pytest.approx(reference.mean(), rel=1e-9)


def test_a_distribution_without_deviation_is_its_centre() -> None:
    """A normal distribution without deviation is constant; a constant one uses no stream."""

    def refuse() -> Generator:
        raise AssertionError

    assert Constant(0.25).sampler(refuse)() == Constant(0.25).expected_seconds == 0.25
    normal = Normal(0.1, 0.0, 0.1)
    assert normal.sampler(fixed)() == normal.expected_seconds == 0.1


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Constant(-1), "seconds"),
        (lambda: Constant(math.nan), "seconds"),
        (lambda: Constant(math.inf), "seconds"),
        (lambda: Uniform(-1, 1), "low_seconds"),
        (lambda: Uniform(2, 1), "high_seconds"),
        (lambda: Normal(1, -1), "deviation_seconds"),
        (lambda: Normal(1, 1, 2), "centre_seconds"),
        (lambda: Normal(1, 1, -1), "floor_seconds"),
        (lambda: LogNormal(0, 1), "median_seconds"),
        (lambda: LogNormal(1, -1), "sigma"),
        (lambda: Exponential(-1), "mean_seconds"),
        (lambda: LinkModel(bandwidth_bytes_per_second=0), "bandwidth_bytes_per_second"),
        (lambda: LinkModel(bandwidth_bytes_per_second=-1), "bandwidth_bytes_per_second"),
        (lambda: LinkModel(bandwidth_bytes_per_second=math.nan), "bandwidth_bytes_per_second"),
        (lambda: Link(Environment(), LinkModel(), fixed).send(-1), "size_bytes"),
    ],
)
def test_wrong_numbers_are_refused(make: Callable[[], object], field: str) -> None:
    """An invalid distribution, bandwidth or size of a message is refused with its field."""
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.field == field


def routed(topology: Topology, *sends: tuple[str, str, int]) -> list[tuple[float, str]]:
    """Send messages of given sizes from sources to targets; return instants and ways by arrival."""
    arrived = Arrivals()
    routes = Routes(arrived.environment, topology, Streams(1).generator)
    for source, target, size_bytes in sends:
        arrived.wait_for(routes.send(source, target, size_bytes, source + target))
    arrived.environment.run()
    return arrived


def test_other_links_do_not_change_a_links_draws() -> None:
    """Each link draws from its own stream, so its draws do not depend on other links."""
    few, many = (
        routed(Topology(LinkModel(Exponential(1))), *(("a", name, 0) for name in names))
        for names in ("bc", "zcybx")
    )
    assert set(few) == {(instant, way) for instant, way in many if way in {"ab", "ac"}}
    assert len({instant for instant, _ in many}) == 5


def test_default_holds_for_every_pair() -> None:
    """Without a graph, each pair has a link of its own, made on first use: parties may be many."""
    topology = Topology(LinkModel(Constant(0.5), bandwidth_bytes_per_second=100))
    assert topology.path("a", "b") == ("a", "b")
    names = [f"party {index}" for index in range(10_000)]
    sends = [(name, after, 50) for name, after in pairwise(names)]
    assert routed(topology, *sends) == [(1, name + after) for name, after, _ in sends]


def test_an_edge_is_a_link_each_way_or_one_way() -> None:
    """The two directions of an edge share no bandwidth; against a directed one is a detour."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("a", "b", latency_seconds=1, bandwidth_bytes_per_second=10)
    assert routed(Topology(graph=graph), ("a", "b", 10), ("b", "a", 10)) == [(2, "ab"), (2, "ba")]
    cycle: nx.DiGraph[str] = nx.DiGraph()
    nx.add_cycle(cycle, ["a", "b", "c"], latency_seconds=1)
    topology = Topology(graph=cycle)
    assert topology.path("b", "a") == ("b", "c", "a")
    assert routed(topology, ("a", "b", 0), ("b", "a", 0)) == [(1, "ab"), (2, "ba")]


def test_route_is_direct_or_the_fastest_and_stores_and_forwards() -> None:
    """Only without a link, a message takes the route of least latency, one link after another."""
    graph: nx.Graph[str] = nx.Graph()
    nx.add_path(graph, ["a", "slow", "d"], latency_seconds=5)
    nx.add_path(graph, ["a", "b", "c", "d"], latency_seconds=1, bandwidth_bytes_per_second=10)
    graph.add_edge("a", "c", latency_seconds=7)
    topology = Topology(graph=graph)
    assert topology.path("a", "d") == ("a", "b", "c", "d")
    for size_bytes, instant in ((0, 3), (10, 6)):
        assert routed(topology, ("a", "d", size_bytes)) == [(instant, "ad")]
    assert routed(topology, ("a", "c", 0)) == [(7, "ac")]


def test_routed_messages_share_links_in_order() -> None:
    """Messages of different parties over one link share its bandwidth and keep their order."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from([("a", "hub"), ("b", "hub")])
    graph.add_edge("hub", "c", bandwidth_bytes_per_second=1, jitter=Exponential(3))
    arrived = routed(Topology(graph=graph), *[("a", "c", 1), ("b", "c", 1)] * 20)
    assert [way for _, way in arrived] == ["ac", "bc"] * 20
    assert arrived[-1][0] >= 40


def test_announcement_reaches_everyone() -> None:
    """News arrives after earlier messages, and otherwise after the expected latency."""
    graph: nx.Graph[str] = nx.Graph()
    nx.add_path(graph, ["a", "b", "c", "d"], latency_seconds=1, bandwidth_bytes_per_second=1)
    graph.add_edge("a", "d", latency_seconds=7)
    for topology, expected in (
        (Topology(LinkModel(Constant(2), Constant(1))), [(3, "b"), (3, "c"), (3, "d")]),
        (Topology(graph=graph), [(2, "c"), (7, "d"), (12, "b")]),
    ):
        arrived = Arrivals()
        routes = Routes(arrived.environment, topology, Streams(1).generator)
        routes.send("a", "b", 10)
        routes.announce("a", "bcd", 1, arrived.note)
        arrived.environment.run()
        assert sorted(arrived) == expected


def test_edge_attributes_override_the_default() -> None:
    """An edge equals the default except for its attributes; jitter is uniform from 0 seconds."""
    default = LinkModel(Constant(3), Constant(4), 5)
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("a", "b")
    graph.add_edge("b", "c", latency=Uniform(1, 2), jitter_seconds=3, weight="ignored")
    topology = Topology(default, graph)
    assert topology.model("a", "b") == default
    assert topology.model("c", "b") == LinkModel(Uniform(1, 2), Uniform(0, 3), 5)


@pytest.mark.parametrize(
    ("attributes", "field"),
    [
        ({"latency_seconds": -1}, "edges[a, b].seconds"),
        ({"latency_seconds": "1"}, "edges[a, b].latency_seconds"),
        ({"latency": 1}, "edges[a, b].latency"),
        ({"latency": Constant(1), "latency_seconds": 1}, "edges[a, b].latency_seconds"),
        ({"jitter_seconds": float("nan")}, "edges[a, b].jitter_seconds"),
        ({"bandwidth_bytes_per_second": 0}, "edges[a, b].bandwidth_bytes_per_second"),
        ({"bandwidth_bytes_per_second": True}, "edges[a, b].bandwidth_bytes_per_second"),
    ],
)
def test_wrong_attributes_are_refused(attributes: Mapping[str, Any], field: str) -> None:
    """A wrong edge is refused when the topology is created; the error names edge and attribute."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("a", "b", **attributes)
    with pytest.raises(InputError) as caught:
        Topology(graph=graph)
    assert caught.value.field == field


def test_graphs_without_one_way_are_refused() -> None:
    """Two links in one direction, and unknown or unconnected parties by name, are refused."""
    with pytest.raises(InputError, match="more than one edge"):
        Topology(graph=nx.MultiGraph())
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from("ab")
    topology = Topology(graph=graph)
    for target in ("b", "stranger"):
        with pytest.raises(InputError, match=f"a to {target}"):
            topology.path("a", target)
    with pytest.raises(InputError, match=r"a (and|to) b"):
        topology.model("a", "b")
    with pytest.raises(InputError, match="lacks stranger"):
        topology.check_connects(["stranger"])
    with pytest.raises(InputError, match="a party is named twice"):
        SimulatedNetwork("aa", Streams(1))
    with pytest.raises(InputError, match="graph is not connected"):
        SimulatedNetwork("ab", Streams(1), topology=topology)


SECOND = Topology(LinkModel(Constant(1)))


def three(topology: Topology = SECOND) -> SimulatedNetwork:
    """Return a network of three parties."""
    return SimulatedNetwork(("alice", "bob", "carol"), Streams(1), topology=topology)


def now() -> float:
    """Return the simulated time."""
    return asyncio.get_running_loop().time()


@simulated
async def test_frame_takes_latency_and_bandwidth() -> None:
    """A frame arrives after the transmission time of its bytes and the latency."""
    network = three(Topology(LinkModel(Constant(1), bandwidth_bytes_per_second=10)))
    alice, bob = network.endpoint("alice"), network.endpoint("bob")
    await alice.send("bob", b"hello")
    assert await bob.receive() == ("alice", b"hello")
    assert now() == frame_size(b"hello") / 10 + 1


@simulated
async def test_equal_frames_are_decoded_once() -> None:
    """Parties that receive equal frames share one message, whose arrays none of them can change."""
    network, words = three(Topology()), (np.arange(3, dtype=np.uint64),)
    frame = encode(bytes(16), MaskedWords(digest=bytes(32), words=words))
    copies = [frame, bytes(bytearray(frame))]
    messages = [
        network.endpoint(name).open(copy).message()
        for name, copy in zip(("alice", "bob"), copies, strict=True)
    ]
    assert messages[0] is messages[1]
    assert isinstance(messages[0], MaskedWords)
    assert not messages[0].words[0].flags.writeable


@simulated
async def test_a_message_that_cannot_change_arrives_without_being_read() -> None:
    """Receivers have the sender's, unless a value of it was not validated, or may change."""
    endpoint = three(Topology()).endpoint("alice")

    def received(message: Message) -> Message:
        return endpoint.open(endpoint.encode(bytes(16), message)).message()

    token = Token(number=3)
    assert received(token) is token
    assert received(Token.model_construct(number=4)) == Token(number=4)
    with pytest.raises(FrameError, match="not a value of the type str"):
        received(token.model_copy(update={"number": "three"}))
    words = MaskedWords(digest=bytes(32), words=(np.arange(3, dtype=np.uint64),))
    assert received(words) is not words


@pytest.mark.parametrize("orderly", [True, False])
@simulated
async def test_news_of_a_loss_travels_like_a_message(orderly: bool) -> None:
    """Each peer learns about it after the latency, and after the frames in flight."""
    network = three()
    await network.endpoint("alice").send("bob", b"last")
    network.endpoint("alice").end(orderly=orderly)
    await network.endpoint("bob").send("alice", b"into the void")
    assert await network.endpoint("bob").receive() == ("alice", b"last")
    for peer in ("bob", "carol"):
        with pytest.raises(PeerLost) as caught:
            await network.endpoint(peer).receive()
        assert (caught.value.peer, caught.value.orderly, now()) == ("alice", orderly, 1)


@simulated
async def test_a_crash_does_not_change_the_order_of_forwarded_frames() -> None:
    """Frames of others on the links of a crashed party keep their schedule."""
    graph: nx.Graph[str] = nx.path_graph(["alice", "bob", "carol"])
    network = three(Topology(LinkModel(bandwidth_bytes_per_second=1000), graph=graph))
    alice, bob, carol = (network.endpoint(name) for name in ("alice", "bob", "carol"))
    await bob.send("carol", b"own")
    await alice.send("carol", b"1" * 5000)
    await asyncio.sleep(6)
    bob.end(orderly=False)
    await alice.send("carol", b"2")
    received = list[bytes]()
    while len(received) < 2:
        with suppress(PeerLost):
            sender, frame = await carol.receive()
            received += [frame[:1]] * (sender == "alice")
    assert received == [b"1", b"2"]


@simulated
async def test_bytes_that_have_not_left_a_crashed_party_are_lost() -> None:
    """Its peer gets the message that had left, and the news of the loss right behind it."""
    network = three(Topology(LinkModel(Constant(1), bandwidth_bytes_per_second=10)))
    alice, bob = network.endpoint("alice"), network.endpoint("bob")
    for _ in range(3):
        await alice.send("bob", b"hello")
    each = frame_size(b"hello") / 10
    await asyncio.sleep(1.5 * each)
    alice.end(orderly=False)
    assert await bob.receive() == ("alice", b"hello")
    assert now() == pytest.approx(each + 1)
    with pytest.raises(PeerLost):
        await bob.receive()
    assert now() == pytest.approx(1.5 * each + 1)
    revived = network.revive("alice")
    await asyncio.sleep(2)
    start = now()
    await revived.send("bob", b"hello")
    assert await bob.receive() == ("alice", b"hello")
    assert now() == pytest.approx(start + each + 1)


@simulated
async def test_shut_down_ends_all_without_goodbyes() -> None:
    """A network that ends as a whole sends nothing and wakes everyone."""
    network = three()
    receiving = asyncio.create_task(network.endpoint("alice").receive())
    await asyncio.sleep(1)
    network.shut_down()
    with pytest.raises(EndpointClosed):
        await receiving
    assert now() == 1


@simulated
async def test_news_of_a_loss_does_not_reach_a_later_life() -> None:
    """A party that crashed and returned does not lose a peer that had returned before it."""
    network = three()
    network.endpoint("alice").end(orderly=False)  # its news travels for a second
    network.endpoint("bob").end(orderly=False)
    await asyncio.sleep(0.2)
    alice = network.revive("alice")
    bob = network.revive("bob")
    await asyncio.sleep(3)
    await bob.send("alice", b"again")
    with pytest.raises(PeerLost, match="bob"):
        await alice.receive()
    assert await alice.receive() == ("bob", b"again")
