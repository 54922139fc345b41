"""Long-lived nodes: peers open sessions, and each is joined or refused with a reason."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from tests.roles import Word
from tests.transport.rosters import Town

from veilring.errors import NotReady, PeerLost, SessionAborted
from veilring.nodes.node import OPEN_BYTES_MAX, STRAYS_MAX, Node
from veilring.nodes.party import Parties, Party, broadcast_to_rest
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
from veilring.transport.endpoint import MemoryNetwork
from veilring.transport.messages import encode

NAMES = Parties(["ada", "bob", "cy"])
PAIR = Parties(["ada", "bob"])
TERMS = bytes(32)


async def greet(party: Party) -> list[str]:
    """Greet all parties and return all greetings."""
    for peer in party.peers:
        await party.send(peer, Word(text=f"hello from {party.me}"))
    return [(await party.receive(Word, sender=peer)).text for peer in party.peers]


async def join(party: Party, _opener: str) -> None:
    """Greet when requested."""
    await greet(party)


async def wait(party: Party, opener: str) -> None:
    """Wait for a word that may never come."""
    await party.receive(Word, sender=opener)


async def stumble(party: Party, _opener: str) -> None:
    """Fail as a buggy handler does."""
    raise ZeroDivisionError(party.me)


async def greet_rest(party: Party, _opener: str = "") -> list[str]:
    """Greet all peers that are not lost, and return their greetings."""
    await broadcast_to_rest(party, Word(text=f"hello from {party.me}"))
    heard = []
    for peer in party.peers:
        with suppress(PeerLost):
            heard.append((await party.receive(Word, sender=peer)).text)
    return heard


OFFERS = {
    "rest": Offer(greet_rest, TERMS, lambda _peer: True, parties=NAMES, tolerant=True),
    "greet": Offer(join, TERMS, lambda _peer: True),
    "gather": Offer(join, TERMS, lambda _peer: True, parties=NAMES),
    "wait": Offer(wait, TERMS, lambda _peer: True),
    "private": Offer(join, TERMS, lambda peer: peer == "bob"),
    "stumble": Offer(stumble, TERMS, lambda _peer: True),
}


@asynccontextmanager
async def served() -> AsyncIterator[dict[str, Node]]:
    """Yield three nodes; bob and cy serve, and ada asks."""
    network = MemoryNetwork(NAMES)
    nodes = {name: Node(network.endpoint(name), Streams(1)) for name in NAMES}
    for node in nodes.values():
        node.start()
    async with Service(nodes["bob"], OFFERS), Service(nodes["cy"], OFFERS):
        yield nodes
    for node in nodes.values():
        await node.close()


async def test_a_session_that_one_party_opens_is_joined_by_all() -> None:
    """One party opens the session, the others join, and all play under one name."""
    async with served() as nodes:
        heard = await nodes["ada"].run(opening(greet, "gather", TERMS), bytes(16), NAMES)
    assert heard == ["hello from bob", "hello from cy"]


async def test_a_tolerant_session_begins_without_lost_peers() -> None:
    """Any other session fails at once if a participant is not connected."""
    async with served() as nodes:
        nodes["bob"].abort()
        with pytest.raises(NotReady, match="bob"):
            nodes["ada"].require(NAMES)
        nodes["ada"].require(NAMES, spare=1)
        asking = opening(greet_rest, "rest", TERMS, tolerant=True)
        heard = await nodes["ada"].run(asking, bytes(16), NAMES, tolerant=True)
        with pytest.raises(PeerLost):
            await nodes["ada"].run(opening(greet, "gather", TERMS), b"x" * 16, NAMES)
    assert heard == ["hello from cy"]


@pytest.mark.parametrize(
    ("service", "terms", "reason"),
    [
        ("dance", TERMS, "NotOffered"),
        ("private", TERMS, "NotOffered"),
        ("greet", bytes(31) + b"\x01", "OtherTerms"),
    ],
)
async def test_an_invalid_request_is_refused_with_a_reason(
    service: str, terms: bytes, reason: str
) -> None:
    """An unknown service, an unauthorised peer and different terms have separate reasons."""
    async with served() as nodes:
        with pytest.raises(SessionAborted, match=reason):
            await nodes["ada"].run(opening(greet, service, terms), bytes(16), NAMES)


@pytest.mark.parametrize(
    ("service", "parties"),
    [
        ("greet", ("bob", "cy")),
        ("greet", ("ada", "bob", "cy")),
        ("greet", ("ada", "ada")),
        ("greet", ("bob",)),
        ("gather", ("ada", "bob")),
        ("gather", ("bob", "ada", "cy")),
        ("gather", ("ada", "bob", "cy", "dan")),
    ],
)
async def test_a_session_of_other_parties_is_refused_and_no_third_party_hears_of_it(
    service: str, parties: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's session is its own and the server's; a session of members is that of them all."""

    async def open_for_others(party: Party) -> None:
        await party.send("bob", Open(service=service, parties=parties, terms=TERMS))
        await party.receive(Word, sender="bob")

    async with served() as nodes:
        told = list[str]()
        monkeypatch.setattr(nodes["cy"], "_take", lambda peer, _item: told.append(peer))
        nodes["cy"].start()
        with pytest.raises(SessionAborted, match="WrongParties"):
            await nodes["ada"].run(open_for_others, bytes(16), PAIR)
        await turns()
    assert told == []


async def test_a_member_that_copies_the_name_of_a_session_gets_nobody_blamed() -> None:
    """Either of two openers may have copied the name, so the honest one is not named alone."""
    async with served() as nodes:
        copied = Open(service="gather", parties=tuple(NAMES), terms=TERMS)
        await nodes["cy"].endpoint.send("bob", encode(bytes(16), copied))
        await turns(4)
        with pytest.raises(SessionAborted) as caught:
            await nodes["ada"].run(opening(greet, "gather", TERMS), bytes(16), NAMES)
    assert (caught.value.by, caught.value.reason, caught.value.culprit) == ("bob", "Tampered", "")


async def test_a_peer_may_open_a_limited_number_of_sessions() -> None:
    """One peer cannot occupy a whole node; a session that ends makes room again."""

    async def hang(_party: Party) -> None:
        await asyncio.Event().wait()

    async with served() as nodes:
        role = opening(hang, "wait", TERMS)
        hanging = [
            asyncio.create_task(nodes["ada"].run(role, bytes([number]) * 16, PAIR))
            for number in range(SESSIONS_PER_PEER_MAX)
        ]
        await turns()
        with pytest.raises(SessionAborted, match="TooManySessions"):
            await nodes["ada"].run(opening(greet, "greet", TERMS), b"x" * 16, PAIR)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        await turns()
        greeting = await nodes["ada"].run(opening(greet, "greet", TERMS), b"y" * 16, PAIR)
    assert greeting == ["hello from bob"]


async def test_a_bug_in_one_session_does_not_end_the_service(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The opener gets an error, the log has the traceback, and the node keeps serving."""
    async with served() as nodes:
        with pytest.raises(SessionAborted, match="InternalError"):
            await nodes["ada"].run(opening(greet, "stumble", TERMS), bytes(16), PAIR)
        await nodes["ada"].run(opening(greet, "greet", TERMS), b"z" * 16, PAIR)
    assert "stumble for ada failed" in caplog.text


@pytest.mark.parametrize("answers", [True, False])
async def test_a_peer_that_leaves_with_its_answer_is_not_logged(
    answers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A goodbye before the server's role has ended is logged only if the answer is missing."""
    has_left = asyncio.Event()

    async def answer(party: Party, opener: str) -> None:
        if answers:
            await party.send(opener, Word(text="here"))
            await has_left.wait()
        else:
            await party.receive(Word, sender=opener)

    async def ask(party: Party) -> None:
        if answers:
            await party.receive(Word, sender="bob")

    network = MemoryNetwork(NAMES)
    ada, bob = (Node(network.endpoint(name), Streams(1)) for name in PAIR)
    async with bob, Service(bob, {"answer": Offer(answer, TERMS, lambda _peer: True)}):
        async with ada:
            await ada.run(opening(ask, "answer", TERMS), bytes(16), PAIR)
        await turns()
        has_left.set()
        await turns()
    assert ("answer for ada failed: ada left" in caplog.text) != answers


async def test_a_malformed_request_is_blamed_on_its_sender() -> None:
    """A malformed request opens nothing and ends nothing else."""
    async with served() as nodes:
        frame = encode(b"w" * 16, Word(text="x")).replace(b"test.word", b"test.what")
        await nodes["ada"].endpoint.send("bob", frame)
        greeting = await nodes["ada"].run(opening(greet, "greet", TERMS), bytes(16), PAIR)
    assert greeting == ["hello from bob"]


@pytest.fixture
def budgets_do_not_refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a peer's budget independent of the machine's speed."""
    for name in ("service.OPENS", "service.REFUSALS", "node.STRAYS"):
        monkeypatch.setattr(f"veilring.nodes.{name}_PER_SECOND", 1e-9)


def watched(server: Node, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Record each peer that a node cuts off or pauses, once each."""
    cut, rested = list[str](), list[str]()
    monkeypatch.setattr(server.endpoint, "cut", lambda peer, _why: cut.append(peer))
    monkeypatch.setattr(server.endpoint, "rest", lambda peer, _seconds: rested.append(peer))
    return cut, rested


def request(number: int, service: str) -> bytes:
    """Encode a request for a session."""
    opened = Open(service=service, parties=tuple(PAIR), terms=TERMS)
    return encode(number.to_bytes(16, "big"), opened)


async def turns(count: int = 20) -> None:
    """Let the loop take some turns."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("budgets_do_not_refill")
async def test_a_peer_that_is_refused_endlessly_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told why about a hundred times, logged once, and then treated as misbehaving."""
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
async def test_a_peer_with_too_many_sessions_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A further session is refused with a reason; the peer keeps the others and its connection."""
    async with served() as nodes:
        cut, rested = watched(nodes["bob"], monkeypatch)
        for number in range(2 * OPENS_MAX):
            await nodes["ada"].endpoint.send("bob", request(number, "wait"))
            await turns(4)
        assert (cut, len(rested)) == ([], OPENS_MAX)
        for number in range(SESSIONS_PER_PEER_MAX):
            name = number.to_bytes(16, "big")
            await nodes["ada"].endpoint.send("bob", encode(name, Word(text="go")))
        await turns()
        greeting = await nodes["ada"].run(opening(greet, "greet", TERMS), b"y" * 16, PAIR)
    assert greeting == ["hello from bob"]


@pytest.mark.usefixtures("budgets_do_not_refill")
async def test_a_peer_with_too_many_sessions_that_does_not_read_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a slow link it is read less often; a peer that never reads is finally cut off."""
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
    """Over TLS, where peers can be cut off, it retries the refused sessions."""
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
async def test_a_peer_that_opens_sessions_endlessly_is_paused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is still answered, only later."""
    async with served() as nodes:
        cut, rested = watched(nodes["bob"], monkeypatch)
        for number in range(OPENS_MAX + 1):
            await nodes["ada"].endpoint.send("bob", request(number, "stumble"))
            await turns(4)
        assert (cut, set(rested)) == ([], {"ada"})


@pytest.mark.usefixtures("budgets_do_not_refill")
async def test_frames_for_ended_sessions_are_read_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several thousand are skipped at once; a peer that sends more has to wait."""
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
async def test_an_invalid_message_costs_the_sender_its_connection(
    frame: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invalid messages, and requests that no honest peer makes, are not ignored."""
    async with served() as nodes:
        cut, _ = watched(nodes["bob"], monkeypatch)
        await nodes["ada"].endpoint.send("bob", frame)
        await turns()
        assert cut == ["ada"]
