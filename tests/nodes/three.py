"""Three nodes on one in-memory network, and their messages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.roles import Word

from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party
from veilring.randomness import Streams
from veilring.transport.endpoint import MemoryNetwork

NAMES = Parties(["ada", "bob", "cy"])
FIRST, SECOND = bytes(16), bytes(15) + b"\x01"


@asynccontextmanager
async def three_nodes() -> AsyncIterator[dict[str, Node]]:
    """Yield three nodes on one network."""
    network = MemoryNetwork(NAMES)
    nodes = {name: Node(network.endpoint(name), Streams(1)) for name in NAMES}
    for node in nodes.values():
        node.start()
    try:
        yield nodes
    finally:
        for node in nodes.values():
            await node.close()


async def listen_to_ada(party: Party) -> str:
    """Wait for a word from ada."""
    return (await party.receive(Word, sender="ada")).text


async def pass_word(party: Party) -> None:
    """Send a word to bob."""
    await party.send("bob", Word(text="after"))
