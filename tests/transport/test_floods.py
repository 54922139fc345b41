"""Floods of an endpoint by strangers and malicious members, and the limits that withstand them."""

import asyncio
import logging
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from tests.transport.towns import (
    PATIENCE_SECONDS,
    Stranger,
    Town,
    hello,
    lose,
    refused,
    stranger,
    until,
)

from veilring.errors import FrameError, HandshakeError, PeerLost, ProtocolViolation
from veilring.transport import links, listener
from veilring.transport.endpoint import QUEUED_FRAMES_MAX
from veilring.transport.frames import FRAME_BYTES_MAX, on_stream
from veilring.transport.handshake import Greeting, Refuse, Welcome, greeting
from veilring.transport.listener import bind
from veilring.transport.pacing import (
    FRAMES_PER_TURN_MAX,
    LINES_KEPT,
    REPEAT_SECONDS,
    SparingLog,
    TokenBuckets,
    Turns,
)
from veilring.transport.tls import LOOPBACK, TlsEndpoint

FLOOD = 20_000
LOG = logging.getLogger("veilring.tests.pacing")


def test_a_budget_is_spent_and_refills() -> None:
    """A key has its burst at once and its rate afterwards, never more than the burst."""
    now = 0.0
    budgets = TokenBuckets(3, 2.0, lambda: now)
    assert [budgets.spend("ada") for _ in range(4)] == [True, True, True, False]
    assert budgets.spend("bob")
    now = 0.5
    assert [budgets.spend("ada") for _ in range(2)] == [True, False]
    budgets.refund("ada")
    assert budgets.spend("ada")
    now = 100.0
    assert budgets.left("ada") == 3


def test_a_full_budget_takes_no_memory() -> None:
    """Keys with a full budget, such as former source addresses, are forgotten."""
    now = 0.0
    budgets = TokenBuckets(3, 2.0, lambda: now)
    for number in range(1_000):
        now += 1.0
        assert budgets.spend(f"host {number}")
    assert len(vars(budgets)["_spent"]) <= 2


def test_lines_about_a_peer_are_few(caplog: pytest.LogCaptureFixture) -> None:
    """A thousand equal lines become two with their number; endless new lines silence one peer."""
    caplog.set_level(logging.INFO, LOG.name)
    now = 0.0
    lines = SparingLog(LOG, lambda: now)
    for _ in range(1_000):
        lines.say(logging.INFO, "ada", "late", "%s is late", "ada")
    now = REPEAT_SECONDS
    for peer in ("ada", "bob"):
        lines.say(logging.INFO, peer, "late", "%s is late", peer)
    ada_again = "ada is late (and 999 more like this in 60 s)"
    assert caplog.messages == ["ada is late", ada_again, "bob is late"]
    for number in range(1_000):
        lines.say(logging.INFO, "cyd", str(number), "line %d", number)
    lines.say(logging.INFO, "dan", "0", "line of dan")
    assert len(caplog.messages[3:]) == LINES_KEPT + 2
    assert caplog.messages[-1] == "line of dan"


class Queue:
    """A queue of frames that are processed in turn."""

    def __init__(self, turns: Turns, name: str, frames: int, taken: list[str]) -> None:
        self._turns, self._name, self._frames, self._taken = turns, name, frames, taken

    def process(self) -> None:
        """Process frames while it is the queue's turn."""
        while self._frames and self._turns.admit(self):
            self._frames -= 1
            self._taken.append(self._name)


async def test_frames_are_processed_in_turn_and_a_few_per_loop_turn() -> None:
    """A long and a short queue alternate, and the loop turns in between."""
    taken: list[str] = []
    turns = Turns()
    for queue in (Queue(turns, "flood", 100, taken), Queue(turns, "honest", 2, taken)):
        queue.process()
        assert len(taken) == FRAMES_PER_TURN_MAX
    await asyncio.sleep(0)
    assert len(taken) == 2 * FRAMES_PER_TURN_MAX
    assert taken[FRAMES_PER_TURN_MAX:].count("honest") == 2
    for _ in range(100 // FRAMES_PER_TURN_MAX):
        await asyncio.sleep(0)
    assert taken.count("flood") == 100


class Broken:
    """A connection whose first frame raises an error."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def process(self) -> None:
        """Raise an error where a frame is due."""
        if self._turns.admit(self):
            raise RuntimeError("a bug")


async def test_an_error_of_one_connection_does_not_stop_the_others() -> None:
    """The loop reports the error, and the connections behind it are called in the next turn."""
    reported, taken = list[dict[str, object]](), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    turns = Turns()
    Queue(turns, "before", FRAMES_PER_TURN_MAX, taken).process()
    Broken(turns).process()
    Queue(turns, "behind", 1, taken).process()
    assert taken == ["before"] * FRAMES_PER_TURN_MAX
    for _ in range(2):
        await asyncio.sleep(0)
    assert taken[FRAMES_PER_TURN_MAX:] == ["behind"]
    assert len(reported) == 1


def client_hello() -> bytes:
    """Return the first message of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


@asynccontextmanager
async def crowd(town: Town, count: int, said: bytes) -> AsyncIterator[list[socket.socket]]:
    """Open connections to alice that all send the same bytes and then nothing."""
    held = [socket.create_connection((LOOPBACK, town.ports["alice"])) for _ in range(count)]
    for sock in held:
        sock.sendall(said)
    try:
        yield held
    finally:
        for sock in held:
            sock.close()


async def pass_through(town: Town, alice: TlsEndpoint) -> None:
    """Let carol connect and send a frame to alice."""
    async with town.start_all("carol") as clients:
        await clients["carol"].send("alice", b"through")
        assert await alice.receive() == ("carol", b"through")
    await lose(alice)


HELLO = client_hello()
IDLE = "it sent nothing while others waited"


@pytest.mark.parametrize(
    ("said", "says"),
    [(b"", IDLE), (b"\x16", IDLE), (HELLO[:-1], IDLE), (HELLO, "did not continue")],
    ids=["nothing", "a byte", "half", "stalled"],
)
async def test_slow_connections_do_not_block_members(
    town: Town, alice: TlsEndpoint, said: bytes, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member connects despite 200 connections of one address that never end a handshake."""
    monkeypatch.setattr(listener, "HANDSHAKE_PATIENCE_SECONDS", 0.0)
    async with crowd(town, 200, said):
        await until(lambda: len(alice.refusals) >= 200 - listener.WAITING_MAX)
        for _ in range(3):
            await pass_through(town, alice)
        assert all(says in error.reason for error in alice.refusals)


async def test_a_listener_that_closes_before_a_handshake_began_leaves_nothing_open() -> None:
    """A connection whose handshake was due but had not begun is closed."""
    admitted = list[str]()

    async def admit(_sock: socket.socket, address: str) -> bool:
        admitted.append(address)
        return True

    ours, theirs = bind(LOOPBACK, 0), socket.socket()
    listening = listener.Listener(ours, admit, lambda *_: None, PATIENCE_SECONDS)
    with theirs:
        theirs.connect(ours.getsockname())
        theirs.sendall(HELLO)
        while not listening.admissions:  # noqa: ASYNC110  (it has no notification)
            await asyncio.sleep(0)
        listening.close()
        theirs.setblocking(False)
        async with asyncio.timeout(PATIENCE_SECONDS):
            with suppress(ConnectionResetError):
                assert await asyncio.get_running_loop().sock_recv(theirs, 1) == b""
    assert admitted == []


async def test_a_slow_handshake_may_continue(town: Town, alice: TlsEndpoint) -> None:
    """A slow link alone is no reason for rejection while the server is idle."""
    async with crowd(town, 1, HELLO[:100]) as (slow,), asyncio.timeout(PATIENCE_SECONDS):
        slow.setblocking(False)
        await asyncio.sleep(0.01)
        slow.send(HELLO[100:])
        assert await asyncio.get_running_loop().sock_recv(slow, 1) == b"\x16"
        assert not alice.refusals


async def test_failing_handshakes_of_an_address_are_budgeted(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither successes nor plaintext, which ends at its first byte, are among the few of them."""
    monkeypatch.setattr(listener, "FAILURES_MAX", 2)
    monkeypatch.setattr(listener, "FAILURES_PER_SECOND", 1e-9)
    async with town.start_all("alice") as endpoints:
        alice = endpoints["alice"]
        async with crowd(town, 50, b"GET / HTTP/1.1\r\n\r\n") as held:
            await until(lambda: len(alice.refusals) == 50)
            with suppress(ConnectionResetError):
                assert held[0].recv(1) == b""
        assert all("does not speak TLS" in error.reason for error in alice.refusals)
        assert all(error.peer.startswith(LOOPBACK) for error in alice.refusals)
        for _ in range(5):
            await pass_through(town, alice)
        alice.refusals.clear()
        broken = b"\x16\x03\x01\x00\x04\x01\x00\x00\x00"  # begins a handshake that is none
        async with crowd(town, 3, broken):
            await until(lambda: len(alice.refusals) == 2)
            with pytest.raises(HandshakeError):
                await town.start("carol", seconds=0.5)


async def test_a_burst_is_processed_in_turns(alice: TlsEndpoint, carol: Stranger) -> None:
    """The loop turns between every few frames, for bursts of any size."""
    loop, turn, of_turn = asyncio.get_running_loop(), [0], Counter[int]()

    def tick() -> None:
        turn[0] += 1
        loop.call_soon(tick)

    tick()
    alice.attach(lambda _sender, _frame: of_turn.update([turn[0]]))
    carol.writer.write(on_stream(b"x") * FLOOD)
    await until(lambda: of_turn.total() == FLOOD)
    assert max(of_turn.values()) <= 2 * FRAMES_PER_TURN_MAX  # ours begins amid the transport's


async def test_a_sender_that_never_waits_lets_the_loop_turn(pair: Town) -> None:
    """One send in `QUEUED_FRAMES_MAX` waits for a turn, though the peer has room for all."""
    turned = 0

    def tick() -> None:
        nonlocal turned
        turned += 1
        loop.call_soon(tick)

    loop = asyncio.get_running_loop()
    async with pair.start_all() as endpoints:
        tick()
        before = turned
        for _ in range(4 * QUEUED_FRAMES_MAX):
            if not endpoints["alice"].send_now("bob", b"x"):  # as a session does
                await endpoints["alice"].send("bob", b"x")
        assert turned >= before + 3


async def test_frames_before_a_loss_come_first(alice: TlsEndpoint, carol: Stranger) -> None:
    """This includes frames that still waited when the connection ended."""
    carol.writer.write(on_stream(b"x") * FLOOD)
    await carol.writer.drain()
    carol.writer.close()
    for _ in range(FLOOD):
        assert await alice.receive() == ("carol", b"x")
    await lose(alice)


async def test_a_misbehaving_peer_is_refused_for_a_while(
    town: Town,
    alice: TlsEndpoint,
    carol: Stranger,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A peer that was cut off is named, told so on reconnecting, and admitted later."""
    monkeypatch.setattr(links, "CUT_SECONDS", 3600.0)
    carol.writer.write(struct.pack(">I", FRAME_BYTES_MAX + 1))
    loss = await lose(alice)
    assert (loss.orderly, type(loss.__cause__)) == (False, FrameError)
    assert await carol.reader.read() == b""

    async def again() -> Greeting:
        async with stranger(town) as returned:
            return await returned.answer(greeting(hello(town)))

    for _ in range(5):
        answer = await again()
        assert isinstance(answer, Refuse)
        assert answer.reason == "carol violated the protocol and is refused for 3600 s"
    vars(vars(alice)["_links"])["_refused_until"].clear()
    assert isinstance(await again(), Welcome)
    for line in ("has cut off carol", "refused a connection"):
        assert len([each for each in caplog.messages if line in each]) == 1


async def test_a_peer_that_is_cut_off_is_not_heard(alice: TlsEndpoint, carol: Stranger) -> None:
    """After the cut, only the loss of the peer is delivered."""
    heard = list[bytes | PeerLost]()

    def take(sender: str, item: bytes | PeerLost) -> None:
        heard.append(item)
        alice.cut(sender, ProtocolViolation(sender, "spoke"))

    alice.attach(take)
    carol.writer.write(on_stream(b"x") * FLOOD)
    await until(lambda: len(heard) == 2)
    assert heard[0] == b"x"
    assert isinstance(heard[1], PeerLost)


async def test_a_paused_peer_loses_nothing() -> None:
    """Messages of a paused peer are delivered in order later; other peers are unaffected."""
    town = Town(("alice", "bob"), ("carol",))
    async with town.start_all() as endpoints:
        alice = endpoints["alice"]
        alice.rest("carol", 0.2)
        for number in range(10):
            await endpoints["carol"].send("alice", bytes([number]))
        await endpoints["bob"].send("alice", b"bob")
        assert await alice.receive() == ("bob", b"bob")
        for number in range(10):
            assert await alice.receive() == ("carol", bytes([number]))


async def test_endless_reconnecting_is_refused(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that connects and leaves in a loop is told that it does so too often."""
    monkeypatch.setattr(links, "CONNECTS_MAX", 2)
    monkeypatch.setattr(links, "CONNECTS_PER_SECOND", 1e-9)
    async with town.start_all("alice") as endpoints:
        for _ in range(2):
            await pass_through(town, endpoints["alice"])
        await refused(town, "carol", endpoints["alice"], "connects too often")
