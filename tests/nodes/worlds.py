"""Three nodes on one in-memory network, their roles and their messages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.roles import Word

from veilring.errors import PeerLost, SessionAborted
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party
from veilring.nodes.session import SESSION_SECONDS, SessionLimits
from veilring.randomness import Streams
from veilring.transport.endpoint import MemoryNetwork

NAMES = Parties(["ada", "bob", "cy"])
PAIR = Parties(["ada", "bob"])
FIRST, SECOND = bytes(16), bytes(15) + b"\x01"
TERMS, OTHER_TERMS = bytes(32), bytes(31) + b"\x01"

Role = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def started(
    *more: str, seconds: float = SESSION_SECONDS, limits: SessionLimits | None = None
) -> AsyncIterator[dict[str, Node]]:
    """Yield the nodes of ada, bob, cy and of more parties, on one network."""
    network = MemoryNetwork((*NAMES, *more))
    nodes = {
        name: Node(network.endpoint(name), Streams(1), seconds=seconds, limits=limits)
        for name in network.names
    }
    async with AsyncExitStack() as stack:
        for node in nodes.values():
            await stack.enter_async_context(node)
        yield nodes


async def begun(
    node: Node, role: Role, session: bytes = FIRST, parties: Parties = NAMES
) -> asyncio.Task[Any]:
    """Start a role at a node, and let it have its first turn."""
    task = asyncio.create_task(node.run(role, session, parties))
    await asyncio.sleep(0)
    return task


async def played(nodes: dict[str, Node], parties: Parties = NAMES, **roles: Role) -> dict[str, Any]:
    """Play a role at each of the given nodes, and return the results or errors."""
    runs = [nodes[name].run(role, FIRST, parties) for name, role in roles.items()]
    results = await asyncio.gather(*runs, return_exceptions=True)
    return dict(zip(roles, results, strict=True))


async def turns(count: int = 20) -> None:
    """Let the loop take some turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def hear(sender: str) -> Role:
    """Return a role that receives a word."""

    async def role(party: Party) -> str:
        return (await party.receive(Word, sender=sender)).text

    return role


def tell(to: str, text: str = "") -> Role:
    """Return a role that sends a word, by default the party's name."""
    return lambda party: party.send(to, Word(text=text or party.me))


def playing(*steps: Role, tolerant: bool = False) -> Role:
    """Return a role of these steps, which may tolerate losses; it returns each outcome."""

    async def role(party: Party) -> list[object]:
        outcomes: list[object] = []
        if tolerant:
            party.tolerate_losses()
        for step in steps:
            try:
                outcomes.append(await step(party))
            except SessionAborted as error:
                if not tolerant:
                    raise
                outcomes.append(f"{error.reason} by {error.by}, blaming {error.culprit}")
            except PeerLost as error:
                if not tolerant:
                    raise
                outcomes.append(type(error).__name__)
        return outcomes

    return role
