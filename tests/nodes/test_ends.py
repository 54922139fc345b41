"""The end of a session: notices of aborts, and inquiries into a stalled run."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from numpy.random import default_rng
from tests.nodes.worlds import NAMES, OTHER_TERMS, TERMS, started
from tests.roles import Word

from veilring.errors import (
    AskedBefore,
    BudgetExhausted,
    Busy,
    InputError,
    PeerGivenUp,
    PeerLost,
    PeerSilent,
    ProtocolViolation,
    SessionAborted,
    SessionTimeout,
    Tampered,
    TooManyLost,
    VeilringError,
)
from veilring.nodes import node as early
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party, Standing, Wait
from veilring.nodes.service import Offer, Service, opening
from veilring.nodes.session import (
    CULPRIT_CHARACTERS_MAX,
    REASON_CHARACTERS_MAX,
    REFUSALS,
    Abort,
    Session,
    SessionLimits,
    abort_notice,
    encode_standing,
    public_error,
)
from veilring.transport.endpoint import MemoryNetwork
from veilring.transport.frames import pack
from veilring.transport.messages import decode, encode, open_frame

ASK = Parties(("clerk", "ada"))


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


def offer_of_all(
    role: Callable[[Party, str], Awaitable[object]],
    terms: bytes = TERMS,
    seconds: float | None = None,
) -> Offer:
    """Return the offer of a session of ada, bob and cy."""
    return Offer(role, terms, lambda _peer: True, seconds, NAMES)


@asynccontextmanager
async def deployed(cy: dict[str, Offer], met: asyncio.Queue[SessionAborted]) -> AsyncIterator[Node]:
    """Yield a client's node, which asks ada; ada then meets honest bob, and cy."""

    async def answer(party: Party, client: str) -> None:
        role = opening(meet, "meet", TERMS)
        await nodes["ada"].run(role, bytes(15) + party.session[-1:], NAMES)
        await party.send(client, Word(text="done"))

    async def noting(party: Party, _opener: str) -> None:
        try:
            await meet(party)
        except SessionAborted as error:
            met.put_nowait(error)
            raise

    offers = {
        "ada": {"ask": Offer(answer, TERMS, lambda _: True)},
        "bob": {"meet": offer_of_all(noting)},
        "cy": cy,
    }
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(started("clerk"))
        for name in NAMES:
            await stack.enter_async_context(Service(nodes[name], offers[name]))
        yield nodes["clerk"]


@pytest.mark.parametrize(
    ("cy", "reason", "blamed"),
    [
        ({"meet": offer_of_all(meet, OTHER_TERMS)}, "OtherTerms", "cy"),
        ({}, "NotOffered", "cy"),
        ({"meet": offer_of_all(stumble)}, "InternalError", "cy"),
        ({"meet": offer_of_all(accuse_bob)}, "ProtocolViolation", "bob"),
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
            await client.run(ask, b"\x01" * 16, ASK)
        await met.get()
    failed = caught.value
    assert (failed.by, failed.reason, failed.culprit) == ("ada", reason, blamed)


async def test_sessions_that_were_refused_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refused sessions leave no messages behind, however often an opener is refused."""
    monkeypatch.setattr(early, "EARLY_FRAMES_MAX", 4)
    async with deployed({}, asyncio.Queue()) as client:
        for number in range(1, 21):
            ask = opening(wait_for_answer, "ask", TERMS)
            with pytest.raises(SessionAborted, match="NotOffered, blaming cy"):
                await client.run(ask, bytes([number]) * 16, ASK)


def session_of(name: str, parties: Parties = NAMES) -> Session:
    """Return a party's end of a session."""
    endpoint = MemoryNetwork(parties).endpoint(name)
    return Session(endpoint, bytes(16), parties, lambda: default_rng(1))


@pytest.mark.parametrize(
    ("reason", "notice"),
    [
        ("TooManySessions", Abort(reason="Busy", culprit="")),
        ("Busy", Abort(reason="Busy", culprit="")),
        ("SessionTimeout", Abort(reason="SessionTimeout", culprit="")),
        ("Tampered", Abort(reason="Tampered", culprit="")),
        ("OtherTerms", Abort(reason="OtherTerms", culprit="cy")),
        ("StoreFailed", Abort(reason="StoreFailed", culprit="cy")),
    ],
)
def test_a_party_is_blamed_for_its_own_end_of_a_session_only(reason: str, notice: Abort) -> None:
    """A party that has no room, or that only reports what others did, is not named as culprit."""
    assert abort_notice(session_of("ada", ASK), SessionAborted("cy", reason)) == notice


def test_texts_of_an_abort_are_limited() -> None:
    """The sender cuts them, and a receiver takes longer ones for a violation."""
    session = session_of("cy")
    notice = abort_notice(session, type("V" * 10_000, (VeilringError,), {})())
    assert notice == Abort(reason="V" * REASON_CHARACTERS_MAX, culprit="")
    names = ", ".join(f"party-{number}" for number in range(1_000))
    notice = abort_notice(session, PeerSilent(1.0, "", names, ""))
    assert notice == Abort(reason="PeerSilent", culprit=names[:CULPRIT_CHARACTERS_MAX])
    for said in (("V" * 65, ""), ("Busy", "c" * 1_025)):
        frame = pack((bytes(16), Abort.kind, *said))
        refusing = session_of("cy")
        refusing.deliver("ada", open_frame(frame), frame)
        assert isinstance(refusing.error, ProtocolViolation)
        assert refusing.error.culprit == "ada"


def test_a_cancelled_session_is_reported_as_a_stop_of_the_party() -> None:
    """No name of a class of Python crosses the wire, and a stopped party is named as such."""
    session = session_of("cy")
    notice = abort_notice(session, public_error(asyncio.CancelledError(), session))
    assert notice == Abort(reason="PeerStopped", culprit="")
    for said in (SessionAborted("cy", notice.reason), SessionAborted("ada", notice.reason, "cy")):
        assert str(said).startswith("PeerStopped: cy is shutting down")


UNEXPLAINED = r"ada aborted the session \(\w+(, blaming cy)?\)"
OWN = {error.__name__ for error in (AskedBefore, BudgetExhausted, Busy, InputError, Tampered)}
PASSED_ON = {error.__name__ for error in (PeerGivenUp, PeerLost, PeerSilent, ProtocolViolation)}
EITHER = {
    TooManyLost.__name__,
    "EarlyFramesDropped",
    "InternalError",
    "NotReady",
    "StoreFailed",
    "SessionTimeout",
}


BLAMED = PASSED_ON | EITHER | REFUSALS - {"TooManySessions"} | {"BudgetExhausted"}


@pytest.mark.parametrize(
    ("reason", "culprit"),
    [(each, "") for each in sorted(OWN | EITHER | REFUSALS)]
    + [(each, "cy") for each in sorted(BLAMED)],
)
def test_every_reason_of_an_abort_is_explained(reason: str, culprit: str) -> None:
    """A client reads a sentence on the reason and the culprit, not only their names."""
    assert re.fullmatch(UNEXPLAINED, str(SessionAborted("ada", reason, culprit))) is None


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
    """Yield the nodes of ada, bob and cy; the last two join sessions convened by ada."""

    async def join(party: Party, _opener: str) -> None:
        await go_round(party, silent=silent)

    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(started(seconds=limits.session, limits=limits))
        for name in ("bob", "cy"):
            offers = {"round": offer_of_all(join, seconds=limits.joined)}
            await stack.enter_async_context(Service(nodes[name], offers))
        yield nodes


async def convene(node: Node, silent: str) -> SessionTimeout:
    """Return the error of the party that convenes the others."""
    role = opening(go_round, "round", TERMS)
    with pytest.raises(SessionTimeout) as caught:
        await node.run(role, bytes(16), NAMES, silent=silent)
    return caught.value


@pytest.mark.parametrize(
    ("silent", "culprit", "verdict"),
    [
        ("cy", "cy", "cy did not send test.word to ada when it was due"),
        (
            "ada",
            "",
            "ada did not send test.word to bob when it was due, or the report of bob is false",
        ),
        (
            "bob",
            "",
            "bob did not send test.word to cy when it was due, or the report of cy is false",
        ),
    ],
)
async def test_only_the_sender_missed_by_the_judge_is_convicted(
    silent: str, culprit: str, verdict: str
) -> None:
    """If only a peer, which may lie, misses the earliest message, both ends are suspects."""
    async with three(silent) as nodes:
        error = await convene(nodes["ada"], silent)
    assert (error.culprit, error.verdict) == (culprit, verdict)


@pytest.mark.parametrize(
    ("received", "verdict"),
    [
        (2, "bob did not send x.y to cy when it was due, or the report of cy is false"),
        (1, "nobody can be blamed: a message from bob to cy has not arrived"),
        (9, "nobody can be blamed: bob reports 2 messages sent to cy, which received 9"),
    ],
)
async def test_a_liar_convicts_no_party(
    received: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a silent party accuses an honest peer, either both are named or neither is."""
    lie = Standing("cy", (Wait("bob", "x.y", 0),), received={"bob": received})
    honest = Standing("bob", (Wait("cy", "test.word", 7),), sent={"cy": 2})
    async with three("cy") as nodes:
        for standing in (lie, honest):
            answer = {bytes(16): standing}
            monkeypatch.setattr(nodes[standing.party], "standings", lambda answer=answer: answer)
        error = await convene(nodes["ada"], "")
    assert (error.culprit, error.verdict) == ("", verdict)


async def test_a_party_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connected peer that sends nothing is stopped, cut off or busy."""
    async with three("bob", SessionLimits(session=0.2, answer=0.2)) as nodes:
        monkeypatch.setattr(nodes["cy"], "_dispatch", lambda *_: None)
        error = await convene(nodes["ada"], "")
    assert isinstance(error, PeerSilent)
    assert (error.culprit, "cy has not answered for 0.2 s" in str(error)) == ("cy", True)


async def test_the_other_parties_are_told_the_culprit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party that joins learns the culprit's name from the party that asked the others."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with three("cy") as nodes:
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
    assert said.endswith("(SessionTimeout, blaming cy): cy did not send its message in time")


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
