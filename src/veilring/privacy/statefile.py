"""A state file: SQLite with one writer, complete or refused, and checked on every opening.

All data that a party must not forget (charges, answers, rows, reports) are in one such file, in
sections that it names: each is a set of tables of one module. A transaction is on disk when it
ends: a write-ahead log next to the file is synced at each commit. SQLite cannot see changes of
files between two runs, so five mechanisms are added:

- **A lock** is held by the writer, in a file next to it; the operating system drops it when the
  process dies for any reason. Readers are not delayed, and delay no transaction.
- **A witness** in the same file records which state file was created here and its number of
  transactions. A state file that is missing, empty, different, or an older copy, or whose log was
  lost or truncated, is refused. The witness is not synced at each transaction: after a power loss
  it may record fewer transactions than were made, never more.
- **A mark** in the main file's header, SQLite's own for a file with a log, is set before the first
  transaction, and cleared when the file is closed properly. A main file alone, without log and
  witness, is therefore never mistaken for a complete one.
- **A count** of transactions in the file is read in each of them. If it has changed, another
  process has written despite the lock (the lock file was removed), and nothing more is written.
- **A seal** is the sum of the hashes of all rows of the sealed tables. It changes with the rows,
  within the transaction, and is recomputed on opening, in addition to SQLite's own check of its
  pages: SQLite detects broken trees, the seal detects changed rows.

These protect against accidents, not against anyone with write access to the file.
"""

import secrets
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import Final, NamedTuple

import msgpack

from veilring.errors import InputError, StoreFailed
from veilring.privacy.checks import require, require_that
from veilring.privacy.files import create_private, sync_folder

# The time to wait for the lock of a file; another writer's transaction takes less.
_BUSY_SECONDS: Final = 5.0
# The time to wait for a reader of the witness, which holds its lock for the time of one row.
_WITNESS_SECONDS: Final = 0.5
# Sums of hashes of this size: accidents do not produce two tables with one sum.
_SEAL_BYTES: Final = 16
_COUNT_BYTES: Final = 8
# Errors of SQLite or Python on changed bytes: a broken page, or an invalid text.
_UNREADABLE: Final = (sqlite3.DatabaseError, ValueError, TypeError, OverflowError)
# The number of transactions is a blob: an integer would change its size as it grows, and the row
# its place, which a power loss could tear.
_WITNESS_SCHEMA: Final = """
CREATE TABLE witness (id BLOB NOT NULL, transactions BLOB NOT NULL, digest BLOB NOT NULL);
"""
# The time to wait for a reader when a file is opened for writing, or its log is erased. Reading and
# checking a gigabyte takes less.
READER_SECONDS: Final = 30.0
MEMORY: Final = ":memory:"

_ID_BYTES: Final = 16
_SEAL_END: Final = 1 << 8 * _SEAL_BYTES


# A close leaves the log to the next writer if a reader still needs it or the disk does not take it.
_LOG_KEPT: Final = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
)
_APPLICATION: Final = 0x56424F4B  # "VBOK", so that other programs' files are not mistaken for ours
_VERSION: Final = 4
# Until version 3, each section was a file with an application id of its own.
_EARLIER: Final = {
    0x5645494C: "ledger",
    0x7665696C: "store of reports",
    0x7665696D: "survey client's outbox",
    0x7665696E: "memory of queries",
}
_PAGE_BYTES: Final = 4096
_OWN_SCHEMA: Final = """
CREATE TABLE statefile (
    id BLOB NOT NULL, transactions INTEGER NOT NULL, seal BLOB NOT NULL
);
CREATE TABLE sections (name TEXT PRIMARY KEY, version INTEGER NOT NULL, sealed TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Section:
    """Tables of a state file that belong together.

    Attributes:
        schema: The statements that create the tables. No two sections share a table's name.
        sealed: The tables whose rows are hashed. A table with millions of small rows is better
            checked by its user, many rows at once.
        loss: The consequence of losing the tables: the end of "without it, ...".
        log_bytes_max: The size above which the log is moved into the file.
    """

    name: str
    version: int
    schema: str
    sealed: tuple[str, ...]
    loss: str
    log_bytes_max: int = 1000 * _PAGE_BYTES


class _Content(NamedTuple):
    """The sections that a process uses; none if it copies any file."""

    sections: tuple[Section, ...]

    @property
    def name(self) -> str:
        return self.sections[0].name if self.sections else "state file"

    @property
    def loss(self) -> str:
        every = (section.loss for section in self.sections)
        return ", and ".join(every) or "its party forgets what it has done"

    @property
    def schema(self) -> str:
        return "".join(section.schema for section in self.sections)


class _State(NamedTuple):
    """The row with a state file's own data."""

    id: bytes
    transactions: int
    seal: int

    @property
    def digest(self) -> int:
        """A hash of the row, which is a summand of the stored seal."""
        return hash_row(("statefile", self.id, self.transactions))


class Witness:
    """The file next to a state file: its lock, and the last written state of that file.

    It is an SQLite file as well, so that locks use each operating system's own mechanism.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.beside, self._name = path, _lock_path(path), name
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
        digest = hash_row(("witness", file_id, count)).to_bytes(_SEAL_BYTES)
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
            if _primary_code(error) != sqlite3.SQLITE_BUSY:
                raise _damaged_witness(self.path) from None
            raise _in_use(self.path, self._name) from None
        except _UNREADABLE:
            raise _damaged_witness(self.path) from None
        return known

    def _change_in_place(self) -> None:
        """Write without a journal on disk and without waiting: a row never changes its size."""
        self._lock.execute("PRAGMA journal_mode = MEMORY")
        self._lock.execute("PRAGMA synchronous = OFF")


class StateFile:
    """An open state file. Create it with `open_state_file`.

    The `guard` is held by each transaction, for threads that share the file. A file in memory has
    neither a witness nor a seal.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        kind: _Content,
        witness: "Witness | None",
        state: _State,
    ) -> None:
        self.guard = RLock()
        self._connection, self._kind, self._witness = connection, kind, witness
        self._state, self._closed, self._change = state, False, 0
        if witness is not None:
            self._place = _place_of(witness.path)
            connection.create_function("seal_add", -1, self._seal_add)
            connection.create_function("seal_drop", -1, self._seal_drop)
            for section in kind.sections:
                self._seal(section)

    @property
    def path(self) -> Path | None:
        """The path of the file; none in memory."""
        return None if self._witness is None else self._witness.path

    @property
    def id(self) -> bytes:
        """The file's unique id: 16 random bytes, drawn when it was created."""
        return self._state.id

    @property
    def connection(self) -> sqlite3.Connection:
        """The open file."""
        self.require_open()
        return self._connection

    def require_open(self) -> None:
        """Raise `InputError` if it was closed: the memory may differ from the file."""
        if self._closed:
            raise InputError.because(
                f"the {self._kind.name} is closed; open it again to see what it holds",
                field=self._kind.name,
            )

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for a transaction that is on disk at the end of the block.

        If anything fails, the transaction did not happen, or its outcome is unknown: the file is
        then closed, and must be reopened to find out.

        Raises:
            StoreFailed: If another process has written the file since this one opened it.
        """
        with self.guard:
            connection = self.connection
            try:
                connection.execute("BEGIN IMMEDIATE")
                self._require_alone()
                self._change = 0
                yield connection
                self._keep_state()
                connection.execute("COMMIT")
                if self._witness is not None:
                    self._witness.write(self._state.id, self._state.transactions)
            except BaseException:
                self._let_go()  # which rolls back
                raise

    def add(self, section: Section) -> None:
        """Use a further section, whose tables are created unless the file has them.

        Raises:
            InputError: If the file has another version of it.
            StoreFailed: If its tables are damaged.
        """
        if section in self._kind.sections:
            return
        kind, path = _Content((section,)), self.path or Path(MEMORY)
        find = "SELECT 1 FROM sections WHERE name = ?"
        if self.connection.execute(find, (section.name,)).fetchone() is None:
            row = section.name, section.version, " ".join(section.sealed)
            with self.transaction() as connection:
                for statement in filter(str.strip, section.schema.split(";")):
                    connection.execute(statement)
                connection.execute("INSERT INTO sections VALUES (?, ?, ?)", row)
                self._change += hash_row(("sections", *row))
        _require_sections(self.connection, path, kind)
        if not _expected_schema(kind) <= _schema_of(self.connection):
            raise _damaged(path, kind, "its tables are different")
        self._kind = _Content((*self._kind.sections, section))
        self._seal(section)

    def wipe(self) -> None:
        """Move the log into the file and truncate it, so that no old page remains in either."""
        with _patient(self.connection):
            busy, *_ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise _being_read(self._kind)

    def reuse_log(self) -> None:
        """Move the log into the file, so that the next transactions overwrite it from its start.

        They then need no new space on the disk until they are as large as the log, unless a reader
        still needs the old pages.

        Raises:
            sqlite3.Error: If the disk fails.
        """
        self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def close(self) -> None:
        """Close the file, marked as complete. Idempotent."""
        if self._closed:
            return
        try:
            self._connection.execute("PRAGMA journal_mode = MEMORY")  # moves the log into the file
        except sqlite3.OperationalError as error:
            if _primary_code(error) not in _LOG_KEPT:
                raise
        finally:
            self._let_go()

    def _require_alone(self) -> None:
        if self._witness is None:
            return
        if _place_of(self._witness.path) != self._place:
            raise StoreFailed(
                f"{self._witness.path} was removed or replaced while it was open. This process will"
                f" write nothing more. Restore it: without it, {self._kind.loss}"
            )
        state = _state_of(self._connection)
        if (state.id, state.transactions) != (self._state.id, self._state.transactions):
            raise StoreFailed(
                f"another process has written to {self._witness.path} although this process holds "
                f"the lock {self._witness.beside.name}. This process will write nothing more. Stop "
                "one of the two, and do not remove the lock of a file that is in use"
            )

    def _keep_state(self) -> None:
        seal = (self._state.seal + self._change) % _SEAL_END
        self._state = _State(self._state.id, self._state.transactions + 1, seal)
        if self._witness is not None:
            _write_state(self._connection, self._state)

    def _let_go(self) -> None:
        self._closed = True
        self._connection.close()
        if self._witness is not None:
            self._witness.close()

    def _seal(self, section: Section) -> None:
        if self._witness is not None:
            for table in section.sealed:
                self._connection.executescript(_triggers(self._connection, table))

    def _seal_add(self, *values: object) -> None:
        self._change += hash_row(values)

    def _seal_drop(self, *values: object) -> None:
        self._change -= hash_row(values)


def open_state_file(
    path: Path | None,
    *sections: Section,
    new: bool = False,
    copy: bool = False,
    check: Callable[[sqlite3.Connection], None] | None = None,
) -> StateFile:
    """Open a state file for writing, or create it if asked.

    Args:
        path: The path, on a disk of this machine; none for a file in memory, which is always new.
        sections: The sections that this process uses. A new file has these, another at least these.
        new: Whether to create it; then it must not exist. Otherwise it must: a process that begins
            an empty file wherever none is found would forget everything when a disk is not mounted.
        copy: Whether to open a copy of the file in memory, with the same checks, even while another
            process is writing the file. Nothing on disk changes.
        check: Called with a connection to an existing file whose seal is correct. It raises an
            error to refuse the file nevertheless, before anything in it changes.

    Raises:
        StoreFailed: If it is missing although it was created, damaged, or incomplete. Nothing in it
            was changed, and the message gives the remedy.
        sqlite3.Error: If the disk fails.
    """
    kind = _Content(sections)
    if path is None:
        connection = _connect(MEMORY, kind)
        file = StateFile(connection, kind, None, _make_tables(connection, kind))
        # Simulations drop it without closing it, which loses nothing; Python 3.13 would warn.
        weakref.finalize(file, connection.close)
        return file
    path = path.resolve()
    if path.is_dir():
        raise InputError.because(
            f"{path} is a folder, and the {kind.name} is one file. If an earlier version of"
            " veilring made the folder, go on with that version; without its files,"
            f" {kind.loss}",
            field=kind.name,
        )
    if new and path.exists():
        raise InputError.because(
            f"there is a {kind.name} at {path} already; use it as it is", field=kind.name
        )
    if not new and not path.exists() and not _companions(path):
        # before a lock file is left in a wrong folder
        raise missing_state(str(path), kind.name, kind.loss)
    if copy:
        return _copied(path, kind)
    witness = Witness(path, kind.name)
    try:
        state = _begun(path, kind, witness) if new else _inspected(path, kind, witness, check)
        if witness.known is None:
            witness.write(state.id, state.transactions)
        connection = _connect(str(path), kind)
        try:
            _use_log(connection, kind)
            return StateFile(connection, kind, witness, state)
        except BaseException:
            connection.close()
            raise
    except BaseException:
        witness.close()
        raise


def _copied(path: Path, kind: _Content) -> StateFile:
    if not path.exists():
        raise _lost(path, kind)
    connection = _connect(MEMORY, kind)
    try:
        with read_state_file(path, *kind.sections) as source:
            source.backup(connection)
        return StateFile(connection, kind, None, _state_of(connection))
    except BaseException:
        connection.close()
        raise


def require_unused(path: Path) -> None:
    """Refuse a state file that a process is writing."""
    if _lock_path(path).exists() and _known_to_readers(path.resolve()) is None:
        raise _in_use(path, _Content(()).name)


@contextmanager
def read_state_file(path: Path, *sections: Section) -> Iterator[sqlite3.Connection]:
    """Open a snapshot of a state file for reading, without disturbing its writer.

    The file must have these sections. The connection is in a transaction, so that everything read
    belongs to one moment, and the seal has been checked.

    Raises:
        StoreFailed: If it is damaged or incomplete.
        sqlite3.Error: If the disk fails.
    """
    path, kind = path.resolve(), _Content(sections)
    require(path.exists(), kind.name, path, "an existing file")
    known = _known_to_readers(
        path
    )  # before the moment that is read, because its writer may end meanwhile
    with closing(_connect_to_read(path)) as connection:
        with _as_damage(path, kind):
            _require_format(connection, path, kind)
            connection.execute("BEGIN")
            state = _state_of(connection)
        if known is not None:
            _require_known(path, kind, state, known)
        elif _needs_log(connection) and not (_log_size(path) or _lock_path(path).exists()):
            raise _incomplete(path, kind)
        _require_sealed(connection, path, kind, state)
        yield connection


def back_up_state_file(path: Path, to: Path) -> None:
    """Copy a state file completely into one file, even while it is being written.

    When restoring a copy, move away the log, its index and the lock file of the old file, because
    they contain later changes.

    Raises:
        StoreFailed: If it is damaged or incomplete.
        sqlite3.Error: If the disk fails.
    """
    require(not to.exists(), "copy", to, "the path of a file that does not exist")
    part = to.with_name(f"{to.name}.part")
    part.unlink(missing_ok=True)
    with read_state_file(path) as source:
        create_private(part, "copy")
        with closing(sqlite3.connect(part, isolation_level=None)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = MEMORY")  # the copy needs no log
    part.replace(to)
    sync_folder(to.resolve().parent)


def _inspected(
    path: Path, kind: _Content, witness: Witness, check: Callable[[sqlite3.Connection], None] | None
) -> _State:
    """Return the state of a valid file.

    It is opened only for reading: otherwise SQLite would move a damaged log into the file and
    remove it.
    """
    if not path.exists() or not path.stat().st_size:
        _require_never_begun(path, kind, witness)
        raise missing_state(str(path), kind.name, kind.loss)
    logged = bool(_log_size(path))
    with closing(_connect_to_read(path)) as connection:
        with _as_damage(path, kind):
            _require_format(connection, path, kind, begun=witness.known is not None)
            connection.execute("BEGIN")
            state = _state_of(connection)
        _require_sealed(connection, path, kind, state)
        needs_log = _needs_log(connection)
        if check is not None:
            check(connection)
    if witness.known is not None:
        _require_known(path, kind, state, witness.known)
    elif needs_log and not logged:
        raise _incomplete(path, kind)
    return state


def _require_never_begun(path: Path, kind: _Content, witness: Witness) -> None:
    if witness.known is not None or _log_size(path):
        raise _lost(path, kind)


def _lost(path: Path, kind: _Content) -> StoreFailed:
    return StoreFailed(
        f"{path} is missing or empty, although {_lock_path(path).name} or its log shows that it "
        f"existed. Restore it. Without it, {kind.loss}; to start over nevertheless, remove "
        f"{', '.join(each.name for each in _companions(path))} as well"
    )


def _require_known(path: Path, kind: _Content, state: _State, known: tuple[bytes, int]) -> None:
    """Refuse a file that differs from its witness."""
    name, transactions = known
    if name != state.id:
        raise StoreFailed(
            f"{path} is not the {kind.name} recorded in {_lock_path(path).name}. Restore "
            f"the right one; or, if it is the right one, remove {_lock_path(path).name}"
        )
    if state.transactions < transactions:
        raise StoreFailed(
            f"{path} is not complete: its last {transactions - state.transactions} transactions "
            f"are missing. It is an older copy, or its log {_log(path).name} was damaged or "
            f"removed. Restore your newest files. To continue without these transactions, remove "
            f"{_lock_path(path).name}; their loss means that {kind.loss}"
        )


def _begun(path: Path, kind: _Content, witness: Witness) -> _State:
    """Create a file, completely or not at all."""
    _require_never_begun(path, kind, witness)
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    create_private(new, kind.name)
    with closing(_connect(str(new), kind)) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")
        state = _make_tables(connection, kind)
    new.replace(path)
    sync_folder(path.parent)
    return state


def _connect(path: str, kind: _Content) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("PRAGMA secure_delete = ON")  # what is deleted is zeroed
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS only: sync past the disk's own cache
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        log_bytes_max = max(section.log_bytes_max for section in kind.sections)
        connection.execute(f"PRAGMA wal_autocheckpoint = {log_bytes_max // _PAGE_BYTES}")
        connection.execute(f"PRAGMA journal_size_limit = {log_bytes_max}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA recursive_triggers = ON")  # replacing a row counts as a change
    except BaseException:
        connection.close()
        raise
    return connection


def _use_log(connection: sqlite3.Connection, kind: _Content) -> None:
    """Use a log for transactions; from here on the main file is marked as needing it."""
    if _needs_log(connection):
        return
    try:
        with _patient(connection):
            # The mark is a few bytes of one sector, and needs no journal of its own.
            connection.execute("PRAGMA journal_mode = MEMORY")
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError as error:
        if _primary_code(error) == sqlite3.SQLITE_BUSY:
            raise _being_read(kind) from None
        raise
    require_that(
        mode == "wal",
        kind.name,
        f"the {kind.name} must be on a disk of this machine: SQLite can only use the "
        f"journal mode {mode} there",
    )


def _needs_log(connection: sqlite3.Connection) -> bool:
    """Return whether a main file is marked as incomplete without its log."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    return bool(mode == "wal")


@contextmanager
def _patient(connection: sqlite3.Connection) -> Iterator[None]:
    """Wait for readers longer than for anything else."""
    connection.execute(f"PRAGMA busy_timeout = {int(1000 * READER_SECONDS)}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(1000 * _BUSY_SECONDS)}")


def _make_tables(connection: sqlite3.Connection, kind: _Content) -> _State:
    file_id = secrets.token_bytes(_ID_BYTES)
    connection.executescript(
        f"BEGIN; PRAGMA application_id = {_APPLICATION};"
        f"PRAGMA user_version = {_VERSION}; {_OWN_SCHEMA} {kind.schema}"
    )
    connection.execute("INSERT INTO statefile VALUES (?, 0, ?)", (file_id, bytes(_SEAL_BYTES)))
    sections = ((each.name, each.version, " ".join(each.sealed)) for each in kind.sections)
    connection.executemany("INSERT INTO sections VALUES (?, ?, ?)", sections)
    state = _State(file_id, 0, _seal_of(connection))
    _write_state(connection, state)
    connection.execute("COMMIT")
    return state


def _place_of(path: Path) -> tuple[int, int] | None:
    """Return the device and the number of a file, or none if it does not exist."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _require_format(
    connection: sqlite3.Connection, path: Path, kind: _Content, *, begun: bool = False
) -> None:
    """Refuse a file of another kind: as damaged if one of this kind was created here."""
    application, version = None, _VERSION
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        if _primary_code(error) != sqlite3.SQLITE_NOTADB:
            raise
    if application in _EARLIER or (application == _APPLICATION and version != _VERSION):
        name = _EARLIER.get(application, kind.name)
        raise another_format(path, name, version, _VERSION, kind.loss)
    if application != _APPLICATION:
        if begun:
            raise _damaged(path, kind, f"it does not start like a {kind.name}")
        allowed = f"a {kind.name} of veilring, format {_VERSION}, that is not damaged"
        raise InputError(kind.name, path, allowed)
    _require_sections(connection, path, kind)


def _require_sections(connection: sqlite3.Connection, path: Path, kind: _Content) -> None:
    """Refuse a file without a section, or with another version of it."""
    found = dict(connection.execute("SELECT name, version FROM sections").fetchall())
    for section in kind.sections:
        version = found.get(section.name)
        if version is None:
            allowed = f"a {section.name} of veilring; this file has: {', '.join(found)}"
            raise InputError(section.name, path, allowed)
        if version != section.version:
            raise another_format(path, section.name, version, section.version, section.loss)


def _require_sealed(
    connection: sqlite3.Connection, path: Path, kind: _Content, state: _State
) -> None:
    with _as_damage(path, kind):
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise _damaged(path, kind, found)
        if not _expected_schema(kind) <= _schema_of(connection):
            raise _damaged(path, kind, "its tables are different")
        if _seal_of(connection) != state.seal:
            raise _damaged(path, kind, "its rows are not those that were written")


def _seal_of(connection: sqlite3.Connection) -> int:
    """Return the sum of the hashes of all sealed rows, also of sections that are not used."""
    sealed = connection.execute("SELECT sealed FROM sections ORDER BY name").fetchall()
    tables = ("sections", *(table for (names,) in sealed for table in names.split()))
    return sum(hash_row(row) for table in tables for row in _rows(connection, table)) % _SEAL_END


def _rows(connection: sqlite3.Connection, table: str) -> Iterable[tuple[object, ...]]:
    columns = ", ".join(_columns(connection, table))
    rows: Iterable[tuple[object, ...]] = connection.execute(
        f"SELECT '{table}', {columns} FROM {table}"  # noqa: S608  (names that the file's own schema has)
    )
    return rows


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _triggers(connection: sqlite3.Connection, table: str) -> str:
    """Return triggers of this connection only, which hash each row that is added or removed."""
    columns = _columns(connection, table)
    new, old = (", ".join(f"{which}.{name}" for name in columns) for which in ("NEW", "OLD"))
    add, drop = f"SELECT seal_add('{table}', {new});", f"SELECT seal_drop('{table}', {old});"
    bodies = {"INSERT": add, "DELETE": drop, "UPDATE": drop + add}
    return "".join(
        f"CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON main.{table} BEGIN {body} END;"
        for event, body in bodies.items()
    )


def _schema_of(connection: sqlite3.Connection) -> frozenset[tuple[str, ...]]:
    every = "SELECT type, name, tbl_name, sql FROM main.sqlite_master"
    return frozenset(connection.execute(every).fetchall())


@cache
def _expected_schema(kind: _Content) -> frozenset[tuple[str, ...]]:
    with closing(sqlite3.connect(MEMORY)) as connection:
        connection.executescript(_OWN_SCHEMA + kind.schema)
        return _schema_of(connection)


def _state_of(connection: sqlite3.Connection) -> _State:
    ((name, transactions, seal),) = connection.execute("SELECT * FROM statefile").fetchall()
    state = _State(bytes(name), int(transactions), 0)
    return state._replace(seal=(int.from_bytes(seal) - state.digest) % _SEAL_END)


def _write_state(connection: sqlite3.Connection, state: _State) -> None:
    seal = ((state.seal + state.digest) % _SEAL_END).to_bytes(_SEAL_BYTES)
    connection.execute(
        "UPDATE statefile SET transactions = ?, seal = ?", (state.transactions, seal)
    )


@contextmanager
def _as_damage(path: Path, kind: _Content) -> Iterator[None]:
    """Report a file that SQLite or Python cannot read as damaged.

    Errors of the disk or of a lock are passed on, because the file may be fine.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        if _primary_code(error) != sqlite3.SQLITE_ERROR:
            raise
        raise _damaged(path, kind, error) from None
    except _UNREADABLE as error:
        if isinstance(error, InputError):
            raise
        raise _damaged(path, kind, error) from None


def another_format(path: Path, name: str, found: int, known: int, loss: str) -> InputError:
    """Return the error for a file of another version of veilring."""
    age = "an older" if found < known else "a newer"
    return InputError.because(
        f"{path} is a {name} of format {found}, of {age} version of veilring; this version reads"
        f" format {known}. Go on with the version that wrote it. Do not begin a new {name} in its"
        f" place: without it, {loss}",
        field=name,
    )


def missing_state(where: str, name: str, loss: str) -> InputError:
    """Return the error for state that is not where it should be."""
    return InputError.because(
        f"there is no {name} at {where}. If there was one, find it: its disk may not be"
        f" mounted, or the path may be wrong. Do not begin another in its place: without it,"
        f" {loss}. If there never was one, create it with `veilring state new CONFIG`, or"
        " with `new=True` in Python",
        field=name,
    )


def _in_use(path: Path, name: str) -> InputError:
    return InputError.because(
        f"{path} is locked: another process is writing the {name}; end that process first",
        field=name,
    )


def _being_read(kind: _Content) -> InputError:
    return InputError.because(
        f"cannot change the {kind.name}: another process is reading it; close it and try again",
        field=kind.name,
    )


def _damaged(path: Path, kind: _Content, what: object) -> StoreFailed:
    return StoreFailed(
        f"{path} is damaged ({what}). Restore your newest copy of it. Without it, "
        f"{kind.loss}; to start over nevertheless, move away {path.name}, "
        f"{', '.join(each.name for each in _companions(path))}"
    )


def _incomplete(path: Path, kind: _Content) -> StoreFailed:
    return StoreFailed(
        f"{path} was in use when it was copied or when its process died, and is not complete "
        f"without its log {_log(path).name}. Put the log next to it, or copy a {kind.name} that "
        "was closed properly"
    )


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _log_size(path: Path) -> int:
    try:
        return _log(path).stat().st_size
    except FileNotFoundError:
        return 0


def _companions(path: Path) -> tuple[Path, ...]:
    every = (_lock_path(path), _log(path), path.with_name(f"{path.name}-shm"))
    return tuple(each for each in every if each.exists())


def _known_to_readers(path: Path) -> tuple[bytes, int] | None:
    """Return the witness's id and count, or `None` while a writer, which checked them, holds it."""
    beside = _lock_path(path)
    if not beside.exists():
        return None
    with closing(_connect_to_read(beside)) as witness:
        witness.execute("PRAGMA busy_timeout = 0")
        try:
            return _known_in(witness, path)
        except sqlite3.OperationalError as error:
            if _primary_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY}:
                return None  # it is being written, or was when its process died
            raise _damaged_witness(path) from None
        except _UNREADABLE:
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
        if digest == hash_row(("witness", name, count)).to_bytes(_SEAL_BYTES):
            return name, int.from_bytes(count)
    raise _damaged_witness(path)


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """Connect to a file for reading only."""
    uri = f"{path.as_uri()}?mode=ro"
    return sqlite3.connect(
        uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def hash_row(values: tuple[object, ...]) -> int:
    """Return the hash of a row, a whole number of `_SEAL_BYTES` bytes."""
    packed: Callable[[object], bytes] = msgpack.packb
    return int.from_bytes(blake2b(packed(values), digest_size=_SEAL_BYTES).digest())


def _primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary error code, or `SQLITE_ERROR` if the error has no code."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def _damaged_witness(path: Path) -> StoreFailed:
    beside = _lock_path(path)
    return StoreFailed(
        f"{beside} is damaged, so that nothing shows whether {path.name} is complete and the "
        f"latest version. If you are sure that it is, remove {beside.name} and start again"
    )


def _lock_path(path: Path) -> Path:
    """Return the path of the witness of a state file."""
    return path.with_name(f"{path.name}.lock")
