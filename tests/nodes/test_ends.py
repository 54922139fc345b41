"""The end of a session: notices of aborts, and inquiries into a stalled run."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
from numpy.random import default_rng
from tests.nodes.worlds import NAMES, OTHER_TERMS, TERMS, hear, started
from tests.roles import Word

from veilring.errors import (
    PeerSilent,
    ProtocolViolation,
    SessionAborted,
    SessionTimeout,
    VeilringError,
)
from veilring.nodes import node as early
from veilring.nodes.inquiry import encode_standing
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


Handler = Callable[[Party, str], Awaitable[object]]
Met = asyncio.Queue[SessionAborted]


def offer_of_all(role: Handler, terms: bytes = TERMS) -> Offer:
    """Return the offer of a session of ada, bob and cy."""
    return Offer(role, terms, lambda _peer: True, parties=NAMES)


def noting(role: Handler, met: Met) -> Handler:
    """Return the role, which notes how its session was aborted."""

    async def noted(party: Party, opener: str) -> None:
        try:
            await role(party, opener)
        except SessionAborted as error:
            met.put_nowait(error)
            raise

    return noted


@asynccontextmanager
async def deployed(cy: dict[str, Offer], met: Met) -> AsyncIterator[Node]:
    """Yield a client's node, which asks ada; ada then meets honest bob, and cy."""

    async def answer(party: Party, client: str) -> None:
        role = opening(meet, "meet", TERMS)
        await nodes["ada"].run(role, bytes(15) + party.session[-1:], NAMES)
        await party.send(client, Word(text="done"))

    offers = {
        "ada": {"ask": Offer(answer, TERMS, lambda _: True)},
        "bob": {"meet": offer_of_all(noting(meet, met))},
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
    cy: dict[str, Offer], reason: str, blamed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a third party ends it, none waits on, the client learns its name, nothing is left."""
    monkeypatch.setattr(early, "EARLY_FRAMES_MAX", 4)
    met = Met()
    async with deployed(cy, met) as client:
        for number in range(1, 21):
            ask = opening(hear("ada"), "ask", TERMS)
            with pytest.raises(SessionAborted) as caught:
                await client.run(ask, bytes([number]) * 16, ASK)
            failed = caught.value
            assert (failed.by, failed.reason, failed.culprit) == ("ada", reason, blamed)
            await met.get()


def session_of(name: str, parties: Parties = NAMES) -> Session:
    """Return a party's end of a session."""
    endpoint = MemoryNetwork(parties).endpoint(name)
    return Session(endpoint, bytes(16), parties, lambda: default_rng(1))


MANY = ", ".join(f"party-{number}" for number in range(1_000))


def test_an_abort_has_short_texts_and_blames_a_party_for_its_own_end_only() -> None:
    """A party without room, or that reports others, is not blamed; Python's names stay here."""
    session = session_of("ada", ASK)
    for error, reason, culprit in (
        (SessionAborted("cy", "TooManySessions"), "Busy", ""),
        (SessionAborted("cy", "Busy"), "Busy", ""),
        (SessionAborted("cy", "SessionTimeout"), "SessionTimeout", ""),
        (SessionAborted("cy", "Tampered"), "Tampered", ""),
        (SessionAborted("cy", "OtherTerms"), "OtherTerms", "cy"),
        (SessionAborted("cy", "Stopping"), "Stopping", "cy"),
        (SessionAborted("cy", "StoreFailed"), "StoreFailed", "cy"),
        (asyncio.CancelledError(), "PeerStopped", ""),
        (type("V" * 10_000, (VeilringError,), {})(), "V" * REASON_CHARACTERS_MAX, ""),
        (PeerSilent(1.0, "", MANY, ""), "PeerSilent", MANY[:CULPRIT_CHARACTERS_MAX]),
    ):
        notice = abort_notice(session, public_error(error, session))
        assert notice == Abort(reason=reason, culprit=culprit)


@pytest.mark.parametrize("reason", ["PolicyRefused.who", "BudgetExhausted", "StoreFailed"])
def test_no_participant_speaks_for_another_one(reason: str) -> None:
    """A party that ends a session with another one's refusal is blamed itself."""
    for said, culprit, blamed in ((reason, "bob", "cy"), ("Tampered", "bob", "bob")):
        session = session_of("ada")
        frame = pack((bytes(16), Abort.kind, said, culprit))
        session.deliver("cy", open_frame(frame), frame)
        assert isinstance(session.error, SessionAborted)
        assert (session.error.by, session.error.culprit) == ("cy", blamed)


def test_long_texts_of_an_abort_are_a_violation() -> None:
    """A receiver accepts no longer texts than a sender sends."""
    for said in (("V" * 65, ""), ("Busy", "c" * 1_025)):
        frame = pack((bytes(16), Abort.kind, *said))
        refusing = session_of("cy")
        refusing.deliver("ada", open_frame(frame), frame)
        assert isinstance(refusing.error, ProtocolViolation)
        assert refusing.error.culprit == "ada"


OWN = {"AskedBefore", "Busy", "InputError", "Tampered", "TooManySessions"}
PASSED_ON = {"PeerGivenUp", "PeerLost", "PeerSilent", "ProtocolViolation"}
FAILED = {"BudgetExhausted", "EarlyFramesDropped", "InternalError", "StoreFailed"}
ENDED = {"NotReady", "SessionTimeout", "TooManyLost"}
EITHER = FAILED | ENDED | REFUSALS - OWN


def test_every_reason_of_an_abort_is_explained() -> None:
    """A client reads a sentence on the reason and the culprit, not only their names."""
    found = [str(SessionAborted("ada", reason, "")) for reason in OWN | EITHER]
    found += [str(SessionAborted("ada", reason, "cy")) for reason in PASSED_ON | EITHER]
    unexplained = r"ada aborted the session \(\w+(, blaming cy)?\)"
    assert not [said for said in found if re.fullmatch(unexplained, said)]
    assert str(SessionAborted("ada", "PeerStopped", "cy")).startswith("PeerStopped: cy is shutting")


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
async def three(
    silent: str, limits: SessionLimits = QUICK, met: Met | None = None
) -> AsyncIterator[dict[str, Node]]:
    """Yield the nodes of ada, bob and cy; the last two join sessions convened by ada."""
    join = offer_of_all(noting(partial(go_round, silent=silent), met or asyncio.Queue()))
    offers = {"round": replace(join, seconds=limits.joined)}
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(started(seconds=limits.session, limits=limits))
        for name in ("bob", "cy"):
            await stack.enter_async_context(Service(nodes[name], offers))
        yield nodes


async def convene(node: Node, silent: str) -> SessionTimeout:
    """Return the error of the party that convenes the others."""
    role = opening(go_round, "round", TERMS)
    with pytest.raises(SessionTimeout) as caught:
        await node.run(role, bytes(16), NAMES, silent=silent)
    return caught.value


@pytest.mark.parametrize(("silent", "misses"), [("cy", "ada"), ("ada", "bob"), ("bob", "cy")])
async def test_only_the_sender_missed_by_the_judge_is_convicted(silent: str, misses: str) -> None:
    """If only a peer, which may lie, misses the first message, both are suspects; all hear it."""
    met = Met()
    async with three(silent, met=met) as nodes:
        error = await convene(nodes["ada"], silent)
        told = await asyncio.wait_for(met.get(), 10.0)
    verdict, culprit = f"{silent} did not send test.word to {misses} when it was due", silent
    if misses != "ada":
        verdict, culprit = f"{verdict}, or the report of {misses} is false", ""
    assert (error.culprit, error.verdict) == (culprit, verdict)
    assert (told.by, told.reason, told.culprit) == ("ada", "SessionTimeout", culprit)
    assert (f"{silent} did not send its message in time" in str(told)) == bool(culprit)


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
            answer = {bytes(16): standing}.get
            monkeypatch.setattr(nodes[standing.party], "standing", answer)
        error = await convene(nodes["ada"], "")
    assert (error.culprit, error.verdict) == ("", verdict)


async def test_a_party_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connected peer that sends nothing is stopped, cut off or busy."""
    async with three("bob", SessionLimits(session=0.2, answer=0.2)) as nodes:
        monkeypatch.setattr(nodes["cy"], "_dispatch", lambda *_: None)
        nodes["cy"].start()
        error = await convene(nodes["ada"], "")
    assert isinstance(error, PeerSilent)
    assert (error.culprit, "cy has not answered for 0.2 s" in str(error)) == ("cy", True)


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
