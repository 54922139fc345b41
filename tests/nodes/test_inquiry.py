"""Inquiries into a stalled run: the answers, the named party, and the effect of lies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.roles import Word

from veilring.errors import PeerSilent, SessionAborted, SessionTimeout
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party, Standing, Wait
from veilring.nodes.service import Offer, Service, opening
from veilring.nodes.session import SessionLimits, encode_standing
from veilring.randomness import Streams
from veilring.transport.endpoint import MemoryNetwork
from veilring.transport.messages import decode, encode

NAMES = Parties(("ada", "bob", "cyd"))
TERMS = bytes(32)
QUICK = SessionLimits(session=0.2, answer=5.0)


async def go_round(party: Party, *_: object, silent: str = "") -> None:
    """Pass a word round, starting with ada; one party drops it."""
    place = NAMES.position(party.me)
    if place:
        await party.receive(Word, sender=NAMES[place - 1], due=place)
    party.round(place + 1)
    if party.me != silent:
        await party.send(NAMES[(place + 1) % len(NAMES)], Word(text="on"))
    if not place:
        await party.receive(Word, sender=NAMES[-1], due=len(NAMES))
    await party.receive(Word, sender=NAMES[place - 1], due=len(NAMES) + 1)  # which never comes


@asynccontextmanager
async def three(silent: str, limits: SessionLimits = QUICK) -> AsyncIterator[dict[str, Node]]:
    """Yield the nodes of ada, bob and cyd; the last two join sessions convened by ada."""
    network = MemoryNetwork(tuple(NAMES))
    nodes = {
        name: Node(network.endpoint(name), Streams(1), seconds=limits.session, limits=limits)
        for name in NAMES
    }

    async def join(party: Party, _opener: str) -> None:
        await go_round(party, silent=silent)

    async with AsyncExitStack() as stack:
        for node in nodes.values():
            await stack.enter_async_context(node)
            if node.name != "ada":
                offers = {"round": Offer(join, TERMS, lambda _: True, limits.joined, NAMES)}
                await stack.enter_async_context(Service(node, offers))
        yield nodes


async def convene(node: Node, silent: str) -> SessionTimeout:
    """Return the error of the party that convenes the others."""
    role = opening(go_round, "round", TERMS)
    with pytest.raises(SessionTimeout) as caught:
        await node.run(role, bytes(16), NAMES, silent=silent)
    return caught.value


async def test_the_sender_missed_by_the_judge_is_named() -> None:
    """All parties report what they miss; the earliest missing message is the judge's own."""
    async with three("cyd") as nodes:
        error = await convene(nodes["ada"], "cyd")
    assert error.culprit == "cyd"
    assert error.verdict == "cyd did not send test.word to ada when it was due"


@pytest.mark.parametrize(("silent", "misses"), [("ada", "bob"), ("bob", "cyd")])
async def test_on_the_word_of_a_peer_both_ends_are_suspects(silent: str, misses: str) -> None:
    """If only a peer, which may lie, misses the earliest message, no party is convicted."""
    async with three(silent) as nodes:
        error = await convene(nodes["ada"], silent)
    assert error.culprit == ""
    did_not = f"{silent} did not send test.word to {misses} when it was due"
    assert error.verdict == f"{did_not}, or the report of {misses} is false"


@pytest.mark.parametrize(
    ("received", "verdict"),
    [
        (2, "bob did not send x.y to cyd when it was due, or the report of cyd is false"),
        (1, "nobody can be blamed: a message from bob to cyd has not arrived"),
        (9, "nobody can be blamed: bob reports 2 messages sent to cyd, which received 9"),
    ],
)
async def test_a_liar_convicts_no_party(
    received: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a silent party accuses an honest peer, either both are named or neither is."""
    lie = Standing("cyd", (Wait("bob", "x.y", 0),), received={"bob": received})
    honest = Standing("bob", (Wait("cyd", "test.word", 7),), sent={"cyd": 2})
    async with three("cyd") as nodes:
        for standing in (lie, honest):
            answer = {bytes(16): standing}
            monkeypatch.setattr(nodes[standing.party], "standings", lambda answer=answer: answer)
        error = await convene(nodes["ada"], "")
    assert (error.culprit, error.verdict) == ("", verdict)


async def test_a_party_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connected peer that sends nothing is stopped, cut off or busy."""
    async with three("bob", SessionLimits(session=0.2, answer=0.2)) as nodes:
        monkeypatch.setattr(nodes["cyd"], "_dispatch", lambda *_: None)
        error = await convene(nodes["ada"], "")
    assert isinstance(error, PeerSilent)
    assert (error.culprit, "cyd has not answered for 0.2 s" in str(error)) == ("cyd", True)


async def test_the_other_parties_are_told_the_culprit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party that joins learns the culprit's name from the party that asked the others."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with three("cyd") as nodes:
        usual = nodes["bob"].run

        async def listening(*given: Any, **public: Any) -> object:
            try:
                return await usual(*given, **public)
            except SessionAborted as error:
                heard.put_nowait(str(error))
                raise

        monkeypatch.setattr(nodes["bob"], "run", listening)
        await convene(nodes["ada"], "")
        said = await asyncio.wait_for(heard.get(), 10.0)
    assert said.endswith("(SessionTimeout, blaming cyd): cyd did not send its message in time")


def test_the_party_nearest_to_the_fault_gives_up_first() -> None:
    """Each limit leaves time for the answers and the news of the one before it."""
    limits = SessionLimits(session=120, answer=5)
    found = (limits.session, limits.joined, limits.served, limits.client)
    assert found == (120, 130, 170, 180)


def test_an_answer_among_a_thousand_parties_fits_a_frame() -> None:
    """For any number of peers, the lists in an answer are short."""
    peers = [f"party-{number}" for number in range(1_000)]
    counts = dict.fromkeys(peers, 7)
    waits = tuple(Wait(peer, "test.word", 3) for peer in peers)
    standing = Standing("ada", waits, sent=counts, received=counts)
    _, answer = decode(encode(bytes(16), encode_standing(standing)))
    assert answer == encode_standing(standing)
