"""Endpoints on simulated links."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import networkx as nx
import pytest

from veilring.errors import EndpointClosed, FrameError, InputError, PeerLost
from veilring.randomness import Streams
from veilring.simulation import (
    Constant,
    Exponential,
    LinkModel,
    SimulatedNetwork,
    Topology,
    simulate,
)
from veilring.simulation.loop import LoopTrace
from veilring.transport.endpoint import QUEUED_FRAMES_MAX
from veilring.transport.frames import frame_size

SECOND = Topology(LinkModel(Constant(1)))


def play_network(
    body: Callable[[SimulatedNetwork], Coroutine[Any, Any, None]],
    topology: Topology = SECOND,
    trace: LoopTrace | None = None,
) -> None:
    """Run a test's body on a network of three parties."""

    async def main() -> None:
        await body(SimulatedNetwork(("alice", "bob", "carol"), Streams(1), topology=topology))

    simulate(main(), trace=trace)


def now() -> float:
    """Return the simulated time."""
    return asyncio.get_running_loop().time()


def test_frame_takes_latency_and_bandwidth() -> None:
    """A frame arrives after the transmission time of its bytes and the latency."""

    async def body(network: SimulatedNetwork) -> None:
        alice, bob = network.endpoint("alice"), network.endpoint("bob")
        await alice.send("bob", b"hello")
        assert await bob.receive() == ("alice", b"hello")
        assert now() == frame_size(b"hello") / 10 + 1

    play_network(body, Topology(LinkModel(Constant(1), bandwidth_bytes_per_second=10)))


def test_frames_arrive_once_and_in_order_at_any_jitter() -> None:
    """Frames of one sender keep their order, even with more frames than the window."""
    count = 3 * QUEUED_FRAMES_MAX

    async def body(network: SimulatedNetwork) -> None:
        async def send() -> None:
            for index in range(count):
                await network.endpoint("alice").send("bob", b"%d" % index)

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            for index in range(count):
                assert await network.endpoint("bob").receive() == ("alice", b"%d" % index)

    play_network(body, Topology(LinkModel(Exponential(1), Exponential(2))))


def test_send_waits_for_a_receiver_that_does_not_read() -> None:
    """A full window delays a sender to that receiver only, until a frame is read."""

    async def body(network: SimulatedNetwork) -> None:
        alice, bob = network.endpoint("alice"), network.endpoint("bob")
        for _ in range(QUEUED_FRAMES_MAX):
            await alice.send("bob", b"frame")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1_000):
                await alice.send("bob", b"too many")
        await alice.send("carol", b"frame")
        waiting = [asyncio.create_task(alice.send("bob", b"%d" % index)) for index in range(2)]
        await asyncio.sleep(1)
        assert not any(task.done() for task in waiting)
        frames = [(await bob.receive())[1] for _ in range(QUEUED_FRAMES_MAX + 2)]
        assert frames[-2:] == [b"0", b"1"]
        assert b"too many" not in frames
        assert all(task.done() for task in waiting)

    play_network(body)


@pytest.mark.parametrize("orderly", [True, False])
def test_loss_arrives_after_earlier_frames(orderly: bool) -> None:
    """Frames in flight arrive; then each peer learns of the loss once, and can send no more."""

    async def body(network: SimulatedNetwork) -> None:
        alice, bob = network.endpoint("alice"), network.endpoint("bob")
        await alice.send("bob", b"last")
        if orderly:
            await alice.close()
        else:
            alice.abort()
        await bob.send("alice", b"into the void")
        assert await bob.receive() == ("alice", b"last")
        for peer in ("bob", "carol"):
            endpoint = network.endpoint(peer)
            with pytest.raises(PeerLost) as caught:
                await endpoint.receive()
            assert (caught.value.peer, caught.value.orderly, now()) == ("alice", orderly, 1)
            with pytest.raises(PeerLost):
                await endpoint.send("alice", b"frame")
        await network.endpoint("carol").send("bob", b"still here")
        assert await bob.receive() == ("carol", b"still here")

    play_network(body)


def test_waiting_send_fails_after_a_loss() -> None:
    """A send that waits for a receiver raises `PeerLost` if the receiver crashes."""

    async def body(network: SimulatedNetwork) -> None:
        alice = network.endpoint("alice")
        for _ in range(QUEUED_FRAMES_MAX):
            await alice.send("bob", b"frame")
        asyncio.get_running_loop().call_later(5, network.endpoint("bob").abort)
        with pytest.raises(PeerLost, match="bob"):
            await alice.send("bob", b"frame")
        assert now() == 6

    play_network(body)


def test_close_wakes_and_may_be_called_twice() -> None:
    """Closing twice is allowed and wakes the party's waiting calls; later calls are refused."""

    async def body(network: SimulatedNetwork) -> None:
        alice = network.endpoint("alice")
        for _ in range(QUEUED_FRAMES_MAX):
            await alice.send("bob", b"frame")
        waiting = [
            asyncio.create_task(alice.receive()),
            asyncio.create_task(alice.send("bob", b"frame")),
        ]
        await asyncio.sleep(1)
        await alice.close()
        await alice.close()
        alice.abort()
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, EndpointClosed)
        with pytest.raises(EndpointClosed):
            await alice.send("bob", b"frame")

    play_network(body)


def test_bad_sends_are_refused_and_send_nothing() -> None:
    """Unknown receivers, the sender itself and impossible frames are refused, without sending."""

    async def body(network: SimulatedNetwork) -> None:
        alice = network.endpoint("alice")
        assert alice.peers == ("bob", "carol")
        for receiver in ("alice", "stranger"):
            with pytest.raises(InputError):
                await alice.send(receiver, b"frame")
        with pytest.raises(FrameError):
            await alice.send("bob", b"")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await network.endpoint("bob").receive()

    play_network(body)


def test_shut_down_ends_all_without_goodbyes() -> None:
    """A network that ends as a whole sends nothing and wakes everyone."""

    async def body(network: SimulatedNetwork) -> None:
        receiving = asyncio.create_task(network.endpoint("alice").receive())
        await asyncio.sleep(1)
        network.shut_down()
        with pytest.raises(EndpointClosed):
            await receiving
        assert now() == 1

    play_network(body)


def test_news_of_a_loss_does_not_reach_a_later_life() -> None:
    """A party that crashed and returned does not lose a peer that had returned before it."""

    async def body(network: SimulatedNetwork) -> None:
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

    play_network(body)


def test_names_and_ways_are_checked() -> None:
    """Repeated names, and topologies that do not connect all parties, are refused at once."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(["alice", "bob"])

    async def body(_network: SimulatedNetwork) -> None:
        with pytest.raises(InputError, match="a party is named twice"):
            SimulatedNetwork(("alice", "alice"), Streams(1))
        with pytest.raises(InputError, match="graph is not connected"):
            SimulatedNetwork(("alice", "bob"), Streams(1), topology=Topology(graph=graph))

    play_network(body)


def test_equal_seeds_give_equal_traces() -> None:
    """A network with random links replays to the bit."""

    def digest() -> str:
        trace = LoopTrace()

        async def body(network: SimulatedNetwork) -> None:
            for index in range(10):
                for name in network.names:
                    endpoint = network.endpoint(name)
                    for peer in endpoint.peers:
                        await endpoint.send(peer, bytes(index + 1))
            for _ in range(20):
                sender, frame = await network.endpoint("alice").receive()
                trace.record(now(), f"{sender} {len(frame)}")

        play_network(body, Topology(LinkModel(Exponential(1), Exponential(2), 1e3)), trace)
        return trace.digest

    assert digest() == digest()
