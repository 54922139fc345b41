"""The ledger's file: SQLite with one writer, nothing half done, and nothing left of what was wiped.

A transaction is on the disk when it ends (a write-ahead log, synced at each commit). The writer
holds a lock that the operating system drops when its process dies, however that happens. The lock
is on a file beside the ledger, so that those who only read are not held up.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from veilring.errors import InputError, StoreFailed

__all__ = (
    "BUSY_SECONDS",
    "MEMORY",
    "Store",
    "open_store",
    "read_store",
    "sync_folder",
    "unreadable",
)

# How long to wait for a reader that holds up the wiping of the log; reading totals takes less.
BUSY_SECONDS: Final = 5.0
MEMORY: Final = ":memory:"

_APPLICATION_ID: Final = 0x5645494C  # "VEIL", in the file's header
_VERSION: Final = 1

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
"""


class Store:
    """An open ledger file.

    Args:
        connection: To the file, in which transactions are begun and ended by hand.
        lock: Held for as long as this process writes; none for a ledger in memory.
    """

    def __init__(self, connection: sqlite3.Connection, lock: sqlite3.Connection | None) -> None:
        self._connection, self._lock, self._closed = connection, lock, False

    @property
    def connection(self) -> sqlite3.Connection:
        """The open file.

        Raises:
            InputError: If it was closed, by its owner or by an error.
        """
        self.require_open()
        return self._connection

    def require_open(self) -> None:
        """Raise `InputError` if it was closed: what is in memory may not be what the file holds."""
        if self._closed:
            raise InputError("ledger", "closed", "an open one; open it again to see what it holds")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Give the connection for a transaction that is on the disk at the end of the block.

        If anything fails, nothing of it has happened, or nobody knows: so the store closes, and
        the file has to be opened again to see what it holds.
        """
        connection = self.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            self.close()  # which rolls back
            raise

    def wipe(self) -> None:
        """Move the log into the file and cut it off, so that no old page is left in either.

        Raises:
            InputError: If a reader did not let go of the old pages in `BUSY_SECONDS`.
        """
        busy, *_ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise InputError("ledger", "being read", "nobody who reads it while it is wiped")

    def close(self) -> None:
        """Let go of the file. Doing so again changes nothing."""
        self._closed = True
        self._connection.close()
        if self._lock is not None:
            self._lock.close()


def open_store(path: Path | None) -> Store:
    """Open a ledger for writing, or begin it.

    Args:
        path: Where it is; none for one in memory.

    Raises:
        InputError: If another process writes it, or it is no ledger.
    """
    if path is None:
        return Store(_prepared(MEMORY), None)
    path = path.resolve()
    lock = _locked(path)
    try:
        _create(path)
        store = Store(_prepared(str(path)), lock)
        sync_folder(path.parent)
    except BaseException:
        lock.close()
        raise
    return store


def read_store(path: Path) -> sqlite3.Connection:
    """Open a ledger for reading; its writer goes on undisturbed.

    Raises:
        InputError: If there is none.
    """
    uri = f"{path.resolve().as_uri()}?mode=ro"
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    except sqlite3.OperationalError:
        raise _no_ledger(path) from None
    try:
        known = _is_ledger(connection)
    except sqlite3.DatabaseError:
        known = False
    if not known:
        connection.close()
        raise _no_ledger(path)
    return connection


def _locked(path: Path) -> sqlite3.Connection:
    """Lock a file beside the ledger; SQLite does so by the means of each operating system."""
    beside = path.with_name(f"{path.name}.lock")
    _create(beside)
    lock = sqlite3.connect(beside, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        lock.close()
        allowed = "a ledger that nobody else writes"
        raise InputError("ledger", f"in use: {path} is locked", allowed) from None
    return lock


def _create(path: Path) -> None:
    """Make a file that only its owner reads, unless it is there.

    One that is there is not opened: closing it would drop SQLite's locks of this process.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        allowed = f"a file that can be written ({error.strerror})"
        raise InputError("ledger", path, allowed) from error


def _prepared(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        _configure(connection, path)
    except sqlite3.OperationalError:  # of the disk, or of a lock: a good ledger may be there
        connection.close()
        raise
    except sqlite3.DatabaseError:
        connection.close()
        raise _no_ledger(Path(path)) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: sqlite3.Connection, path: str) -> None:
    empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not (empty or _is_ledger(connection)):
        raise _no_ledger(Path(path))
    connection.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten with zeros
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != ("memory" if path == MEMORY else "wal"):
        raise InputError("ledger", f"in journal mode {mode}", "a disk of this machine")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # macOS only: sync past the disk's own cache
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    if empty:
        _begin(connection)


def _begin(connection: sqlite3.Connection) -> None:
    connection.executescript(
        f"BEGIN; PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {_VERSION};"
        f"{_SCHEMA} COMMIT;"
    )


def _is_ledger(connection: sqlite3.Connection) -> bool:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return bool((application, version) == (_APPLICATION_ID, _VERSION))


def sync_folder(folder: Path) -> None:
    """Make sure that the names of new files survive a loss of power, too."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unreadable(path: Path | None, error: Exception) -> StoreFailed:
    """Return what to say of a ledger that cannot be opened or read."""
    return StoreFailed(
        f"{path or MEMORY}: {error}. Check the disk, and who may write there. If the file is "
        "damaged, what was spent is lost: whoever begins another answers as if nothing had been"
    )


def _no_ledger(path: Path) -> InputError:
    return InputError("ledger", path, f"a ledger of veilring, version {_VERSION}")
