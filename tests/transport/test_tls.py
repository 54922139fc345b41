"""Endpoints over mutual TLS among honest peers: starts, returns, losses and redialling."""

import asyncio
import datetime as dt
import socket
import struct
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.transport.conformance import fill
from tests.transport.towns import Stranger, Town, lose, refused, tls_endpoints, with_key
from typing_extensions import override

from veilring.errors import AddressTaken, EndpointClosed, FrameError, InputError, PeerLost
from veilring.randomness import Streams
from veilring.simulation import simulate
from veilring.transport import connection, tls
from veilring.transport.endpoint import QUEUED_FRAMES_MAX
from veilring.transport.frames import FRAME_BYTES_MAX, PREFIX_BYTES, on_stream
from veilring.transport.handshake import ConnectionRefusal
from veilring.transport.listener import bind
from veilring.transport.pacing import DIAL_PAUSE_FIRST_SECONDS, DIAL_PAUSE_MAX_SECONDS
from veilring.transport.roster import Identity, Member, Roster, make_identity
from veilring.transport.tls import LOOPBACK, TlsEndpoint


async def test_a_late_party_is_waited_for(pair: Town) -> None:
    """A party keeps dialling until its peer is available."""
    sock = pair.sockets.pop("bob")
    address = sock.getsockname()
    sock.close()
    alice = pair.start("alice")
    await asyncio.sleep(0.2)
    pair.sockets["bob"] = bind(*address)
    for endpoint in await asyncio.gather(alice, pair.start("bob")):
        await endpoint.close()


async def test_a_frame_is_sent_at_once_if_that_takes_no_wait(pair: Town) -> None:
    """One of 256 frames waits for the loop's next turn, and a frame to a lost peer is not sent."""
    async with pair.start_all() as endpoints:
        alice, bob = endpoints["alice"], endpoints["bob"]
        sent = [alice.send_now("bob", b"frame") for _ in range(QUEUED_FRAMES_MAX)]
        assert sent == [True] * (QUEUED_FRAMES_MAX - 1) + [False]
        assert not alice.send_now("bob", b"frame")  # nor any before one has waited
        await alice.send("bob", b"frame")
        for frame in (b"", bytes(FRAME_BYTES_MAX + 1)):
            with pytest.raises(FrameError):
                alice.send_now("bob", frame)
        bob.abort()
        await lose(alice)
        assert not alice.send_now("bob", b"frame")


@pytest.mark.parametrize("lost", ["alice", "bob"])
async def test_a_restarted_party_is_reachable_again(pair: Town, lost: str) -> None:
    """After its loss is reported, a restarted party connects again, in either direction."""
    async with pair.start_all() as endpoints:
        stays = endpoints["bob" if lost == "alice" else "alice"]
        endpoints[lost].abort()
        await lose(stays)
        assert stays.connected == ()
        assert stays.peers == (lost,)
        await endpoints[lost].close()
        pair.sockets[lost] = bind(LOOPBACK, pair.ports[lost])
        fresh = await pair.start(lost)
        await fresh.send(stays.name, b"back")
        assert await stays.receive() == (lost, b"back")
        await stays.send(lost, b"welcome")
        assert await fresh.receive() == (stays.name, b"welcome")
        await fresh.close()


async def test_a_member_returns_after_its_loss_was_reported(town: Town) -> None:
    """Neither while it is connected nor before its loss is reported, so that no message is lost."""
    async with town.start_all() as endpoints:
        alice, carol = endpoints["alice"], endpoints["carol"]
        await refused(town, "carol", alice, "carol is connected already")
        await carol.send("alice", b"still me")
        assert await alice.receive() == ("carol", b"still me")
        carol.abort()
        await refused(town, "carol", alice, "has not yet dropped its earlier connection with carol")
        with pytest.raises(PeerLost):
            await alice.send("carol", b"for the first")
        await lose(alice)
        again = await town.start("carol")
        await alice.send("carol", b"for the second")
        assert await again.receive() == ("alice", b"for the second")
        await again.close()


async def test_clients_come_and_go() -> None:
    """A client is a peer of the parties that it dials, all or some; they do not wait for it."""
    town = Town(("alice", "bob"), ("carol", "dave"))
    async with town.start_all("alice", "bob") as endpoints:
        alice = endpoints["alice"]
        with pytest.raises(InputError, match="carol"):
            await alice.send("carol", b"too early")
        for _ in range(3):
            async with town.start_all("carol") as clients:
                assert clients["carol"].peers == ("alice", "bob")
                assert alice.connected == alice.peers == ("bob", "carol")
                with pytest.raises(InputError, match="dave"):
                    await clients["carol"].send("dave", b"clients do not meet")
            assert (await lose(alice)).orderly
            await lose(endpoints["bob"])
        assert alice.connected == ("bob",)
        carol = await town.start("carol", connect_to=("bob",))
        assert carol.peers == ("bob",)
        await carol.close()


async def test_the_arguments_must_fit_the_roster_and_the_machine(pair: Town) -> None:
    """A stranger, a wrong or expired key, and an unusable address are refused before dialling."""
    alice, roster, at = pair.identities["alice"], pair.roster, "192.0.2.1"
    expired = make_identity("alice", now=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    cases: list[tuple[Identity, Roster, dict[str, Any], str]] = [
        (make_identity("mallory"), roster, {}, "'mallory' is not a member"),
        (make_identity("alice"), roster, {}, "not the roster's key for alice"),
        (expired, with_key(roster, expired), {}, "certificate of alice expired on 2020-12-31"),
        (alice, roster, {"connect_to": ("carol",)}, "'carol' is not another party"),
        (alice, roster, {"listen": at}, "use an address of this machine"),
    ]
    for identity, given, options, says in cases:
        with pytest.raises(InputError, match=says) as caught:
            await TlsEndpoint.start(identity, given, **options)
    assert str(caught.value).count(at) == 1
    with pytest.raises(
        AddressTaken, match=r"another process is listening at 127\.0\.0\.1:\d+; stop"
    ):
        await TlsEndpoint.start(alice, roster)


async def test_a_cancelled_start_leaves_nothing_open(pair: Town) -> None:
    """A cancelled start leaves no sockets or tasks open."""
    alice = pair.start("alice")
    await asyncio.sleep(0.1)
    alice.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alice
    assert asyncio.all_tasks() == {asyncio.current_task()}
    bind(LOOPBACK, pair.ports["alice"]).close()


async def test_a_party_can_restart_while_the_ring_forms() -> None:
    """A party that restarts while the ring forms reconnects, and its peers wait for it."""
    town = Town(("alice", "bob", "carol"))
    bob = town.start("bob")
    first = await town.start("alice", connect_to=("bob",))
    await first.send("bob", b"of the first")
    await first.close()
    carol = town.start("carol")
    await asyncio.sleep(0.2)
    assert not bob.done(), "bob is ready without alice"
    town.sockets["alice"] = bind(LOOPBACK, town.ports["alice"])
    second = await town.start("alice")
    endpoints = [second, *await asyncio.gather(bob, carol)]
    await second.send("bob", b"of the second")
    assert await endpoints[1].receive() == ("alice", b"of the second")
    for endpoint in endpoints:
        await endpoint.close()


async def test_an_unanswered_goodbye_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that does not read does not keep others from leaving."""
    monkeypatch.setattr(tls, "GOODBYE_SECONDS", 0.1)
    async with tls_endpoints(("alice", "bob")) as endpoints:
        await fill(endpoints["alice"], "bob")
        await endpoints["alice"].close()
        with pytest.raises(EndpointClosed):
            await endpoints["alice"].receive()


async def test_connections_are_kept_alive() -> None:
    """Each socket probes a silent peer and sends small frames without delay."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.IPPROTO_TCP, socket.TCP_NODELAY)]
    with socket.socket() as sock:
        connection.enable_keepalive(sock)
        assert all(sock.getsockopt(*option) for option in options)
        idle = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        assert idle == connection.KEEPALIVE_IDLE_SECONDS


def cut(writer: asyncio.StreamWriter, how: str) -> None:
    """End TLS properly but without a goodbye, or TCP but not TLS, or reset the connection."""
    if how == "close":
        writer.close()
        return
    if how == "reset":
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize("how", ["close", "fin", "reset"])
@pytest.mark.parametrize("last", [b"", b"\x00", on_stream(b"cut off")[:-1]])
async def test_end_without_goodbye(
    alice: TlsEndpoint, carol: Stranger, last: bytes, how: str
) -> None:
    """Any end of a stream without a goodbye, between or within frames, is a crash."""
    carol.writer.write(on_stream(b"whole"))
    assert await alice.receive() == ("carol", b"whole")
    carol.writer.write(last)
    await asyncio.sleep(0)
    cut(carol.writer, how)
    loss = await lose(alice)
    assert (loss.peer, loss.orderly) == ("carol", False)


async def test_data_after_the_goodbye_changes_nothing(alice: TlsEndpoint, carol: Stranger) -> None:
    """Data that a peer sends after its goodbye is ignored."""
    carol.writer.write(on_stream(b"last") + bytes(PREFIX_BYTES))
    await asyncio.sleep(0.01)
    carol.writer.write(on_stream(b"more"))
    assert await alice.receive() == ("carol", b"last")
    assert (await lose(alice)).orderly


ATTEMPTS = 20
REACHED = 12  # the attempt that succeeds
CLIENT, NEIGHBOUR = make_identity("client"), make_identity("neighbour")
SERVER = Member.of(make_identity("server"), LOOPBACK, 1)
ROSTER = Roster((SERVER, *(Member.of(each, kind="client") for each in (CLIENT, NEIGHBOUR))))


class Refused(TlsEndpoint):
    """A client that reaches the server once, loses it, and is refused all other times."""

    @cached_property
    def times(self) -> asyncio.Queue[float]:
        """The times of its dials."""
        return asyncio.Queue(ATTEMPTS)

    @override
    async def _dial(self, name: str) -> ConnectionRefusal | None:
        await self.times.put(asyncio.get_running_loop().time())
        reached = self.times.qsize() == REACHED
        return None if reached else ConnectionRefusal("nobody listens", again=True)


def pauses(seed: int, identity: Identity = CLIENT) -> NDArray[np.float64]:
    """Return the pauses between the dials of a client."""

    async def main() -> list[float]:
        client = await Refused.start(identity, ROSTER, timeout=None, streams=Streams(seed))
        await asyncio.sleep(1_000)
        await client.close()
        return [client.times.get_nowait() for _ in range(ATTEMPTS)]

    return np.diff(simulate(main()))


def test_pauses_between_dials_double_up_to_a_limit_with_jitter_from_seed_and_name() -> None:
    """Each is between half of it and the whole; after a connection they begin small again."""
    found = pauses(1)
    longest = np.minimum(DIAL_PAUSE_FIRST_SECONDS * 2.0 ** np.arange(20), DIAL_PAUSE_MAX_SECONDS)
    for part in (found[: REACHED - 1], found[REACHED:]):
        shares = part / longest[: len(part)]
        assert np.all((shares >= 0.5) & (shares <= 1))
        assert len(set(shares.tolist())) == len(shares)
    assert found[REACHED - 1] == 0.0
    assert found.tolist() == pauses(1).tolist()
    for other in (pauses(2), pauses(1, NEIGHBOUR)):
        assert set(found) & set(other) == {0.0}
