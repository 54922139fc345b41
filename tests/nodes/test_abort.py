"""The abort notice that a party sends when another party has ended a session."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from numpy.random import default_rng
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
    Tampered,
    TooManyLost,
    VeilringError,
)
from veilring.nodes import node as early
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party
from veilring.nodes.service import Offer, Service, opening
from veilring.nodes.session import (
    CULPRIT_CHARACTERS_MAX,
    REASON_CHARACTERS_MAX,
    REFUSALS,
    Abort,
    Session,
    abort_notice,
    public_error,
)
from veilring.randomness import Streams
from veilring.transport.endpoint import MemoryNetwork
from veilring.transport.frames import pack
from veilring.transport.messages import open_frame

CLIENT, *MEMBERS = ("clerk", "ada", "bob", "cy")
ALL = Parties(MEMBERS)
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
        await nodes["ada"].run(role, bytes(15) + party.session[-1:], ALL)
        await party.send(client, Word(text="done"))

    async def noting(party: Party, _opener: str) -> None:
        try:
            await meet(party)
        except SessionAborted as error:
            met.put_nowait(error)
            raise

    offers = {
        "ada": {"ask": Offer(answer, TERMS, lambda _: True)},
        "bob": {"meet": Offer(noting, TERMS, lambda _: True, parties=ALL)},
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
        ({"meet": Offer(meet, OTHER, lambda _: True, parties=ALL)}, "OtherTerms", "cy"),
        ({}, "NotOffered", "cy"),
        ({"meet": Offer(stumble, TERMS, lambda _: True, parties=ALL)}, "InternalError", "cy"),
        (
            {"meet": Offer(accuse_bob, TERMS, lambda _: True, parties=ALL)},
            "ProtocolViolation",
            "bob",
        ),
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
    endpoint = MemoryNetwork((CLIENT, *MEMBERS)).endpoint("ada")
    session = Session(endpoint, bytes(16), Parties((CLIENT, "ada")), lambda: default_rng(1))
    assert abort_notice(session, SessionAborted("cy", reason)) == notice


def test_texts_of_an_abort_are_limited() -> None:
    """The sender cuts them, and a receiver takes longer ones for a violation."""
    endpoint = MemoryNetwork(MEMBERS).endpoint("cy")
    session = Session(endpoint, bytes(16), ALL, lambda: default_rng(1))
    notice = abort_notice(session, type("V" * 10_000, (VeilringError,), {})())
    assert notice == Abort(reason="V" * REASON_CHARACTERS_MAX, culprit="")
    names = ", ".join(f"party-{number}" for number in range(1_000))
    notice = abort_notice(session, PeerSilent(1.0, "", names, ""))
    assert notice == Abort(reason="PeerSilent", culprit=names[:CULPRIT_CHARACTERS_MAX])
    for said in (("V" * 65, ""), ("Busy", "c" * 1_025)):
        frame = pack((bytes(16), Abort.kind, *said))
        refusing = Session(endpoint, bytes(16), ALL, lambda: default_rng(1))
        refusing.deliver("ada", open_frame(frame), frame)
        assert isinstance(refusing.error, ProtocolViolation)
        assert refusing.error.culprit == "ada"


def test_a_cancelled_session_is_reported_as_a_stop_of_the_party() -> None:
    """No name of a class of Python crosses the wire, and a stopped party is named as such."""
    endpoint = MemoryNetwork(MEMBERS).endpoint("cy")
    session = Session(endpoint, bytes(16), ALL, lambda: default_rng(1))
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


@pytest.mark.parametrize("reason", sorted(OWN | EITHER | REFUSALS))
def test_every_reason_of_an_abort_is_explained(reason: str) -> None:
    """A client reads a sentence, not only the name of a class."""
    assert re.fullmatch(UNEXPLAINED, str(SessionAborted("ada", reason))) is None


@pytest.mark.parametrize(
    "reason", sorted(PASSED_ON | EITHER | REFUSALS - {"TooManySessions"} | {"BudgetExhausted"})
)
def test_every_reason_of_an_abort_with_a_culprit_is_explained(reason: str) -> None:
    """A client reads what the culprit did, not only its name."""
    assert re.fullmatch(UNEXPLAINED, str(SessionAborted("ada", reason, "cy"))) is None
