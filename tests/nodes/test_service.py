"""Long-lived nodes: peers open sessions, each is joined or refused, and clients take turns."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import count

import pytest
from tests.nodes.worlds import NAMES, OTHER_TERMS, PAIR, TERMS, hear, playing, started, tell, turns
from tests.roles import Word
from tests.simulation.running import simulated
from tests.transport.towns import Town

from veilring.errors import Busy, InputError, NotReady, PeerLost, SessionAborted
from veilring.nodes import node as node_module
from veilring.nodes.node import ANNOUNCING_SECONDS, OPEN_BYTES_MAX, STRAYS_MAX, Node
from veilring.nodes.party import Parties, Party, broadcast_to_rest
from veilring.nodes.service import (
    CONVENED_MAX,
    CONVENED_PER_CLIENT_MAX,
    EXCESS_WAITING_MAX,
    OPENS_MAX,
    REFUSALS_MAX,
    REFUSALS_WAITING_MAX,
    SESSIONS_PER_PEER_MAX,
    FairTurns,
    Offer,
    Service,
    opening,
)
from veilring.nodes.session import Open
from veilring.randomness import Streams
from veilring.transport.endpoint import MemoryEndpoint
from veilring.transport.messages import encode


async def greet(party: Party, _opener: str = "") -> list[str]:
    """Greet all peers that are not lost, and return their greetings."""
    await broadcast_to_rest(party, Word(text=f"hello from {party.me}"))
    heard = []
    for peer in party.peers:
        with suppress(PeerLost):
            heard.append((await party.receive(Word, sender=peer)).text)
    return heard


async def wait(party: Party, opener: str) -> None:
    """Wait for a word that may never come."""
    await party.receive(Word, sender=opener)


async def stumble(party: Party, _opener: str) -> None:
    """Fail as a buggy handler does."""
    raise ZeroDivisionError(party.me)


OFFERS = {
    "rest": Offer(greet, TERMS, lambda _peer: True, parties=NAMES, spare=2),
    "greet": Offer(greet, TERMS, lambda _peer: True),
    "gather": Offer(greet, TERMS, lambda _peer: True, parties=NAMES),
    "wait": Offer(wait, TERMS, lambda _peer: True),
    "private": Offer(greet, TERMS, lambda peer: peer == "bob"),
    "stumble": Offer(stumble, TERMS, lambda _peer: True),
}


Nodes = dict[str, Node]
VALUE = "5417"


@pytest.fixture
async def served(nodes: Nodes) -> AsyncIterator[Nodes]:
    """Return three nodes; bob and cy serve, and ada asks."""
    async with Service(nodes["bob"], OFFERS), Service(nodes["cy"], OFFERS):
        yield nodes


async def test_a_session_that_one_party_opens_is_joined_by_all(served: Nodes) -> None:
    """A tolerant one begins without lost peers; any other fails at once if one is missing."""
    heard = await served["ada"].run(opening(greet, "gather", TERMS), bytes(16), NAMES)
    assert heard == ["hello from bob", "hello from cy"]
    served["bob"].abort()
    with pytest.raises(NotReady, match="bob"):
        served["ada"].require(NAMES)
    served["ada"].require(NAMES, spare=1)
    rest = opening(greet, "rest", TERMS, tolerant=True)
    heard = await served["ada"].run(rest, b"r" * 16, NAMES, tolerant=True)
    with pytest.raises(PeerLost):
        await served["ada"].run(opening(greet, "gather", TERMS), b"x" * 16, NAMES)
    assert heard == ["hello from cy"]


def asking(service: str, parties: Sequence[str] = PAIR, terms: bytes = TERMS) -> Open:
    """Return a request for a session."""
    return Open(service=service, parties=tuple(parties), terms=terms)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (asking("dance"), "NotOffered"),
        (asking("private"), "NotOffered"),
        (asking("greet", terms=OTHER_TERMS), "OtherTerms"),
        (asking("greet", ("bob", "cy")), "WrongParties"),
        (asking("greet", ("ada", "bob", "cy")), "WrongParties"),
        (asking("greet", ("ada", "ada")), "WrongParties"),
        (asking("greet", ("bob",)), "WrongParties"),
        (asking("gather", ("ada", "bob")), "WrongParties"),
        (asking("gather", ("bob", "ada", "cy")), "WrongParties"),
        (asking("gather", ("ada", "bob", "cy", "dan")), "WrongParties"),
    ],
)
async def test_an_invalid_request_is_refused_with_a_reason_and_no_third_party_hears_of_it(
    served: Nodes, asked: Open, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's session is its own and the server's; a session of members is that of them all."""

    async def ask(party: Party) -> None:
        await party.send("bob", asked)
        await party.receive(Word, sender="bob")

    told = list[str]()
    monkeypatch.setattr(served["cy"], "_dispatch", lambda peer, _item: told.append(peer))
    served["cy"].start()
    with pytest.raises(SessionAborted, match=reason):
        await served["ada"].run(ask, bytes(16), PAIR)
    await turns()
    assert told == []


async def test_a_member_that_copies_the_name_of_a_session_gets_nobody_blamed(served: Nodes) -> None:
    """Either of two openers may have copied the name, so the honest one is not named alone."""
    await served["cy"].endpoint.send("bob", encode(bytes(16), asking("gather", NAMES)))
    await turns(4)
    with pytest.raises(SessionAborted) as caught:
        await served["ada"].run(opening(greet, "gather", TERMS), bytes(16), NAMES)
    assert (caught.value.by, caught.value.reason, caught.value.culprit) == ("bob", "Tampered", "")


async def test_a_bug_or_a_malformed_request_does_not_end_the_service(
    served: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """The opener gets an error, the log has the traceback, and the node keeps serving."""
    with pytest.raises(SessionAborted, match="InternalError"):
        await served["ada"].run(opening(greet, "stumble", TERMS), bytes(16), PAIR)
    malformed = encode(b"w" * 16, Word(text="x")).replace(b"test.word", b"test.what")
    await served["ada"].endpoint.send("bob", malformed)
    greeting = await served["ada"].run(opening(greet, "greet", TERMS), b"z" * 16, PAIR)
    assert greeting == ["hello from bob"]
    assert "stumble for ada failed" in caplog.text


async def refuse_value(_: Party, _opener: str) -> None:
    """Fail as a role does that finds a wrong value in a request."""
    raise InputError("queries", VALUE, "another value")


async def be_busy(_: Party, opener: str) -> None:
    """Fail with an error that contains no value of a request."""
    raise Busy(opener, 1.0)


async def test_a_service_counts_its_sessions_and_keeps_no_value_of_a_request(nodes: Nodes) -> None:
    """Failures are counted by their error, refusals by their reason; the last failure is kept."""
    failing = {"value": refuse_value, "busy": be_busy}
    offers = {name: Offer(role, TERMS, lambda _peer: True) for name, role in failing.items()}
    last = []
    async with Service(nodes["bob"], OFFERS | offers) as service:
        counts = service.counts
        await nodes["ada"].run(opening(greet, "greet", TERMS), b"g" * 16, PAIR)
        for name in ("nothing", "value", "busy"):
            session = name.ljust(16).encode()
            with pytest.raises(SessionAborted):
                await nodes["ada"].run(opening(greet, name, TERMS), session, PAIR)
            await turns()
            last.append(counts.last_error and counts.last_error[1])
        assert (counts.running, counts.finished) == (0, 1)
        assert (counts.refused, counts.failed) == ({"NotOffered": 1}, {"InputError": 1, "Busy": 1})
    busy = f"busy for ada failed: {Busy('ada', 1.0)}"
    assert last == [None, "value for ada failed: InputError", busy]
    assert VALUE not in repr(counts)


@pytest.mark.parametrize("answers", [True, False])
async def test_a_peer_that_leaves_with_its_answer_is_not_logged(
    nodes: Nodes, answers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A goodbye before the server's role has ended is logged only if the answer is missing."""
    has_left = asyncio.Event()
    answer = playing(tell("ada"), lambda _: has_left.wait()) if answers else hear("ada")
    ask = hear("bob") if answers else playing()
    offer = Offer(lambda party, _opener: answer(party), TERMS, lambda _peer: True)
    async with Service(nodes["bob"], {"answer": offer}):
        await nodes["ada"].run(opening(ask, "answer", TERMS), bytes(16), PAIR)
        await nodes["ada"].close()
        await turns()
        has_left.set()
        await turns()
    assert ("answer for ada failed: ada left" in caplog.text) != answers


async def test_a_service_that_stops_finishes_its_sessions_and_begins_no_more(nodes: Nodes) -> None:
    """New sessions are refused with a reason that names the party, and nobody is accused."""
    ready, go = asyncio.Event(), asyncio.Event()

    async def serve() -> None:
        async with Service(nodes["bob"], OFFERS, patience=60.0) as service:
            ready.set()
            await asyncio.Event().wait()
        assert service.counts.refused == {"Stopping": 2 * REFUSALS_MAX}

    serving = asyncio.create_task(serve())
    await ready.wait()
    word = playing(lambda _: go.wait(), tell("bob"))
    open_ = asyncio.create_task(nodes["ada"].run(opening(word, "wait", TERMS), bytes(16), PAIR))
    await turns()
    serving.cancel()
    await turns()
    for number in range(1, 2 * REFUSALS_MAX + 1):
        with pytest.raises(SessionAborted, match="Stopping: bob is shutting down; ask again once"):
            await nodes["ada"].run(opening(greet, "greet", TERMS), number.to_bytes(16, "big"), PAIR)
    go.set()
    await open_
    with pytest.raises(asyncio.CancelledError):
        await serving


async def stopping(node: Node, moment: int) -> None:
    """Serve for some turns, then stop in order."""

    async def serve() -> None:
        async with Service(node, OFFERS, patience=60.0):
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    await turns(moment)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


@pytest.mark.parametrize("moment", range(1, 40, 3))
async def test_no_session_fails_because_a_party_stops(nodes: Nodes, moment: int) -> None:
    """Peers that open sessions without a pause know that it stops before it refuses one."""

    async def ask(name: str) -> int:
        for number in count():
            try:
                nodes[name].require(NAMES)
            except NotReady as error:
                assert error.culprit == "bob"  # noqa: PT017  (its end is the condition)
                return number
            session = name.encode().rjust(8) + number.to_bytes(8, "big")
            heard = await nodes[name].run(opening(greet, "gather", TERMS), session, NAMES)
            assert heard == [f"hello from {peer}" for peer in NAMES if peer != name]
        return 0

    ada, cy = Service(nodes["ada"], OFFERS), Service(nodes["cy"], OFFERS)
    async with ada, cy, asyncio.TaskGroup() as group:
        group.create_task(stopping(nodes["bob"], moment))
        await asyncio.sleep(0)
        asking = [group.create_task(ask(name)) for name in ("ada", "cy")]
    assert min(task.result() for task in asking) > 0


@simulated
async def test_a_peer_that_does_not_confirm_delays_an_end_within_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its sessions are joined until then, and refused from then on."""
    held = asyncio.Event()
    late, word = opening(greet, "greet", TERMS), playing(lambda _: held.wait(), tell("bob"))
    async with started() as nodes:
        ada = nodes["ada"]
        monkeypatch.setattr(ada, "_reply", lambda *_: None)
        stops = asyncio.create_task(stopping(nodes["bob"], 5))
        await asyncio.sleep(0)
        asked = asyncio.create_task(ada.run(opening(word, "wait", TERMS), bytes(16), PAIR))
        await asyncio.sleep(ANNOUNCING_SECONDS - 0.1)
        assert await ada.run(late, b"a" * 16, PAIR) == ["hello from bob"]
        await asyncio.sleep(0.2)
        with pytest.raises(SessionAborted, match="Stopping"):
            await ada.run(late, b"b" * 16, PAIR)
        held.set()
        await asked
        await stops


@simulated
async def test_a_peer_that_is_lost_does_not_delay_an_end() -> None:
    """It is not awaited any longer."""
    async with started() as nodes:
        stops = asyncio.create_task(nodes["bob"].announce_end())
        nodes["ada"].abort()
        await stops
    assert asyncio.get_running_loop().time() < ANNOUNCING_SECONDS


async def test_a_party_that_joins_waits_for_one_that_is_starting(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted party is connected to some of its peers a moment before it is to others."""
    connected = ["bob"]
    monkeypatch.setattr(MemoryEndpoint, "connected", property(lambda _: tuple(connected)))
    meeting = asyncio.create_task(nodes["ada"].meet(NAMES))
    await turns()
    connected.append("cy")
    await meeting
    monkeypatch.setattr(node_module, "MEETING_SECONDS", 0.0)
    connected.remove("cy")
    with pytest.raises(NotReady, match="cy"):
        await nodes["ada"].meet(NAMES)
    await nodes["ada"].meet(NAMES, spare=1)


async def test_a_service_that_stops_has_limited_patience(nodes: Nodes) -> None:
    """Then open sessions end at all parties, with an error that names the party that stops."""

    async def serve() -> None:
        async with Service(nodes["bob"], OFFERS, patience=0.01):
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    await turns()
    role = opening(hear("bob"), "wait", TERMS)
    open_ = asyncio.create_task(nodes["ada"].run(role, bytes(16), PAIR))
    await turns()
    serving.cancel()
    with pytest.raises(SessionAborted, match="PeerStopped: bob is shutting down"):
        await open_


def request(number: int, service: str) -> bytes:
    """Encode a request for a session."""
    return encode(number.to_bytes(16, "big"), asking(service))


class Flood:
    """Requests of ada to bob, and what bob does about them."""

    def __init__(self, nodes: Nodes, patch: pytest.MonkeyPatch) -> None:
        self.cut, self.rested = list[str](), list[str]()
        self.nodes, self._patch = nodes, patch
        self.reading = asyncio.Event()
        server = nodes["bob"].endpoint
        patch.setattr(server, "cut", lambda peer, _why: self.cut.append(peer))
        patch.setattr(server, "rest", lambda peer, _seconds: self.rested.append(peer))

    async def send(self, *frames: bytes, pause: int = 0) -> None:
        """Send frames, with some turns of the loop after each and many at the end."""
        for frame in frames:
            await self.nodes["ada"].endpoint.send("bob", frame)
            await turns(pause)
        await turns()

    async def request(self, service: str, count: int, *, first: int = 0, pause: int = 0) -> None:
        """Request sessions of different names."""
        await self.send(*(request(first + n, service) for n in range(count)), pause=pause)

    def block(self) -> None:
        """Let ada read nothing from here on."""
        self._patch.setattr(self.nodes["bob"].endpoint, "send", lambda *_: self.reading.wait())


@pytest.fixture
async def flood(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Flood]:
    """Return a flood, for which a peer's budgets do not depend on the speed of the machine."""
    for name in ("service.OPENS", "service.REFUSALS", "node.STRAYS"):
        monkeypatch.setattr(f"veilring.nodes.{name}_PER_SECOND", 1e-9)
    async with started() as nodes, Service(nodes["bob"], OFFERS):
        flood = Flood(nodes, monkeypatch)
        yield flood
        flood.reading.set()


async def test_a_peer_that_is_refused_endlessly_is_cut_off(
    flood: Flood, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told why about a hundred times, logged once, and then treated as misbehaving."""
    await flood.request("dance", REFUSALS_MAX)
    assert flood.cut == []
    await flood.request("dance", 1, first=REFUSALS_MAX)
    assert flood.cut == ["ada"]
    assert caplog.messages.count("refused a session to ada: NotOffered") == 1


async def test_a_peer_that_does_not_read_its_refusals_is_cut_off(flood: Flood) -> None:
    """Refusals that cannot be sent are bounded in number."""
    flood.block()
    before = len(asyncio.all_tasks())
    await flood.request("dance", 2 * REFUSALS_WAITING_MAX, pause=3)
    assert set(flood.cut) == {"ada"}
    assert len(asyncio.all_tasks()) - before <= REFUSALS_WAITING_MAX


async def test_a_peer_with_too_many_sessions_is_paused(flood: Flood) -> None:
    """A further one is refused with a reason; the peer keeps the others, whose end makes room."""
    await flood.request("wait", 2 * OPENS_MAX, pause=4)
    assert (flood.cut, len(flood.rested)) == ([], OPENS_MAX)
    role = opening(greet, "greet", TERMS)
    with pytest.raises(SessionAborted, match="TooManySessions"):
        await flood.nodes["ada"].run(role, b"x" * 16, PAIR)
    names = (number.to_bytes(16, "big") for number in range(SESSIONS_PER_PEER_MAX))
    await flood.send(*(encode(name, Word(text="go")) for name in names))
    assert await flood.nodes["ada"].run(role, b"y" * 16, PAIR) == ["hello from bob"]


async def test_a_peer_with_too_many_sessions_that_does_not_read_is_cut_off(flood: Flood) -> None:
    """On a slow link it is read less often; a peer that never reads is finally cut off."""
    await flood.request("wait", SESSIONS_PER_PEER_MAX)
    flood.block()
    await flood.request("wait", EXCESS_WAITING_MAX, first=100, pause=3)
    assert flood.cut == []
    assert len(flood.rested) == EXCESS_WAITING_MAX - REFUSALS_WAITING_MAX
    await flood.request("wait", 1, first=99)
    assert flood.cut == ["ada"]


async def test_a_peer_that_opens_sessions_endlessly_is_paused(flood: Flood) -> None:
    """It is still answered, only later."""
    await flood.request("stumble", OPENS_MAX + 1, pause=4)
    assert (flood.cut, set(flood.rested)) == ([], {"ada"})


async def test_frames_for_ended_sessions_are_read_less_often(flood: Flood) -> None:
    """Several thousand are skipped at once; a peer that sends more has to wait."""
    await flood.send(*[request(1, "dance")] * (STRAYS_MAX + 1))
    assert flood.rested == []
    await flood.send(*[request(1, "dance")] * STRAYS_MAX)
    assert (flood.cut, set(flood.rested)) == ([], {"ada"})


@pytest.mark.parametrize(
    "frame", [b"\xc1", encode(bytes(16), Word(text="x"))[:10], request(1, "x" * OPEN_BYTES_MAX)]
)
async def test_an_invalid_message_ends_the_connection(flood: Flood, frame: bytes) -> None:
    """Invalid messages, and requests that no honest peer makes, are not ignored."""
    await flood.send(frame)
    assert flood.cut == ["ada"]


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


LONG = 1e6


async def work(turns: FairTurns, client: str, order: list[str], seconds: float = 1.0) -> None:
    """Hold one turn for some seconds."""
    async with turns.turn(client, LONG):
        order.append(client)
        await asyncio.sleep(seconds)


async def begin(turns: FairTurns, order: list[str], *clients: str) -> list[asyncio.Task[None]]:
    """Let clients ask for turns, one after the other."""
    begun = [asyncio.create_task(work(turns, client, order)) for client in clients]
    await asyncio.sleep(0)
    return begun


@simulated
async def test_clients_take_turns_and_one_alone_makes_no_other_wait() -> None:
    """Between two requests of a client, each other that waits has one, in order of last turns."""
    # A session that has ended here, and is about to end at a peer, has a place there.
    assert CONVENED_PER_CLIENT_MAX < CONVENED_MAX < SESSIONS_PER_PEER_MAX
    turns, order = FairTurns("ada"), list[str]()
    flood = await begin(turns, order, *["eve"] * 16)
    await asyncio.gather(*flood, *await begin(turns, order, "ann", "bob", "cyd", "dan"))
    assert order[:CONVENED_MAX] == ["eve"] * CONVENED_PER_CLIENT_MAX + ["ann", "bob", "cyd", "dan"]
    assert (order.count("eve"), asyncio.get_running_loop().time()) == (16, 4.0)
    turns, order = FairTurns("ada"), []
    crowd = await begin(turns, order, *(f"eve-{number % 4}" for number in range(64)))
    await asyncio.gather(*crowd, *await begin(turns, order, "ann"))
    assert order.index("ann") <= CONVENED_MAX + 4


@simulated
async def test_a_request_waits_for_a_limited_time_and_nobody_is_blamed() -> None:
    """The error names the busy party and the time; the turns of others are not affected."""
    turns, order = FairTurns("ada"), list[str]()
    async with AsyncExitStack() as held:
        for number in range(CONVENED_MAX):
            await held.enter_async_context(turns.turn(f"eve-{number}", LONG))
        with pytest.raises(Busy, match=r"^ada is busy: the request waited 30 s") as caught:
            async with turns.turn("ann", 30.0):
                pass
    for _ in range(2):
        await asyncio.gather(*await begin(turns, order, *(f"c{n}" for n in range(CONVENED_MAX))))
    assert asyncio.get_running_loop().time() == 32.0
    assert (caught.value.party, caught.value.seconds) == ("ada", 30.0)


@pytest.mark.parametrize("turns_of_the_loop", [0, 1, 2, 3])
@simulated
async def test_a_cancelled_request_leaves_no_turn_behind(turns_of_the_loop: int) -> None:
    """Cancelled before, with or after its turn, it frees the place and passes the turn on."""
    turns, order = FairTurns("ada"), list[str]()
    for _ in range(3 * CONVENED_MAX):
        first = asyncio.create_task(work(turns, "eve", order, 0.0))
        others = [
            asyncio.create_task(work(turns, "eve", order, 0.0))
            for _ in range(CONVENED_PER_CLIENT_MAX)
        ]
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)
        first.cancel()
        others[-1].cancel()
        await asyncio.gather(first, *others, return_exceptions=True)
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*await begin(turns, order, *(f"c{n}" for n in range(CONVENED_MAX))))
    assert asyncio.get_running_loop().time() - began == 1.0


async def test_an_error_in_a_turn_is_passed_on() -> None:
    """A timeout of the work itself is not mistaken for a wait without a turn."""
    with pytest.raises(TimeoutError, match="of the work"):
        async with FairTurns("ada").turn("ann", 5.0):
            raise TimeoutError("of the work")
