"""The durable ledger of privacy budgets: no answer is sent before it is charged.

One engine counts the spending of analysts, individually and together, and the remaining budget of
each record under an individual filter. A charge and its answer are one transaction of one SQLite
file.
"""

import logging
import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from veilring.errors import BudgetExhausted, InputError, StoreFailed
from veilring.privacy.budgets import (
    UNITS,
    Budgets,
    Charge,
    ChargeOutcome,
    Limits,
    Places,
    Records,
    digest_of,
    from_units,
    require_request_names,
    to_units,
    units_left,
)
from veilring.privacy.checks import require_that
from veilring.privacy.statefile import MEMORY, Section, StateFile, open_state_file, read_state_file

_SCHEMA: Final = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE analysts (
    name TEXT PRIMARY KEY, spent INTEGER NOT NULL, answers INTEGER NOT NULL
);
CREATE TABLE answers (
    analyst TEXT NOT NULL, key TEXT NOT NULL, request BLOB NOT NULL, answer BLOB NOT NULL,
    units INTEGER NOT NULL, PRIMARY KEY (analyst, key)
);
CREATE TABLE records (
    number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, live INTEGER NOT NULL
);
CREATE TABLE blocks (number INTEGER PRIMARY KEY, units BLOB NOT NULL);
CREATE TABLE journal (number INTEGER PRIMARY KEY, slots BLOB NOT NULL, units BLOB NOT NULL);
CREATE TABLE places (number INTEGER PRIMARY KEY, content BLOB NOT NULL);
"""
_log = logging.getLogger("veilring.state")
LEDGER: Final = Section(
    name="ledger",
    version=1,
    schema=_SCHEMA,
    sealed=("settings", "analysts", "answers", "records", "blocks", "journal", "places"),
    loss="charges are forgotten, and their budget can be spent again",
)
_KEY_BYTES: Final = 32
# Twice the pages that a charge rewrites: those of its three tables, of their indexes, of what is
# written beside it about the same request, and of the row about the file itself.
_CHARGE_BYTES: Final = 28 * 4096
_ROOM: Final = "room"  # the setting that only occupies space
_DELTA: Final = "delta"  # the setting with the sum of the δ that were charged
_OWNERS: Final = "owner's "  # begins the names of settings that are not the ledger's own
_FINGERPRINT_BYTES: Final = 32
_FINGERPRINTS: Final = b"fingerprint"  # separates them from the hashes of records' ids
_OWN_KEY_BYTES: Final = (
    16,
    64,
)  # the minimum makes a key unguessable; BLAKE2b accepts no more than the maximum


def open_ledger(
    path: Path | StateFile | None,
    budgets: Budgets,
    *,
    key: bytes | None = None,
    amend: bool = False,
    new: bool = False,
    copy: bool = False,
) -> "Ledger":
    """Open a ledger, or create it if asked.

    Args:
        path: The file, on a disk of this machine, or an open one with the section `LEDGER`; none
            for a ledger in memory, for simulations.
        budgets: The budgets with which the ledger was created. Others are accepted, too, as long
            as it has neither answers nor records.
        key: 16 to 64 secret bytes for the hashes of records' ids and for fingerprints, the same
            each time, for owners who keep secrets elsewhere. Without it the file contains its own
            key, and anyone with the file can test guesses of ids and of fingerprinted data.
        amend: Whether to accept changed budgets. Charges are kept, and the unit stays the same.
        new: Whether to create the file, which must not exist; otherwise it must. A lost ledger is
            therefore never replaced by an empty one unnoticed.
        copy: Whether to open a copy of the file in memory; see `open_state_file`.

    Raises:
        InputError: If it does not exist or, with `new`, exists. If another process is writing it,
            it is not a ledger, or it was created with other budgets or another key. If records are
            to have budgets after answers were charged without them, even with `amend`.
        StoreFailed: If the disk failed, or the file is damaged; the message gives the remedy.
    """
    shortest, longest = _OWN_KEY_BYTES
    require_that(  # before a file is created
        key is None or shortest <= len(key) <= longest,
        "key",
        f"the key has {len(key or b'')} bytes; it must have {shortest} to {longest}, and be secret",
    )
    limits = Limits.of(budgets)
    where = path.path if isinstance(path, StateFile) else path
    try:
        store = (
            path
            if isinstance(path, StateFile)
            else open_state_file(path, LEDGER, new=new, copy=copy)
        )
        ledger = _opened(store, limits, key, amend=amend)
    except (sqlite3.Error, OSError) as error:
        raise ledger_unreadable(where, error) from error
    if where is not None:
        _log.info("%s: %s", where.name, ledger.totals())
    return ledger


def _opened(store: StateFile, limits: Limits, key: bytes | None, *, amend: bool) -> "Ledger":
    try:
        hash_key = _settle_key(store, key)  # a process with another key changes nothing
        _settle_budgets(store, limits, amend=amend)
        ledger = Ledger(store, limits, hash_key)
        store.wipe()  # removes the traces of a forgotten record after a crash
    except BaseException:
        store.close()
        raise
    return ledger


@dataclass(frozen=True, slots=True)
class AnalystTotal:
    """The spending of one analyst.

    Attributes:
        spent: The amount spent, in the ledger's unit.
        budget: The budget; none if unlimited.
        answers: The number of answers that were charged, counting repeated ones once.
    """

    name: str
    spent: float
    budget: float | None
    answers: int


@dataclass(frozen=True, slots=True)
class Totals:
    """The total spending.

    Attributes:
        unit: The unit.
        budget: The total budget; none if unlimited.
        analysts: The analysts that have spent anything.
        delta: The sum of the δ that were charged; versions before this key did not count it.
    """

    unit: str
    spent: float
    budget: float | None
    answers: int
    analysts: tuple[AnalystTotal, ...]
    delta: float = 0.0

    @property
    def left(self) -> float | None:
        """The remaining budget; none if unlimited."""
        return None if self.budget is None else max(0.0, self.budget - self.spent)

    def left_for(self, analyst: AnalystTotal) -> float | None:
        """Return the remaining budget of an analyst, or the total one if that is smaller."""
        if analyst.budget is None:
            return self.left
        own = max(0.0, analyst.budget - analyst.spent)
        return own if self.left is None else min(own, self.left)

    def __str__(self) -> str:
        left = "without a limit"
        if self.budget is not None:
            left = f"{self.left:.6g} of {self.budget:.6g} left"
        delta = f" with delta {self.delta:g}" if self.delta else ""
        return f"{self.spent:.6g} {self.unit} spent on {self.answers:,} answers{delta}, {left}"


class Ledger:
    """An open ledger, to be used in a `with` block. Create it with `open_ledger`.

    Calls from several threads take turns. Each returns once its changes are on disk; an asyncio
    server calls it through `asyncio.to_thread`, and submits several charges at once.

    If the disk fails, SQLite's error is raised and the ledger is closed: a charge in progress is
    either on disk or not, and reopening the ledger shows which.

    Attributes:
        records: The filters of individual records.
        places: Secret blobs that can be erased.
    """

    def __init__(self, store: StateFile, limits: Limits, key: bytes) -> None:
        self._store, self._limits, self._guard, self._key = store, limits, store.guard, key
        self.records = Records(store, limits.record, key)
        self.places = Places(store)
        rows = store.connection.execute("SELECT name, spent FROM analysts").fetchall()
        self._spent = Counter(dict(rows))
        self._reserved = dict[tuple[str, str], int]()
        self._total = sum(self._spent.values())
        self._delta = float(_setting(store, _DELTA) or 0)

    @property
    def id(self) -> bytes:
        """The ledger's unique id: 16 random bytes, the same each time."""
        return self._store.id

    @property
    def file(self) -> StateFile:
        """The state file that the ledger is in."""
        return self._store

    def recall(self, name: str) -> str | None:
        """Return the value stored under this name, or `None`."""
        with self._guard:
            kept = _setting(self._store, _OWNERS + name)
        return None if kept is None else kept.decode()

    def keep(self, name: str, value: str) -> None:
        """Store a value that must be the same, or known, whenever this ledger is used again."""
        with self._guard:
            _set(self._store, _OWNERS + name, value.encode())

    def fingerprint(self, data: bytes) -> str:
        """Return a hash of secret data under the ledger's key, as 64 hexadecimal digits.

        Without the key nobody can compare it with a guess of the data. It differs from a record's
        hash of the same data.
        """
        made = blake2b(data, key=self._key, person=_FINGERPRINTS, digest_size=_FINGERPRINT_BYTES)
        return made.hexdigest()

    def find(self, analyst: str, key: str, request: bytes) -> bytes | None:
        """Return the earlier answer to this request, or none if it is new.

        Raises:
            InputError: If the analyst used this key for another request, or the key is invalid.
        """
        require_request_names(analyst, key)
        with self._guard:
            return self._find(analyst, key, digest_of(request))

    def has(self, analyst: str, key: str) -> bool:
        """Return whether any request with this key was answered."""
        with self._guard:
            find = "SELECT 1 FROM answers WHERE analyst = ? AND key = ?"
            return self._store.connection.execute(find, (analyst, key)).fetchone() is not None

    def check(self, analyst: str, amount: float) -> None:
        """Raise any budget error that `charge` would raise now for this analyst and amount.

        It saves work on an answer that could not be paid for. Others may charge before that answer
        is ready, so a later charge can still fail.

        Raises:
            BudgetExhausted: If a budget is insufficient.
            InputError: If the amount is out of range.
        """
        with self._guard:
            self._store.require_open()
            self._require(analyst, int(to_units(amount, field="amount")))

    def has_charged(self, request: bytes) -> bool:
        """Return whether anyone was charged for this request, under any key."""
        with self._guard:
            find = "SELECT 1 FROM answers WHERE request = ?"
            found = self._store.connection.execute(find, (digest_of(request),)).fetchone()
            return found is not None

    @contextmanager
    def reserving(self, charge: Charge, size: int = 0) -> Iterator[None]:
        """Reserve budget and space on the disk for a charge, until the block is left.

        Only a charge with the same analyst and key can then spend this part of the budgets. Charge
        in the block, or not at all.

        Args:
            charge: The charge that may follow.
            size: The size of an answer to store besides it, in bytes.

        Raises:
            BudgetExhausted: If a budget is insufficient, given all charges and reservations.
            InputError: If the ledger is closed.
            sqlite3.Error: If the disk fails or has no space for it.
        """
        name = charge.analyst, charge.key
        try:
            with self._guard:
                self.check(charge.analyst, charge.amount)
                self._reserved[name] = int(to_units(charge.amount))
                self.make_room(size)
            yield
        finally:
            with self._guard:
                self._reserved.pop(name, None)

    def make_room(self, size: int = 0) -> None:
        """Write as much as the reserved charges, at least one, and an answer will write.

        Afterwards they need no new space, because they overwrite the same pages of the log; a file
        system that never overwrites, and a long reading of the ledger, are the exceptions.

        Args:
            size: The size of the answer, in bytes.

        Raises:
            InputError: If the ledger is closed.
            sqlite3.Error: If the disk fails or has no space for it.
        """
        with self._guard:
            charges = max(1, len(self._reserved))
            _set(self._store, _ROOM, bytes(charges * _CHARGE_BYTES + size))
            self._store.reuse_log()

    def charge(
        self, charge: Charge, beside: Callable[[sqlite3.Connection], object] | None = None
    ) -> bytes:
        """Charge, and return the answer that may now be sent.

        If the request was charged before, the earlier answer is returned, and nothing is charged.

        Args:
            beside: Called in the same transaction if the request is charged now.

        Raises:
            BudgetExhausted: If a budget is insufficient. Nothing was charged, and nothing may be
                sent.
            InputError: If the analyst used this key for another request, or a slot is unknown.
        """
        (outcome,) = self.charge_many([charge], beside)
        if isinstance(outcome, bytes):
            return outcome
        raise outcome

    def charge_many(
        self,
        charges: Iterable[Charge],
        beside: Callable[[sqlite3.Connection], object] | None = None,
    ) -> list[ChargeOutcome]:
        """Charge several answers in one transaction, which waits for the disk once.

        Args:
            beside: Called in the same transaction if any of them is charged now.

        Returns:
            For each the result of `charge`, or its error: a refused charge does not affect the
            others.
        """
        given, charged = list(charges), Counter[str]()
        with self._guard:
            with self._store.transaction() as connection:
                outcomes = [self._settle(charge, charged) for charge in given]
                self._write_analysts(charged)
                if beside is not None and charged:
                    beside(connection)
                self.records.write()
            return outcomes

    def remaining(self, analyst: str) -> float:
        """Return the remaining budget of an analyst, or the total one if that is smaller.

        Reserved budget does not remain.
        """
        with self._guard:
            self._store.require_open()
            return float(from_units(min(amount for _, amount in self._left(analyst))))

    def totals(self) -> Totals:
        """Return the spending in total and of each analyst."""
        with self._guard:
            return _totals_of(self._store.connection)

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._guard:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _settle(self, charge: Charge, charged: Counter[str]) -> ChargeOutcome:
        """Charge within a transaction, or return the error; then nothing has changed."""
        digest, units = digest_of(charge.request), int(to_units(charge.amount))
        try:
            kept = self._find(charge.analyst, charge.key, digest)
            if kept is not None:
                return kept
            self._reserved.pop((charge.analyst, charge.key), None)
            self._pay(charge, units)
        except (BudgetExhausted, InputError) as refusal:
            return refusal
        self._store.connection.execute(
            "INSERT INTO answers VALUES (?, ?, ?, ?, ?)",
            (charge.analyst, charge.key, digest, charge.answer, units),
        )
        charged[charge.analyst] += units > 0  # what is only stored is no answer of its own
        self._delta += charge.delta
        return charge.answer

    def _find(self, analyst: str, key: str, digest: bytes) -> bytes | None:
        find = "SELECT request, answer FROM answers WHERE analyst = ? AND key = ?"
        row = self._store.connection.execute(find, (analyst, key)).fetchone()
        if row is None:
            return None
        if row[0] != digest:
            raise InputError.because(
                "this request key was already used for a different request; use a new one",
                field="key",
            )
        return bytes(row[1])

    def _pay(self, charge: Charge, units: int) -> None:
        """Charge all budgets, or raise and charge none."""
        self._require(charge.analyst, units)
        if charge.records is not None and not self.records.pay(charge.records):
            raise BudgetExhausted("record")
        self._spent[charge.analyst] += units
        self._total += units

    def _require(self, analyst: str, units: int) -> None:
        for budget, amount in self._left(analyst):
            if units > amount:
                asked, rest = float(from_units(units)), float(from_units(amount))
                raise BudgetExhausted(budget, asked, rest, self._limits.unit)

    def _left(self, analyst: str) -> tuple[tuple[str, int], ...]:
        reserved = sum(units for (name, _), units in self._reserved.items() if name == analyst)
        own = units_left(self._limits.for_analyst(analyst), self._spent[analyst] + reserved)
        total = units_left(self._limits.total, self._total + sum(self._reserved.values()))
        return ("analyst", own), ("total", total)

    def _write_analysts(self, charged: Counter[str]) -> None:
        self._store.connection.executemany(
            "INSERT INTO analysts VALUES (?, ?, ?) ON CONFLICT (name)"
            " DO UPDATE SET spent = excluded.spent, answers = answers + excluded.answers",
            ((name, self._spent[name], answers) for name, answers in charged.items()),
        )
        if self._delta:
            row = _DELTA, repr(self._delta).encode()
            self._store.connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", row)


def _settle_budgets(store: StateFile, limits: Limits, *, amend: bool) -> None:
    kept = _setting(store, "budgets")
    if kept == limits.to_json().encode():
        return
    if _is_unused(store):
        kept = None  # nobody relies on the budgets with which it was created
    if kept is not None and not amend:
        raise InputError.because(
            "the ledger was created with other budgets; use those, or change them with `amend`",
            field="budgets",
        )
    if kept is not None:
        before = Limits.from_json(kept.decode())
        require_that(
            before.unit == limits.unit,
            "budgets.unit",
            f"the ledger counts in {before.unit}, not in {limits.unit}",
        )
        # the leakage of answers without them is known only for all records together
        require_that(
            before.record is not None or limits.record is None,
            "budgets.record",
            "a budget for each record cannot be added after answers were charged without one; leave"
            " it out as before, or create another ledger whose budgets are reduced by the amounts"
            " spent from this one",
        )
    _set(store, "budgets", limits.to_json().encode())


def _is_unused(store: StateFile) -> bool:
    (used,) = store.connection.execute(
        "SELECT EXISTS (SELECT 1 FROM answers UNION ALL SELECT 1 FROM records)"
    ).fetchone()
    return not used


def _settle_key(store: StateFile, key: bytes | None) -> bytes:
    """Return the key of the hashes, and make sure that it never changes."""
    if key is None:
        own = _setting(store, "key")
        if own is None and _setting(store, "key check") is None:
            own = secrets.token_bytes(_KEY_BYTES)
            _set(store, "key", own)
        if own is None:
            raise InputError.because(
                "the key is missing; give the one with which the ledger was created", field="key"
            )
        return own
    check = digest_of(b"veilring ledger" + key)
    if _setting(store, "key") is None and _setting(store, "key check") is None:
        _set(store, "key check", check)
    if _setting(store, "key check") != check:
        raise InputError.because(
            "this is not the key with which the ledger was created", field="key"
        )
    return key


def _setting(store: StateFile, name: str) -> bytes | None:
    row = store.connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return None if row is None else bytes(row[0])


def _set(store: StateFile, name: str, value: bytes) -> None:
    with store.transaction() as connection:
        connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))


def read_totals(path: Path) -> Totals:
    """Read the totals of a ledger, even while another process is writing it.

    Raises:
        StoreFailed: If the disk failed, or the file is damaged.
    """
    try:
        with read_state_file(path, LEDGER) as connection:
            return _totals_of(connection)
    except sqlite3.Error as error:
        raise ledger_unreadable(path, error) from error


def _totals_of(connection: sqlite3.Connection) -> Totals:
    """Return the totals in a ledger's file."""
    # One statement reads one snapshot, even while another process writes.
    rows = connection.execute(
        "SELECT value, name, spent, answers,"
        " (SELECT CAST(value AS TEXT) FROM settings WHERE name = 'delta') FROM"
        " (SELECT CAST(value AS TEXT) AS value FROM settings WHERE name = 'budgets')"
        " LEFT JOIN (SELECT name, spent, answers FROM analysts WHERE spent > 0) ON true"
        " ORDER BY name"
    ).fetchall()
    if not rows:
        raise InputError.because(
            "the ledger has no budgets; create it with `open_ledger`", field="ledger"
        )
    limits = Limits.from_json(rows[0][0])
    each = [row[1:4] for row in rows if row[1] is not None]
    return Totals(
        limits.unit,
        sum(spent for _, spent, _ in each) / UNITS,
        _amount(limits.total),
        sum(answers for _, _, answers in each),
        tuple(
            AnalystTotal(name, spent / UNITS, _amount(limits.for_analyst(name)), answers)
            for name, spent, answers in each
        ),
        float(rows[0][4] or 0),
    )


def _amount(units: int | None) -> float | None:
    return None if units is None else units / UNITS


def ledger_unreadable(path: Path | None, error: Exception) -> StoreFailed:
    """Return the error message for a ledger that cannot be opened or read."""
    return StoreFailed(
        f"{path or MEMORY}: {error}. Check the disk and its permissions. If the file is "
        f"damaged, restore your newest copy: without it, {LEDGER.loss}"
    )
