"""Reports in a PostgreSQL database, for several collectors or a host without storage.

The extra `postgres` installs the driver. The statements are those of `SqliteStore`, in PostgreSQL's
dialect.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import numpy as np
import psycopg
from psycopg.conninfo import conninfo_to_dict
from typing_extensions import override

from veilring.arrays import Ints
from veilring.errors import InputError, StoreFailed
from veilring.privacy.statefile import missing_state
from veilring.protocols.ldp.messages import Task
from veilring.protocols.ldp.store.base import (
    Matches,
    RunningSums,
    Store,
    StoredReports,
    for_another_task,
    parse_matches,
    parse_reports,
    parse_sums,
    rows_at_once,
    statement_values,
    sums_blob,
)
from veilring.protocols.ldp.store.sqlite import REPORTS

# A server that takes longer for its first answer is treated as unreachable; clients send again.
SERVER_SECONDS: Final = 10

_LOCK: Final = 0x7665696C  # "veil": only one collector at a time creates the tables
_SCHEMA: Final = (
    "CREATE SCHEMA IF NOT EXISTS veilring",
    "CREATE TABLE IF NOT EXISTS veilring.task (digest bytea NOT NULL, body bytea NOT NULL)",
    """CREATE TABLE IF NOT EXISTS veilring.members
    (number serial PRIMARY KEY, name text NOT NULL UNIQUE, reports bigint NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS veilring.reports
    (id bytea PRIMARY KEY, question integer NOT NULL, member bytea NOT NULL,
    report bytea NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS veilring.tallies
    (question integer PRIMARY KEY, reports bigint NOT NULL, sums bytea NOT NULL)""",
)
_INSERT: Final = """
INSERT INTO veilring.reports
SELECT substring(%(ids)b FROM %(size)s * i + 1 FOR %(size)s), %(question)s,
    substring(%(members)b FROM %(number)s * i + 1 FOR %(number)s),
    substring(%(reports)b FROM %(width)s * i + 1 FOR %(width)s)
FROM generate_series(0, %(count)s - 1) AS i
ON CONFLICT DO NOTHING
"""
_FIND: Final = """
SELECT string_agg((2 * i + CASE WHEN question = %(question)s
    AND report = substring(%(reports)b FROM %(width)s * i + 1 FOR %(width)s)
    THEN 1 ELSE 0 END)::text, ',')
FROM generate_series(0, %(count)s - 1) AS i
JOIN veilring.reports ON id = substring(%(ids)b FROM %(size)s * i + 1 FOR %(size)s)
"""
_STORED: Final = "SELECT id, member, report FROM veilring.reports WHERE question = %s"
_ENROL: Final = """
INSERT INTO veilring.members (name, reports) SELECT %s, 0
WHERE NOT EXISTS (SELECT FROM veilring.members WHERE name = %s) ON CONFLICT DO NOTHING
"""
_LOCK_MEMBERS: Final = """
SELECT name, number, reports FROM veilring.members WHERE name = ANY(%s) ORDER BY name FOR UPDATE
"""
_READ: Final = "SELECT reports, sums FROM veilring.tallies WHERE question = %s"
_LOCK_AND_READ: Final = "SELECT reports, sums FROM veilring.tallies WHERE question = %s FOR UPDATE"
_WRITE: Final = """
INSERT INTO veilring.tallies VALUES (%s, %s, %b)
ON CONFLICT (question) DO UPDATE SET reports = EXCLUDED.reports, sums = EXCLUDED.sums
"""


def begin_postgres(url: str) -> None:
    """Create the tables of an empty store.

    Raises:
        StoreFailed: If the database cannot be reached.
    """
    with _as_store_failed(), closing(_connect(url)) as db, db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if _exists(db):
            raise InputError.because(
                "the database has a store of reports already; collectors may share it, so use it"
                " as it is, or name another database",
                field="store",
            )
        for statement in _SCHEMA:
            db.execute(statement)


def rename_postgres_task(
    url: str, encode: Callable[[bytes], bytes], *, dry_run: bool = False
) -> bytes | None:
    """Replace the encoding of a store's task, in one transaction; its reports do not depend on it.

    Args:
        encode: Returns the encoding for today's version.
        dry_run: Whether to change nothing.

    Returns:
        The new encoding; none if it is the same.

    Raises:
        StoreFailed: If the database cannot be reached.
    """
    with _as_store_failed(), closing(_connect(url)) as db, db.transaction():
        if not _exists(db):
            raise missing_state("its PostgreSQL database", REPORTS.name, REPORTS.loss)
        for (body,) in db.execute("SELECT body FROM veilring.task FOR UPDATE").fetchall():
            encoded = encode(body)
            if encoded != body:
                if not dry_run:
                    row = hashlib.sha256(encoded).digest(), encoded
                    db.execute("UPDATE veilring.task SET digest = %b, body = %b", row)
                return encoded
    return None


class PostgresStore(Store):
    """A PostgreSQL `Store`, which restores a lost connection with the next transaction.

    Several collectors may share a database: each transaction sees the commits of the others.

    Args:
        url: The database's URL; it is never shown, because it may contain a password.
        read_only: Whether to open the database only for reading, for estimates.

    Raises:
        StoreFailed: If the database cannot be reached.
    """

    def __init__(self, url: str, task: Task, *, read_only: bool = False) -> None:
        super().__init__(task)
        self._url, self._read_only = url, read_only
        self._db: psycopg.Connection | None = None
        try:
            with self.transaction():
                self._open_task()
        except BaseException:
            self.close()
            raise

    def _connection(self) -> psycopg.Connection:
        if self._db is None or self._db.broken:
            self.close()
            self._db = _connect(self._url)
            # An acknowledged report must be durable with any configuration of the server.
            self._db.execute("SET synchronous_commit = on")
        return self._db

    def _open_task(self) -> None:
        db = self._connection()
        if not _exists(db):
            raise missing_state("its PostgreSQL database", REPORTS.name, REPORTS.loss)
        if not self._read_only:
            db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            db.execute(
                "INSERT INTO veilring.task SELECT %b, %b "
                "WHERE NOT EXISTS (SELECT FROM veilring.task)",
                (self.task.digest, self.task.encoded),
            )
            for question, randomiser in enumerate(self.task.survey.questions):
                # only an existing row can be locked by two collectors in turn
                db.execute(
                    "INSERT INTO veilring.tallies VALUES (%s, 0, %b) ON CONFLICT DO NOTHING",
                    (question, sums_blob(np.zeros(randomiser.cells, dtype=np.int64))),
                )
        found = db.execute("SELECT digest, body FROM veilring.task").fetchone()
        if found is None or found[0] != self.task.digest:
            raise for_another_task("the database", found[1] if found else None, self.task)

    @override
    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    @override
    @contextmanager
    def transaction(self) -> Iterator[None]:
        with _as_store_failed(), self._connection().transaction():
            if self._read_only:
                self._connection().execute(
                    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
                )
            yield

    @override
    def _mark(self) -> None:
        self._connection().execute("SAVEPOINT mark")

    @override
    def _undo(self) -> None:
        self._connection().execute("ROLLBACK TO mark")

    @override
    def _insert(self, question: int, some: StoredReports) -> int:
        return self._connection().execute(_INSERT, statement_values(question, some)).rowcount

    @override
    def _find(self, question: int, some: StoredReports) -> Matches:
        row = self._connection().execute(_FIND, statement_values(question, some)).fetchone()
        return parse_matches(row[0] if row else None, len(some))

    @override
    def _read(self, question: int) -> RunningSums:
        statement = _READ if self._read_only else _LOCK_AND_READ
        row = self._connection().execute(statement, (question,)).fetchone()
        if row is None:
            raise StoreFailed("a question has no running sums")
        return parse_sums(row[0], row[1], self.task.survey.questions[question].cells)

    @override
    def _write(self, question: int, kept: RunningSums, fresh: StoredReports) -> None:
        row = question, kept.reports, sums_blob(kept.sums)
        self._connection().execute(_WRITE, row)

    @override
    def _enrol(self, names: Sequence[str]) -> tuple[Ints, Ints]:
        db, ordered = self._connection(), sorted(names)  # one order prevents deadlocks
        for name in ordered:
            db.execute(_ENROL, (name, name))
        known = {
            name: (number, count)
            for name, number, count in db.execute(_LOCK_MEMBERS, (ordered,)).fetchall()
        }
        found = np.array([known[name] for name in names], dtype=np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    @override
    def _credit(self, numbers: Ints, more: Ints) -> None:
        with self._connection().cursor() as cursor:
            cursor.executemany(
                "UPDATE veilring.members SET reports = reports + %s WHERE number = %s",
                list(zip(more.tolist(), numbers.tolist(), strict=True)),
            )

    @override
    def _members(self) -> dict[int, tuple[str, int]]:
        rows = self._connection().execute("SELECT number, name, reports FROM veilring.members")
        return {number: (name, count) for number, name, count in rows}

    @override
    def _stored(self, question: int) -> Iterator[StoredReports]:
        width = self.task.survey.questions[question].report_bytes
        with self._connection().cursor(name="stored") as rows:
            rows.execute(_STORED, (question,))
            while some := rows.fetchmany(rows_at_once(width)):
                yield parse_reports(some, width)


@contextmanager
def _as_store_failed() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise StoreFailed(f"PostgreSQL: {type(error).__name__}: {error}") from error


def _connect(url: str) -> psycopg.Connection:
    _require_readable(url)
    return psycopg.connect(url, autocommit=True, connect_timeout=SERVER_SECONDS)


def _exists(db: psycopg.Connection) -> bool:
    return db.execute("SELECT to_regclass('veilring.task')").fetchone() != (None,)


def _require_readable(url: str) -> None:
    """Reject an unreadable URL without quoting it: the library's error would include the password.

    An `@` or `/` within a password ends the password too early. The library would parse the rest as
    a host or a database, and name it in its error.
    """
    try:
        read = conninfo_to_dict(url)
    except (psycopg.ProgrammingError, UnicodeDecodeError):
        read = None
    # A host may begin with `@`: a socket without a file.
    if read is None or "@" in f"{read.get('host', '')}"[1:] + f"{read.get('dbname', '')}":
        allowed = "postgresql://USER@HOST/DATABASE; in a password, %25 for %, %40 for @, %2F for /"
        raise InputError.because(
            f"the URL of the store cannot be read; write {allowed}", field="store"
        )
