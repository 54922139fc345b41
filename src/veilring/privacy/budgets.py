"""Budgets and charges of a ledger, and the filter that spends the budget of each record.

An amount such as an epsilon is counted in whole units of 10**-12, so that sums are exact. A charge
is rounded up to the next whole unit and a budget down, except that the rounding of the float
itself, a relative 2**-50, is forgiven: 0.1 is a tenth, and ten of them fit into 1.

Under a filter a record takes part in answers until its own budget is spent. The file never contains
a record's id, only a keyed hash. The spending of records is stored in blocks of many records, and
the additions of a transaction in entries of a journal. Once the journal is as large as the blocks
it is folded into them, so a charge writes little, and little is read at start.

A forgotten record leaves its hash and its spending behind, so it does not return with a fresh
budget. The list of answers that it paid for is erased.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import BudgetExhausted, InputError
from veilring.privacy.checks import require, require_that
from veilring.privacy.statefile import StateFile

UNITS: Final = 10**12
"""The number of units in 1: fine compared with the smallest useful charge, and 64 bits hold nine
million."""
# Sums of two amounts must fit into 64 bits, and an epsilon this large protects nobody.
AMOUNT_MAX: Final = 10**6
# An answer contains the labels or counts of one batch; larger answers belong in a separate file.
ANSWER_BYTES_MAX: Final = 1 << 20
# Characters of a key or an analyst's name: both come from outside and stay in the file permanently.
KEY_SIZE: Final = 256
# twice the rounding error of an amount that was computed, rounded, and multiplied by `UNITS`
_FLOAT_ERROR: Final = 2.0**-50
# The payment of one slot for one answer is a 64-bit number.
_UNITS_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of a ledger. `None` sets no limit, but charges are counted all the same.

    Attributes:
        unit: The unit, such as `"epsilon"` or `"rho"`, for people. Amounts in it must add up under
            composition.
        total: The budget of all answers together. Analysts may share their answers; only this
            budget bounds the combined leakage.
        analyst: The budget of the answers to each analyst.
        analysts: The budgets of individual analysts, by name.
        record: The budget of each record, under an individual filter.

    Raises:
        InputError: If a budget is negative, too large or not a number.
    """

    unit: str = "epsilon"
    total: float | None = None
    analyst: float | None = None
    analysts: Mapping[str, float] = field(default_factory=dict)
    record: float | None = None

    def __post_init__(self) -> None:
        Limits.of(self)


@dataclass(frozen=True, slots=True)
class Limits:
    """Budgets in whole units, as stored in the ledger's file."""

    unit: str
    total: int | None
    analyst: int | None
    analysts: dict[str, int]
    record: int | None

    @classmethod
    def of(cls, budgets: Budgets) -> Self:
        """Return budgets in units, rounded down."""
        require_that(bool(budgets.unit), "unit", "unit is empty; give the name of the unit")
        return cls(
            budgets.unit,
            _units("total", budgets.total),
            _units("analyst", budgets.analyst),
            {
                name: budget_units(amount, field=f"analysts.{name}")
                for name, amount in budgets.analysts.items()
            },
            _units("record", budgets.record),
        )

    def for_analyst(self, name: str) -> int | None:
        """Return the budget of this analyst."""
        return self.analysts.get(name, self.analyst)

    def to_json(self) -> str:
        """Return the stored form."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the limits from their stored form."""
        return cls(**json.loads(text))


def units_left(limit: int | None, spent: int) -> int:
    """Return the remaining units; without a limit, the number that 64 bits can still count."""
    return max(0, (AMOUNT_MAX * UNITS if limit is None else limit) - spent)


def _units(field_name: str, amount: float | None) -> int | None:
    return None if amount is None else budget_units(amount, field=field_name)


ChargeOutcome = bytes | BudgetExhausted | InputError
"""The answer that may be sent, or the reason why it may not."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RecordCharge:
    """The payments of records for one answer, in whole units. The payers and amounts are secret.

    Create it from amounts with `of`. A refusal depends on the largest payment and on how often a
    slot occurs, never on the number of payers. A server that names each slot once can therefore
    charge any number of records, and a refusal does not reveal their number.

    Attributes:
        slots: Slots returned by `Records.add`, shape (m,); a slot may occur several times.
        units: The payment of each, shape (m,), at least 0; the largest, times the occurrences of
            the most frequent slot, is below 2**63.

    Raises:
        InputError: If the shapes differ, a slot is not a whole number, or an amount is out of
            range.
    """

    slots: Ints
    units: Ints

    def __post_init__(self) -> None:
        slots, units = self.slots, self.units
        require_that(
            slots.ndim == 1,
            "slots",
            f"slots has the shape {slots.shape}; it must be one-dimensional",
        )
        for field_name, numbers in (("slots", slots), ("units", units)):
            require(numbers.dtype == np.int64, field_name, numbers.dtype, "64-bit whole numbers")
        fits = units.shape == slots.shape
        require_that(
            fits,
            "amounts",
            f"amounts has the shape {units.shape}; give one for each of the {len(slots)} "
            "slots, or one for all",
        )
        least, most = int(units.min(initial=0)), int(units.max(initial=0))
        _, occurrences = np.unique(slots, return_counts=True)
        summable = least >= 0 and most * int(occurrences.max(initial=0)) < _UNITS_END
        require_that(
            summable,
            "amounts",
            "amounts must be at least 0, and add up to fewer than 2**63 units a slot",
        )

    @classmethod
    def of(cls, slots: ArrayLike, amounts: ArrayLike) -> Self:
        """Return a charge in the ledger's unit.

        Args:
            slots: As for the constructor.
            amounts: The payment of each, shape (m,), or one number for all.
        """
        given, units = np.asarray(slots), to_units(amounts)
        # an empty list has a float type; and a fraction, truncated, would be another record's slot
        where = given.astype(np.int64) if given.dtype.kind in "iu" or not given.size else given
        return cls(where, np.broadcast_to(units, where.shape) if not units.ndim else units)


@dataclass(frozen=True, slots=True)
class Charge:
    """An answer that was computed but not sent, with its price.

    Attributes:
        analyst: The analyst, as authenticated by the transport.
        key: The analyst's own name for this request. A repeated request has the same key.
        request: The request itself, or its hash. Only a hash is stored.
        answer: The bytes to send. They are stored, so that a repeated request gets the same ones.
        amount: The price for the analyst and the total, in the ledger's unit.
        records: The payments of records, if they have filters.
        delta: The δ of the answer, which is added up and has no budget.

    Raises:
        InputError: If a name is empty, too long or not printable, the answer too large, or the
            amount out of range.
    """

    analyst: str
    key: str
    request: bytes = field(repr=False)
    answer: bytes = field(repr=False)
    amount: float = 0.0
    records: RecordCharge | None = field(default=None, repr=False)
    delta: float = 0.0

    def __post_init__(self) -> None:
        require_request_names(self.analyst, self.key)
        fits = len(self.answer) <= ANSWER_BYTES_MAX
        require_that(
            fits,
            "answer",
            f"the answer has {len(self.answer):,} bytes; the limit is {ANSWER_BYTES_MAX:,}",
        )
        to_units(self.amount, field="amount")


def require_request_names(analyst: str, key: str) -> None:
    """Refuse names that are empty, too long, or contain characters that cannot be stored."""
    for field_name, text in (("analyst", analyst), ("key", key)):
        fits = 0 < len(text) <= KEY_SIZE and text.isprintable()
        require_that(
            fits,
            field_name,
            f"{field_name} has {len(text)} characters; it must have 1 to {KEY_SIZE} printable "
            "characters",
        )


def digest_of(request: bytes) -> bytes:
    """Return the stored hash of a request."""
    return hashlib.sha256(request).digest()


def merge_slots(slots: Ints, units: Ints) -> tuple[Ints, Ints]:
    """Return each slot once, sorted, with the sum of its units."""
    if not len(slots):
        return slots, units
    order = np.argsort(slots, kind="stable")
    ranked = slots[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=ranked[0] - 1))
    return ranked[starts], np.add.reduceat(units[order], starts)


def to_units(amounts: ArrayLike, *, field: str = "amounts") -> Ints:
    """Return charges in units, rounded up.

    Args:
        amounts: The charges, in any shape, each from 0 to `AMOUNT_MAX`.
        field: The name for errors, which do not show the values, because these may be secret.
    """
    return _units_of(amounts, field, np.ceil)


def budget_units(amount: float, *, field: str) -> int:
    """Return a budget in units, rounded down."""
    return int(_units_of(amount, field, np.floor))


def from_units(units: ArrayLike) -> Floats:
    """Return the amounts of these units."""
    return np.asarray(units, np.int64) / float(UNITS)


def _units_of(amounts: ArrayLike, field: str, rounded: np.ufunc) -> Ints:
    """Return amounts in units: the nearest ones if a float's rounding error may have moved them."""
    given = np.asarray(amounts, np.float64)
    valid = bool(np.all((given >= 0) & (given <= AMOUNT_MAX)))
    require_that(valid, field, f"{field} must be from 0 to {AMOUNT_MAX:,}")
    whole = np.floor(given)
    rest = (given - whole) * UNITS  # a float with all digits of the whole amount would round it
    nearest = np.rint(rest)
    is_moved = np.abs(rest - nearest) <= given * UNITS * _FLOAT_ERROR
    units = np.where(is_moved, nearest, rounded(rest)).astype(np.int64)
    return whole.astype(np.int64) * UNITS + units


# Smaller journals are not folded, whatever the number of records: reading this much takes no time.
JOURNAL_BYTES_MAX: Final = 1 << 20
# Records in a block: with 8 bytes each, a block fits into one page of the file.
_BLOCK: Final = 500
# Slots in an entry of the journal, 8 bytes each: SQLite allows 10**9 bytes in a field, and whether
# a charge fits must not depend on the number of paying records.
_ENTRY: Final = 1 << 16
_DIGEST_BYTES: Final = 16  # no collision among 2**40 records, except with probability 2**-48
_ON_DISK: Final = np.dtype("<i8")


class Records:
    """The filters of a ledger's records, available as `Ledger.records`.

    Args:
        limit: The budget of each record, in units.
    """

    def __init__(self, store: StateFile, limit: int | None, key: bytes) -> None:
        self._store, self._guard, self._key = store, store.guard, key
        self._limit = units_left(limit, 0)
        self._spent, self._journal_bytes, self._dirty = _load_spent(store.connection)
        live = store.connection.execute("SELECT live FROM records ORDER BY number")
        self._live = np.fromiter((row[0] for row in live), np.bool_)
        self._pending: list[tuple[Ints, Ints]] = []

    def __len__(self) -> int:
        """The number of records ever added: slots are below it."""
        return len(self._spent)

    def add(self, ids: Iterable[str]) -> Ints:
        """Add records, and return the slot of each, shape (m,), in the given order.

        A new record has a fresh budget. A record that was added before, by this process or an
        earlier one, forgotten or not, has its old slot and its remaining budget. A server therefore
        simply adds all records at start.
        """
        digests = [self._digest(each) for each in ids]
        with self._guard:
            with self._store.transaction() as connection:
                slots = _slots(connection, digests)
                # A server adds all records at each start: existing ones are not written.
                back = {int(slot) for slot in slots[slots >= 0] if not self._live[slot]}
                revive = "UPDATE records SET live = 1 WHERE number = ?"
                connection.executemany(revive, ((slot + 1,) for slot in sorted(back)))
                new = dict.fromkeys(digests[place] for place in np.flatnonzero(slots < 0))
                insert = "INSERT INTO records (digest, live) VALUES (?, 1)"
                connection.executemany(insert, ((digest,) for digest in new))
                if new:
                    slots = _slots(connection, digests)
            more = max(0, int(slots.max(initial=-1)) + 1 - len(self))
            self._spent = np.concatenate([self._spent, np.zeros(more, np.int64)])
            self._live = np.concatenate([self._live, np.ones(more, np.bool_)])
            self._live[slots] = True
        return slots

    def forget(self, ids: Iterable[str]) -> None:
        """Remove records at once; the file no longer contains which answers they paid for.

        Their keyed hashes stay, with their spending.
        """
        digests = [self._digest(each) for each in ids]
        with self._guard:
            slots = _slots(self._store.connection, digests)
            if (slots < 0).any():
                raise InputError.because("there is an unknown id; add it first", field="ids")
            with self._store.transaction() as connection:
                mark = "UPDATE records SET live = 0 WHERE number = ?"
                connection.executemany(mark, ((int(slot) + 1,) for slot in slots))
                self._fold()
            self._live[slots] = False
            self._store.wipe()

    def known(self, ids: Iterable[str]) -> Bools:
        """Return whether each was ever added, forgotten or not, shape (m,)."""
        digests = [self._digest(each) for each in ids]
        with self._guard:
            return _slots(self._store.connection, digests) >= 0

    def remaining(self) -> Ints:
        """Return the remaining units of each slot, shape (n,); none for a forgotten record.

        The result is a copy. Budgets of records are secret: never put them, their sums or quantiles
        into a message, log or error.
        """
        with self._guard:
            self._store.require_open()
            return np.where(self._live, np.maximum(0, self._limit - self._spent), 0)

    def pay(self, charge: RecordCharge) -> bool:
        """Charge all records or none, and return which; `write` follows in the same transaction."""
        slots, units = merge_slots(charge.slots, charge.units)
        if len(slots) and not 0 <= slots[0] <= slots[-1] < len(self):
            raise InputError.because(
                "there is an unknown slot; use only slots that `add` returned", field="slots"
            )
        enough = self._live[slots] & (units <= self._limit - self._spent[slots])
        if not np.all(enough | (units == 0)):
            return False
        self._spent[slots] += units
        self._pending.append((slots, units))
        return True

    def write(self) -> None:
        """Write the charges since the last time, within a transaction."""
        if not self._pending:
            return
        slots, units = merge_slots(*map(np.concatenate, zip(*self._pending, strict=True)))
        self._pending.clear()
        pieces = (slice(first, first + _ENTRY) for first in range(0, len(slots), _ENTRY))
        on_disk = slots.astype(_ON_DISK), units.astype(_ON_DISK)
        entries = ([numbers[piece].tobytes() for numbers in on_disk] for piece in pieces)
        insert = "INSERT INTO journal (slots, units) VALUES (?, ?)"
        self._store.connection.executemany(insert, entries)
        self._dirty.update(np.unique(slots // _BLOCK).tolist())
        self._journal_bytes += sum(numbers.nbytes for numbers in on_disk)
        if self._journal_bytes > max(JOURNAL_BYTES_MAX, self._spent.nbytes):
            self._fold()

    def _fold(self) -> None:
        """Write the blocks that the journal changed, and empty the journal."""
        blocks = ((number, self._block(number)) for number in sorted(self._dirty))
        connection = self._store.connection
        connection.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?)", blocks)
        connection.execute("DELETE FROM journal")
        self._dirty.clear()
        self._journal_bytes = 0

    def _block(self, number: int) -> bytes:
        units = self._spent[number * _BLOCK : (number + 1) * _BLOCK]
        return units.astype(_ON_DISK).tobytes()

    def _digest(self, name: str) -> bytes:
        return hashlib.blake2b(name.encode(), key=self._key, digest_size=_DIGEST_BYTES).digest()


class Places:
    """Secret blobs of one size in a ledger, in places that are overwritten: `Ledger.places`.

    SQLite overwrites a blob by one of the same size where it is, and `secure_delete` zeroes what it
    moves. An erased blob is then in no page and, after `StateFile.wipe`, in no log. A place is
    reused, never deleted.
    """

    def __init__(self, store: StateFile) -> None:
        self._store = store

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield each place's number and content."""
        yield from self._store.connection.execute("SELECT number, content FROM places")

    def get(self, number: int) -> bytes:
        """Return the content of a place."""
        find = "SELECT content FROM places WHERE number = ?"
        (content,) = self._store.connection.execute(find, (number,)).fetchone()
        return bytes(content)

    def put(self, contents: Mapping[int, bytes]) -> None:
        """Write places in one transaction; they are durable when this returns."""
        write = (
            "INSERT INTO places VALUES (?, ?) ON CONFLICT DO UPDATE SET content = excluded.content"
        )
        with self._store.transaction() as connection:
            connection.executemany(write, contents.items())

    def erase(self, numbers: Sequence[int]) -> None:
        """Overwrite places with zeros: when this returns, no file contains their contents."""
        zero = "UPDATE places SET content = zeroblob(length(content)) WHERE number = ?"
        with self._store.guard:
            with self._store.transaction() as connection:
                connection.executemany(zero, ((number,) for number in numbers))
            self._store.wipe()


def _slots(connection: sqlite3.Connection, digests: Iterable[bytes]) -> Ints:
    """Return the slot of each record; -1 for unknown ones."""
    find = "SELECT number FROM records WHERE digest = ?"
    rows = (connection.execute(find, (digest,)).fetchone() for digest in digests)
    return np.fromiter((row[0] - 1 if row else -1 for row in rows), np.int64)


def _load_spent(connection: sqlite3.Connection) -> tuple[Ints, int, set[int]]:
    """Return the spending of each slot, the size of the journal, and the blocks that it changed."""
    (count,) = connection.execute("SELECT count(*) FROM records").fetchone()
    spent, size, dirty = np.zeros(count, np.int64), 0, set[int]()
    for number, units in connection.execute("SELECT number, units FROM blocks"):
        block = np.frombuffer(units, _ON_DISK)
        spent[number * _BLOCK : number * _BLOCK + len(block)] = block
    for slots, units in connection.execute("SELECT slots, units FROM journal"):
        where = np.frombuffer(slots, _ON_DISK)
        spent[where] += np.frombuffer(units, _ON_DISK)
        size += len(slots) + len(units)
        dirty.update(np.unique(where // _BLOCK).tolist())
    return spent, size, dirty
