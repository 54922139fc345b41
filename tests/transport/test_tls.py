"""Endpoints over mutual TLS among honest peers: starts, returns, losses and redialling."""

import asyncio
import socket
import struct
from collections.abc import Callable
from functools import cached_property
from itertools import islice, pairwise

import numpy as np
import pytest
from tests.transport.conformance import fill
from tests.transport.towns import (
    PATIENCE_SECONDS,
    Town,
    lose,
    port_of,
    refused,
    stranger,
    tls_endpoints,
)
from typing_extensions import override

from veilring.errors import AddressTaken, EndpointClosed, InputError, PeerLost
from veilring.randomness import Streams
from veilring.simulation import simulate
from veilring.transport import connection, tls
from veilring.transport.frames import PREFIX_BYTES, on_stream
from veilring.transport.handshake import ConnectionRefusal
from veilring.transport.listener import bind
from veilring.transport.pacing import DIAL_PAUSE_FIRST_SECONDS, DIAL_PAUSE_MAX_SECONDS, dial_pauses
from veilring.transport.roster import Member, Roster, make_identity
from veilring.transport.tls import LOOPBACK, TlsEndpoint


async def test_a_late_party_is_waited_for(pair: Town) -> None:
    """A party keeps dialling until its peer is available."""
    sock = pair.sockets.pop("bob")
    address = sock.getsockname()
    sock.close()
    alice = pair.start("alice")
    await asyncio.sleep(0.2)
    pair.sockets["bob"] = bind(*address)
    endpoints = await asyncio.gather(alice, pair.start("bob"))
    for endpoint in endpoints:
        await endpoint.close()


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
        try:
            await fresh.send(stays.name, b"back")
            assert await stays.receive() == (lost, b"back")
            await stays.send(lost, b"welcome")
            assert await fresh.receive() == (stays.name, b"welcome")
        finally:
            await fresh.close()


async def test_a_loss_is_reported_before_the_return(town: Town) -> None:
    """A peer stays disconnected until its loss is reported, so that no message is lost."""
    async with town.start_all() as endpoints:
        alice = endpoints["alice"]
        endpoints["carol"].abort()
        await refused(town, "carol", alice, "has not yet dropped its earlier connection with carol")
        with pytest.raises(PeerLost):
            await alice.send("carol", b"for the first")
        await lose(alice)
        again = await town.start("carol")
        await alice.send("carol", b"for the second")
        assert await again.receive() == ("alice", b"for the second")
        await again.close()


async def test_clients_come_and_go() -> None:
    """A client is a peer from its first connection on; parties do not wait for clients."""
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


async def test_a_client_dials_the_chosen_parties() -> None:
    """`connect_to` names the parties to dial; others are not peers."""
    town = Town(("alice", "bob"), ("carol",))
    async with town.start_all("alice", "bob"):
        carol = await TlsEndpoint.start(town.identities["carol"], town.roster, connect_to=("bob",))
        assert carol.peers == ("bob",)
        await carol.close()


async def test_the_arguments_must_fit_the_roster(pair: Town) -> None:
    """A stranger, another key, an unknown party and a taken port are refused at once."""
    with pytest.raises(InputError, match="'mallory' is not a member"):
        await TlsEndpoint.start(make_identity("mallory"), pair.roster)
    with pytest.raises(InputError, match="not the roster's key for alice"):
        await TlsEndpoint.start(make_identity("alice"), pair.roster)
    with pytest.raises(InputError, match="'carol' is not another party"):
        await TlsEndpoint.start(pair.identities["alice"], pair.roster, connect_to=("carol",))
    with pytest.raises(
        AddressTaken, match=r"^another process is listening at 127\.0\.0\.1:\d+; stop it"
    ):
        await TlsEndpoint.start(pair.identities["alice"], pair.roster)


async def test_an_address_of_another_machine_is_refused_once_and_in_plain_words(pair: Town) -> None:
    """The error shows an address once, with the system's reason."""
    with pytest.raises(InputError) as caught:
        await TlsEndpoint.start(pair.identities["alice"], pair.roster, listen="192.0.2.1")
    assert str(caught.value).count("192.0.2.1") == 1
    assert "use an address of this machine" in str(caught.value)


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
    bob = town.start("bob", seconds=PATIENCE_SECONDS)
    first = await TlsEndpoint.start(
        town.identities["alice"], town.roster, listen=town.sockets.pop("alice"), connect_to=("bob",)
    )
    await first.send("bob", b"of the first")
    await first.close()
    carol = town.start("carol", seconds=PATIENCE_SECONDS)
    await asyncio.sleep(0.2)
    assert not bob.done(), "bob is ready without alice"
    town.sockets["alice"] = bind(LOOPBACK, town.ports["alice"])
    second = await town.start("alice", seconds=PATIENCE_SECONDS)
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


async def test_a_node_that_stopped_reading_can_still_leave() -> None:
    """It delivers its messages and goodbye, which its peer answers before its node reads it."""
    async with tls_endpoints(("alice", "bob")) as endpoints:
        await fill(endpoints["bob"], "alice")
        await endpoints["alice"].send("bob", b"last")
        async with asyncio.timeout(PATIENCE_SECONDS / 2):  # the goodbye's own limit is all of it
            await endpoints["alice"].close()
        assert await endpoints["bob"].receive() == ("alice", b"last")
        assert (await lose(endpoints["bob"])).orderly


def cut_by_close(writer: asyncio.StreamWriter) -> None:
    """End TLS properly, but without a goodbye."""
    writer.close()


def cut_by_fin(writer: asyncio.StreamWriter) -> None:
    """End TCP properly, but not TLS."""
    writer.transport.abort()


def cut_by_reset(writer: asyncio.StreamWriter) -> None:
    """Reset the connection."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


CUTS = (cut_by_close, cut_by_fin, cut_by_reset)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("last", [b"", b"\x00", on_stream(b"cut off")[:-1]])
async def test_end_without_goodbye(
    town: Town, alice: TlsEndpoint, last: bytes, cut: Callable[[asyncio.StreamWriter], None]
) -> None:
    """Any end of a stream without a goodbye, between or within frames, is a crash."""
    async with stranger(town, greet=True) as carol:
        carol.writer.write(on_stream(b"whole"))
        assert await alice.receive() == ("carol", b"whole")
        carol.writer.write(last)
        await asyncio.sleep(0)
        cut(carol.writer)
        loss = await lose(alice)
        assert (loss.peer, loss.orderly) == ("carol", False)


async def test_data_after_the_goodbye_changes_nothing(town: Town, alice: TlsEndpoint) -> None:
    """Data that a peer sends after its goodbye is ignored."""
    async with stranger(town, greet=True) as carol:
        carol.writer.write(on_stream(b"last") + bytes(PREFIX_BYTES))
        await asyncio.sleep(0.01)
        carol.writer.write(on_stream(b"more"))
        assert await alice.receive() == ("carol", b"last")
        assert (await lose(alice)).orderly


@pytest.mark.parametrize("cut", CUTS[1:])
async def test_network_breaks(pair: Town, cut: Callable[[asyncio.StreamWriter], None]) -> None:
    """If the network between two endpoints ends or resets their connection, both lose a peer."""
    wires: list[asyncio.StreamWriter] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, back = await asyncio.open_connection(LOOPBACK, pair.ports["bob"])
        wires.extend((writer, back))
        await asyncio.gather(carry(reader, back), carry(onward, writer))

    bob = pair.start("bob")
    await asyncio.sleep(0)
    sock = bind(LOOPBACK, 0)
    async with await asyncio.start_server(relay, sock=sock) as server:
        pair.roster = pair.roster.at({"bob": (LOOPBACK, port_of(sock))})
        endpoints = await asyncio.gather(pair.start("alice"), bob)
        server.close()
        for wire in wires:
            cut(wire)
        assert not any([(await lose(endpoint)).orderly for endpoint in endpoints])
        await asyncio.gather(*(endpoint.close() for endpoint in endpoints))


ATTEMPTS = 12
CLIENT, SERVER = make_identity("client"), make_identity("server")
ROSTER = Roster((Member.of(SERVER, LOOPBACK, 1), Member.of(CLIENT, kind="client")))
LONGEST = [
    min(DIAL_PAUSE_FIRST_SECONDS * 2**attempt, DIAL_PAUSE_MAX_SECONDS)
    for attempt in range(ATTEMPTS - 1)
]
"""The pauses without jitter."""


class Refused(TlsEndpoint):
    """A client that is refused each time, or reaches the server once and loses it."""

    reached: int | None = None

    @cached_property
    def times(self) -> list[float]:
        """The times of its dials."""
        return []

    @cached_property
    def enough(self) -> asyncio.Event:
        """Set once it has dialled `ATTEMPTS` times."""
        return asyncio.Event()

    @override
    async def _dial(self, name: str) -> ConnectionRefusal | None:
        self.times.append(asyncio.get_running_loop().time())
        if len(self.times) == ATTEMPTS:
            self.enough.set()
            await asyncio.Event().wait()
        reached = len(self.times) == self.reached
        return None if reached else ConnectionRefusal("nobody listens", again=True)


def dialled(seed: int, kind: type[Refused] = Refused) -> list[float]:
    """Return the times at which a client dials."""

    async def main() -> list[float]:
        client = await kind.start(CLIENT, ROSTER, timeout=None, streams=Streams(seed))
        await client.enough.wait()
        await client.close()
        return client.times

    return simulate(main())


def test_pauses_double_up_to_a_limit_with_jitter() -> None:
    """Each pause is between half of the pause without jitter and the whole of it."""
    pauses = np.diff(dialled(1))
    longest = np.array(LONGEST)
    assert np.all((longest / 2 <= pauses) & (pauses <= longest))
    assert len(set((pauses / longest).tolist())) == len(pauses)


def test_the_times_follow_from_the_seed() -> None:
    """Equal seeds dial at equal times; other seeds share only the first time."""
    first, again, other = (dialled(seed) for seed in (1, 1, 2))
    assert first == again
    assert set(first) & set(other) == {0.0}


def test_pauses_begin_small_again_after_a_connection() -> None:
    """A peer that was reached and lost is dialled at once, and then after the first pause."""

    class Lost(Refused):
        reached = 8

    times = dialled(1, Lost)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[6] >= DIAL_PAUSE_MAX_SECONDS / 2
    assert pauses[7] == 0.0
    assert DIAL_PAUSE_FIRST_SECONDS / 2 <= pauses[8] <= DIAL_PAUSE_FIRST_SECONDS


def test_two_members_of_one_seed_do_not_dial_in_step() -> None:
    """Pauses also depend on the names of a member and its peer."""
    streams = Streams(1)
    ann, bob = (
        list(islice(dial_pauses(streams.generator("dial", name, "server")), ATTEMPTS))
        for name in ("ann", "bob")
    )
    assert not set(ann) & set(bob)
