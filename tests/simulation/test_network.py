"""The simulated network: links between parties, routes over them, and endpoints."""

import asyncio
from collections.abc import Mapping
from typing import Any

import networkx as nx
import pytest
from simpy import Environment
from tests.simulation.running import simulated

from veilring.errors import EndpointClosed, InputError, PeerLost
from veilring.randomness import Streams
from veilring.simulation import (
    Constant,
    Exponential,
    LinkModel,
    Routes,
    SimulatedNetwork,
    Topology,
    Uniform,
)
from veilring.transport.frames import frame_size


def arrival(topology: Topology, source: str, target: str, size_bytes: int = 0) -> float:
    """Return the arrival time of a message sent at 0 s."""
    environment = Environment()
    routes = Routes(environment, topology, Streams(1).generator)
    event = routes.send(source, target, size_bytes, "message")
    assert environment.run(event) == "message"
    return float(environment.now)


def draws(names: list[str]) -> dict[str, float]:
    """Return the arrival times of messages from `a` at the given parties."""
    environment = Environment()
    routes = Routes(environment, Topology(LinkModel(Exponential(1))), Streams(1).generator)
    found: dict[str, float] = {}
    for name in names:
        event = routes.send("a", name, 0, name)
        event.callbacks.append(lambda event: found.update({event.value: environment.now}))
    environment.run()
    return found


def test_default_holds_for_every_pair() -> None:
    """Without a graph, each pair has a separate link of the same kind."""
    topology = Topology(LinkModel(Constant(0.5), bandwidth_bytes_per_second=100))
    assert arrival(topology, "a", "b", 50) == arrival(topology, "x", "y", 50) == 1
    assert topology.path("a", "b") == ("a", "b")


def test_other_links_do_not_change_a_links_draws() -> None:
    """Each link draws from its own stream, so its draws do not depend on other links."""
    few, many = draws(["b", "c"]), draws(["z", "c", "y", "b", "x"])
    assert few == {name: many[name] for name in few}
    assert len(set(many.values())) == 5


def test_ten_thousand_parties_cost_only_the_links_that_are_used() -> None:
    """Links are created on first use, so that large populations are possible."""
    environment = Environment()
    routes = Routes(environment, Topology(LinkModel(Constant(1))), Streams(1).generator)
    for index in range(10_000):
        routes.send(f"party {index}", f"party {(index + 1) % 10_000}", 10)
    environment.run()
    assert environment.now == 1


def test_undirected_edge_is_a_link_each_way() -> None:
    """The two directions have equal parameters and do not share bandwidth."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("a", "b", latency_seconds=1, bandwidth_bytes_per_second=10)
    topology = Topology(graph=graph)
    environment = Environment()
    routes = Routes(environment, topology, Streams(1).generator)
    for pair in (("a", "b"), ("b", "a")):
        routes.send(*pair, 10)
    environment.run()
    assert environment.now == 2


def test_directed_edge_is_a_link_one_way() -> None:
    """Messages in the other direction take a detour."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    nx.add_cycle(graph, ["a", "b", "c"], latency_seconds=1)
    topology = Topology(graph=graph)
    assert arrival(topology, "a", "b") == 1
    assert topology.path("b", "a") == ("b", "c", "a")
    assert arrival(topology, "b", "a") == 2


def test_route_is_the_fastest_and_stores_and_forwards() -> None:
    """Without a link, a message takes the route of least latency, one link after another."""
    graph: nx.Graph[str] = nx.Graph()
    nx.add_path(graph, ["a", "slow", "d"], latency_seconds=5)
    nx.add_path(graph, ["a", "b", "c", "d"], latency_seconds=1, bandwidth_bytes_per_second=10)
    topology = Topology(graph=graph)
    assert topology.path("a", "d") == ("a", "b", "c", "d")
    assert arrival(topology, "a", "d") == 3
    assert arrival(topology, "a", "d", 10) == 6


def test_edge_is_used_even_if_a_detour_is_faster() -> None:
    """Neighbours use their direct link."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("a", "b", latency_seconds=5)
    nx.add_path(graph, ["a", "c", "b"], latency_seconds=1)
    assert arrival(Topology(graph=graph), "a", "b") == 5


def test_routed_messages_share_links_in_order() -> None:
    """Messages of different parties over one link share its bandwidth and keep their order."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from([("a", "hub"), ("b", "hub")])
    graph.add_edge("hub", "c", bandwidth_bytes_per_second=1, jitter=Exponential(3))
    environment = Environment()
    routes = Routes(environment, Topology(graph=graph), Streams(1).generator)
    arrived: list[tuple[str, int]] = []
    for index in range(20):
        for source in "ab":
            event = routes.send(source, "c", 1, (source, index))
            event.callbacks.append(lambda event: arrived.append(event.value))
    environment.run()
    assert environment.now >= 40
    assert arrived == [(source, index) for index in range(20) for source in "ab"]


def test_announcement_reaches_everyone() -> None:
    """News arrives after earlier messages, and otherwise after the expected latency."""
    graph: nx.Graph[str] = nx.Graph()
    nx.add_path(graph, ["a", "b", "c", "d"], latency_seconds=1, bandwidth_bytes_per_second=1)
    graph.add_edge("a", "d", latency_seconds=7)
    for topology, expected in (
        (Topology(LinkModel(Constant(2), Constant(1))), {"b": 3, "c": 3, "d": 3}),
        (Topology(graph=graph), {"b": 12, "c": 2, "d": 7}),
    ):
        environment = Environment()
        routes = Routes(environment, topology, Streams(1).generator)
        routes.send("a", "b", 10)
        told: list[tuple[str, float]] = []

        def tell(
            name: str, told: list[tuple[str, float]] = told, environment: Environment = environment
        ) -> None:
            told.append((name, environment.now))

        routes.announce("a", "bcd", 1, tell)
        environment.run()
        assert dict(told) == expected
        assert len(told) == 3


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


def test_parallel_edges_are_refused() -> None:
    """Two links in one direction are refused."""
    with pytest.raises(InputError, match="more than one edge"):
        Topology(graph=nx.MultiGraph())


def test_missing_route_names_the_pair() -> None:
    """Unknown or unconnected parties are refused by name."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from("ab")
    topology = Topology(graph=graph)
    for target in ("b", "stranger"):
        with pytest.raises(InputError, match=f"a to {target}"):
            topology.path("a", target)
    with pytest.raises(InputError, match=r"a (and|to) b"):
        topology.model("a", "b")
    with pytest.raises(InputError, match="graph is not connected"):
        topology.check_connects("ab")
    with pytest.raises(InputError, match="lacks stranger"):
        topology.check_connects(["stranger"])


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


@simulated
async def test_names_and_ways_are_checked() -> None:
    """Repeated names, and topologies that do not connect all parties, are refused at once."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(["alice", "bob"])
    with pytest.raises(InputError, match="a party is named twice"):
        SimulatedNetwork(("alice", "alice"), Streams(1))
    with pytest.raises(InputError, match="graph is not connected"):
        SimulatedNetwork(("alice", "bob"), Streams(1), topology=Topology(graph=graph))
