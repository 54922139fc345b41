"""Whatever is wrong with a connection ends, within 6 s, in an error that names it, on both sides.

Certificates, contexts, sockets and endpoints are real; only what a case breaks is broken.
"""

import asyncio
import datetime as dt
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from tests.transport.rosters import Town, port_of, tls_endpoints

from veilring.errors import FrameError, HandshakeError, PeerLost
from veilring.transport import connection, sides, tls
from veilring.transport.frames import PREFIX_BYTES, on_stream
from veilring.transport.handshake import (
    HANDSHAKE_SECONDS,
    PROTOCOL_VERSION,
    Hello,
    Refuse,
    Welcome,
    greeting,
    read_greeting,
)
from veilring.transport.identity import Identity, make_identity
from veilring.transport.roster import Member, Roster
from veilring.transport.sockets import bind
from veilring.transport.tls import LOOPBACK, TlsEndpoint
from veilring.transport.tls_context import client_context, server_context

NAMED_WITHIN_SECONDS = 6.0
ContextMaker = Callable[[Identity, Roster], ssl.SSLContext]


async def both_fail(town: Town, seconds: float = 1.0) -> tuple[str, str]:
    """Start alice, who dials, and bob, who listens; return the reasons that they give."""
    async with asyncio.timeout(NAMED_WITHIN_SECONDS):
        errors = await asyncio.gather(
            town.start("alice", seconds=seconds),
            town.start("bob", seconds=seconds),
            return_exceptions=True,
        )
    alice, bob = errors
    assert isinstance(alice, HandshakeError)
    assert isinstance(bob, HandshakeError)
    assert (alice.peer, bob.peer) == ("bob", "alice")
    return alice.reason, bob.reason


def without_certificate(_identity: Identity, roster: Roster) -> ssl.SSLContext:
    """Make a dialler's context that has nothing to show."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata="\n".join(m.certificate for m in roster.members))
    return context


def with_another_key(make: ContextMaker) -> ContextMaker:
    """Show a certificate of the right name and a key that is not in the roster."""
    return lambda identity, roster: make(make_identity(identity.name), roster)


def with_tls_1_2(make: ContextMaker) -> ContextMaker:
    """Speak TLS 1.2 and nothing newer."""

    def made(identity: Identity, roster: Roster) -> ssl.SSLContext:
        context = make(identity, roster)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    return made


HUNG_UP = "ended the connection during the handshake"


@pytest.mark.parametrize(
    ("side", "broken", "dialler_says", "listener_says"),
    [
        ("client_context", without_certificate, HUNG_UP, "it showed no certificate"),
        ("client_context", with_another_key(client_context), HUNG_UP, "self-signed certificate"),
        ("server_context", with_another_key(server_context), "self-signed certificate", HUNG_UP),
        ("client_context", with_tls_1_2(client_context), HUNG_UP, "does not speak TLS 1.3"),
        ("server_context", with_tls_1_2(server_context), HUNG_UP, "does not speak TLS 1.3"),
    ],
    ids=[
        "no certificate",
        "unknown certificate of the dialler",
        "unknown certificate of the listener",
        "TLS 1.2 dialler",
        "TLS 1.2 listener",
    ],
)
async def test_tls_itself_fails(
    side: str,
    broken: ContextMaker,
    dialler_says: str,
    listener_says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What TLS does not accept is named by the side that refused, and suspected by the other."""
    town = Town(("alice", "bob"))
    monkeypatch.setattr(tls, side, broken)
    at_alice, at_bob = await both_fail(town)
    assert dialler_says in at_alice
    assert listener_says in at_bob


def renewed(identity: Identity) -> Identity:
    """Return another certificate for the same key, good today."""
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(identity.certificate.subject)
        .issuer_name(identity.certificate.subject)
        .public_key(identity.private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(identity.private_key, hashes.SHA256())
    )
    return Identity(identity.name, certificate, identity.private_key)


def with_expired(town: Town, name: str) -> Identity:
    """Give a member a certificate that expired long ago, in the roster too, and return it."""
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    expired = make_identity(name, now=past)
    members = {member.name: member for member in town.roster.members}
    members[name] = Member.of(expired, LOOPBACK, town.ports[name])
    town.roster = Roster(tuple(members.values()))
    town.identities[name] = expired
    return expired


async def test_own_expired_certificate_is_named_at_once() -> None:
    """Whoever starts with an expired certificate learns it before anybody is dialled."""
    town = Town(("alice", "bob"))
    with_expired(town, "alice")
    with pytest.raises(HandshakeError, match="our own certificate expired on 2020-12-31"):
        await town.start("alice")
    town.close()


@pytest.mark.parametrize(
    ("name", "side", "make"),
    [("alice", "client_context", client_context), ("bob", "server_context", server_context)],
    ids=["dialler", "listener"],
)
async def test_expired_certificate(
    name: str, side: str, make: ContextMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer's expired certificate is refused as such."""
    town = Town(("alice", "bob"))
    expired = with_expired(town, name)
    town.identities[name] = renewed(expired)  # so that it does not notice by itself

    def made(identity: Identity, roster: Roster) -> ssl.SSLContext:
        return make(expired if identity.name == name else identity, roster)

    monkeypatch.setattr(tls, side, made)
    reasons = await both_fail(town)
    refuser = 1 if name == "alice" else 0
    assert "certificate has expired" in reasons[refuser]
    assert HUNG_UP in reasons[1 - refuser]


async def test_wrong_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides name both versions, at once and not only when their patience ends."""
    monkeypatch.setattr(sides, "PROTOCOL_VERSION", PROTOCOL_VERSION + 1)
    reasons = await both_fail(Town(("alice", "bob")), seconds=60.0)
    assert all("protocol version 2 meets version 1" in reason for reason in reasons)


async def test_wrong_roster() -> None:
    """Both sides say that their rosters differ."""
    town = Town(("alice", "bob"))
    alice = town.start("alice", seconds=60.0)
    await asyncio.sleep(0)
    town.roster = Roster((*town.roster.members, Member.of(make_identity("carol"), kind="client")))
    errors = await asyncio.gather(alice, town.start("bob", seconds=60.0), return_exceptions=True)
    for error in errors:
        assert isinstance(error, HandshakeError)
        assert "the rosters differ" in error.reason


async def test_swapped_identities() -> None:
    """If bob's address answers with carol's key, alice says so and carol is told."""
    town = Town(("alice", "bob", "carol"))
    there = {"bob": (LOOPBACK, town.ports["carol"]), "carol": (LOOPBACK, town.ports["bob"])}
    others = [town.start("bob", seconds=3.0), town.start("carol", seconds=3.0)]
    await asyncio.sleep(0)
    town.roster = town.roster.at(there)
    async with asyncio.timeout(NAMED_WITHIN_SECONDS):
        alice, *rest = await asyncio.gather(town.start("alice"), *others, return_exceptions=True)
    assert isinstance(alice, HandshakeError)
    assert "answered with the key of" in alice.reason
    for error in rest:
        assert isinstance(error, HandshakeError)
        assert "it refused us: the address of" in error.reason


async def test_self_connection() -> None:
    """Whoever finds its own address under another's name says that it reached itself."""
    town = Town(("alice", "bob"))
    town.roster = town.roster.at({"bob": (LOOPBACK, town.ports["alice"])})
    reasons = await both_fail(town)
    assert "alice reached itself" in reasons[0]
    assert "did not connect within" in reasons[1]


async def test_nobody_listens() -> None:
    """A peer that is not there is named with the reason, and one that never dials, too."""
    town = Town(("alice", "bob", "carol"))
    town.sockets.pop("bob").close()
    with pytest.raises(HandshakeError, match=r"bob.*nobody listens") as caught:
        await town.start("alice", seconds=0.5)
    assert caught.value.peer == "bob, carol"
    with pytest.raises(HandshakeError, match="did not connect within"):
        await town.start("carol", seconds=0.2)


async def test_duplicate_identity() -> None:
    """While one connection of a member lives, a second is refused, and the first goes on."""
    town = Town(("alice",), ("carol",))
    async with town.start_all() as endpoints:
        with pytest.raises(HandshakeError, match="it refused us: carol is connected already"):
            await town.start("carol", seconds=0.3)
        alice, carol = endpoints["alice"], endpoints["carol"]
        assert "carol is connected already" in alice.refusals[-1].reason
        await carol.send("alice", b"still me")
        assert await alice.receive() == ("carol", b"still me")


class Stranger:
    """A peer that holds carol's key and speaks TLS, but not as an endpoint would."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def frame(self) -> bytes:
        """Read one frame."""
        size = int.from_bytes(await self.reader.readexactly(PREFIX_BYTES), "big")
        return await self.reader.readexactly(size)


@asynccontextmanager
async def stranger(town: Town, *, greet: bool = False) -> AsyncIterator[Stranger]:
    """Connect a stranger with alice's address, and greet as carol if wanted."""
    reader, writer = await asyncio.open_connection(
        LOOPBACK,
        town.ports["alice"],
        ssl=client_context(town.identities["carol"], town.roster),
        server_hostname="",
    )
    peer = Stranger(reader, writer)
    try:
        if greet:
            writer.write(greeting(hello(town)))
            assert isinstance(read_greeting(await peer.frame()), Welcome)
        yield peer
    finally:
        writer.transport.abort()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def hello(town: Town, **changed: object) -> Hello:
    """Return carol's greeting for alice, with changes."""
    said = {
        "version": PROTOCOL_VERSION,
        "roster": town.roster.hash,
        "sender": "carol",
        "receiver": "alice",
    }
    return Hello.model_validate(said | changed)


GREETINGS: dict[str, tuple[Callable[[Town], bytes], str]] = {
    "version": (lambda t: greeting(hello(t, version=9)), "version 9 meets version 1"),
    "roster": (lambda t: greeting(hello(t, roster=bytes(32))), "the rosters differ"),
    "name": (lambda t: greeting(hello(t, sender="alice")), "claimed with the key of carol"),
    "receiver": (lambda t: greeting(hello(t, receiver="bob")), "looked for at the address of"),
    "welcome": (lambda _: greeting(Welcome()), "a welcome came before any greeting"),
    "garbage": (lambda _: on_stream(b"\xc1 garbage"), "no greeting was understood"),
    "too long": (lambda _: b"\xff" * 9, "no greeting was understood: a frame of 4294967295"),
}


@pytest.mark.parametrize(("make", "reason"), GREETINGS.values(), ids=GREETINGS)
async def test_wrong_greeting(make: Callable[[Town], bytes], reason: str) -> None:
    """A member that greets wrongly is told what is wrong, and so is the log of the listener."""
    town = Town(("alice",), ("carol",))
    async with town.start_all("alice") as endpoints, stranger(town) as carol:
        carol.writer.write(make(town))
        refusal = read_greeting(await carol.frame())
        assert isinstance(refusal, Refuse)
        assert reason in refusal.reason
        assert await carol.reader.read() == b""
        await until(lambda: bool(endpoints["alice"].refusals))
        error = endpoints["alice"].refusals[-1]
        assert error.peer == "carol"
        assert reason in error.reason


async def test_no_session_is_resumed() -> None:
    """No ticket is given out by which a later connection could skip the certificates."""
    town = Town(("alice",), ("carol",))
    async with town.start_all("alice"), stranger(town, greet=True) as carol:
        session = carol.writer.get_extra_info("ssl_object").session
        assert session is None or not session.has_ticket


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the loop's next turns bring."""
    async with asyncio.timeout(NAMED_WITHIN_SECONDS):
        while not condition():  # noqa: ASYNC110  (a deque tells nobody that it grew)
            await asyncio.sleep(0.005)


async def test_plaintext_client() -> None:
    """A client without TLS is cut off and recorded."""
    town = Town(("alice",))
    async with town.start_all() as endpoints:
        reader, writer = await asyncio.open_connection(LOOPBACK, town.ports["alice"])
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(NAMED_WITHIN_SECONDS):
            (answer,) = await asyncio.gather(reader.read(), return_exceptions=True)
        assert answer == b"" or isinstance(answer, ConnectionError)
        writer.close()
        await until(lambda: bool(endpoints["alice"].refusals))
        error = endpoints["alice"].refusals[-1]
        assert "does not speak TLS" in error.reason
        assert error.peer.startswith(LOOPBACK)


async def test_plaintext_server() -> None:
    """A server without TLS is named as such."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        writer.close()
        await writer.wait_closed()

    town = Town(("alice", "bob"))
    async with await asyncio.start_server(answer, sock=town.sockets.pop("bob")):
        with pytest.raises(HandshakeError, match="does not speak TLS"):
            await town.start("alice")
    town.close()


async def test_silence() -> None:
    """Who is silent before, during or after TLS, on either side, is given up within 6 s."""
    town = Town(("alice", "bob"), ("carol",))
    silent_server = town.sockets.pop("bob")  # listens, and never accepts
    alice = asyncio.create_task(
        TlsEndpoint.start(
            town.identities["alice"],
            town.roster,
            listener=town.sockets.pop("alice"),
            connect_to=(),
        )
    )
    endpoint = await alice
    dialler = TlsEndpoint.start(
        town.identities["carol"], town.roster, connect_to=("bob",), timeout=HANDSHAKE_SECONDS
    )
    silent = socket.create_connection((LOOPBACK, town.ports["alice"]))
    try:
        async with asyncio.timeout(NAMED_WITHIN_SECONDS), stranger(town) as carol:
            outcome, told = await asyncio.gather(dialler, carol.frame(), return_exceptions=True)
            await until(lambda: len(endpoint.refusals) == 2)
        assert isinstance(outcome, HandshakeError)
        assert outcome.peer == "bob"
        refusal = read_greeting(told) if isinstance(told, bytes) else None
        assert isinstance(refusal, Refuse)
        reasons = [refusal.reason, *(error.reason for error in endpoint.refusals)]
        assert all("did not finish the handshake within 5 s" in reason for reason in reasons)
    finally:
        silent.close()
        silent_server.close()
        await endpoint.close()


async def test_oversized_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """A length beyond the limit costs the sender its connection; both sides lose each other."""
    async with tls_endpoints(("alice", "bob")) as endpoints:
        monkeypatch.setattr(connection, "on_stream", lambda frame: b"\x00\x10\x00\x01" + frame)
        await endpoints["alice"].send("bob", b"frame")
        async with asyncio.timeout(NAMED_WITHIN_SECONDS):
            for endpoint in endpoints.values():
                with pytest.raises(PeerLost) as caught:
                    await endpoint.receive()
                assert not caught.value.orderly
        assert endpoint.name == "bob"
        assert isinstance(caught.value.__cause__, FrameError)


def cut_by_close(writer: asyncio.StreamWriter) -> None:
    """End TLS properly, but without a goodbye."""
    writer.close()


def cut_by_fin(writer: asyncio.StreamWriter) -> None:
    """End TCP properly, but TLS not at all."""
    writer.transport.abort()


def cut_by_reset(writer: asyncio.StreamWriter) -> None:
    """Reset the connection."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


CUTS = (cut_by_close, cut_by_fin, cut_by_reset)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("last", [b"", b"\x00", on_stream(b"cut off")[:-1]])
async def test_end_without_goodbye(
    last: bytes, cut: Callable[[asyncio.StreamWriter], None]
) -> None:
    """However a stream ends, between frames or amid one: without a goodbye it is a crash."""
    town = Town(("alice",), ("carol",))
    async with town.start_all("alice") as endpoints, stranger(town, greet=True) as carol:
        carol.writer.write(on_stream(b"whole"))
        assert await endpoints["alice"].receive() == ("carol", b"whole")
        carol.writer.write(last)
        await asyncio.sleep(0)
        cut(carol.writer)
        async with asyncio.timeout(NAMED_WITHIN_SECONDS):
            with pytest.raises(PeerLost) as caught:
                await endpoints["alice"].receive()
        assert (caught.value.peer, caught.value.orderly) == ("carol", False)


async def test_words_after_the_goodbye_change_nothing() -> None:
    """A peer that speaks on after its goodbye is not heard."""
    town = Town(("alice",), ("carol",))
    async with town.start_all("alice") as endpoints, stranger(town, greet=True) as carol:
        carol.writer.write(on_stream(b"last") + bytes(PREFIX_BYTES))
        await asyncio.sleep(0.01)
        carol.writer.write(on_stream(b"more"))
        assert await endpoints["alice"].receive() == ("carol", b"last")
        with pytest.raises(PeerLost) as caught:
            await endpoints["alice"].receive()
        assert caught.value.orderly


@pytest.mark.parametrize("cut", CUTS[1:])
async def test_network_breaks(cut: Callable[[asyncio.StreamWriter], None]) -> None:
    """If the network between two endpoints ends or resets their connection, both lose a peer."""
    town = Town(("alice", "bob"))
    wires: list[asyncio.StreamWriter] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, back = await asyncio.open_connection(LOOPBACK, town.ports["bob"])
        wires.extend((writer, back))
        await asyncio.gather(carry(reader, back), carry(onward, writer))

    bob = town.start("bob")
    await asyncio.sleep(0)
    sock = bind(LOOPBACK, 0)
    async with await asyncio.start_server(relay, sock=sock) as server:
        town.roster = town.roster.at({"bob": (LOOPBACK, port_of(sock))})
        endpoints = await asyncio.gather(town.start("alice"), bob)
        server.close()
        for wire in wires:
            cut(wire)
        async with asyncio.timeout(NAMED_WITHIN_SECONDS):
            for endpoint in endpoints:
                with pytest.raises(PeerLost) as caught:
                    await endpoint.receive()
                assert not caught.value.orderly
        await asyncio.gather(*(endpoint.close() for endpoint in endpoints))
