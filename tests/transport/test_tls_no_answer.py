"""Peers that are absent, silent or without TLS: they are reported by name."""

import asyncio
import socket

import pytest
from tests.transport.refusals import NAMED_WITHIN_SECONDS, until
from tests.transport.rosters import Town
from tests.transport.strangers import stranger

from veilring.errors import HandshakeError
from veilring.transport.handshake import TOO_SLOW, Refuse, read_greeting
from veilring.transport.tls import LOOPBACK, TlsEndpoint

# Long enough for a handshake among much else that the machine has to do.
SILENCE_SECONDS = 3.0


async def test_an_absent_peer_is_named() -> None:
    """A peer that does not listen is named with the reason, and so is one that never dials."""
    town = Town(("alice", "bob", "carol"))
    town.sockets.pop("bob").close()
    with pytest.raises(HandshakeError, match=r"bob.*nothing listens") as caught:
        await town.start("alice", seconds=2.0)
    assert caught.value.peer == "bob, carol"
    with pytest.raises(HandshakeError, match="did not connect within"):
        await town.start("carol", seconds=0.2)


async def test_plaintext_client() -> None:
    """A client without TLS is disconnected and logged."""
    town = Town(("alice",))
    async with town.start_all() as endpoints:
        reader, writer = await asyncio.open_connection(LOOPBACK, town.ports["alice"])
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(NAMED_WITHIN_SECONDS):
            (answer,) = await asyncio.gather(reader.read(), return_exceptions=True)
        assert answer == b"" or isinstance(answer, ConnectionError)
        writer.close()
        await until(lambda: bool(endpoints["alice"].refusals))
        error = endpoints["alice"].refusals[-1]
        assert "does not speak TLS" in error.reason
        assert error.peer.startswith(LOOPBACK)


async def test_plaintext_server() -> None:
    """A server without TLS is reported as such."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        writer.close()
        await writer.wait_closed()

    town = Town(("alice", "bob"))
    async with await asyncio.start_server(answer, sock=town.sockets.pop("bob")):
        with pytest.raises(HandshakeError, match="does not speak TLS"):
            await town.start("alice")
    town.close()


async def test_silence() -> None:
    """A peer that is silent before, during or after TLS is given up, on either side."""
    town = Town(("alice", "bob"), ("carol",))
    silent_server = town.sockets.pop("bob")  # listens, and never accepts
    alice = asyncio.create_task(
        TlsEndpoint.start(
            town.identities["alice"],
            town.roster,
            listen=town.sockets.pop("alice"),
            connect_to=(),
            handshake_seconds=SILENCE_SECONDS,
        )
    )
    endpoint = await alice
    dialler = TlsEndpoint.start(
        town.identities["carol"], town.roster, connect_to=("bob",), timeout=SILENCE_SECONDS
    )
    silent = socket.create_connection((LOOPBACK, town.ports["alice"]))
    try:
        async with asyncio.timeout(NAMED_WITHIN_SECONDS), stranger(town) as carol:
            outcome, told = await asyncio.gather(dialler, carol.frame(), return_exceptions=True)
            await until(lambda: len(endpoint.refusals) == 2)
        assert isinstance(outcome, HandshakeError)
        assert outcome.peer == "bob"
        refusal = read_greeting(told) if isinstance(told, bytes) else None
        assert isinstance(refusal, Refuse)
        reasons = [refusal.reason, *(error.reason for error in endpoint.refusals)]
        assert all(TOO_SLOW in reason for reason in reasons)
    finally:
        silent.close()
        silent_server.close()
        await endpoint.close()
