"""Every transport fulfils the contract, whose checks detect each kind of broken transport."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from tests.transport.conformance import CHECKS, Endpoints, Maker, check_transport, run_check
from tests.transport.towns import tls_endpoints
from typing_extensions import override

from veilring.errors import EndpointClosed, InputError, PeerLost
from veilring.randomness import Streams
from veilring.simulation import (
    Constant,
    Exponential,
    LinkModel,
    SimulatedNetwork,
    Tcp,
    Topology,
    Uniform,
    simulate,
)
from veilring.transport.endpoint import MemoryEndpoint, MemoryNetwork, Sink


def in_memory(kind: type[MemoryEndpoint] = MemoryEndpoint) -> Maker:
    """Return a maker of endpoints of one process."""

    @asynccontextmanager
    async def make(names: Sequence[str]) -> AsyncIterator[Endpoints]:
        network = MemoryNetwork(names)
        made = {name: kind(name, network) for name in names}
        vars(network)["_endpoints"].update(made)
        yield made

    return make


def over(model: LinkModel) -> Maker:
    """Return a maker of endpoints whose simulated links all use `model`."""

    @asynccontextmanager
    async def make(names: Sequence[str]) -> AsyncIterator[Endpoints]:
        network = SimulatedNetwork(names, Streams(1), topology=Topology(model))
        try:
            yield {name: network.endpoint(name) for name in names}
        finally:
            network.shut_down()

    return make


TRANSPORTS: dict[str, tuple[Maker, Callable[[Coroutine[Any, Any, None]], None]]] = {
    "memory": (in_memory(), asyncio.run),
    "tls": (tls_endpoints, asyncio.run),
    "tls on uvloop": (tls_endpoints, uvloop.run),
    "instant": (over(LinkModel()), simulate),
    "constant": (over(LinkModel(Constant(0.05))), simulate),
    "lossy": (over(LinkModel(Constant(0.001), tcp=Tcp(0.01))), simulate),
    "random": (over(LinkModel(Uniform(0.01, 0.1), Exponential(0.02), 1e8)), simulate),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("check", CHECKS)
def test_conforms(check: str, transport: str) -> None:
    """Each transport passes every check of the contract, on each loop and over any links."""
    maker, run = TRANSPORTS[transport]
    run(run_check(check, maker))


def test_a_network_in_memory_has_the_given_names() -> None:
    """A name that occurs twice, and the endpoint of a stranger, are refused."""
    with pytest.raises(InputError, match="a party is named twice"):
        MemoryNetwork(("alice", "alice"))
    with pytest.raises(InputError, match="mallory"):
        MemoryNetwork(("alice", "bob")).endpoint("mallory")


class Altering(MemoryEndpoint):
    """Changes a byte of long frames, and trusts the sender that a short one claims."""

    @override
    async def receive(self) -> tuple[str, bytes]:
        sender, frame = await super().receive()
        claimed = frame.decode() if frame in (b"alice", b"bob") else sender
        return claimed, frame[:-1] + b"?" if len(frame) > 1000 else frame


class Reversing(MemoryEndpoint):
    """Delivers frames in pairs, the later one first."""

    @override
    def attach(self, sink: Sink) -> None:
        held: list[tuple[str, bytes | PeerLost]] = []

        def hold(peer: str, item: bytes | PeerLost) -> None:
            held.append((peer, item))
            if len(held) > 1:
                while held:
                    sink(*held.pop())

        super().attach(hold)


class Hushing(MemoryEndpoint):
    """Reports no loss."""

    @override
    def attach(self, sink: Sink) -> None:
        def hush(peer: str, item: bytes | PeerLost) -> None:
            sink(peer, b"all is well" if isinstance(item, PeerLost) else item)

        super().attach(hush)

    @override
    async def receive(self) -> tuple[str, bytes]:
        while True:
            try:
                return await super().receive()
            except PeerLost:
                continue


class Doubling(MemoryEndpoint):
    """Sends every frame twice."""

    @override
    async def send(self, to: str, frame: bytes) -> None:
        await super().send(to, frame)
        await super().send(to, frame)


class Confusing(MemoryEndpoint):
    """Leaves without a goodbye, and says goodbye after a crash."""

    @override
    async def close(self) -> None:
        self.end(orderly=False)

    @override
    def abort(self) -> None:
        self.end(orderly=True)


class Repeating(MemoryEndpoint):
    """Reports a loss twice."""

    lost: PeerLost | None = None

    @override
    async def receive(self) -> tuple[str, bytes]:
        if self.lost is not None:
            lost, self.lost = self.lost, None
            raise lost
        try:
            return await super().receive()
        except PeerLost as loss:
            self.lost = PeerLost(loss.peer, orderly=loss.orderly)
            raise


class Deaf(MemoryEndpoint):
    """Drops messages to a lost peer, and messages sent after closing."""

    @override
    async def send(self, to: str, frame: bytes) -> None:
        try:
            await super().send(to, frame)
        except (PeerLost, EndpointClosed):
            return


class Optimistic(MemoryEndpoint):
    """Reports every peer as connected."""

    @property
    @override
    def connected(self) -> tuple[str, ...]:
        return self.peers


class Unbounded(MemoryEndpoint):
    """Never waits for a receiver."""

    @override
    async def send(self, to: str, frame: bytes) -> None:
        receiver = self._network.endpoint(to)
        if receiver.inbox.is_full:
            receiver.deliver(self.name, frame)
        else:
            await super().send(to, frame)


FINDS = [
    (Altering, "frames_near_every_power_of_two_arrive", "1023 other bytes arrived"),
    (Altering, "one_sender_keeps_its_order", "100000 other bytes arrived"),
    (Altering, "a_frame_has_one_sender", "alice was attributed to bob"),
    (Doubling, "a_frame_arrives_whole", "1 other bytes arrived"),
    (Doubling, "one_sender_keeps_its_order", "4 other bytes arrived"),
    (Doubling, "tasks_in_a_full_mesh_keep_their_order", "out of order at dave, from alice"),
    (Confusing, "a_loss_is_reported_once_and_last[close]", "orderly is False, not True"),
    (Confusing, "a_loss_is_reported_once_and_last[abort]", "orderly is True, not False"),
    (Confusing, "an_end_may_be_repeated[abort]", "orderly is True, not False"),
    (Confusing, "a_close_amid_sends_cuts_no_frame", "a close was reported as a crash"),
    (Repeating, "a_loss_is_reported_once_and_last[abort]", "PeerLost('alice')"),
    (Repeating, "a_lost_peer_is_neither_connected_nor_sent_to", "crashes are {'alice'}"),
    (Deaf, "a_lost_peer_is_neither_connected_nor_sent_to", "was sent to alice, which is lost"),
    (Deaf, "an_ended_endpoint_neither_sends_nor_receives[close]", "nothing was raised"),
    (Optimistic, "a_lost_peer_is_neither_connected_nor_sent_to", "connected are ('alice', 'carol'"),
    (Unbounded, "a_stall_stops_its_senders_only", "a peer that reads none"),
    (Reversing, "a_sink_is_given_all_in_order", "another frame arrived"),
    (Hushing, "a_sink_is_given_all_in_order", "the loss was reported"),
]


@pytest.mark.parametrize(("kind", "check", "says"), FINDS)
async def test_a_fault_is_detected(kind: type[MemoryEndpoint], check: str, says: str) -> None:
    """A transport that breaks a promise fails the check of that promise, by name and reason."""
    with pytest.raises(AssertionError) as caught:
        await run_check(check, in_memory(kind))
    assert str(caught.value).startswith(f"{check}: ")
    assert says in str(caught.value)


async def test_a_check_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transport that never reports a loss fails in time instead of hanging."""
    monkeypatch.setattr("tests.transport.conformance.CHECK_SECONDS", 0.2)
    check = "a_loss_is_reported_once_and_last[close]"
    with pytest.raises(AssertionError) as caught:
        await run_check(check, in_memory(Hushing))
    assert str(caught.value).startswith(f"{check}: TimeoutError")


async def test_all_checks_run() -> None:
    """`check_transport` runs every check and returns their names."""
    assert await check_transport(in_memory()) == tuple(CHECKS)
