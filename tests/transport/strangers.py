"""A peer that has a member's key and speaks TLS, but does not behave as an endpoint would."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.transport.rosters import Town

from veilring.transport.frames import PREFIX_BYTES
from veilring.transport.handshake import PROTOCOL_VERSION, Hello, Welcome, greeting, read_greeting
from veilring.transport.tls import LOOPBACK, client_context


class Stranger:
    """A peer that holds carol's key and speaks TLS, but not as an endpoint would."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def frame(self) -> bytes:
        """Read one frame."""
        size = int.from_bytes(await self.reader.readexactly(PREFIX_BYTES), "big")
        return await self.reader.readexactly(size)


@asynccontextmanager
async def stranger(town: Town, *, greet: bool = False) -> AsyncIterator[Stranger]:
    """Connect a stranger with alice's address, and greet as carol if requested."""
    reader, writer = await asyncio.open_connection(
        LOOPBACK,
        town.ports["alice"],
        ssl=client_context(town.identities["carol"], town.roster),
        server_hostname="",
    )
    peer = Stranger(reader, writer)
    try:
        if greet:
            writer.write(greeting(hello(town)))
            assert isinstance(read_greeting(await peer.frame()), Welcome)
        yield peer
    finally:
        writer.transport.abort()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def hello(town: Town, **changed: object) -> Hello:
    """Return carol's greeting for alice, with changes."""
    said = {
        "version": PROTOCOL_VERSION,
        "roster": town.roster.hash,
        "sender": "carol",
        "receiver": "alice",
    }
    return Hello.model_validate(said | changed)
