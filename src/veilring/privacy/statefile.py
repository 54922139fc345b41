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
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import RLock
from typing import Final

from veilring.errors import InputError, StoreFailed
from veilring.privacy.checks import require, require_that
from veilring.privacy.files import create_private, sync_folder
from veilring.privacy.section import PAGE_BYTES, Section
from veilring.privacy.sections import (
    APPLICATION,
    FORMAT,
    MEMORY,
    OWN_SCHEMA,
    SEAL_END,
    Content,
    State,
    as_damage,
    columns_of,
    damaged,
    expected_schema,
    incomplete,
    lost,
    missing_state,
    needs_log,
    require_format,
    require_known,
    require_sealed,
    require_sections,
    schema_of,
    seal_of,
    state_of,
    write_state,
)
from veilring.privacy.witness import (
    BUSY_SECONDS,
    SEAL_BYTES,
    Witness,
    companions,
    connect_to_read,
    hash_row,
    in_use,
    known_to_readers,
    lock_path,
    log_size,
    primary_code,
)

__all__ = (
    "MEMORY",
    "Section",
    "StateFile",
    "back_up_state_file",
    "missing_state",
    "open_state_file",
    "read_state_file",
    "require_current",
    "require_unused",
)

# The time to wait for a reader when a file is opened for writing, or its log is erased. Reading and
# checking a gigabyte takes less.
READER_SECONDS: Final = 30.0
_ID_BYTES: Final = 16
# A close leaves the log to the next writer if a reader still needs it or the disk does not take it.
_LOG_KEPT: Final = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
)


class StateFile:
    """An open state file. Create it with `open_state_file`.

    The `guard` is held by each transaction, for threads that share the file. A file in memory has
    neither a witness nor a seal.
    """

    def __init__(
        self, connection: sqlite3.Connection, kind: Content, witness: "Witness | None", state: State
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
        kind, path = Content((section,)), self.path or Path(MEMORY)
        find = "SELECT 1 FROM sections WHERE name = ?"
        if self.connection.execute(find, (section.name,)).fetchone() is None:
            row = section.name, section.version, " ".join(section.sealed)
            with self.transaction() as connection:
                for statement in filter(str.strip, section.schema.split(";")):
                    connection.execute(statement)
                connection.execute("INSERT INTO sections VALUES (?, ?, ?)", row)
                self._change += hash_row(("sections", *row))
        require_sections(self.connection, path, kind)
        if not expected_schema(kind) <= schema_of(self.connection):
            raise damaged(path, kind, "its tables are different")
        self._kind = Content((*self._kind.sections, section))
        self._seal(section)

    def wipe(self) -> None:
        """Move the log into the file and truncate it, so that no old page remains in either."""
        with patient(self.connection):
            busy, *_ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise being_read(self._kind)

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
            if primary_code(error) not in _LOG_KEPT:
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
        state = state_of(self._connection)
        if (state.id, state.transactions) != (self._state.id, self._state.transactions):
            raise StoreFailed(
                f"another process has written to {self._witness.path} although this process holds "
                f"the lock {self._witness.beside.name}. This process will write nothing more. Stop "
                "one of the two, and do not remove the lock of a file that is in use"
            )

    def _keep_state(self) -> None:
        seal = (self._state.seal + self._change) % SEAL_END
        self._state = State(self._state.id, self._state.transactions + 1, seal)
        if self._witness is not None:
            write_state(self._connection, self._state)

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
    kind = Content(sections)
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
            f" veilring made the folder, convert it with `veilring state upgrade {path}`;"
            f" without its files, {kind.loss}",
            field=kind.name,
        )
    if new and path.exists():
        raise InputError.because(
            f"there is a {kind.name} at {path} already; use it as it is", field=kind.name
        )
    if not new and not path.exists() and not companions(path):
        # before a lock file is left in a wrong folder
        raise missing_state(str(path), kind.name, kind.loss)
    if copy:
        return _copied(path, kind)
    witness = Witness(path, kind.name)
    try:
        state = _begun(path, kind, witness) if new else inspected(path, kind, witness, check)
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


def _copied(path: Path, kind: Content) -> StateFile:
    if not path.exists():
        raise lost(path, kind)
    connection = _connect(MEMORY, kind)
    try:
        with read_state_file(path, *kind.sections) as source:
            source.backup(connection)
        return StateFile(connection, kind, None, state_of(connection))
    except BaseException:
        connection.close()
        raise


def require_unused(path: Path) -> None:
    """Refuse a state file that a process is writing."""
    if lock_path(path).exists() and known_to_readers(path.resolve()) is None:
        raise in_use(path, Content(()).name)


def require_current(path: Path, *sections: Section) -> None:
    """Refuse a state file with another version of a section that a process will add."""
    with closing(connect_to_read(path.resolve())) as connection:
        found = {name for (name,) in connection.execute("SELECT name FROM sections")}
        known = tuple(section for section in sections if section.name in found)
        require_sections(connection, path, Content(known))


@contextmanager
def read_state_file(path: Path, *sections: Section) -> Iterator[sqlite3.Connection]:
    """Open a snapshot of a state file for reading, without disturbing its writer.

    The file must have these sections. The connection is in a transaction, so that everything read
    belongs to one moment, and the seal has been checked.

    Raises:
        StoreFailed: If it is damaged or incomplete.
        sqlite3.Error: If the disk fails.
    """
    path, kind = path.resolve(), Content(sections)
    require(path.exists(), kind.name, path, "an existing file")
    known = known_to_readers(
        path
    )  # before the moment that is read, because its writer may end meanwhile
    with closing(connect_to_read(path)) as connection:
        with as_damage(path, kind):
            require_format(connection, path, kind)
            connection.execute("BEGIN")
            state = state_of(connection)
        if known is not None:
            require_known(path, kind, state, known)
        elif needs_log(connection) and not (log_size(path) or lock_path(path).exists()):
            raise incomplete(path, kind)
        require_sealed(connection, path, kind, state)
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
    with read_state_file(path) as source:
        copy_whole(source, part)
    part.replace(to)
    sync_folder(to.resolve().parent)


def copy_whole(source: sqlite3.Connection, to: Path) -> None:
    """Copy a database into one new file, which needs no log and only its owner can read."""
    to.unlink(missing_ok=True)
    create_private(to, "copy")
    with closing(sqlite3.connect(to, isolation_level=None)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = MEMORY")


def inspected(
    path: Path,
    kind: Content,
    witness: Witness,
    check: Callable[[sqlite3.Connection], None] | None = None,
    *,
    earlier: Sequence[str] | None = None,
) -> State:
    """Return the state of a valid file.

    It is opened only for reading: otherwise SQLite would move a damaged log into the file and
    remove it.

    Args:
        check: As in `open_state_file`.
        earlier: The sealed tables of a file of an earlier format, which has no sections.
    """
    if not path.exists() or not path.stat().st_size:
        _require_never_begun(path, kind, witness)
        raise missing_state(str(path), kind.name, kind.loss)
    logged = bool(log_size(path))
    with closing(connect_to_read(path)) as connection:
        with as_damage(path, kind):
            if earlier is None:
                require_format(connection, path, kind, begun=witness.known is not None)
            connection.execute("BEGIN")
            state = state_of(connection)
        require_sealed(connection, path, kind, state, earlier)
        is_marked = needs_log(connection)
        if check is not None:
            check(connection)
    if witness.known is not None:
        require_known(path, kind, state, witness.known)
    elif is_marked and not logged:
        raise incomplete(path, kind)
    return state


def _require_never_begun(path: Path, kind: Content, witness: Witness) -> None:
    if witness.known is not None or log_size(path):
        raise lost(path, kind)


def _begun(path: Path, kind: Content, witness: Witness) -> State:
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


def _connect(path: str, kind: Content) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA secure_delete = ON")  # what is deleted is zeroed
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS only: sync past the disk's own cache
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        log_bytes_max = max(section.log_bytes_max for section in kind.sections)
        connection.execute(f"PRAGMA wal_autocheckpoint = {log_bytes_max // PAGE_BYTES}")
        connection.execute(f"PRAGMA journal_size_limit = {log_bytes_max}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA recursive_triggers = ON")  # replacing a row counts as a change
    except BaseException:
        connection.close()
        raise
    return connection


def _use_log(connection: sqlite3.Connection, kind: Content) -> None:
    """Use a log for transactions; from here on the main file is marked as needing it."""
    if needs_log(connection):
        return
    try:
        with patient(connection):
            # The mark is a few bytes of one sector, and needs no journal of its own.
            connection.execute("PRAGMA journal_mode = MEMORY")
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError as error:
        if primary_code(error) == sqlite3.SQLITE_BUSY:
            raise being_read(kind) from None
        raise
    require_that(
        mode == "wal",
        kind.name,
        f"the {kind.name} must be on a disk of this machine: SQLite can only use the "
        f"journal mode {mode} there",
    )


@contextmanager
def patient(connection: sqlite3.Connection) -> Iterator[None]:
    """Wait for readers longer than for anything else."""
    connection.execute(f"PRAGMA busy_timeout = {int(1000 * READER_SECONDS)}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(1000 * BUSY_SECONDS)}")


def _make_tables(connection: sqlite3.Connection, kind: Content) -> State:
    file_id = secrets.token_bytes(_ID_BYTES)
    connection.executescript(
        f"BEGIN; PRAGMA application_id = {APPLICATION};"
        f"PRAGMA user_version = {FORMAT}; {OWN_SCHEMA} {kind.schema}"
    )
    connection.execute("INSERT INTO statefile VALUES (?, 0, ?)", (file_id, bytes(SEAL_BYTES)))
    sections = ((each.name, each.version, " ".join(each.sealed)) for each in kind.sections)
    connection.executemany("INSERT INTO sections VALUES (?, ?, ?)", sections)
    state = State(file_id, 0, seal_of(connection))
    write_state(connection, state)
    connection.execute("COMMIT")
    return state


def _place_of(path: Path) -> tuple[int, int] | None:
    """Return the device and the number of a file, or none if it does not exist."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _triggers(connection: sqlite3.Connection, table: str) -> str:
    """Return triggers of this connection only, which hash each row that is added or removed."""
    columns = columns_of(connection, table)
    new, old = (", ".join(f"{which}.{name}" for name in columns) for which in ("NEW", "OLD"))
    add, drop = f"SELECT seal_add('{table}', {new});", f"SELECT seal_drop('{table}', {old});"
    bodies = {"INSERT": add, "DELETE": drop, "UPDATE": drop + add}
    return "".join(
        f"CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON main.{table} BEGIN {body} END;"
        for event, body in bodies.items()
    )


def being_read(kind: Content) -> InputError:
    """Return the error for a file that another process reads for too long."""
    return InputError.because(
        f"cannot change the {kind.name}: another process is reading it; close it and try again",
        field=kind.name,
    )
