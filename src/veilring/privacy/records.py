"""A filter for each record: it takes part in answers until its own budget is spent.

The file never contains a record's id, only a keyed hash. The spending of records is stored in
blocks of many records, and the additions of a transaction in entries of a journal. Once the journal
is as large as the blocks it is folded into them, so a charge writes little, and little is read at
start.

A forgotten record leaves its hash and its spending behind, so it does not return with a fresh
budget. The list of answers that it paid for is erased.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import RLock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.budgets import RecordCharge, merge_slots, units_left
from veilring.privacy.statefile import StateFile

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

    def __init__(self, store: StateFile, guard: RLock, limit: int | None, key: bytes) -> None:
        self._store, self._guard, self._key = store, guard, key
        self._limit = units_left(limit, 0)
        self._spent, self._journal_bytes, self._dirty = _load_spent(store.connection)
        live = store.connection.execute("SELECT live FROM records ORDER BY number")
        self._live = np.fromiter((row[0] for row in live), np.bool_)
        self._pending: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    def __len__(self) -> int:
        """The number of records ever added: slots are below it."""
        return len(self._spent)

    def add(self, ids: Iterable[str]) -> NDArray[np.int64]:
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

    def known(self, ids: Iterable[str]) -> NDArray[np.bool_]:
        """Return whether each was ever added, forgotten or not, shape (m,)."""
        digests = [self._digest(each) for each in ids]
        with self._guard:
            return _slots(self._store.connection, digests) >= 0

    def remaining(self) -> NDArray[np.int64]:
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
                "there is an unknown slot; use only slots that `add` returned",
                field="slots",
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

    def __init__(self, store: StateFile, guard: RLock) -> None:
        self._store, self._guard = store, guard

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
        with self._guard, self._store.transaction() as connection:
            connection.executemany(write, contents.items())

    def erase(self, numbers: Sequence[int]) -> None:
        """Overwrite places with zeros: when this returns, no file contains their contents."""
        zero = "UPDATE places SET content = zeroblob(length(content)) WHERE number = ?"
        with self._guard:
            with self._store.transaction() as connection:
                connection.executemany(zero, ((number,) for number in numbers))
            self._store.wipe()


def _slots(connection: sqlite3.Connection, digests: Iterable[bytes]) -> NDArray[np.int64]:
    """Return the slot of each record; -1 for unknown ones."""
    find = "SELECT number FROM records WHERE digest = ?"
    rows = (connection.execute(find, (digest,)).fetchone() for digest in digests)
    return np.fromiter((row[0] - 1 if row else -1 for row in rows), np.int64)


def _load_spent(connection: sqlite3.Connection) -> tuple[NDArray[np.int64], int, set[int]]:
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
