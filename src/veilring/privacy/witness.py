"""The witness of a state file: its lock, and the last written state of that file.

It is a file next to the state file, and an SQLite file as well, so that locks use each operating
system's own mechanism. It is not synced at each transaction: after a power loss it may record fewer
transactions than were made, never more.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgpack

from veilring.errors import InputError, StoreFailed
from veilring.privacy.files import create_private

# The time to wait for the lock of a file; another writer's transaction takes less.
BUSY_SECONDS: Final = 5.0
# The time to wait for a reader of the witness, which holds its lock for the time of one row.
_WITNESS_SECONDS: Final = 0.5
# Sums of hashes of this size: accidents do not produce two tables with one sum.
SEAL_BYTES: Final = 16
_COUNT_BYTES: Final = 8
# Errors of SQLite or Python on changed bytes: a broken page, or an invalid text.
UNREADABLE: Final = (sqlite3.DatabaseError, ValueError, TypeError, OverflowError)
# The number of transactions is a blob: an integer would change its size as it grows, and the row
# its place, which a power loss could tear.
_WITNESS_SCHEMA: Final = """
CREATE TABLE witness (id BLOB NOT NULL, transactions BLOB NOT NULL, digest BLOB NOT NULL);
"""


class StateRefused(StoreFailed):
    """State is missing, damaged or incomplete: a person has to restore it."""


class Witness:
    """The witness of a state file that this process may write, until it is closed."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.beside, self._name = path, lock_path(path), name
        create_private(self.beside, name)
        self._lock = sqlite3.connect(
            self.beside, timeout=_WITNESS_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            self.known = self._locked()
        except BaseException:
            self._lock.close()
            raise

    def write(self, file_id: bytes, transactions: int) -> None:
        """Store the current state of the state file."""
        count = transactions.to_bytes(_COUNT_BYTES)
        digest = hash_row(("witness", file_id, count)).to_bytes(SEAL_BYTES)
        row = (file_id, count, digest)
        if self.known is None:
            self._lock.executescript(f"BEGIN;{_WITNESS_SCHEMA}")
            self._lock.execute("INSERT INTO witness VALUES (?, ?, ?)", row)
            self._lock.execute("COMMIT")
            self._change_in_place()
            # SQLite leaves the journal of a locked file, whose header it has zeroed.
            self.beside.with_name(f"{self.beside.name}-journal").unlink(missing_ok=True)
        else:
            self._lock.execute("UPDATE witness SET id = ?, transactions = ?, digest = ?", row)
        self.known = file_id, transactions

    def close(self) -> None:
        """Drop the lock."""
        self._lock.close()

    def _locked(self) -> tuple[bytes, int] | None:
        try:
            # the lock taken by the first transaction is kept until the connection is closed
            self._lock.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._lock.execute("BEGIN EXCLUSIVE")
            known = _known_in(self._lock, self.path)
            self._lock.execute("COMMIT")
            if known is not None:
                self._change_in_place()
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY:
                raise _damaged_witness(self.path) from None
            raise in_use(self.path, self._name) from None
        except UNREADABLE:
            raise _damaged_witness(self.path) from None
        return known

    def _change_in_place(self) -> None:
        """Write without a journal on disk and without waiting: a row never changes its size."""
        self._lock.execute("PRAGMA journal_mode = MEMORY")
        self._lock.execute("PRAGMA synchronous = OFF")


def known_to_readers(path: Path) -> tuple[bytes, int] | None:
    """Return the witness's id and count, or `None` while a writer, which checked them, holds it."""
    beside = lock_path(path)
    if not beside.exists():
        return None
    with closing(connect_to_read(beside)) as witness:
        witness.execute("PRAGMA busy_timeout = 0")
        try:
            return _known_in(witness, path)
        except sqlite3.OperationalError as error:
            if primary_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY}:
                return None  # it is being written, or was when its process died
            raise _damaged_witness(path) from None
        except UNREADABLE:
            raise _damaged_witness(path) from None


def _known_in(witness: sqlite3.Connection, path: Path) -> tuple[bytes, int] | None:
    """Return the id and the number of transactions in a witness, if it records a file."""
    (tables,) = witness.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables:
        return None
    if witness.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        raise _damaged_witness(path)
    rows = witness.execute("SELECT id, transactions, digest FROM witness").fetchall()
    for name, count, digest in rows:
        if digest == hash_row(("witness", name, count)).to_bytes(SEAL_BYTES):
            return name, int.from_bytes(count)
    raise _damaged_witness(path)


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Connect to a file for reading only."""
    uri = f"{path.as_uri()}?mode=ro"
    return sqlite3.connect(
        uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def hash_row(values: tuple[object, ...]) -> int:
    """Return the hash of a row, a whole number of `SEAL_BYTES` bytes."""
    packed: Callable[[object], bytes] = msgpack.packb
    return int.from_bytes(blake2b(packed(values), digest_size=SEAL_BYTES).digest())


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary error code, or `SQLITE_ERROR` if the error has no code."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def log_of(path: Path) -> Path:
    """Return the path of the log of a state file."""
    return path.with_name(f"{path.name}-wal")


def log_size(path: Path) -> int:
    """Return the size of the log in bytes; 0 without a log."""
    try:
        return log_of(path).stat().st_size
    except FileNotFoundError:
        return 0


def lock_path(path: Path) -> Path:
    """Return the path of the witness of a state file."""
    return path.with_name(f"{path.name}.lock")


def companions(path: Path) -> tuple[Path, ...]:
    """Return the existing files next to a state file that belong to it."""
    every = (lock_path(path), log_of(path), path.with_name(f"{path.name}-shm"))
    return tuple(each for each in every if each.exists())


def in_use(path: Path, name: str) -> InputError:
    """Return the error for a file that another process is writing."""
    return InputError.because(
        f"{path} is locked: another process is writing the {name}; end that process first",
        field=name,
    )


def _damaged_witness(path: Path) -> StateRefused:
    beside = lock_path(path)
    return StateRefused(
        f"{beside} is damaged, so that nothing shows whether {path.name} is complete and the "
        f"latest version. If you are sure that it is, remove {beside.name} and start again"
    )
