"""Members with the right key but a wrong greeting, or at the wrong address."""

import asyncio
from collections.abc import Callable

import pytest
from tests.transport.refusals import NAMED_WITHIN_SECONDS, both_fail, refused, until
from tests.transport.rosters import Town
from tests.transport.strangers import hello, stranger

from veilring.errors import HandshakeError
from veilring.transport import connection
from veilring.transport.frames import on_stream, pack
from veilring.transport.handshake import (
    PROTOCOL_VERSION,
    Hello,
    Refuse,
    Welcome,
    greeting,
    read_greeting,
)
from veilring.transport.messages import SESSION_BYTES
from veilring.transport.roster import Member, Roster, make_identity
from veilring.transport.tls import LOOPBACK


async def test_wrong_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides name both versions and the older side at once, without waiting for a timeout."""
    monkeypatch.setattr(connection, "PROTOCOL_VERSION", PROTOCOL_VERSION + 1)
    reasons = await both_fail(Town(("alice", "bob")))
    assert all(f"protocol version: {PROTOCOL_VERSION + 1} at " in reason for reason in reasons)
    assert all(", which is older" in reason for reason in reasons)


async def test_wrong_roster() -> None:
    """Both sides report that their rosters differ."""
    town = Town(("alice", "bob"))
    alice = town.start("alice")
    await asyncio.sleep(0)
    town.roster = Roster((*town.roster.members, Member.of(make_identity("carol"), kind="client")))
    errors = await asyncio.gather(alice, town.start("bob"), return_exceptions=True)
    for error in errors:
        assert isinstance(error, HandshakeError)
        assert "the rosters differ" in error.reason


async def test_swapped_identities() -> None:
    """If bob's address answers with carol's key, alice reports it and carol is told."""
    town = Town(("alice", "bob", "carol"))
    there = {"bob": (LOOPBACK, town.ports["carol"]), "carol": (LOOPBACK, town.ports["bob"])}
    others = [town.start("bob"), town.start("carol")]
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
    """A party that reaches itself under another party's address reports it."""
    town = Town(("alice", "bob"))
    town.roster = town.roster.at({"bob": (LOOPBACK, town.ports["alice"])})
    reasons = await both_fail(town)
    assert "alice reached itself" in reasons[0]
    assert "did not connect within" in reasons[1]


async def test_duplicate_identity() -> None:
    """While a member is connected, a second connection is refused and the first continues."""
    town = Town(("alice",), ("carol",))
    async with town.start_all() as endpoints:
        alice, carol = endpoints["alice"], endpoints["carol"]
        await refused(town, "carol", alice, "carol is connected already")
        await carol.send("alice", b"still me")
        assert await alice.receive() == ("carol", b"still me")


OLDER = (
    f"protocol version: 0 at carol, {PROTOCOL_VERSION} at alice; update veilring at carol, which is"
    " older"
)


def other_hello(version: int, fields: int) -> bytes:
    """Return a greeting of another version, which has other fields after its number."""
    others = (1.5, "other", (), b"", None, True)[: fields - 1]
    return on_stream(pack((bytes(SESSION_BYTES), Hello.kind, version, *others)))


def test_every_version_reads_a_greeting_and_its_refusal() -> None:
    """The number and the types of these fields are fixed: no later version may change them."""
    said = Hello(version=7, roster=b"r", sender="carol", receiver="alice")
    assert said.fields() == (7, b"r", "carol", "alice", "")
    assert Refuse(reason="why", again=False).fields() == ("why", False)


GREETINGS: dict[str, tuple[Callable[[Town], bytes], str]] = {
    "version": (
        lambda t: greeting(hello(t, version=9)),
        f"protocol version: 9 at carol, {PROTOCOL_VERSION} at alice; update veilring at alice",
    ),
    "four fields": (lambda _: other_hello(0, 4), OLDER),
    "five fields": (lambda _: other_hello(0, 5), OLDER),
    "six fields": (lambda _: other_hello(0, 6), OLDER),
    "no other field": (lambda _: other_hello(0, 1), OLDER),
    "newer": (
        lambda _: other_hello(9, 7),
        f"protocol version: 9 at carol, {PROTOCOL_VERSION} at alice; update veilring at alice,",
    ),
    "fewer fields": (
        lambda _: other_hello(PROTOCOL_VERSION, 4),
        "number of fields in a greeting: 4 at carol, 5 at alice; update veilring at carol",
    ),
    "no version": (lambda _: on_stream(pack((bytes(16), "transport.hello"))), "was invalid"),
    "roster": (lambda t: greeting(hello(t, roster=bytes(32))), "the rosters differ"),
    "name": (lambda t: greeting(hello(t, sender="alice")), "with the key of carol"),
    "receiver": (lambda t: greeting(hello(t, receiver="bob")), "at the address of"),
    "welcome": (lambda _: greeting(Welcome()), "its welcome came before any greeting"),
    "garbage": (lambda _: on_stream(b"\xc1 garbage"), "its greeting was invalid"),
    "too long": (lambda _: b"\xff" * 9, "its greeting was invalid: a frame of 4294967295"),
}


@pytest.mark.parametrize(("make", "reason"), GREETINGS.values(), ids=GREETINGS)
async def test_wrong_greeting(make: Callable[[Town], bytes], reason: str) -> None:
    """A wrong greeting is reported to the member and in the listener's log."""
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
    """No session ticket lets a later connection skip the certificates."""
    town = Town(("alice",), ("carol",))
    async with town.start_all("alice"), stranger(town, greet=True) as carol:
        session = carol.writer.get_extra_info("ssl_object").session
        assert session is None or not session.has_ticket
