"""The roster: the members, their order, their keys and their addresses.

All members have the same roster, agreed on beforehand by other means; two members connect only if
their rosters are equal (they compare `Roster.hash`). It contains no secrets.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, Self, get_args

import tomli_w

from veilring.config import parse_toml
from veilring.errors import InputError, ScenarioError
from veilring.privacy.files import write_whole
from veilring.transport.identity import Identity, check_name, fingerprint_of, read_certificate

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

_KEYS: Final = {
    "name": str,
    "kind": str,
    "host": str,
    "port": int,
    "fingerprint": str,
    "certificate": str,
}
_OPTIONAL: Final = frozenset({"kind", "host", "port"})


@dataclass(frozen=True)
class Member:
    """One entry of the roster.

    Attributes:
        name: The member's name; its certificate's common name.
        fingerprint: The SHA-256 of its public key, in hexadecimal, for people to compare.
        certificate: The member's certificate, PEM.
        host: The name or address of its host; empty for a client.
        port: The port on which it listens, 1 to `PORT_MAX`; 0 for a client.
        kind: `"party"` or `"client"`.

    Raises:
        InputError: If a field is not allowed, or the certificate is for another name or key.
    """

    name: str
    fingerprint: str
    certificate: str
    host: str = ""
    port: int = 0
    kind: Kind = "party"

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.kind not in get_args(Kind):
            raise InputError("kind", self.kind, " or ".join(get_args(Kind)))
        self._check_address()
        name, certificate = read_certificate(self.certificate)
        if name != self.name:
            raise InputError.because(
                f"the certificate of {self.name} is for {name!a}", field="certificate"
            )
        if fingerprint_of(certificate) != self.fingerprint:
            raise InputError.because(
                f"the fingerprint of {self.name} is {self.fingerprint}, but that of its certificate"
                f" is {fingerprint_of(certificate)}; correct the roster",
                field="fingerprint",
            )

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

    @property
    def expires(self) -> dt.datetime:
        """The time at which the certificate ends, in UTC."""
        return read_certificate(self.certificate)[1].not_valid_after_utc

    @classmethod
    def of(cls, identity: Identity, host: str = "", port: int = 0, kind: Kind = "party") -> Self:
        """Return the public part of an identity as an entry of the roster."""
        pem = identity.certificate_pem
        return cls(identity.name, identity.fingerprint, pem, host, port, kind)


@dataclass(frozen=True)
class Roster:
    """All members, in an order shared by everybody.

    Attributes:
        members: At least one member, with unique names and keys.

    Raises:
        InputError: If there are no members, or a name or a key occurs twice.
    """

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise InputError.because("the roster has no members; add at least one", field="members")
        for field in ("name", "fingerprint"):
            seen = set()
            for position, member in enumerate(self.members):
                value = getattr(member, field)
                if value in seen:
                    key = f"members[{position}].{field}"
                    raise InputError(key, value, "a value different from those of earlier members")
                seen.add(value)

    @cached_property
    def _by_name(self) -> dict[str, Member]:
        return {member.name: member for member in self.members}

    @cached_property
    def _by_fingerprint(self) -> dict[str, Member]:
        return {member.fingerprint: member for member in self.members}

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
        """
        said = [[member.name, member.kind, member.fingerprint] for member in self.members]
        return hashlib.sha256(json.dumps(said, ensure_ascii=True).encode()).digest()

    def member(self, name: str) -> Member:
        """Return the member of that name.

        Raises:
            InputError: If there is no such member.
        """
        if name not in self._by_name:
            raise InputError.because(f"{name!a} is not a member of the roster", field="name")
        return self._by_name[name]

    def owner(self, fingerprint: str) -> Member | None:
        """Return the member with this key, or `None`."""
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
        members = tuple(_read_member(i, entry) for i, entry in enumerate(content["members"]))
        try:
            return cls(members)
        except InputError as error:
            raise ScenarioError.of(error, error.field) from error

    def to_toml(self) -> str:
        """Return the text for `from_toml`."""
        members = [
            {key: value for key, value in asdict(member).items() if value not in ("", 0)}
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


def _read_member(position: int, entry: object) -> Member:
    where = f"members[{position}]"
    if not isinstance(entry, dict):
        raise ScenarioError(where, type(entry).__name__, "a table")
    for key in entry:
        if key not in _KEYS:
            raise ScenarioError.because(
                f"there is no such key; a member has {', '.join(_KEYS)}", field=f"{where}.{key}"
            )
    for key, expected in _KEYS.items():
        if key not in entry and key not in _OPTIONAL:
            raise ScenarioError.because("the key is missing", field=f"{where}.{key}")
        # TOML's booleans are Python's, which are integers
        if key in entry and type(entry[key]) is not expected:
            found = type(entry[key]).__name__
            raise ScenarioError(f"{where}.{key}", found, expected.__name__)
    try:
        return Member(**entry)
    except InputError as error:
        raise ScenarioError.of(error, f"{where}.{error.field}") from error
