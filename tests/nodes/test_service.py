"""Long-lived nodes: peers open sessions, and each is joined or refused with a reason."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.roles import Word
from tests.transport.rosters import Town

from veilring.errors import SessionAborted
from veilring.nodes.node import OPEN_BYTES_MAX, STRAYS_MAX, Node
from veilring.nodes.party import Parties, Party
from veilring.nodes.service import (
    EXCESS_WAITING_MAX,
    OPENS_MAX,
    REFUSALS_MAX,
    REFUSALS_WAITING_MAX,
    SESSIONS_PER_PEER_MAX,
    Offer,
    Service,
    opening,
)
from veilring.nodes.session import Open
from veilring.randomness import Streams
from veilring.transport.memory import MemoryNetwork
from veilring.transport.messages import encode

NAMES = Parties(["ada", "bob", "cy"])
TERMS = bytes(32)


async def greet(party: Party) -> list[str]:
    """Greet all and return all greetings."""
    for peer in party.peers:
        await party.send(peer, Word(text=f"hello from {party.me}"))
    return [(await party.receive(Word, sender=peer)).text for peer in party.peers]


async def join(party: Party, _opener: str) -> None:
    """Greet, when asked to."""
    await greet(party)


async def wait(party: Party, opener: str) -> None:
    """Wait for a word that may never come."""
    await party.receive(Word, sender=opener)


async def stumble(party: Party, _opener: str) -> None:
    """Fail as a buggy handler does."""
    raise ZeroDivisionError(party.me)


OFFERS = {
    "greet": Offer(join, TERMS, lambda _peer: True),
    "wait": Offer(wait, TERMS, lambda _peer: True),
    "private": Offer(join, TERMS, lambda peer: peer == "bob"),
    "stumble": Offer(stumble, TERMS, lambda _peer: True),
}


@asynccontextmanager
async def served() -> AsyncIterator[dict[str, Node]]:
    """Give three nodes; bob and cy serve, ada asks."""
    network = MemoryNetwork(NAMES)
    nodes = {name: Node(network.endpoint(name), Streams(1)) for name in NAMES}
    for node in nodes.values():
        node.start()
    async with Service(nodes["bob"], OFFERS), Service(nodes["cy"], OFFERS):
        yield nodes
    for node in nodes.values():
        await node.close()


async def test_a_session_that_one_party_opens_is_joined_by_all() -> None:
    """The opener asks, the others join, and all play under one name."""
    async with served() as nodes:
        heard = await nodes["ada"].run(opening(greet, "greet", TERMS), bytes(16), NAMES)
    assert heard == ["hello from bob", "hello from cy"]


@pytest.mark.parametrize(
    ("service", "terms", "reason"),
    [
        ("dance", TERMS, "NotOffered"),
        ("private", TERMS, "NotOffered"),
        ("greet", bytes(31) + b"\x01", "OtherTerms"),
    ],
)
async def test_what_does_not_fit_is_refused_with_a_reason(
    service: str, terms: bytes, reason: str
) -> None:
    """An unknown service, a peer that may not ask, and other terms are told apart."""
    async with served() as nodes:
        with pytest.raises(SessionAborted, match=reason):
            await nodes["ada"].run(opening(greet, service, terms), bytes(16), NAMES)


async def test_a_session_of_parties_without_its_opener_is_refused() -> None:
    """A session is refused if its opener is not among its parties."""

    async def open_for_others(party: Party) -> None:
        request = Open(service="greet", parties=("bob", "cy"), terms=TERMS)
        await party.send("bob", request)
        await party.receive(Word, sender="bob")

    async with served() as nodes:
        with pytest.raises(SessionAborted, match="WrongParties"):
            await nodes["ada"].run(open_for_others, bytes(16), NAMES)


async def test_a_peer_may_open_only_so_many_sessions() -> None:
    """One peer cannot take all of a node; when a session ends there is room again."""

    async def hang(_party: Party) -> None:
        await asyncio.Event().wait()

    pair = Parties(["ada", "bob"])
    async with served() as nodes:
        role = opening(hang, "wait", TERMS)
        hanging = [
            asyncio.create_task(nodes["ada"].run(role, bytes([number]) * 16, pair))
            for number in range(SESSIONS_PER_PEER_MAX)
        ]
        await turns()
        with pytest.raises(SessionAborted, match="TooManySessions"):
            await nodes["ada"].run(opening(greet, "greet", TERMS), b"x" * 16, pair)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        await turns()
        greeting = await nodes["ada"].run(opening(greet, "greet", TERMS), b"y" * 16, pair)
    assert greeting == ["hello from bob"]


async def test_a_bug_in_one_session_does_not_end_the_service(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The opener is told, the operator's log has the trace, and the node serves on."""
    pair = Parties(["ada", "bob"])
    async with served() as nodes:
        with pytest.raises(SessionAborted, match="InternalError"):
            await nodes["ada"].run(opening(greet, "stumble", TERMS), bytes(16), pair)
        await nodes["ada"].run(opening(greet, "greet", TERMS), b"z" * 16, pair)
    assert "stumble for ada failed" in caplog.text


async def test_a_request_that_is_no_request_is_held_against_its_sender() -> None:
    """A malformed request opens nothing and ends nothing else."""
    pair = Parties(["ada", "bob"])
    async with served() as nodes:
        frame = encode(b"w" * 16, Word(text="x")).replace(b"test.word", b"test.what")
        await nodes["ada"].endpoint.send("bob", frame)
        greeting = await nodes["ada"].run(opening(greet, "greet", TERMS), bytes(16), pair)
    assert greeting == ["hello from bob"]


@pytest.fixture
def budgets_do_not_refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make what a peer may do independent of how long the machine takes."""
    for name in ("service.OPENS", "service.REFUSALS", "node.STRAYS"):
        monkeypatch.setattr(f"veilring.nodes.{name}_PER_SECOND", 1e-9)


def watched(server: Node, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Note whom a node cuts off, and whom it lets rest, once each."""
    cut, rested = list[str](), list[str]()
    monkeypatch.setattr(server.endpoint, "cut", lambda peer, _why: cut.append(peer))
    monkeypatch.setattr(server.endpoint, "rest", lambda peer, _seconds: rested.append(peer))
    return cut, rested


def request(number: int, service: str, *, names: Parties = NAMES) -> bytes:
    """Encode a request for a session."""
    opened = Open(service=service, parties=tuple(names), terms=TERMS)
    return encode(number.to_bytes(16, "big"), opened)


async def turns(count: int = 20) -> None:
    """Let the loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("budgets_do_not_refill")
async def test_a_peer_that_is_refused_without_end_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told why some hundred times, logged once, and then taken to break the rules."""
    async with served() as nodes:
        cut, _ = watched(nodes["bob"], monkeypatch)
        for number in range(REFUSALS_MAX):
            await nodes["ada"].endpoint.send("bob", request(number, "dance"))
        await turns()
        assert cut == []
        await nodes["ada"].endpoint.send("bob", request(REFUSALS_MAX, "dance"))
        await turns()
        assert cut == ["ada"]
        assert caplog.messages.count("refused a session to ada: NotOffered") == 1


@pytest.mark.usefixtures("budgets_do_not_refill")
async def test_a_peer_that_does_not_read_its_refusals_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refusals that cannot be sent are bounded in number."""
    async with served() as nodes:
        cut, _ = watched(nodes["bob"], monkeypatch)
        blocked = asyncio.Event()
        monkeypatch.setattr(nodes["bob"].endpoint, "send", lambda *_: blocked.wait())
        before = len(asyncio.all_tasks())
        for number in range(2 * REFUSALS_WAITING_MAX):
            await nodes["ada"].endpoint.send("bob", request(number, "dance"))
            await turns(3)
        assert set(cut) == {"ada"}
        assert len(asyncio.all_tasks()) - before <= REFUSALS_WAITING_MAX
        blocked.set()


@pytest.mark.usefixtures("budgets_do_not_refill")
async def test_a_peer_with_too_many_sessions_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is refused one more, it is told so, is not cut off, and keeps the others."""
    pair = Parties(["ada", "bob"])
    async with served() as nodes:
        cut, rested = watched(nodes["bob"], monkeypatch)
        for number in range(2 * OPENS_MAX):
            await nodes["ada"].endpoint.send("bob", request(number, "wait", names=pair))
            await turns(4)
        assert (cut, len(rested)) == ([], OPENS_MAX)
        for number in range(SESSIONS_PER_PEER_MAX):
            name = number.to_bytes(16, "big")
            await nodes["ada"].endpoint.send("bob", encode(name, Word(text="go")))
        await turns()
        greeting = await nodes["ada"].run(opening(greet, "greet", TERMS), b"y" * 16, pair)
    assert greeting == ["hello from bob"]


@pytest.mark.usefixtures("budgets_do_not_refill")
async def test_a_peer_with_too_many_sessions_that_does_not_read_rests_and_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind a slow line it is read less often; one that never reads is cut off at last."""
    async with served() as nodes:
        for number in range(SESSIONS_PER_PEER_MAX):
            await nodes["ada"].endpoint.send("bob", request(number, "wait"))
        await turns()
        cut, rested = watched(nodes["bob"], monkeypatch)
        blocked = asyncio.Event()
        monkeypatch.setattr(nodes["bob"].endpoint, "send", lambda *_: blocked.wait())
        for number in range(EXCESS_WAITING_MAX):
            await nodes["ada"].endpoint.send("bob", request(100 + number, "wait"))
            await turns(3)
        assert (cut, len(rested)) == ([], EXCESS_WAITING_MAX - REFUSALS_WAITING_MAX)
        await nodes["ada"].endpoint.send("bob", request(99, "wait"))
        await turns(3)
        assert cut == ["ada"]
        blocked.set()


async def test_a_client_that_opens_hundreds_of_sessions_at_once_gets_them_all() -> None:
    """Over TLS, where peers are cut off, it asks again for those that were too many."""
    pair, town = Parties(["ada", "cy"]), Town(["ada"], ["cy"])
    refused, enough = Counter[str](), asyncio.Event()

    async def join_late(party: Party, _opener: str) -> None:
        await enough.wait()
        await greet(party)

    async def ask(node: Node, number: int) -> list[str]:
        while True:
            try:
                role = opening(greet, "late", TERMS)
                return await node.run(role, number.to_bytes(16, "big"), pair)
            except SessionAborted as error:
                refused[error.reason] += 1
            number += 1_000
            if refused.total() > 2 * REFUSALS_MAX:
                enough.set()
            await asyncio.sleep(0.1)

    offers = {"late": Offer(join_late, TERMS, lambda _: True)}
    async with town.start_all() as endpoints:
        client = Node(endpoints["cy"], Streams(1))
        async with Node(endpoints["ada"], Streams(1)) as server, client, Service(server, offers):
            heard = await asyncio.gather(*(ask(client, number) for number in range(300)))
    assert heard == [["hello from ada"]] * 300
    assert set(refused) == {"TooManySessions"}


@pytest.mark.usefixtures("budgets_do_not_refill")
async def test_a_peer_that_opens_sessions_without_end_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is answered all the same, only later."""
    pair = Parties(["ada", "bob"])
    async with served() as nodes:
        cut, rested = watched(nodes["bob"], monkeypatch)
        for number in range(OPENS_MAX + 1):
            await nodes["ada"].endpoint.send("bob", request(number, "stumble", names=pair))
            await turns(4)
        assert (cut, set(rested)) == ([], {"ada"})


@pytest.mark.usefixtures("budgets_do_not_refill")
async def test_frames_for_sessions_that_have_ended_are_heard_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some thousands are passed over at once; a peer that sends more has to wait."""
    async with served() as nodes:
        cut, rested = watched(nodes["bob"], monkeypatch)
        for _ in range(STRAYS_MAX + 1):
            await nodes["ada"].endpoint.send("bob", request(1, "dance"))
        await turns()
        assert rested == []
        for _ in range(STRAYS_MAX):
            await nodes["ada"].endpoint.send("bob", request(1, "dance"))
        await turns()
        assert (cut, set(rested)) == ([], {"ada"})


@pytest.mark.parametrize(
    "frame", [b"\xc1", encode(bytes(16), Word(text="x"))[:10], request(1, "x" * OPEN_BYTES_MAX)]
)
async def test_what_is_no_message_costs_the_sender_its_connection(
    frame: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that are no message, and requests that no honest peer makes, are not passed over."""
    async with served() as nodes:
        cut, _ = watched(nodes["bob"], monkeypatch)
        await nodes["ada"].endpoint.send("bob", frame)
        await turns()
        assert cut == ["ada"]
