"""The content of a state file: its format, its sections, and the seal of their rows."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from veilring.errors import InputError
from veilring.privacy.section import Section
from veilring.privacy.witness import (
    SEAL_BYTES,
    UNREADABLE,
    StateRefused,
    hash_row,
    lock_path,
    log_of,
    primary_code,
)

MEMORY: Final = ":memory:"
SEAL_END: Final = 1 << 8 * SEAL_BYTES
APPLICATION: Final = 0x56424F4B  # "VBOK", so that other programs' files are not mistaken for ours
FORMAT: Final = 4
# Until version 3, each section was a file with an application id of its own.
EARLIER: Final = {
    0x5645494C: "ledger",
    0x7665696C: "store of reports",
    0x7665696D: "survey client's outbox",
    0x7665696E: "memory of queries",
}
KEPT: Final = 0x20000000
"""The bits of an application id that differ in a copy that no version of veilring opens."""
DRAFT: Final = 0x10000000
"""The bits that differ in a draft, until it is the state. One that an undo puts back has both."""
SECTIONS_SCHEMA: Final = (
    "CREATE TABLE sections (name TEXT PRIMARY KEY, version INTEGER NOT NULL, sealed TEXT NOT NULL);"
)
OWN_SCHEMA: Final = f"""
CREATE TABLE statefile (
    id BLOB NOT NULL, transactions INTEGER NOT NULL, seal BLOB NOT NULL
);
{SECTIONS_SCHEMA}
"""


class Content(NamedTuple):
    """The sections that a process uses; none if it copies any file."""

    sections: tuple[Section, ...]

    @property
    def name(self) -> str:
        """A noun for the file."""
        return self.sections[0].name if self.sections else "state file"

    @property
    def loss(self) -> str:
        """The consequence of losing the file."""
        every = (section.loss for section in self.sections)
        return ", and ".join(every) or "its party forgets what it has done"

    @property
    def schema(self) -> str:
        """The statements that create the tables of all sections."""
        return "".join(section.schema for section in self.sections)


class State(NamedTuple):
    """The row with a state file's own data."""

    id: bytes
    transactions: int
    seal: int

    @property
    def digest(self) -> int:
        """A hash of the row, which is a summand of the stored seal."""
        return hash_row(("statefile", self.id, self.transactions))


def format_of(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the application id and the format in a header; 0 if the file is no database."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        if primary_code(error) != sqlite3.SQLITE_NOTADB:
            raise
        return 0, 0
    return application, version


def require_format(
    connection: sqlite3.Connection, path: Path, kind: Content, *, begun: bool = False
) -> None:
    """Refuse a file of another kind: as damaged if one of this kind was created here."""
    application, version = format_of(connection)
    ours = {APPLICATION, *EARLIER}
    if not ours.isdisjoint({application ^ DRAFT, application ^ DRAFT ^ KEPT}):
        raise InputError.because(
            f"{path} is a draft of `veilring state upgrade`, which was stopped. If this is the"
            " path of the state, run the same command again, which completes it. Otherwise delete"
            " the draft, and use the state beside it",
            field=kind.name,
        )
    if application ^ KEPT in ours:
        raise InputError.because(
            f"{path} is the copy that `veilring state upgrade` kept of a file of format {version}."
            " Use the converted file; `veilring state upgrade FILE --undo` puts the copy back",
            field=kind.name,
        )
    if application in EARLIER or (application == APPLICATION and version != FORMAT):
        name = EARLIER.get(application, kind.name)
        raise another_format(path, name, version, FORMAT, kind.loss)
    if application != APPLICATION:
        if begun:
            raise damaged(path, kind, f"it does not start like a {kind.name}")
        allowed = f"a {kind.name} of veilring, format {FORMAT}, that is not damaged"
        raise InputError(kind.name, path, allowed)
    require_sections(connection, path, kind)


def require_sections(connection: sqlite3.Connection, path: Path, kind: Content) -> None:
    """Refuse a file without a section, or with another version of it."""
    found = dict(connection.execute("SELECT name, version FROM sections").fetchall())
    for section in kind.sections:
        version = found.get(section.name)
        if version is None:
            allowed = f"a {section.name} of veilring; this file has: {', '.join(found)}"
            raise InputError(section.name, path, allowed)
        if version != section.version:
            raise another_format(path, section.name, version, section.version, section.loss)


def require_known(path: Path, kind: Content, state: State, known: tuple[bytes, int]) -> None:
    """Refuse a file that differs from its witness."""
    name, transactions = known
    if name != state.id:
        raise StateRefused(
            f"{path} is not the {kind.name} recorded in {lock_path(path).name}. Restore "
            f"the right one; or, if it is the right one, remove {lock_path(path).name}"
        )
    if state.transactions < transactions:
        raise StateRefused(
            f"{path} is not complete: its last {transactions - state.transactions} transactions "
            f"are missing. It is an older copy, or its log {log_of(path).name} was damaged or "
            f"removed. Restore your newest files. To continue without these transactions, remove "
            f"{lock_path(path).name}; their loss means that {kind.loss}"
        )


def require_sealed(
    connection: sqlite3.Connection,
    path: Path,
    kind: Content,
    state: State,
    tables: Sequence[str] | None = None,
) -> None:
    """Refuse a file whose pages, tables or rows are not those that were written.

    Args:
        tables: The sealed tables of a file of an earlier format, which has no sections.
    """
    with as_damage(path, kind):
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise damaged(path, kind, found)
        if tables is None and not expected_schema(kind) <= schema_of(connection):
            raise damaged(path, kind, "its tables are different")
        if seal_of(connection, tables) != state.seal:
            raise damaged(path, kind, "its rows are not those that were written")


def seal_of(connection: sqlite3.Connection, tables: Sequence[str] | None = None) -> int:
    """Return the sum of the hashes of all sealed rows, also of sections that are not used.

    Args:
        tables: As in `require_sealed`.
    """
    if tables is None:
        sealed = connection.execute("SELECT sealed FROM sections ORDER BY name").fetchall()
        tables = ("sections", *(table for (names,) in sealed for table in names.split()))
    return sum(hash_row(row) for table in tables for row in _rows(connection, table)) % SEAL_END


def _rows(connection: sqlite3.Connection, table: str) -> Iterable[tuple[object, ...]]:
    columns = ", ".join(columns_of(connection, table))
    rows: Iterable[tuple[object, ...]] = connection.execute(
        f"SELECT '{table}', {columns} FROM {table}"  # noqa: S608  (names that the file's own schema has)
    )
    return rows


def columns_of(connection: sqlite3.Connection, table: str) -> list[str]:
    """Return the names of a table's columns."""
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def schema_of(connection: sqlite3.Connection) -> frozenset[tuple[str, ...]]:
    """Return the tables and indexes of a file, with their statements."""
    every = "SELECT type, name, tbl_name, sql FROM main.sqlite_master"
    return frozenset(connection.execute(every).fetchall())


@cache
def expected_schema(kind: Content) -> frozenset[tuple[str, ...]]:
    """Return the tables and indexes of a file of today's format."""
    with closing(sqlite3.connect(MEMORY)) as connection:
        connection.executescript(OWN_SCHEMA + kind.schema)
        return schema_of(connection)


def state_of(connection: sqlite3.Connection) -> State:
    """Read the row with a file's own data."""
    ((name, transactions, seal),) = connection.execute("SELECT * FROM statefile").fetchall()
    state = State(bytes(name), int(transactions), 0)
    return state._replace(seal=(int.from_bytes(seal) - state.digest) % SEAL_END)


def write_state(connection: sqlite3.Connection, state: State) -> None:
    """Write the number of transactions and the seal."""
    seal = ((state.seal + state.digest) % SEAL_END).to_bytes(SEAL_BYTES)
    connection.execute(
        "UPDATE statefile SET transactions = ?, seal = ?", (state.transactions, seal)
    )


def needs_log(connection: sqlite3.Connection) -> bool:
    """Return whether a main file is marked as incomplete without its log."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    return bool(mode == "wal")


@contextmanager
def as_damage(path: Path, kind: Content) -> Iterator[None]:
    """Report a file that SQLite or Python cannot read as damaged.

    Errors of the disk or of a lock are passed on, because the file may be fine.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        if primary_code(error) != sqlite3.SQLITE_ERROR:
            raise
        raise damaged(path, kind, error) from None
    except UNREADABLE as error:
        if isinstance(error, InputError):
            raise
        raise damaged(path, kind, error) from None


def another_format(path: Path, name: str, found: int, known: int, loss: str) -> InputError:
    """Return the error for a file of another version of veilring."""
    age, remedy = "a newer", "Go on with the version that wrote it"
    if found < known:
        age, remedy = "an older", f"Convert it with `veilring state upgrade {path}`"
    return InputError.because(
        f"{path} is a {name} of format {found}, of {age} version of veilring; this version reads"
        f" format {known}. {remedy}. Do not begin a new {name} in its place: without it, {loss}",
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


def lost(path: Path, kind: Content) -> StateRefused:
    """Return the error for a file that is missing although it was created."""
    return StateRefused(
        f"{path} is missing or empty, although {lock_path(path).name} or its log shows that it "
        f"existed. Restore it: without it, {kind.loss}"
    )


def damaged(path: Path, kind: Content, what: object) -> StateRefused:
    """Return the error for a file with other bytes than those that were written."""
    return StateRefused(
        f"{path} is damaged ({what}). Restore your newest copy of it: without it, {kind.loss}"
    )


def incomplete(path: Path, kind: Content) -> StateRefused:
    """Return the error for a main file without its log."""
    return StateRefused(
        f"{path} was in use when it was copied or when its process died, and is not complete "
        f"without its log {log_of(path).name}. Put the log next to it, or copy a {kind.name} that "
        "was closed properly"
    )
