"""Parties over TLS on loopback, their refusals, and strangers among them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from veilring.errors import HandshakeError, PeerLost
from veilring.randomness import Streams
from veilring.transport.frames import PREFIX_BYTES
from veilring.transport.handshake import PROTOCOL_VERSION, Greeting, Hello, read_greeting
from veilring.transport.listener import bind
from veilring.transport.roster import Identity, Member, Roster, make_identity
from veilring.transport.tls import LOOPBACK, TlsEndpoint, client_context

# What takes milliseconds may take very long on a machine with much else to do.
PATIENCE_SECONDS = 120.0


def with_key(roster: Roster, key: Identity) -> Roster:
    """Return the roster with another key of a member, and no previous one."""
    old = roster.member(key.name)
    new = Member.of(key, old.host, old.port, old.kind)
    return Roster(tuple(new if each is old else each for each in roster.members))


class Town:
    """Identities, listening sockets and the roster of some parties and clients."""

    def __init__(self, parties: Sequence[str], clients: Sequence[str] = ()) -> None:
        self.identities: dict[str, Identity] = {n: make_identity(n) for n in (*parties, *clients)}
        self.sockets = {name: bind(LOOPBACK, 0) for name in parties}
        self.ports: dict[str, int] = {n: sock.getsockname()[1] for n, sock in self.sockets.items()}
        listening = [Member.of(self.identities[n], LOOPBACK, self.ports[n]) for n in parties]
        dialling = [Member.of(self.identities[n], kind="client") for n in clients]
        self.roster = Roster((*listening, *dialling))
        self.rosters = dict[str, Roster]()  # of members that have another one

    def start(
        self, name: str, seconds: float = PATIENCE_SECONDS, **options: Any
    ) -> asyncio.Task[TlsEndpoint]:
        """Start the endpoint of a member."""
        given = {
            "listen": self.sockets.pop(name, LOOPBACK),
            "handshake_seconds": PATIENCE_SECONDS,
            "streams": Streams(1),
        }
        roster = self.rosters.get(name, self.roster)
        starting = TlsEndpoint.start(
            self.identities[name], roster, timeout=seconds, **(given | options)
        )
        return asyncio.create_task(starting)

    @asynccontextmanager
    async def start_all(self, *names: str) -> AsyncIterator[dict[str, TlsEndpoint]]:
        """Start some members, by default all, and close them at the end."""
        chosen = names or tuple(self.identities)
        started = await asyncio.gather(*(self.start(name) for name in chosen))
        try:
            yield dict(zip(chosen, started, strict=True))
        finally:
            await asyncio.gather(*(endpoint.close() for endpoint in started))

    def close(self) -> None:
        """Close the sockets that no endpoint used."""
        for sock in self.sockets.values():
            sock.close()


@asynccontextmanager
async def tls_endpoints(names: Sequence[str]) -> AsyncIterator[dict[str, TlsEndpoint]]:
    """Connect parties over TLS."""
    async with Town(names).start_all() as endpoints:
        yield endpoints


async def both_fail(town: Town) -> tuple[str, str]:
    """Start alice as dialler and bob as listener; return the reasons that they report."""
    seconds = 1.5  # with this seed, alice dials after 1.0 s and 2.1 s: no attempt is cut short
    starts = [town.start(name, seconds) for name in ("alice", "bob")]
    async with asyncio.timeout(PATIENCE_SECONDS):
        alice, bob = await asyncio.gather(*starts, return_exceptions=True)
    assert isinstance(alice, HandshakeError)
    assert isinstance(bob, HandshakeError)
    assert (alice.peer, bob.peer) == ("bob", "alice")
    return alice.reason, bob.reason


async def lose(endpoint: TlsEndpoint) -> PeerLost:
    """Receive a loss and return it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(PeerLost) as caught:
            await endpoint.receive()
    return caught.value


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, turn by turn of the loop."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110  (a deque has no notification)
            await asyncio.sleep(0.005)


async def refused(town: Town, name: str, by: TlsEndpoint, reason: str) -> None:
    """Start a member, and wait until it is refused for a reason and gives up."""
    by.refusals.clear()
    trying = town.start(name)
    await until(lambda: any(reason in error.reason for error in by.refusals))
    trying.cancel()
    await asyncio.gather(trying, return_exceptions=True)


@dataclass
class Stranger:
    """A peer that holds carol's key and speaks TLS, but not as an endpoint would."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answer(self, said: bytes = b"") -> Greeting:
        """Say something, and return the answer."""
        self.writer.write(said)
        size = int.from_bytes(await self.reader.readexactly(PREFIX_BYTES), "big")
        return read_greeting(await self.reader.readexactly(size))


@asynccontextmanager
async def stranger(town: Town) -> AsyncIterator[Stranger]:
    """Connect a stranger with alice's address."""
    context = client_context(town.identities["carol"], town.roster)
    reader, writer = await asyncio.open_connection(
        LOOPBACK, town.ports["alice"], ssl=context, server_hostname=""
    )
    try:
        yield Stranger(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def hello(town: Town, **changed: object) -> Hello:
    """Return carol's greeting for alice, with changes."""
    said = Hello(version=PROTOCOL_VERSION, roster=b"", sender="carol", receiver="alice")
    return said.model_copy(update={"roster": town.roster.hash} | changed)
