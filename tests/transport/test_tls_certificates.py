"""Refusals by TLS itself: each causes an error that names the reason, on both sides.

Certificates, contexts, sockets and endpoints are real; each case breaks one of them.
"""

import datetime as dt
import ssl
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from tests.transport.refusals import both_fail
from tests.transport.rosters import Town

from veilring.errors import InputError
from veilring.transport import tls
from veilring.transport.roster import Identity, Member, Roster, make_identity
from veilring.transport.tls import LOOPBACK, client_context, server_context

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
    """The refusing side names the reason, and the other side suspects it."""
    town = Town(("alice", "bob"))
    monkeypatch.setattr(tls, side, broken)
    at_alice, at_bob = await both_fail(town)
    assert dialler_says in at_alice
    assert listener_says in at_bob


def renewed(identity: Identity) -> Identity:
    """Return another certificate for the same key, valid today."""
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
    """Give a member an expired certificate, in the roster too, and return it."""
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    expired = make_identity(name, now=past)
    members = {member.name: member for member in town.roster.members}
    members[name] = Member.of(expired, LOOPBACK, town.ports[name])
    town.roster = Roster(tuple(members.values()))
    town.identities[name] = expired
    return expired


@pytest.mark.parametrize("name", ["alice", "bob"])
async def test_a_clock_that_is_behind(name: str) -> None:
    """A certificate that is not yet valid suggests a wrong clock, and both sides say so."""
    town = Town(("alice", "bob"))
    later = make_identity(name, now=dt.datetime.now(dt.UTC) + dt.timedelta(days=30))
    changed = Member.of(later, LOOPBACK, town.ports[name])
    town.roster = Roster(tuple(changed if m.name == name else m for m in town.roster.members))
    town.identities[name] = later
    reasons = dict(zip(("alice", "bob"), await both_fail(town), strict=True))
    assert "its clock or ours is wrong" in reasons.pop(name)
    (refusal,) = reasons.values()
    assert "certificate is not yet valid; or our own clock is wrong" in refusal


async def test_own_expired_certificate_is_named_at_once() -> None:
    """A party with an expired certificate is refused at its start, before it dials."""
    town = Town(("alice", "bob"))
    with_expired(town, "alice")
    with pytest.raises(InputError, match="the certificate of alice expired on 2020-12-31"):
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
    """A peer's expired certificate is reported as expired."""
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
