"""Reports in one SQLite file.

A group of reports is inserted by one statement that cuts two blobs into rows: Python would take
longer to make the rows than SQLite to store them, and would hold its lock meanwhile, which the
event loop needs.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.randomiser import Reports
from veilring.protocols.ldp.sqlite import as_store_failed, transaction
from veilring.protocols.ldp.store.base import PIECE_REPORTS_MAX, Found, Kept, Store
from veilring.protocols.ldp.store.rows import as_blob, found_in, kept_in, reports_in, values_of
from veilring.protocols.ldp.task import Task

__all__ = ("CACHE_BYTES_MAX", "LOCK_SECONDS", "LOG_BYTES_MAX", "SqliteStore")

# Pages of the tree of ids that stay in memory; what a collector takes does not grow beyond it.
CACHE_BYTES_MAX: Final = 64 << 20
# Of the write-ahead log before it is moved into the file: large enough that a page that many groups
# touch is moved once, small enough that a restart reads it in no time.
LOG_BYTES_MAX: Final = 64 << 20
# Another collector of the same file holds its lock for one group of reports: far below a second.
LOCK_SECONDS: Final = 30.0

_WHAT: Final = "SQLite"
_APPLICATION: Final = 0x7665696C  # "veil", so that another program's file is not taken for ours
_PAGE_BYTES: Final = 4096
_SCHEMA: Final = """
CREATE TABLE task (digest BLOB NOT NULL, body BLOB NOT NULL) STRICT;
CREATE TABLE reports (
    id BLOB PRIMARY KEY, question INTEGER NOT NULL, report BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE tallies (
    question INTEGER PRIMARY KEY, reports INTEGER NOT NULL, sums BLOB NOT NULL
) STRICT;
"""
_INSERT: Final = """
INSERT INTO reports
SELECT substr(:ids, :size * i + 1, :size), :question, substr(:reports, :width * i + 1, :width)
FROM numbers WHERE i < :count
ON CONFLICT DO NOTHING
"""
# One row for all that is found: each row that SQLite hands to Python is a turn at its lock.
_FIND: Final = """
SELECT group_concat(
    2 * i + (question = :question AND report = substr(:reports, :width * i + 1, :width))
)
FROM numbers CROSS JOIN reports ON id = substr(:ids, :size * i + 1, :size)
WHERE i < :count
"""


class SqliteStore(Store):
    """See `Store`.

    Args:
        path: The file; it is made if there is none, unless `read_only`.
        task: What the reports answer.
        read_only: For whoever estimates while a collector writes: neither waits for the other.
    """

    def __init__(self, path: Path, task: Task, *, read_only: bool = False) -> None:
        super().__init__(task)
        self._read_only = read_only
        name = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        with as_store_failed(_WHAT, path):
            self._db = sqlite3.connect(
                name,
                uri=True,
                timeout=LOCK_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._prepare(path)
            except BaseException:
                self._db.close()
                raise

    def _prepare(self, path: Path) -> None:
        if not self._read_only:
            self._db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute(f"PRAGMA wal_autocheckpoint = {LOG_BYTES_MAX // _PAGE_BYTES}")
            self._db.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_MAX}")
        self._db.execute(f"PRAGMA cache_size = -{CACHE_BYTES_MAX >> 10}")
        self._db.execute("PRAGMA temp_store = MEMORY")
        with self.transaction():
            self._open_task(path)
        self._db.execute("CREATE TEMP TABLE numbers (i INTEGER PRIMARY KEY)")
        self._db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO numbers SELECT i FROM n",
            (PIECE_REPORTS_MAX - 1,),
        )

    def _open_task(self, path: Path) -> None:
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != _APPLICATION and (tables or self._read_only):
            raise InputError("store", path, "a file that a collector has made")
        if not tables:
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA application_id = {_APPLICATION}")
            row = self.task.digest, self.task.encoded
            self._db.execute("INSERT INTO task VALUES (?, ?)", row)
        (digest,) = self._db.execute("SELECT digest FROM task").fetchone()
        if digest != self.task.digest:
            made_for = f"{path}, which is for the task {digest.hex()[:16]}…"
            raise InputError("store", made_for, f"one for {self.task.digest.hex()[:16]}…")

    @override
    def close(self) -> None:
        self._db.close()

    @override
    @contextmanager
    def transaction(self) -> Iterator[None]:
        with as_store_failed(_WHAT), transaction(self._db, read_only=self._read_only):
            yield

    @override
    def _mark(self) -> None:
        self._db.execute("SAVEPOINT mark")

    @override
    def _undo(self) -> None:
        self._db.execute("ROLLBACK TO mark")

    @override
    def _insert(self, question: int, ids: NDArray[np.uint8], reports: Reports) -> int:
        return self._db.execute(_INSERT, values_of(question, ids, reports)).rowcount

    @override
    def _find(self, question: int, ids: NDArray[np.uint8], reports: Reports) -> Found:
        (listed,) = self._db.execute(_FIND, values_of(question, ids, reports)).fetchone()
        return found_in(listed, len(ids))

    @override
    def _read(self, question: int) -> Kept:
        row = self._db.execute(
            "SELECT reports, sums FROM tallies WHERE question = ?", (question,)
        ).fetchone()
        cells = self.task.survey.questions[question].cells
        return kept_in(row[0], row[1], cells) if row else Kept(0, np.zeros(cells, dtype=np.int64))

    @override
    def _write(self, question: int, kept: Kept) -> None:
        row = question, kept.reports, as_blob(kept.sums)
        self._db.execute("INSERT OR REPLACE INTO tallies VALUES (?, ?, ?)", row)

    @override
    def stored(self, question: int) -> Iterator[Reports]:
        width = self.task.survey.questions[question].report_bytes
        rows = self._db.execute("SELECT report FROM reports WHERE question = ?", (question,))
        while some := rows.fetchmany(PIECE_REPORTS_MAX):
            yield reports_in(some, width)
