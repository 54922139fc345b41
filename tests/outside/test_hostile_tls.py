"""Hostile TLS conversations with a real server in a process of its own.

They are those of the literature on TLS servers, such as `tlsfuzzer`, as far as they exist in TLS
1.3: records, handshakes and certificates that OpenSSL has to refuse, and floods within them. No
conversation may end in a greeting, hold memory, or keep the next honest member out.
"""

import datetime as dt
import hmac
import itertools
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from benchmarks.flood import RawMember, Server, let_in
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from benchmarks import flood
from veilring.deployment.examples.folder import COLLECTOR
from veilring.transport.handshake import PROTOCOL_VERSION, Hello, greeting
from veilring.transport.roster import Identity, Roster, load_identity, make_identity
from veilring.transport.tls import client_context

pytestmark = pytest.mark.slow

HONEST, HOSTILE = "survey-client-0", "survey-client-1"
SECONDS: Final = 60.0
MIB_MAX: Final = 32.0
ADDRESSES: Final = (f"127.0.0.{number}" for number in itertools.count(2))
"""A source address for each conversation: the server counts the failures of each."""

# Types of records, and of handshake messages (RFC 8446, sections 5.1 and 4).
CIPHER_CHANGE, ALERT, HANDSHAKE, DATA, HEARTBEAT = 20, 21, 22, 23, 24
TICKET, EARLY_END, CERTIFICATE, KEY_UPDATE = 4, 5, 11, 24
# Extensions of a greeting (section 4.2).
KEY_SHARE, EARLY_DATA, OLD_KEY, VERSIONS = 51, 42, 41, 43
PLAIN_MAX: Final = 1 << 14
ALERT_BYTES: Final = 5 + 2 + 1 + 16
"""The size of a protected alert: its record's head, its content, its type and the tag."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Serve a collection, and hold its memory against that before the first conversation."""
    with Server(2) as serving:
        ask(serving)
        mib = serving.resident_mib()
        yield serving
        assert serving.resident_mib() - mib <= MIB_MAX
        assert not any("Traceback" in line for line in serving.lines())


def ask(server: Server) -> None:
    """Connect as an honest member, and get an answer."""
    with let_in(server, HONEST) as honest:
        honest.ask()


def connect(server: Server) -> socket.socket:
    """Return a connection from an address of its own."""
    made = socket.create_connection(server.address, SECONDS, (next(ADDRESSES), 0))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def say(connection: socket.socket, *said: bytes) -> None:
    """Send bytes, until the server ends the connection."""
    try:
        for each in said:
            connection.sendall(each)
    except (ConnectionResetError, BrokenPipeError):
        pass


def heard(connection: socket.socket) -> bytes:
    """Return the bytes that the server sends until it ends the connection."""
    said = b""
    try:
        while more := connection.recv(1 << 16):
            said += more
    except ConnectionResetError:
        pass
    return said


def record(kind: int, content: bytes, length: int | None = None) -> bytes:
    """Return a record, of a length that it claims."""
    return bytes([kind, 3, 3]) + (len(content) if length is None else length).to_bytes(2) + content


def message(kind: int, content: bytes) -> bytes:
    """Return a handshake message."""
    return bytes([kind]) + len(content).to_bytes(3) + content


def sized(content: bytes, size: int = 2) -> bytes:
    """Return bytes behind their length."""
    return len(content).to_bytes(size) + content


def client_hello(changed: dict[int, bytes | None] | None = None, *, version: int = 0x0303) -> bytes:
    """Return OpenSSL's first message, with extensions that are changed, added or left out."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    body = outgoing.read()[9:]
    at = 35 + body[34]  # behind the version, 32 random bytes, and the session
    at += 2 + int.from_bytes(body[at : at + 2])  # behind the ciphers
    at += 1 + body[at]  # behind the compressions
    head, rest, extensions = body[:at], body[at + 2 :], dict[int, bytes | None]()
    while rest:
        kind, size = int.from_bytes(rest[:2]), int.from_bytes(rest[2:4])
        extensions[kind], rest = rest[4 : 4 + size], rest[4 + size :]
    extensions |= changed or {}
    more = b"".join(
        kind.to_bytes(2) + sized(content)
        for kind, content in extensions.items()
        if content is not None
    )
    return message(1, version.to_bytes(2) + head[2:] + sized(more))


HELLO: Final = client_hello()
FIRST: Final = record(HANDSHAKE, HELLO)
KNOWN_KEY: Final = sized(sized(b"ticket") + bytes(4)) + sized(sized(bytes(32), 1))
SPOKEN: Final[dict[str, Sequence[bytes]]] = {
    "a record above the maximum": [record(HANDSHAKE, HELLO + bytes(PLAIN_MAX + 1))],
    "a record of 65,535 bytes": [record(HANDSHAKE, HELLO + bytes(0xFFFF - len(HELLO)))],
    "an alert first": [record(ALERT, b"\x01\x00")],
    "data first": [record(DATA, HELLO)],
    "a heartbeat first": [record(HEARTBEAT, b"\x01\x40\x00")],
    "a change of cipher first": [record(CIPHER_CHANGE, b"\x01")],
    "SSL 2": [b"\x80\x2e\x01\x00\x02" + bytes(41)],
    "SSL 3": [record(HANDSHAKE, client_hello({VERSIONS: None}, version=0x0300))],
    "TLS 1.0": [record(HANDSHAKE, client_hello({VERSIONS: None}, version=0x0301))],
    "TLS 1.1": [record(HANDSHAKE, client_hello({VERSIONS: b"\x02\x03\x02"}))],
    "TLS 1.2": [record(HANDSHAKE, client_hello({VERSIONS: None}))],
    "another message first": [record(HANDSHAKE, message(CERTIFICATE, bytes(40)))],
    "empty records": [record(HANDSHAKE, HELLO[:8]), *[record(HANDSHAKE, b"")] * 2000],
    "a message of 16 MiB": [
        record(HANDSHAKE, b"\x01\xff\xff\xff" + bytes(PLAIN_MAX - 4)),
        *[record(HANDSHAKE, bytes(PLAIN_MAX))] * 1023,
    ],
    "bytes behind the extensions": [record(HANDSHAKE, message(1, HELLO[4:] + b"!"))],
    "two first messages": [record(HANDSHAKE, HELLO + HELLO)],
    "no key in either message": [*[record(HANDSHAKE, client_hello({KEY_SHARE: sized(b"")}))] * 2],
    "early data": [
        record(HANDSHAKE, client_hello({EARLY_DATA: b""})),
        *[record(DATA, bytes(PLAIN_MAX))] * 64,
    ],
    "early data under a key that nobody has": [
        record(HANDSHAKE, client_hello({EARLY_DATA: b"", OLD_KEY: KNOWN_KEY})),
        *[record(DATA, bytes(PLAIN_MAX))] * 64,
    ],
    "warnings": [FIRST, *[record(ALERT, b"\x01\x5a")] * 2000],
    "changes of cipher": [FIRST, *[record(CIPHER_CHANGE, b"\x01")] * 2000, record(DATA, b"!")],
    "data before it is protected": [FIRST, record(DATA, bytes(100))],
    "a fatal alert": [FIRST, record(ALERT, b"\x02\x28")],
    "a close in the middle": [FIRST, record(ALERT, b"\x01\x00")],
}
"""Records that are sent before there is a key."""


@pytest.mark.parametrize("said", SPOKEN.values(), ids=SPOKEN)
def test_no_hostile_record_keeps_an_honest_member_out(server: Server, said: list[bytes]) -> None:
    """Before there is a key, the server ends the conversation, and serves the next member."""
    with connect(server) as connection:
        say(connection, *said)
        heard(connection)
    ask(server)


def test_a_first_message_in_records_of_one_byte_is_read(server: Server) -> None:
    """A handshake may be cut anywhere (RFC 8446, section 5.1); the server answers this one."""
    with connect(server) as connection:
        say(connection, *(record(HANDSHAKE, HELLO[n : n + 1]) for n in range(len(HELLO))))
        assert connection.recv(1) == bytes([HANDSHAKE])
    ask(server)


class Keyed:
    """A member with its keys, which protects records of any content.

    Args:
        context: Its settings.
        log: A new file, in which OpenSSL writes the keys.
    """

    def __init__(self, server: Server, context: ssl.SSLContext, log: Path) -> None:
        context.keylog_filename = str(log)
        self.connection = connect(server)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.connection.sendall(outgoing.read())
                incoming.write(self.connection.recv(1 << 16))
        self.connection.sendall(outgoing.read())
        (secret,) = [
            line.split()[2]
            for line in log.read_text().splitlines()
            if line.startswith("CLIENT_TRAFFIC_SECRET_0 ")
        ]
        assert tls.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
        self._use(bytes.fromhex(secret))

    def _use(self, secret: bytes) -> None:
        self._secret, self._numbers = secret, itertools.count()
        self._cipher, self._iv = AESGCM(self._expand("key", 32)), self._expand("iv", 12)

    def _expand(self, label: str, length: int) -> bytes:
        """Return `HKDF-Expand-Label`, of at most one block (RFC 8446, section 7.1)."""
        info = length.to_bytes(2) + sized(b"tls13 " + label.encode(), 1) + sized(b"", 1)
        return hmac.digest(self._secret, info + b"\x01", "sha384")[:length]

    def protect(self, kind: int, content: bytes, padding: int = 0) -> bytes:
        """Return a protected record (section 5.2)."""
        plain = content + bytes([kind] if kind else []) + bytes(padding)
        nonce = int.from_bytes(self._iv) ^ next(self._numbers)
        head = record(DATA, b"", len(plain) + 16)
        return head + self._cipher.encrypt(nonce.to_bytes(12), plain, head)

    def update(self, *, asks: bool = False) -> bytes:
        """Announce the next key, perhaps ask for another, and use it (sections 4.6.3 and 7.2)."""
        said = self.protect(HANDSHAKE, message(KEY_UPDATE, bytes([asks])))
        self._use(self._expand("traffic upd", 48))
        return said


END: Final = record(DATA, bytes(64))  # under no key, so that nothing behind it is read
Speech = Callable[[Keyed], Sequence[bytes]]
PROTECTED: Final[dict[str, Speech]] = {
    "a renegotiation": lambda keyed: [keyed.protect(HANDSHAKE, HELLO)],
    "a ticket": lambda keyed: [keyed.protect(HANDSHAKE, message(TICKET, bytes(20)))],
    "a certificate unasked": lambda keyed: [keyed.protect(HANDSHAKE, message(CERTIFICATE, b""))],
    "an end of early data": lambda keyed: [keyed.protect(HANDSHAKE, message(EARLY_END, b""))],
    "many new keys": lambda keyed: [*(keyed.update() for _ in range(2000)), END],
    "many new keys that ask for others": lambda keyed: [
        *(keyed.update(asks=True) for _ in range(2000)),
        END,
    ],
    "two new keys in a record": lambda keyed: [
        keyed.protect(HANDSHAKE, message(KEY_UPDATE, b"\x00") * 2)
    ],
    "records of no content": lambda keyed: [keyed.protect(DATA, b"") for _ in range(2000)],
    "a record of no type": lambda keyed: [keyed.protect(0, b"", 100)],
    "a protected change of cipher": lambda keyed: [keyed.protect(CIPHER_CHANGE, b"\x01")],
    "too much content": lambda keyed: [keyed.protect(DATA, bytes(PLAIN_MAX + 1))],
    "too much padding": lambda keyed: [keyed.protect(DATA, b"\x00", PLAIN_MAX + 256)],
    "a record again": lambda keyed: [keyed.protect(DATA, b"\x00")] * 2,
    "a record that was altered": lambda keyed: [keyed.protect(DATA, b"\x00")[:-1] + b"!"],
    "a record that nobody protected": lambda _: [END],
    "a warning": lambda keyed: [keyed.protect(ALERT, b"\x01\x5a") for _ in range(2000)],
    "an alert of one byte": lambda keyed: [keyed.protect(ALERT, b"\x01")],
    "a fatal alert": lambda keyed: [keyed.protect(ALERT, b"\x02\x28")],
}
"""Records that a member sends under its keys, in place of its greeting."""


def keyed_member(server: Server, log: Path) -> Keyed:
    """Connect as a member, which has not greeted."""
    roster = Roster.load(server.folder / "roster.toml")
    identity = load_identity(server.folder / f"{HOSTILE}.key")
    return Keyed(server, client_context(identity, roster), log)


def test_a_greeting_under_any_of_a_member_s_keys_is_answered(
    server: Server, tmp_path: Path
) -> None:
    """After fifty new keys, the server still reads it: the records below are well made."""
    keyed = keyed_member(server, tmp_path / "keys")
    roster = Roster.load(server.folder / "roster.toml").hash
    hello = Hello(version=PROTOCOL_VERSION, roster=roster, sender=HOSTILE, receiver=COLLECTOR)
    with keyed.connection as connection:
        say(connection, *(keyed.update() for _ in range(50)))
        say(connection, keyed.protect(DATA, greeting(hello)))
        assert len(connection.recv(1 << 16)) > ALERT_BYTES
    ask(server)


@pytest.mark.parametrize("speak", PROTECTED.values(), ids=PROTECTED)
def test_no_record_of_a_member_keeps_another_out(
    server: Server, speak: Speech, tmp_path: Path
) -> None:
    """Under its own keys, too, a member is cut off for what TLS 1.3 forbids."""
    keyed = keyed_member(server, tmp_path / "keys")
    with keyed.connection:
        say(keyed.connection, *speak(keyed))
        heard(keyed.connection)
    ask(server)


Chain = Callable[[Identity], tuple[Identity, list[x509.Certificate]]]
"""Returns, for a member, the identity and more certificates that are shown in its place."""
UNTIL_NOW: Final = (-30, -1)
FROM_NOW: Final = (1, 30)


def certify(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    by: Identity | None = None,
    *,
    days: tuple[int, int] = (-1, 30),
    usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
) -> Identity:
    """Return a key with a certificate that another one signs, by default itself."""
    now = dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begin, end = (now + dt.timedelta(days=day) for day in days)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .sign(key if by is None else by.private_key, SHA256())
    )
    return Identity(name, made, key)


def chain(member: Identity, length: int, name: str) -> tuple[Identity, list[x509.Certificate]]:
    """Return a stranger's key at the end of a chain that begins with a member's certificate."""
    made = [member]
    for number in range(length):
        key = ec.generate_private_key(ec.SECP256R1())
        made.append(certify(name if number == length - 1 else f"{number}", key, made[-1]))
    return made[-1], [each.certificate for each in made[-2::-1]]


SHOWN: Final[dict[str, Chain]] = {
    "a stranger's": lambda _: (make_identity("mallory"), []),
    "a stranger's, with a member's name": lambda member: (make_identity(member.name), []),
    "one that a member signed": lambda member: chain(member, 1, "mallory"),
    "one with another's name that a member signed": lambda member: chain(member, 1, HONEST),
    "a chain of thirty": lambda member: chain(member, 30, HONEST),
    "one for another use": lambda member: (
        certify(member.name, member.private_key, usage=ExtendedKeyUsageOID.CODE_SIGNING),
        [],
    ),
    "one that has expired": lambda member: (
        certify(member.name, member.private_key, days=UNTIL_NOW),
        [],
    ),
    "one for tomorrow": lambda member: (
        certify(member.name, member.private_key, days=FROM_NOW),
        [],
    ),
}
"""The certificates that a member, or somebody with its help, shows in place of its own."""


def showing(chain: Chain, file: Path) -> Callable[[Identity, Roster], ssl.SSLContext]:
    """Return a function that makes settings with other certificates, by way of a file."""

    def context(identity: Identity, roster: Roster) -> ssl.SSLContext:
        mine, more = chain(identity)
        key = mine.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        shown = [each.public_bytes(Encoding.PEM) for each in (mine.certificate, *more)]
        file.write_bytes(key + b"".join(shown))
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.check_hostname = False
        made.load_verify_locations(cadata=roster.certificates)
        made.load_cert_chain(file)
        return made

    return context


@pytest.mark.parametrize("chain", SHOWN.values(), ids=SHOWN)
def test_no_other_certificate_is_let_in(
    server: Server, chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member is let in with its own certificate only, and cannot vouch for a stranger."""
    with monkeypatch.context() as patch:
        patch.setattr(flood, "client_context", showing(lambda own: (own, []), tmp_path / "pem"))
        let_in(server, HOSTILE).socket.close()
        patch.setattr(flood, "client_context", showing(chain, tmp_path / "pem"))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            RawMember(server.folder, HOSTILE)
    ask(server)
