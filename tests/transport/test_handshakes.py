"""Refused connections: each causes an error that names the reason, on both sides."""

import asyncio
import datetime as dt
import re
import socket
import ssl
from collections.abc import Callable

import pytest
from tests.transport.towns import (
    PATIENCE_SECONDS,
    Stranger,
    Town,
    both_fail,
    hello,
    stranger,
    until,
    with_key,
)

from veilring.errors import FrameError, HandshakeError
from veilring.transport import connection, tls
from veilring.transport.frames import on_stream, pack
from veilring.transport.handshake import (
    PROTOCOL_VERSION,
    REASON_CHARACTERS_MAX,
    TERMS_CHARACTERS_MAX,
    TOO_SLOW,
    About,
    Hello,
    Refuse,
    Welcome,
    check_hello,
    greeting,
)
from veilring.transport.messages import SESSION_BYTES
from veilring.transport.roster import Identity, Member, Roster, make_identity
from veilring.transport.tls import LOOPBACK, TlsEndpoint, client_context, server_context

ContextMaker = Callable[[Identity, Roster], ssl.SSLContext]


def without_certificate(_identity: Identity, roster: Roster) -> ssl.SSLContext:
    """Create a dialler's context without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata="\n".join(m.certificate for m in roster.members))
    return context


def with_another_key(make: ContextMaker) -> ContextMaker:
    """Present a certificate of the right name with a key that is not in the roster."""
    return lambda identity, roster: make(make_identity(identity.name), roster)


def with_tls_1_2(make: ContextMaker) -> ContextMaker:
    """Speak only TLS 1.2."""

    def made(identity: Identity, roster: Roster) -> ssl.SSLContext:
        context = make(identity, roster)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    return made


Break = Callable[[Town, pytest.MonkeyPatch], None]


def making(side: str, make: ContextMaker) -> Break:
    """Let one side make its TLS settings in another way."""
    return lambda _town, patch: patch.setattr(tls, f"{side}_context", make)


def certified(name: str, days: float) -> Break:
    """Give a member a certificate made some days from now, which it does not notice itself."""

    def certify(town: Town, patch: pytest.MonkeyPatch) -> None:
        key = make_identity(name, now=dt.datetime.now(dt.UTC) + dt.timedelta(days=days))
        town.identities[name], town.roster = key, with_key(town.roster, key)
        others = {"alice": ("bob",), "bob": ("alice",)}
        patch.setattr(tls, "expected_peers", lambda identity, *_: others[identity.name])

    return certify


def update_alone(_town: Town, patch: pytest.MonkeyPatch) -> None:
    """Compare greetings with another version than that which both send."""
    patch.setattr(connection, "PROTOCOL_VERSION", PROTOCOL_VERSION + 1)


def reach_oneself(town: Town, _patch: pytest.MonkeyPatch) -> None:
    """Give bob the address of alice, by another name."""
    town.roster = town.roster.at({"bob": ("localhost", town.ports["alice"])})


HUNG_UP = "ended the connection during the handshake"
UNKNOWN, EXPIRED, NO_TLS = "self-signed certificate", "certificate has expired", "not speak TLS 1.3"
CLOCK = "its clock or ours is wrong"
EARLY = "certificate is not yet valid; or our own clock is wrong"
OTHER = rf"protocol version: {PROTOCOL_VERSION + 1} at .*, which is older"
WRONG: dict[str, tuple[Break, str, str]] = {
    "no certificate": (making("client", without_certificate), HUNG_UP, "showed no certificate"),
    "unknown dialler": (making("client", with_another_key(client_context)), HUNG_UP, UNKNOWN),
    "unknown listener": (making("server", with_another_key(server_context)), UNKNOWN, HUNG_UP),
    "TLS 1.2 dialler": (making("client", with_tls_1_2(client_context)), HUNG_UP, NO_TLS),
    "TLS 1.2 listener": (making("server", with_tls_1_2(server_context)), HUNG_UP, NO_TLS),
    "clock of the dialler": (certified("alice", 30), CLOCK, EARLY),
    "clock of the listener": (certified("bob", 30), EARLY, CLOCK),
    "expired dialler": (certified("alice", -1000), HUNG_UP, EXPIRED),
    "expired listener": (certified("bob", -1000), EXPIRED, HUNG_UP),
    "other version": (update_alone, OTHER, OTHER),
    "itself": (reach_oneself, "alice reached itself", "did not connect within"),
}


@pytest.mark.parametrize(("wrong", "dialler_says", "listener_says"), WRONG.values(), ids=WRONG)
async def test_a_wrong_side_is_refused(
    pair: Town, wrong: Break, dialler_says: str, listener_says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusing side names the reason, and the other side suspects it."""
    wrong(pair, monkeypatch)
    at_alice, at_bob = await both_fail(pair)
    assert re.search(dialler_says, at_alice)
    assert re.search(listener_says, at_bob)


async def test_swapped_identities() -> None:
    """If bob's address answers with carol's key, alice reports it and carol is told."""
    town = Town(("alice", "bob", "carol"))
    there = {"bob": (LOOPBACK, town.ports["carol"]), "carol": (LOOPBACK, town.ports["bob"])}
    others = [town.start("bob"), town.start("carol")]
    await asyncio.sleep(0)
    town.roster = town.roster.at(there)
    async with asyncio.timeout(PATIENCE_SECONDS):
        alice, *rest = await asyncio.gather(town.start("alice"), *others, return_exceptions=True)
    assert isinstance(alice, HandshakeError)
    assert "answered with the key of" in alice.reason
    for error in rest:
        assert isinstance(error, HandshakeError)
        assert "it refused us: the address of" in error.reason


def versions(theirs: int) -> str:
    """Return the reason for a greeting of another version."""
    older = "carol" if theirs < PROTOCOL_VERSION else "alice"
    numbers = f"{theirs} at carol, {PROTOCOL_VERSION} at alice"
    return f"protocol version: {numbers}; update veilring at {older}, which is older"


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
    "version": (lambda town: greeting(hello(town, version=9)), versions(9)),
    "four fields": (lambda _: other_hello(0, 4), versions(0)),
    "five fields": (lambda _: other_hello(0, 5), versions(0)),
    "six fields": (lambda _: other_hello(0, 6), versions(0)),
    "no other field": (lambda _: other_hello(0, 1), versions(0)),
    "newer": (lambda _: other_hello(9, 7), versions(9)),
    "fewer fields": (
        lambda _: other_hello(PROTOCOL_VERSION, 4),
        "number of fields in a greeting: 4 at carol, 5 at alice; update veilring at carol",
    ),
    "no version": (lambda _: on_stream(pack((bytes(16), "transport.hello"))), "was invalid"),
    "roster": (lambda town: greeting(hello(town, roster=bytes(32))), "the rosters differ"),
    "name": (lambda town: greeting(hello(town, sender="alice")), "with the key of carol"),
    "receiver": (lambda town: greeting(hello(town, receiver="bob")), "at the address of"),
    "welcome": (lambda _: greeting(Welcome()), "its welcome came before any greeting"),
    "garbage": (lambda _: on_stream(b"\xc1 garbage"), "its greeting was invalid"),
    "too long": (lambda _: b"\xff" * 9, "its greeting was invalid: a frame of 4294967295"),
}


@pytest.mark.parametrize(("make", "reason"), GREETINGS.values(), ids=GREETINGS)
async def test_wrong_greeting(
    town: Town, alice: TlsEndpoint, make: Callable[[Town], bytes], reason: str
) -> None:
    """A wrong greeting is reported to the member and in the listener's log."""
    async with stranger(town) as carol:
        refusal = await carol.answer(make(town))
        assert isinstance(refusal, Refuse)
        assert reason in refusal.reason
        assert await carol.reader.read() == b""
        await until(lambda: bool(alice.refusals))
        error = alice.refusals[-1]
        assert error.peer == "carol"
        assert reason in error.reason


async def test_no_session_is_resumed(carol: Stranger) -> None:
    """No session ticket lets a later connection skip the certificates."""
    session = carol.writer.get_extra_info("ssl_object").session
    assert session is None or not session.has_ticket


ADA, BOB = make_identity("ada"), make_identity("bob")
ROSTER = Roster((Member.of(ADA, "h", 1), Member.of(BOB, "h", 2)))
KEYS = {"protocol.k": "5", "protocol.sum": '"ring"'}


def refusal(theirs: str, ours: dict[str, str]) -> str:
    """Return the reason for which ada refuses bob's greeting, if any."""
    hello = Hello(
        version=PROTOCOL_VERSION, roster=ROSTER.hash, sender="bob", receiver="ada", about=theirs
    )
    found = check_hello(
        hello, ROSTER, me="ada", peer="bob", ours=About.of_terms(ours), today=dt.date(2030, 6, 1)
    )
    return found.reason if found else ""


def about(terms: dict[str, str]) -> str:
    """Return the description of a side with these terms."""
    return About.of_terms(terms).text


LONG = "x" * 100
DIFFER = "the terms differ: "


TWO_KEYS = "edition: 2 at bob, nothing at ada; protocol.k: 7 at bob, 5 at ada"
DIFFERENCES = {
    "equal": (about(KEYS), KEYS, ""),
    "two keys": (about(KEYS | {"protocol.k": "7", "edition": "2"}), KEYS, DIFFER + TWO_KEYS),
    "end of a value": (about({"a": f"{LONG}1"}), {"a": f"{LONG}2"}, f"{DIFFER}a: "),
    "end of a key": (about({f"{LONG}1": "a"}), {f"{LONG}2": "a"}, f"{DIFFER}xx"),
    "not printable": (about({"\u0007" * 100: "\n"}), KEYS, f"{DIFFER}????"),
    "of a later version": ('{"terms": {"a": "1"}, "colour": ["red"]}', {"a": "1"}, ""),
    "no description": ("", KEYS, ""),
    "no terms there": (about({}), KEYS, ""),
    "no terms here": (about(KEYS), {}, ""),
}


@pytest.mark.parametrize(("theirs", "ours", "says"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_keys_that_differ_are_named_with_both_values(
    theirs: str, ours: dict[str, str], says: str
) -> None:
    """Values are compared in full, and shown shortened and printable, if both sides have terms."""
    said = refusal(theirs, ours)
    assert said.startswith(says)
    assert bool(said) == bool(says)
    assert said.isprintable()


def test_formats_are_named_before_all_other_keys() -> None:
    """An older side is named even if a hundred other keys differ with the format."""
    many = {f"a {number}": "x" * 100 for number in range(100)} | {"votes format": "2"}
    said = refusal(about(dict.fromkeys(many, "y") | {"votes format": "1"}), many)
    older = "votes format: 1 at bob, 2 at ada (update veilring at bob, which is older)"
    assert said.startswith(f"the terms differ: {older}; a 0: ")
    assert said.endswith(" more")
    assert len(said) < REASON_CHARACTERS_MAX


def test_an_invalid_description_is_refused() -> None:
    """A peer cannot skip the comparison of terms with a text that nobody can read."""
    for text in ("[]", "{", "[" * 5000, '{"terms": {"a": {"b": 1}}}'):
        with pytest.raises(FrameError):
            refusal(text, KEYS)


def test_long_terms_are_compared_by_a_hash() -> None:
    """A greeting stays small for any number of keys."""
    many = {f"key {number}": "x" for number in range(TERMS_CHARACTERS_MAX)}
    theirs = about(many | {"key 1": "y"})
    assert max(len(about(many)), len(theirs)) < 200
    assert "terms: " in refusal(theirs, many)


def test_sides_name_other_versions_and_clocks() -> None:
    """Versions of veilring and clocks that differ are named, because they may explain a failure."""
    here = About(veilring="1.1", clock=1e9)
    for version, clock, said in (
        ("1.1", 1e9 + 60, []),
        ("", None, []),
        ("1.0", 1e9, ["bob runs veilring 1.0, we run 1.1"]),
        ("1.1", 1e9 - 2_592_000, ["our clock and that of bob differ by 30 days"]),
        ("1.1", 1e9 + 3600, ["our clock and that of bob differ by 60 minutes"]),
    ):
        assert here.differences("bob", About(veilring=version, clock=clock)) == said


# Long enough for a handshake among much else that the machine has to do.
SILENCE_SECONDS = 3.0


async def test_an_absent_peer_is_named() -> None:
    """A peer that does not listen is named with the reason, and so is one that never dials."""
    town = Town(("alice", "bob", "carol"))
    town.sockets.pop("bob").close()
    with pytest.raises(HandshakeError, match=r"bob.*nothing listens") as caught:
        await town.start("alice", 2.0)
    assert caught.value.peer == "bob, carol"
    with pytest.raises(HandshakeError, match="did not connect within"):
        await town.start("carol", 0.2)


async def test_plaintext_server(pair: Town) -> None:
    """A server without TLS is reported as such."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, sock=pair.sockets.pop("bob")):
        with pytest.raises(HandshakeError, match="does not speak TLS"):
            await pair.start("alice")


async def test_silence() -> None:
    """A peer that is silent before, during or after TLS is given up, on either side."""
    town = Town(("alice", "bob"), ("carol",))
    endpoint = await town.start("alice", connect_to=(), handshake_seconds=SILENCE_SECONDS)
    dialler = town.start("carol", SILENCE_SECONDS, connect_to=("bob",))
    # one that listens and never accepts, and one that says nothing
    with town.sockets.pop("bob"), socket.create_connection((LOOPBACK, town.ports["alice"])):
        async with asyncio.timeout(PATIENCE_SECONDS), stranger(town) as carol:
            outcome, told = await asyncio.gather(dialler, carol.answer(), return_exceptions=True)
            await until(lambda: len(endpoint.refusals) == 2)
    await endpoint.close()
    assert isinstance(outcome, HandshakeError)
    assert outcome.peer == "bob"
    assert isinstance(told, Refuse)
    reasons = [told.reason, *(error.reason for error in endpoint.refusals)]
    assert all(TOO_SLOW in reason for reason in reasons)
