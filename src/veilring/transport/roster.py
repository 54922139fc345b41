"""The roster and identities: the members, their order, their keys and their addresses.

All members have the same roster, agreed on beforehand by other means; two members connect only if
their rosters agree (they compare `Roster.hashes`). It contains no secrets.

A member may have a new key, with its previous one accepted up to a day. Until that day, a roster
agrees with the one that it replaces, which has the previous keys and nothing else that differs, and
with the one that has the new keys alone. So members can change to the new roster, then to their new
keys, and then to the roster without the previous ones, one after another. Two rosters that give the
same member different new keys never agree: nobody can make two members that have the new roster
believe in different keys. A previous key that leaves the roster before its day is revoked.

An identity is a party's private key, with a self-signed certificate. There is no certification
authority. A party is identified by its public key, which its peers know from the roster that all of
them have. Keys are on the NIST curve P-256: every OpenSSL that supports TLS 1.3 has it, in
hand-tuned assembly.
"""

import datetime as dt
import hashlib
import json
import os
import re
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, Self, get_args

import tomli_w
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from veilring.config import make_table, parse_toml, require_key
from veilring.errors import InputError, ScenarioError
from veilring.privacy.files import keep_owner, require_private, write_whole

# X.509 allows a common name of 64 characters.
NAME_CHARACTERS_MAX: Final = 64
# Long enough for a study, short enough that a forgotten key expires.
VALID_DAYS: Final = 365
# Clocks differ: a fresh certificate must be valid on a machine that is behind.
_CLOCK_SKEW: Final = dt.timedelta(days=1)
NEXT: Final = ".new"
"""The ending of the file of a party's next key, after the name of the file of its present one."""

_MALFORMED: Final = (
    *(ValueError, UnsupportedAlgorithm, x509.InvalidVersion),
    CryptographyDeprecationWarning,
)

# A name becomes a file name and a line in a log, so it may contain nothing special to either.
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_CHARACTERS_MAX - 1}}}")
_NAME_ALLOWED: Final = f"1 to {NAME_CHARACTERS_MAX} of A-Z a-z 0-9 . _ -, a letter or digit first"


@dataclass(frozen=True)
class Identity:
    """A party's own identity; the private key is only ever written to its own key file.

    Attributes:
        name: The party's name, as in the roster; the certificate's common name.
    """

    name: str
    certificate: x509.Certificate
    private_key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the public key (SubjectPublicKeyInfo, DER), in hexadecimal."""
        return fingerprint_of(self.certificate)

    @property
    def certificate_pem(self) -> str:
        """The certificate as text, as in the roster. It is public."""
        return self.certificate.public_bytes(Encoding.PEM).decode()


def utc_now() -> dt.datetime:
    """Return the present time in UTC, by which certificates and previous keys end."""
    return dt.datetime.now(dt.UTC)


def check_name(name: str) -> None:
    """Refuse an invalid name of a party."""
    if not _NAME.fullmatch(name):
        raise InputError.because(
            f"{name!a} is not a name: it must have {_NAME_ALLOWED}", field="name"
        )


def fingerprint_of(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate's SubjectPublicKeyInfo (DER), in hexadecimal.

    It identifies the key, not the certificate: a renewed certificate of the same key keeps it.
    """
    return fingerprint_of_key(certificate.public_key())


def fingerprint_of_key(public: CertificatePublicKeyTypes) -> str:
    """Return the SHA-256 of a public key (SubjectPublicKeyInfo, DER), in hexadecimal."""
    key = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(key).hexdigest()


def read_certificate(pem: str) -> tuple[str, x509.Certificate]:
    """Parse a certificate; return its common name and the certificate.

    A malformed one is refused, also if `cryptography` still reads it with a warning.
    """
    try:
        with warnings.catch_warnings(action="error", category=CryptographyDeprecationWarning):
            certificate = x509.load_pem_x509_certificate(pem.encode("ascii"))
            fingerprint_of(certificate)
            (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except _MALFORMED as error:
        text = f"{len(pem)} characters"
        raise InputError("certificate", text, "a PEM certificate with a common name") from error
    return str(name.value), certificate


def make_identity(
    name: str, *, valid_days: int = VALID_DAYS, now: dt.datetime | None = None
) -> Identity:
    """Make a new key and a certificate for it.

    Args:
        valid_days: The number of days from `now` for which the certificate is valid, at least 1.
        now: An aware time; by default the present.
    """
    check_name(name)
    if valid_days < 1:
        raise InputError("valid_days", valid_days, "at least 1")
    now = now or utc_now()
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=valid_days))
        # not an authority: a party vouches only for itself
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Identity(name, certificate, key)


def save_identity(identity: Identity, directory: Path) -> Path:
    """Write ``<name>.key`` (private key and certificate, mode 0600) and return its path.

    The file is written completely or not at all, and nothing is ever overwritten: a lost key cannot
    be recreated.

    Raises:
        InputError: If the file exists already.
        OSError: If the directory cannot be written.
    """
    return save_key(identity, directory / f"{identity.name}.key")


def save_key(identity: Identity, path: Path, like: Path | None = None) -> Path:
    """Write the file of `save_identity` under another name, and return its path.

    Args:
        like: A file whose owner becomes that of the new one.
    """
    # mkstemp makes the file with mode 0600: no other user can open it at any moment
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{identity.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(write_identity(identity))
            file.flush()
            os.fsync(file.fileno())
        if like is not None:
            keep_owner(Path(draft), like)
        os.link(draft, path)  # unlike a rename, this fails if the path exists
    except FileExistsError as error:
        raise InputError("path", path, "a file that does not exist yet") from error
    finally:
        Path(draft).unlink()
    return path


def load_identity(path: Path) -> Identity:
    """Read an identity file written by `save_identity`.

    Raises:
        InputError: If others than the owner can read or write the file, or if it does not hold
            one private key on P-256 and the certificate that belongs to it.
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        require_private(file, path)
        return read_identity(file.read(), str(path))


def write_identity(identity: Identity) -> bytes:
    """Return the PEM text of an identity. It contains the private key: keep it secret."""
    private = identity.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + identity.certificate_pem.encode()


def read_identity(content: bytes, source: str = "this text") -> Identity:
    """Return the identity written by `write_identity`."""
    name, certificate = read_certificate(content.decode(errors="replace"))
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError("path", source, "a file with an unencrypted private key") from error
    if (
        not isinstance(key, ec.EllipticCurvePrivateKey)
        or key.public_key() != certificate.public_key()
    ):
        raise InputError("path", source, "a P-256 key and the certificate that belongs to it")
    check_name(name)
    return Identity(name, certificate, key)


ROSTER_FORMAT: Final = 1
"""The version of the roster file's layout."""
PORT_MAX: Final = 65535  # the maximum of 16 bits
# Some 20,000 members with certificates of 700 bytes. A larger file would keep the parser busy for
# longer than a person waits for a server to start.
ROSTER_BYTES_MAX: Final = 1 << 24
# A domain name has at most 253 characters (RFC 1035, without the root's dot).
HOST_CHARACTERS_MAX: Final = 253

Kind = Literal["party", "client"]
"""A party listens and every party has it as a peer; a client only dials parties."""

_HASH_BYTES: Final = 32  # of SHA-256


@dataclass(frozen=True)
class Member:
    """One entry of the roster.

    Attributes:
        name: The member's name; its certificate's common name.
        fingerprint: The SHA-256 of its public key, in hexadecimal, for people to compare.
        certificate: The member's certificate, PEM.
        host: The name or address of its host; empty for a client.
        port: The port on which it listens, 1 to `PORT_MAX`; 0 for a client.
        previous: The certificate of its previous key, PEM; empty if it has none.
        previous_until: The last day (UTC) on which the previous key is accepted in new connections.
    """

    name: str
    fingerprint: str
    certificate: str
    host: str = ""
    port: int = 0
    kind: Kind = "party"
    previous: str = ""
    previous_until: dt.date | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.kind not in get_args(Kind):
            raise InputError("kind", self.kind, " or ".join(get_args(Kind)))
        self._check_address()
        found = self._fingerprint_in("certificate")
        if found != self.fingerprint:
            raise InputError.because(
                f"the fingerprint of {self.name} is {self.fingerprint}, but that of its certificate"
                f" is {found}; correct the roster",
                field="fingerprint",
            )
        if bool(self.previous) != (self.previous_until is not None):
            raise InputError.because(
                f"{self.name} has only one of previous and previous_until; set both or neither",
                field="previous",
            )
        if self.previous_fingerprint == self.fingerprint:
            raise InputError.because(
                f"the previous key of {self.name} is its key; leave it out", field="previous"
            )

    def _fingerprint_in(self, field: str) -> str:
        name, certificate = read_certificate(getattr(self, field))
        if name != self.name:
            raise InputError.because(f"the certificate of {self.name} is for {name!a}", field=field)
        return fingerprint_of(certificate)

    def _check_address(self) -> None:
        if self.kind == "client":
            if self.host or self.port:
                raise InputError.because(
                    f"{self.host!a}:{self.port} is the address of a client, which nobody "
                    "dials; leave it out",
                    field="host",
                )
            return
        if not 0 < len(self.host) <= HOST_CHARACTERS_MAX or not self.host.isprintable():
            raise InputError("host", self.host, "a host name or address")
        if not 0 < self.port <= PORT_MAX:
            raise InputError("port", self.port, f"1 to {PORT_MAX}")

    @cached_property
    def expires(self) -> dt.datetime:
        """The time at which the certificate ends, in UTC."""
        return read_certificate(self.certificate)[1].not_valid_after_utc

    def days_left(self, now: dt.datetime) -> int:
        """Return the number of whole days until the certificate ends; negative after that."""
        return (self.expires - now).days

    @cached_property
    def previous_fingerprint(self) -> str:
        """The SHA-256 of its previous key, in hexadecimal; empty if it has none."""
        return self._fingerprint_in("previous") if self.previous else ""

    def accepts_previous(self, today: dt.date) -> bool:
        """Return whether it has a previous key that is accepted on a day (UTC)."""
        return self.previous_until is not None and today <= self.previous_until

    @classmethod
    def of(cls, identity: Identity, host: str = "", port: int = 0, kind: Kind = "party") -> Self:
        """Return the public part of an identity as an entry of the roster."""
        pem = identity.certificate_pem
        return cls(identity.name, identity.fingerprint, pem, host, port, kind)


@dataclass(frozen=True)
class Roster:
    """All members, in an order shared by everybody.

    Attributes:
        members: At least one member, with unique names, keys and addresses.
    """

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise InputError.because("the roster has no members; add at least one", field="members")
        seen = set[str]()
        for position, member in enumerate(self.members):
            address = f"{member.host}:{member.port}" if member.port else ""
            keys = (member.fingerprint, member.previous_fingerprint)
            parts = ("name", "fingerprint", "previous_fingerprint", "port")
            for part, value in zip(parts, (member.name, *keys, address), strict=True):
                if value and value in seen:
                    key = f"members[{position}].{part}"
                    raise InputError(key, value, "a value different from those of earlier members")
                seen.add(value)

    @cached_property
    def _by_name(self) -> dict[str, Member]:
        return {member.name: member for member in self.members}

    @cached_property
    def _by_fingerprint(self) -> dict[str, Member]:
        previous = {each.previous_fingerprint: each for each in self.members if each.previous}
        return previous | {member.fingerprint: member for member in self.members}

    @property
    def certificates(self) -> str:
        """The certificates of all members, their previous ones included, PEM."""
        return "\n".join(each for m in self.members for each in (m.certificate, m.previous) if each)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all members in order."""
        return tuple(member.name for member in self.members)

    @property
    def parties(self) -> tuple[str, ...]:
        """The names of the members that are parties, in order."""
        return tuple(member.name for member in self.members if member.kind == "party")

    @cached_property
    def hash(self) -> bytes:
        """32 bytes, equal for two rosters with the same members, keys and order.

        Addresses are left out: one host may have different addresses in different networks.
        Previous keys are left out, too; see `hashes`.
        """
        return _hash([[member.name, member.kind, member.fingerprint] for member in self.members])

    def hashes(self, today: dt.date) -> tuple[bytes, ...]:
        """Return the hash of all keys accepted on a day (UTC), and of the rosters before and after.

        The first is `hash`, unless previous keys are accepted: then it covers these keys and their
        last days too, the second is the hash of the roster that this one replaces, and the third
        is `hash`. See `agree`.
        """
        rotating = {each.name: each for each in self.members if each.accepts_previous(today)}
        if not rotating:
            return (self.hash,)
        now, before = list[list[str]](), list[list[str]]()
        for each in self.members:
            entry, key = [each.name, each.kind], each.fingerprint
            is_rotating = each.name in rotating
            old = [each.previous_fingerprint, str(each.previous_until)] if is_rotating else []
            now.append([*entry, key, *old])
            before.append([*entry, old[0] if old else key])
        return _hash(now), _hash(before), self.hash

    def replacing(self, before: "Roster", until: dt.date, today: dt.date) -> "Roster":
        """Return this roster with the keys of an earlier one accepted up to a day.

        Args:
            before: The roster that it replaces, with the same members in the same order.
            until: The last day (UTC) on which the keys of `before` are accepted.

        Raises:
            InputError: If more than keys differ, no key does, `before` itself still accepts
                previous keys, or the day has passed.
        """
        if [(m.name, m.kind) for m in self.members] != [(m.name, m.kind) for m in before.members]:
            raise InputError.because(
                "the previous roster has other members, or another order; change only keys, or"
                " make a roster without it and restart all parties",
                field="previous",
            )
        for each in before.members:
            if each.accepts_previous(today):
                raise InputError.because(
                    f"the previous roster itself accepts a previous key of {each.name} until"
                    f" {each.previous_until}; wait until that day has passed",
                    field="previous",
                )
        if self.hash == before.hash:
            raise InputError.because("the previous roster has the same keys", field="previous")
        if until < today:
            raise InputError("until", until, f"{today} or later")
        pairs = zip(self.members, before.members, strict=True)
        ends = [old.expires.date() for new, old in pairs if new.fingerprint != old.fingerprint]
        if ends and until > min(ends):
            message = f"a certificate that is replaced ends on {min(ends)}; choose no later day"
            raise InputError.because(message, field="until")
        pairs = zip(self.members, before.members, strict=True)
        return Roster(
            tuple(
                replace(new, previous=old.certificate, previous_until=until)
                if new.fingerprint != old.fingerprint
                else new
                for new, old in pairs
            )
        )

    def member(self, name: str) -> Member:
        """Return the member of that name."""
        if name not in self._by_name:
            raise InputError.because(f"{name!a} is not a member of the roster", field="name")
        return self._by_name[name]

    def owner(self, fingerprint: str) -> Member | None:
        """Return the member with this key, current or previous, or `None`."""
        return self._by_fingerprint.get(fingerprint)

    def at(self, addresses: Mapping[str, tuple[str, int]]) -> "Roster":
        """Return this roster with other addresses `(host, port)` for some members; same `hash`."""
        moved = {
            name: replace(self.member(name), host=host, port=port)
            for name, (host, port) in addresses.items()
        }
        return Roster(tuple(moved.get(member.name, member) for member in self.members))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read a roster from TOML.

        Raises:
            ScenarioError: If the text is not TOML, or a key is missing, unknown or not allowed;
                its `field` is the dotted key.
        """
        try:
            content = parse_toml(text, bytes_max=ROSTER_BYTES_MAX)
        except ValueError as error:
            raise ScenarioError.because(
                f"the roster is not in TOML ({error})", field="roster"
            ) from error
        if content.get("format") != ROSTER_FORMAT:
            raise ScenarioError("format", content.get("format"), str(ROSTER_FORMAT))
        if set(content) != {"format", "members"} or not isinstance(content["members"], list):
            keys = ", ".join(map(ascii, content))
            raise ScenarioError.because(
                f"the roster has {keys}; it must have format and [[members]]", field="roster"
            )
        members = list[Member]()
        for position, entry in enumerate(content["members"]):
            where = f"members[{position}]"
            require_key(isinstance(entry, dict), where, entry, "a table")
            members.append(make_table(where, entry, Member))
        try:
            return cls(tuple(members))
        except InputError as error:
            raise ScenarioError.of(error, error.field) from error

    def to_toml(self) -> str:
        """Return the text for `from_toml`."""
        members = [
            {key: value for key, value in asdict(member).items() if value not in ("", 0, None)}
            for member in self.members
        ]
        content = {"format": ROSTER_FORMAT, "members": members}
        return tomli_w.dumps(content, multiline_strings=True)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a roster file.

        Raises:
            ScenarioError: As in `from_toml`.
            OSError: If the file cannot be read.
        """
        with path.open("rb") as file:
            text = file.read(ROSTER_BYTES_MAX + 1).decode(errors="replace")
        return cls.from_toml(text)

    def save(self, path: Path) -> None:
        """Write a roster file completely or not at all, replacing an earlier one."""
        write_whole(path, self.to_toml())


def agree(theirs: bytes, ours: tuple[bytes, ...]) -> bool:
    """Return whether two rosters are equal, or one is that before or after the other one."""
    hashes = [theirs[at : at + _HASH_BYTES] for at in range(0, len(theirs), _HASH_BYTES)]
    return theirs[:_HASH_BYTES] in ours or ours[0] in hashes


def _hash(entries: list[list[str]]) -> bytes:
    return hashlib.sha256(json.dumps(entries, ensure_ascii=True).encode()).digest()
