"""Parties over TLS on loopback, for tests."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from veilring.transport.listener import bind
from veilring.transport.roster import Identity, Member, Roster, make_identity
from veilring.transport.tls import LOOPBACK, TlsEndpoint

# What takes milliseconds may take very long on a machine with much else to do.
PATIENCE_SECONDS = 120.0


def port_of(sock: socket.socket) -> int:
    """Return the port to which a socket is bound."""
    port: int = sock.getsockname()[1]
    return port


class Town:
    """Identities, listening sockets and the roster of some parties and clients."""

    def __init__(self, parties: Sequence[str], clients: Sequence[str] = ()) -> None:
        self.identities: dict[str, Identity] = {n: make_identity(n) for n in (*parties, *clients)}
        self.sockets = {name: bind(LOOPBACK, 0) for name in parties}
        self.ports = {name: port_of(sock) for name, sock in self.sockets.items()}
        listening = [Member.of(self.identities[n], LOOPBACK, self.ports[n]) for n in parties]
        dialling = [Member.of(self.identities[n], kind="client") for n in clients]
        self.roster = Roster((*listening, *dialling))
        self.rosters = dict[str, Roster]()  # of members that have another one

    def start(self, name: str, *, seconds: float = PATIENCE_SECONDS) -> asyncio.Task[TlsEndpoint]:
        """Start the endpoint of a member."""
        starting = TlsEndpoint.start(
            self.identities[name],
            self.rosters.get(name, self.roster),
            listen=self.sockets.pop(name, LOOPBACK),
            timeout=seconds,
            handshake_seconds=PATIENCE_SECONDS,
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
