"""The trail of a party: what it was asked, what it decided, and what it answered.

An entry is one line of JSON, with the SHA-256 of the line before it and a signature by the key of
the party. So nobody without the key can change, remove or insert a line. The state file keeps
the lines. An export is a file of the same lines, and of a last one that is signed over all.

A party enters that it takes part before it sends anything that depends on rows, in the transaction
that charges the ledger or counts for the policy. It enters each answer before it sends it. No entry
has a row, a query or a label. An answer is entered as its SHA-256 with a salt of its own, because
anyone could find a short answer by trying all of them. The party can show the salt of an entry to
others, who can then compare an answer with it and learn nothing of other entries.

An entry proves that the party has written it, not that the party has written all: it can leave an
entry out, or write the whole trail again, until it has given an export to others.
"""

import hashlib
import json
import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from veilring.deployment.connecting import Server
from veilring.errors import InputError, StoreFailed
from veilring.privacy.checks import require
from veilring.privacy.files import as_store_failed, open_private
from veilring.privacy.statefile import Section, StateFile, read_state_file
from veilring.transport.roster import Identity, Roster, fingerprint_of_key, read_certificate

TRAIL: Final = Section(
    name="trail",
    version=1,
    schema="""
CREATE TABLE trail (number INTEGER PRIMARY KEY, line TEXT NOT NULL);
CREATE TABLE trail_salts (number INTEGER PRIMARY KEY, key BLOB NOT NULL);
""",
    sealed=("trail", "trail_salts"),
    loss="its party can no longer show what it has answered",
)
"""The section of a state file with the lines of a trail, and the key of their salts."""
# Refusals of one client for one reason, and copies of one stored answer for one client, are entered
# once in this time and then counted: a client that repeats itself does not fill the disk.
REPEAT_SECONDS: Final = 300.0
# The same for an answer that is stored already, which no limit of queries counts.
STORED_SECONDS: Final = 86_400.0
# Kinds of entries of the trail itself; those of requests are in `veilring.deployment.gate`.
_START: Final = "start"
_REPEATED: Final = "repeated"
_END: Final = "end"
_KEY: Final = "key"  # also the field with a public key
_CONTINUES: Final = "continues"  # whether the party has recognised the entry before its key
_VOUCHED: Final = "vouched"  # the signature of a new key by the key before it
_SIGNATURE: Final = "signature"
_log = logging.getLogger("veilring.state")
_SIGNING: Final = ec.ECDSA(hashes.SHA256())
_CURVE: Final = ec.SECP256R1()
# Of s and its negative only the smaller one is valid: otherwise anybody could change a signature.
ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_SALT_BYTES: Final = 16
_KEY_BYTES: Final = 32
_REQUESTS: Final = b"request"  # separates their hashes from the salts
_SQLITE: Final = b"SQLite format 3\0"
_LINES: Final = "SELECT line FROM trail ORDER BY number"
_FIRST: Final = "SELECT line FROM trail ORDER BY number LIMIT 1"
_LAST: Final = "SELECT number, line FROM trail ORDER BY number DESC LIMIT 1"
_NONE: Final = (0, "")
_NOT_EARLIER: Final = "is another one than in the earlier export"


@dataclass(slots=True)
class _Repeats:
    """The number of equal events since the entry of the first."""

    number: int
    since: datetime
    times: int = 0


class Trail:
    """The open trail of a running party. Opening it enters a start.

    Calls from several threads take turns. If the disk fails, the state file is closed.

    Args:
        server: The party, with its key and its clock.
        terms: The SHA-256 of the terms under which it runs.
    """

    def __init__(self, file: StateFile, server: Server, terms: bytes) -> None:
        file.add(TRAIL)
        _require_own(file.connection, server.name)
        self._file, self._server, self._identity = file, server, server.identity
        self._repeats = dict[float, dict[object, _Repeats]]()
        begun = {"party": server.name, "state": file.id.hex(), "terms": terms.hex()}
        with file.transaction() as connection:
            found = _salts_key(connection)
            self._salts = secrets.token_bytes(_KEY_BYTES) if found is None else found
            if found is None:
                connection.execute("INSERT INTO trail_salts VALUES (1, ?)", (self._salts,))
            known = {_CONTINUES: self._is_own(connection), _KEY: _point(self._identity)}
            self._enter(connection, _START, {**begun, **known})
        file.reuse_log()  # the ledger has made room there for a charge

    def append(
        self,
        kind: str,
        fields: Mapping[str, object],
        *,
        answer: bytes | None = None,
        connection: Connection | None = None,
    ) -> int:
        """Enter an event, and return the number of its entry.

        Args:
            fields: The content of the entry.
            answer: The answer that leaves after the entry, of which only a hash is entered.
            connection: The transaction of which the entry is a part; by default one of its own.
        """
        with self._file.guard:
            own = self._file.transaction() if connection is None else nullcontext(connection)
            with own as transaction:
                self._renew_key(transaction)
                self._enter_repeats(transaction)
                return self._enter(transaction, kind, fields, answer)

    def append_once(
        self,
        same: object,
        kind: str,
        fields: Mapping[str, object],
        *,
        answer: bytes | None = None,
        seconds: float = REPEAT_SECONDS,
    ) -> None:
        """Enter an event, or only count it if an equal one was entered in the last seconds.

        The count is entered after that time, with the next event; if the party ends before, it is
        lost.

        Args:
            same: The value that equal events have in common.
        """
        with self._file.guard:
            repeats = self._repeats.setdefault(seconds, {})
            kept = repeats.get(same)
            if kept is not None and not self._is_over(kept, seconds):
                self._file.require_open()  # after a failure of the disk nothing may leave
                kept.times += 1
                return
            number = self.append(kind, fields, answer=answer)
            repeats.pop(same, None)  # so that the oldest is the first
            repeats[same] = _Repeats(number, self._server.clock())

    def renew_key(self) -> None:
        """Enter another key of the party at once, while the key before it can vouch for it."""
        with self._file.transaction() as transaction:
            self._renew_key(transaction)

    def name_request(self, content: bytes) -> str:
        """Return a name for a request, the same each time, from which nobody can guess it."""
        return blake2b(
            content, key=self._salts, digest_size=_SALT_BYTES, person=_REQUESTS
        ).hexdigest()

    def _enter(
        self,
        transaction: Connection,
        kind: str,
        fields: Mapping[str, object],
        answer: bytes | None = None,
    ) -> int:
        last, line = transaction.execute(_LAST).fetchone() or _NONE
        number = int(last) + 1
        hashed = {}
        if answer is not None:
            hashed["answer"] = answer_digest(_salt(self._salts, number), answer)
        entry = _entry(number, self._server.clock(), line, kind, {**fields, **hashed})
        transaction.execute(
            "INSERT INTO trail VALUES (?, ?)", (number, _signed(entry, self._identity))
        )
        return number

    def _renew_key(self, transaction: Connection) -> None:
        """Enter a new key of the party, for which the key before it vouches."""
        before, now = self._identity, self._server.identity
        if now is before:
            return
        self._identity = now
        if now.fingerprint != before.fingerprint:
            point = _point(now)
            vouched = _sign(point, before)
            self._enter(transaction, _KEY, {_CONTINUES: True, _KEY: point, _VOUCHED: vouched})

    def _is_own(self, transaction: Connection) -> bool:
        """Return whether the key of the party, or its previous one, has signed the last entry."""
        _, line = transaction.execute(_LAST).fetchone() or _NONE
        if not line:
            return False
        member = self._server.roster.member(self._server.name)
        certificates = [self._identity.certificate_pem, member.previous]
        keys = [read_certificate(each)[1].public_key() for each in certificates if each]
        text, _, end = line.rpartition(f',"{_SIGNATURE}":"')
        is_own = any(_is_signed(f"{text}}}", end[:-2], key) for key in keys)
        if not is_own:
            _log.warning(
                "the last entry of the trail of %s has another signature than by its key or its"
                " previous key in the roster. If its key is not new, compare the trail with an"
                " earlier export",
                self._server.name,
            )
        return is_own

    def _enter_repeats(self, transaction: Connection) -> None:
        for seconds, repeats in self._repeats.items():
            oldest = takewhile(lambda each: self._is_over(each[1], seconds), repeats.items())  # noqa: B023  (used at once)
            for same, over in list(oldest):
                del repeats[same]
                if over.times:
                    self._enter(transaction, _REPEATED, {"of": over.number, "times": over.times})

    def _is_over(self, repeats: _Repeats, seconds: float) -> bool:
        age = self._server.clock() - repeats.since
        return not timedelta() <= age < timedelta(seconds=seconds)  # or it was set back


def require_own_state(path: Path, name: str) -> None:
    """Refuse a state file with the trail of another party than that of the key.

    Raises:
        InputError: If it has one.
    """
    with as_store_failed(f"the {TRAIL.name} failed", path), read_state_file(path) as connection:
        find = "SELECT 1 FROM sections WHERE name = ?"
        if connection.execute(find, (TRAIL.name,)).fetchone():
            _require_own(connection, name)


def _require_own(connection: Connection, name: str) -> None:
    row = connection.execute(_FIRST).fetchone()
    party = name if row is None else json.loads(row[0])["party"]
    if party != name:
        raise InputError.because(
            f"the state has the trail of {party}, but the key is that of {name}; use the key and"
            " the state of one party",
            field="state",
        )


def answer_digest(salt: bytes, answer: bytes) -> str:
    """Return the hash of an answer as it is in its entry: the SHA-256 of the salt and the answer.

    Args:
        salt: The salt of the entry, 16 bytes: see `read_salt`.
        answer: The answer: see `Admitted.answer`.
    """
    return hashlib.sha256(salt + answer).hexdigest()


def read_salt(path: Path, number: int) -> bytes:
    """Return the salt of one entry in a state file, with which others can check its answer.

    Raises:
        InputError: If there is no such entry.
    """
    with _reading(path) as connection:
        last, _ = connection.execute(_LAST).fetchone() or _NONE
        require(1 <= number <= last, "--salt", number, f"the number of an entry, up to {last}")
        key = _salts_key(connection)
    return _salt(key or b"", number)


@contextmanager
def read_trail(path: Path) -> Iterator[Iterator[str]]:
    """Open the lines of a state file, even while its party is running, or of an export.

    Raises:
        StoreFailed: If the state file is damaged or incomplete.
    """
    if is_state(path):
        with _reading(path) as connection:
            yield (line for (line,) in connection.execute(_LINES))
        return
    try:
        with path.open(encoding="ascii", newline="\n") as file:
            yield (line.removesuffix("\n") for line in file)
    except UnicodeDecodeError as error:
        raise StoreFailed(f"{path} is no export of a trail, or was changed: {error}") from error


def is_start(line: str) -> bool:
    """Return whether an entry is that of a start."""
    return bool(json.loads(line)["kind"] == _START)


def is_state(path: Path) -> bool:
    """Return whether a file is a state file, and no export."""
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        allowed = f"a configuration, a state file or an export ({error.strerror})"
        raise InputError("trail", path, allowed) from error


class Verified(NamedTuple):
    """A trail that is complete and unchanged.

    Attributes:
        state: The id of the state file.
        entries: The number of entries, without the last line of an export.
        since: The time of the first entry.
        until: The time of the last entry, or of the export.
        head: The SHA-256 of the last entry; others can compare it with that of a later trail.
        keys: The SHA-256 of each key that has signed, the first one first.
    """

    party: str
    state: str
    entries: int
    since: str
    until: str
    head: str
    keys: tuple[str, ...]


def verify_trail(
    lines: Iterable[str], rosters: Sequence[Roster], *, is_export: bool, earlier: Sequence[str] = ()
) -> Verified:
    """Check that all lines are those that the party has signed, in their order.

    A key is accepted if a roster has it, or if an accepted key has vouched for it. Entries of other
    keys are accepted if an accepted key continues them: the party has recognised their last one.

    Args:
        rosters: Rosters with keys of the party.
        is_export: Whether the lines end with that of an export.
        earlier: The lines of an earlier export, whose entries this trail must have.

    Raises:
        StoreFailed: If a line was changed, removed, inserted or moved, or was signed by a key that
            is not accepted.
    """
    chain, number, known = _Chain(rosters), 0, earlier[:-1]
    for number, line in enumerate(lines, 1):
        chain.follow(number, line)
        chain.require(line in known[number - 1 : number] or number > len(known), _NOT_EARLIER)
    last = chain.last
    if not number:
        raise StoreFailed("the trail has no entries: it was removed, or its party never began one")
    if is_export and last["kind"] != _END:
        raise StoreFailed(
            f"the last line is missing after entry {number:,}: the end of the export was cut off."
            " Ask its party for another copy"
        )
    chain.require(number >= len(known), "is the last one, but an earlier export has more")
    chain.require(chain.is_accepted, "is signed by a key that is not in the roster")
    chain.require(
        chain.is_sound, "follows entries by a key that is not in the roster; give also that roster"
    )
    entries = number - 1 if is_export else number
    head = last["previous"] if is_export else _hash(chain.line)
    first = chain.first
    return Verified(
        *(first["party"], first["state"], entries, first["time"], last["time"], head),
        tuple(chain.keys),
    )


class _Chain:
    """The lines of a trail up to one of them.

    Attributes:
        line: The present line.
        first: The first entry.
        last: The present entry.
        keys: The SHA-256 of each key so far.
        is_accepted: Whether the present key is one of the party.
        is_sound: Whether the entries of all keys before it are those of the party, if it is.
    """

    def __init__(self, rosters: Sequence[Roster]) -> None:
        self._rosters, self._number = rosters, 0
        self.line, self.keys, self.is_accepted, self.is_sound = "", list[str](), False, True
        self.first, self.last = dict[str, Any](), dict[str, Any]()
        self._key: ec.EllipticCurvePublicKey | None = None

    def require(self, holds: bool, what: str) -> None:  # noqa: FBT001  (as `require_that`)
        """Refuse the present line."""
        if not holds:
            raise StoreFailed(
                f"entry {self._number:,} of the trail {what}. The trail was changed after it was"
                " written: compare it with an earlier export or a backup"
            )

    def follow(self, number: int, line: str) -> None:
        """Check the next line."""
        before, self.line, self._number = self.line, line, number
        self.require(self.last.get("kind") != _END, "comes after the end of an export")
        try:
            entry = dict[str, Any](json.loads(line))
            signature = str(entry.pop(_SIGNATURE))
            is_whole = line == _text({**entry, _SIGNATURE: signature})
            is_next = entry["number"] == number and entry["previous"] == _hash(before)
            if entry["kind"] in {_START, _KEY, _END}:
                self._change_key(entry)
            is_signed = _is_signed(_text(entry), signature, self._key)
            self.last, self.first = entry, self.first or entry
            is_same = entry["kind"] != _START or all(
                entry[name] == self.first[name] for name in ("party", "state")
            )
        except InputError:  # the roster has no such party
            raise
        except (ValueError, TypeError, KeyError, RecursionError):
            is_whole = False
        self.require(is_whole, "is not a line of a trail")
        self.require(is_next, "does not follow the entry before it")
        self.require(self.first["kind"] == _START and is_same, "belongs to another trail")
        self.require(is_signed, "has a wrong signature")

    def _change_key(self, entry: Mapping[str, Any]) -> None:
        """Use the key of an entry from this entry on."""
        before, self._key = self._key, _key_at(entry[_KEY])
        fingerprint = fingerprint_of_key(self._key)
        if fingerprint not in self.keys[-1:]:
            self.keys.append(fingerprint)
        members = [each.member((self.first or entry)["party"]) for each in self._rosters]
        is_vouched = _is_signed(entry[_KEY], entry.get(_VOUCHED, ""), before)
        if self.first:
            self.is_sound = self.is_sound and (self.is_accepted or entry.get(_CONTINUES, False))
        self.is_accepted = (self.is_accepted and is_vouched) or any(
            fingerprint in {each.fingerprint, each.previous_fingerprint}
            for each in members
            if each.kind == "party"
        )


def export_trail(
    path: Path, to: Path, identity: Identity, roster: Roster, now: datetime
) -> Verified:
    """Write the trail of a state file to a new file, with a last line signed over all.

    Nothing is written unless the trail is complete and unchanged.

    Args:
        identity: The key of the party, which signs.
        now: The time, with its zone.

    Raises:
        StoreFailed: As in `verify_trail`.
    """
    require(not to.exists(), "file", to, "the path of a file that does not exist")
    with read_trail(path) as lines:
        every = list(lines)
    found, name = verify_trail(every, [roster], is_export=False), identity.name
    require(found.party == name, "identity", name, f"the key of {found.party}, whose trail it is")
    key = {_CONTINUES: True, _KEY: _point(identity)}
    end = _entry(found.entries + 1, now, every[-1], _END, key)
    with open_private(to, "x") as file:
        file.writelines(f"{line}\n" for line in [*every, _signed(end, identity)])
    return found


@contextmanager
def _reading(path: Path) -> Iterator[Connection]:
    with as_store_failed(f"the {TRAIL.name} failed", path), read_state_file(path, TRAIL) as file:
        yield file


def _salts_key(connection: Connection) -> bytes | None:
    row = connection.execute("SELECT key FROM trail_salts").fetchone()
    return None if row is None else bytes(row[0])


def _salt(key: bytes, number: int) -> bytes:
    return blake2b(number.to_bytes(8), key=key, digest_size=_SALT_BYTES).digest()


def _entry(
    number: int, now: datetime, before: str, kind: str, fields: Mapping[str, object]
) -> dict[str, object]:
    """Return an entry without its signature. A field without a value is left out."""
    time = now.isoformat(timespec="milliseconds")
    entry = {"number": number, "time": time, "previous": _hash(before), "kind": kind, **fields}
    return {name: value for name, value in entry.items() if value or name == "number"}


def _text(entry: Mapping[str, object]) -> str:
    return json.dumps(entry, separators=(",", ":"))


def _hash(line: str) -> str:
    """Return the SHA-256 of a line, in hexadecimal; the first line follows an empty one."""
    return hashlib.sha256(line.encode()).hexdigest()


def _signed(entry: Mapping[str, object], identity: Identity) -> str:
    """Return the line of an entry, with the signature of all before it."""
    return _text({**entry, _SIGNATURE: _sign(_text(entry), identity)})


def _sign(text: str, identity: Identity) -> str:
    """Return a signature, in hexadecimal."""
    r, s = decode_dss_signature(identity.private_key.sign(text.encode(), _SIGNING))
    return encode_dss_signature(r, min(s, ORDER - s)).hex()


def _is_signed(text: str, signature: str, key: object) -> bool:
    try:
        made = bytes.fromhex(signature)
        if not isinstance(key, ec.EllipticCurvePublicKey) or made.hex() != signature:
            return False
        _, s = decode_dss_signature(made)
        if 2 * s > ORDER:
            return False
        key.verify(made, text.encode(), _SIGNING)
    except (ValueError, InvalidSignature):
        return False
    return True


def _point(identity: Identity) -> str:
    public = identity.private_key.public_key()
    return public.public_bytes(Encoding.X962, PublicFormat.CompressedPoint).hex()


def _key_at(point: str) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, bytes.fromhex(point))
