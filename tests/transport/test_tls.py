"""Endpoints over mutual TLS among honest peers."""

import asyncio
import socket

import pytest
from tests.transport.conformance import fill
from tests.transport.refusals import refused
from tests.transport.rosters import PATIENCE_SECONDS, Town, tls_endpoints

from veilring.errors import AddressTaken, EndpointClosed, InputError, PeerLost
from veilring.transport import connection, tls
from veilring.transport.listener import bind
from veilring.transport.roster import make_identity
from veilring.transport.tls import LOOPBACK, TlsEndpoint


async def test_a_late_party_is_waited_for() -> None:
    """A party keeps dialling until its peer is available."""
    town = Town(("alice", "bob"))
    sock = town.sockets.pop("bob")
    address = sock.getsockname()
    sock.close()
    alice = town.start("alice")
    await asyncio.sleep(0.2)
    town.sockets["bob"] = bind(*address)
    endpoints = await asyncio.gather(alice, town.start("bob"))
    for endpoint in endpoints:
        await endpoint.close()


async def lose(endpoint: TlsEndpoint) -> PeerLost:
    """Receive a loss and return it."""
    with pytest.raises(PeerLost) as caught:
        await endpoint.receive()
    return caught.value


@pytest.mark.parametrize("lost", ["alice", "bob"])
async def test_a_restarted_party_is_reachable_again(lost: str) -> None:
    """After its loss is reported, a restarted party connects again, in either direction."""
    town = Town(("alice", "bob"))
    async with town.start_all() as endpoints:
        stays = endpoints["bob" if lost == "alice" else "alice"]
        endpoints[lost].abort()
        await lose(stays)
        assert stays.connected == ()
        assert stays.peers == (lost,)
        await endpoints[lost].close()
        town.sockets[lost] = bind(LOOPBACK, town.ports[lost])
        fresh = await town.start(lost)
        try:
            await fresh.send(stays.name, b"back")
            assert await stays.receive() == (lost, b"back")
            await stays.send(lost, b"welcome")
            assert await fresh.receive() == (stays.name, b"welcome")
        finally:
            await fresh.close()


async def test_a_loss_is_reported_before_the_return() -> None:
    """A peer stays disconnected until its loss is reported, so that no message is lost."""
    town = Town(("alice",), ("carol",))
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


async def test_the_arguments_must_fit_the_roster() -> None:
    """A stranger, another key, an unknown party and a taken port are refused at once."""
    town = Town(("alice", "bob"))
    with pytest.raises(InputError, match="'mallory' is not a member"):
        await TlsEndpoint.start(make_identity("mallory"), town.roster)
    with pytest.raises(InputError, match="not the roster's key for alice"):
        await TlsEndpoint.start(make_identity("alice"), town.roster)
    with pytest.raises(InputError, match="'carol' is not another party"):
        await TlsEndpoint.start(town.identities["alice"], town.roster, connect_to=("carol",))
    with pytest.raises(
        AddressTaken, match=r"^another process is listening at 127\.0\.0\.1:\d+; stop it"
    ):
        await TlsEndpoint.start(town.identities["alice"], town.roster)
    town.close()


async def test_an_address_of_another_machine_is_refused_once_and_in_plain_words() -> None:
    """The error shows an address once, with the system's reason."""
    town = Town(("alice", "bob"))
    with pytest.raises(InputError) as caught:
        await TlsEndpoint.start(town.identities["alice"], town.roster, listen="192.0.2.1")
    assert str(caught.value).count("192.0.2.1") == 1
    assert "use an address of this machine" in str(caught.value)
    town.close()


async def test_a_cancelled_start_leaves_nothing_open() -> None:
    """A cancelled start leaves no sockets or tasks open."""
    town = Town(("alice", "bob"))
    alice = town.start("alice")
    await asyncio.sleep(0.1)
    alice.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alice
    assert asyncio.all_tasks() == {asyncio.current_task()}
    bind(LOOPBACK, town.ports["alice"]).close()
    town.close()


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


async def test_an_answered_goodbye_does_not_wait() -> None:
    """Peers answer a goodbye even if their nodes do not read it."""
    async with tls_endpoints(("alice", "bob")) as endpoints:
        async with asyncio.timeout(PATIENCE_SECONDS / 2):  # the goodbye's own limit is all of it
            await endpoints["alice"].close()
        assert (await lose(endpoints["bob"])).orderly


async def test_a_node_that_stopped_reading_can_still_leave() -> None:
    """A node that closes before reading everything still delivers its messages and goodbye."""
    async with tls_endpoints(("alice", "bob")) as endpoints:
        await fill(endpoints["bob"], "alice")
        await endpoints["alice"].send("bob", b"last")
        async with asyncio.timeout(PATIENCE_SECONDS / 2):  # the goodbye's own limit is all of it
            await endpoints["alice"].close()
        assert await endpoints["bob"].receive() == ("alice", b"last")
        assert (await lose(endpoints["bob"])).orderly
