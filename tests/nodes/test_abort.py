"""The abort notice that a party sends when another party has ended a session."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.roles import Word

from veilring.errors import ProtocolViolation, SessionAborted
from veilring.nodes import node as early
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party
from veilring.nodes.service import Offer, Service, opening
from veilring.randomness import Streams
from veilring.transport.memory import MemoryNetwork

CLIENT, *MEMBERS = ("clerk", "ada", "bob", "cy")
TERMS, OTHER = bytes(32), bytes(31) + b"\x01"


async def meet(party: Party, *_: object) -> None:
    """Receive a message from every other party."""
    for peer in party.peers:
        await party.send(peer, Word(text=party.me))
    for peer in party.peers:
        await party.receive(Word, sender=peer)


async def accuse_bob(party: Party, _opener: str) -> None:
    """Claim that bob broke the protocol."""
    party.accuse(ProtocolViolation("bob", "did something"))


async def stumble(_party: Party, _opener: str) -> None:
    """Fail as a buggy role does."""
    raise ZeroDivisionError


async def wait_for_answer(party: Party) -> None:
    """Wait for an answer from the only peer."""
    await party.receive(Word, sender=party.peers[0])


@asynccontextmanager
async def deployed(cy: dict[str, Offer], met: asyncio.Queue[SessionAborted]) -> AsyncIterator[Node]:
    """Yield a client's node, which asks ada; ada then meets honest bob, and cy."""
    network = MemoryNetwork((CLIENT, *MEMBERS))
    nodes = {name: Node(network.endpoint(name), Streams(1)) for name in (CLIENT, *MEMBERS)}

    async def answer(party: Party, client: str) -> None:
        role = opening(meet, "meet", TERMS)
        await nodes["ada"].run(role, bytes(15) + party.session[-1:], Parties(MEMBERS))
        await party.send(client, Word(text="done"))

    async def noting(party: Party, _opener: str) -> None:
        try:
            await meet(party)
        except SessionAborted as error:
            met.put_nowait(error)
            raise

    offers = {
        "ada": {"ask": Offer(answer, TERMS, lambda _: True)},
        "bob": {"meet": Offer(noting, TERMS, lambda _: True)},
        "cy": cy,
    }
    async with AsyncExitStack() as stack:
        for name, node in nodes.items():
            await stack.enter_async_context(node)
            if name in offers:
                await stack.enter_async_context(Service(node, offers[name]))
        yield nodes[CLIENT]


@pytest.mark.parametrize(
    ("cy", "reason", "blamed"),
    [
        ({"meet": Offer(meet, OTHER, lambda _: True)}, "OtherTerms", "cy"),
        ({}, "NotOffered", "cy"),
        ({"meet": Offer(stumble, TERMS, lambda _: True)}, "InternalError", "cy"),
        ({"meet": Offer(accuse_bob, TERMS, lambda _: True)}, "ProtocolViolation", "bob"),
    ],
)
async def test_the_end_of_a_members_session_is_reported_to_client_and_peers(
    cy: dict[str, Offer], reason: str, blamed: str
) -> None:
    """However a third party ends it, no party keeps waiting, and the client learns its name."""
    met: asyncio.Queue[SessionAborted] = asyncio.Queue()
    async with deployed(cy, met) as client:
        ask = opening(wait_for_answer, "ask", TERMS)
        with pytest.raises(SessionAborted) as caught:
            await client.run(ask, b"\x01" * 16, Parties((CLIENT, "ada")))
        await met.get()
    failed = caught.value
    assert (failed.by, failed.reason, failed.culprit) == ("ada", reason, blamed)


async def test_sessions_that_were_refused_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refused sessions leave no messages behind, however often an opener is refused."""
    monkeypatch.setattr(early, "EARLY_FRAMES_MAX", 4)
    async with deployed({}, asyncio.Queue()) as client:
        pair = Parties((CLIENT, "ada"))
        for number in range(1, 21):
            ask = opening(wait_for_answer, "ask", TERMS)
            with pytest.raises(SessionAborted, match="NotOffered, blaming cy"):
                await client.run(ask, bytes([number]) * 16, pair)
