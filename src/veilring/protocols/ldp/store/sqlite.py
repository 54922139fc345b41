"""Reports in one SQLite file.

A group of reports is inserted by one statement that splits blobs into rows: building the rows in
Python would take longer than storing them, and would block the event loop.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from sqlite3 import Connection
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Ints
from veilring.errors import StoreFailed
from veilring.privacy.files import as_store_failed
from veilring.privacy.statefile import Section, StateFile, open_state_file, read_state_file
from veilring.protocols.ldp.algorithm.packing import client_slices
from veilring.protocols.ldp.messages import ID_BYTES, Task
from veilring.protocols.ldp.store.base import (
    NUMBER_BYTES,
    PIECE_REPORTS_MAX,
    Matches,
    RunningSums,
    Store,
    StoredReports,
    for_another_task,
    number_blob,
    parse_matches,
    parse_reports,
    parse_sums,
    rows_at_once,
    statement_values,
    sums_blob,
)

# The cache of the id tree's pages, which bounds the memory of a collector.
CACHE_BYTES_MAX: Final = 64 << 20
# The size of the write-ahead log before a checkpoint: large enough that a page changed by many
# groups is moved once, small enough for a fast restart.
LOG_BYTES_MAX: Final = 64 << 20

_WHAT: Final = "SQLite"
_DIGEST_BYTES: Final = 8
DIGEST_END: Final = 1 << 64
_HEAD_BYTES: Final = ID_BYTES + 2 * NUMBER_BYTES  # an id, a member and a question
_GOLDEN: Final = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: its multiples are spread evenly
REPORTS: Final = Section(
    name="store of reports",
    version=1,
    schema="""
CREATE TABLE task (digest BLOB NOT NULL, body BLOB NOT NULL) STRICT;
CREATE TABLE members (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, reports INTEGER NOT NULL
) STRICT;
CREATE TABLE reports (
    id BLOB PRIMARY KEY, question INTEGER NOT NULL, member BLOB NOT NULL, report BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE tallies (
    question INTEGER PRIMARY KEY, reports INTEGER NOT NULL, sums BLOB NOT NULL, digest BLOB NOT NULL
) STRICT;
""",
    # Reports have a separate digest, in the tallies: there are millions, and hashing them one by
    # one in Python would take longer than storing them.
    sealed=("task", "members", "tallies"),
    loss="acknowledged reports are lost until their clients run `veilring submit` again",
    log_bytes_max=LOG_BYTES_MAX,
)
_INSERT: Final = """
INSERT INTO reports
SELECT substr(:ids, :size * i + 1, :size), :question, substr(:members, :number * i + 1, :number),
    substr(:reports, :width * i + 1, :width)
FROM numbers WHERE i < :count
ON CONFLICT DO NOTHING
"""
# One row for all results: each row that SQLite returns to Python takes its lock.
_FIND: Final = """
SELECT group_concat(
    2 * i + (question = :question AND report = substr(:reports, :width * i + 1, :width))
)
FROM numbers CROSS JOIN reports ON id = substr(:ids, :size * i + 1, :size)
WHERE i < :count
"""
_WRITE: Final = """
INSERT INTO tallies VALUES (?, ?, ?, ?)
ON CONFLICT (question) DO UPDATE
SET reports = excluded.reports, sums = excluded.sums, digest = excluded.digest
"""


def begin_sqlite(path: Path) -> None:
    """Create an empty store.

    Raises:
        StoreFailed: If it existed, as its lock file shows, or the disk fails.
    """
    with as_store_failed(_WHAT, path):
        open_state_file(path, REPORTS, new=True).close()


def _add_numbers(db: Connection) -> None:
    """Create the table with which a statement splits blobs, unless the connection has it."""
    if db.execute("SELECT 1 FROM sqlite_temp_master WHERE name = 'numbers'").fetchone() is None:
        db.execute("CREATE TEMP TABLE numbers (i INTEGER PRIMARY KEY)")
        db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO numbers SELECT i FROM n",
            (PIECE_REPORTS_MAX - 1,),
        )


class SqliteStore(Store):
    """An SQLite `Store`, written by one collector at a time.

    Args:
        path: The file, made by `begin_sqlite`. It belongs to the first task that opens it.
        read_only: Whether to open the file only for reading, for estimates while a collector
            writes; neither waits for the other.

    Raises:
        StoreFailed: If the file is damaged, incomplete, or missing although its lock remains.
    """

    def __init__(self, path: Path, task: Task, *, read_only: bool = False) -> None:
        super().__init__(task)
        self._path, self._read_only = path, read_only
        self._file: StateFile | None = None
        self._reading: Connection | None = None
        if not read_only:
            with as_store_failed(_WHAT, path):
                self._file = self._open()
            if self._db.execute("SELECT 1 FROM task").fetchone() is None:
                with self.transaction():
                    row = self.task.digest, self.task.encoded
                    self._db.execute("INSERT INTO task VALUES (?, ?)", row)

    @property
    def _db(self) -> Connection:
        if self._reading is not None:
            return self._reading
        if self._file is None:
            raise StoreFailed(f"{self._path} is closed")
        return self._file.connection

    def _open(self) -> StateFile:
        """Open the file, even after a failure has closed it, and check its content."""
        file = open_state_file(self._path, REPORTS, check=self._require_sound)
        try:
            db = file.connection
            db.execute(f"PRAGMA cache_size = -{CACHE_BYTES_MAX >> 10}")
            _add_numbers(db)
        except BaseException:
            file.close()
            raise
        return file

    def _require_sound(self, db: Connection) -> None:
        self._require_task(db)
        self._require_whole(db)

    def _require_whole(self, db: Connection) -> None:
        """Reject a file whose reports are not those that were stored."""
        tallies = db.execute("SELECT question, digest FROM tallies").fetchall()
        try:
            found = self._digests(db)
        except (StoreFailed, LookupError, TypeError):  # a wrong length, or no such question
            raise self._damaged() from None
        if found != {question: int.from_bytes(digest) for question, digest in tallies}:
            raise self._damaged()

    def _digests(self, db: Connection) -> dict[int, int]:
        """Return the digest of all reports to each question that has any, in one pass."""
        widths = [each.report_bytes for each in self.task.survey.questions]
        digests: dict[int, int] = {}
        rows = db.execute("SELECT question, id, member, report FROM reports")
        while piece := rows.fetchmany(rows_at_once(max(widths))):
            asked: dict[int, list[tuple[bytes, bytes, bytes]]] = {}
            for question, *row in piece:
                asked.setdefault(question, []).append(tuple(row))
            for question, some in asked.items():
                more = digest_reports(question, parse_reports(some, widths[question]))
                digests[question] = (digests.get(question, 0) + more) % DIGEST_END
        return digests

    def _damaged(self) -> StoreFailed:
        name = self._path.name
        return StoreFailed(
            f"{self._path} is damaged (its reports are not those that were stored). Restore your "
            f"newest copy of it. Without it, {REPORTS.loss}; to start over "
            f"nevertheless, move away {name}, {name}.lock, {name}-wal and {name}-shm"
        )

    def _require_task(self, db: Connection) -> None:
        """Reject a file with reports for another task."""
        found = db.execute("SELECT digest, body FROM task").fetchone()
        if found is not None and found[0] != self.task.digest:
            raise for_another_task(self._path, found[1], self.task)

    @override
    def close(self) -> None:
        if self._file is not None:
            with as_store_failed(_WHAT, self._path):
                self._file.close()
            self._file = None

    @override
    @contextmanager
    def transaction(self) -> Iterator[None]:
        with as_store_failed(_WHAT, self._path):
            if self._read_only:
                with self._read_at_once():
                    yield
                return
            if self._file is None:
                self._file = self._open()
            try:
                with self._file.transaction():
                    yield
            except BaseException:
                self._file = None  # the error has closed it
                raise

    @contextmanager
    def _read_at_once(self) -> Iterator[None]:
        with read_state_file(self._path, REPORTS) as database:
            self._require_task(database)
            self._reading = database
            try:
                yield
            finally:
                self._reading = None

    @override
    def _mark(self) -> None:
        self._db.execute("SAVEPOINT mark")

    @override
    def _undo(self) -> None:
        self._db.execute("ROLLBACK TO mark")

    @override
    def _insert(self, question: int, some: StoredReports) -> int:
        return self._db.execute(_INSERT, statement_values(question, some)).rowcount

    @override
    def _find(self, question: int, some: StoredReports) -> Matches:
        if self._read_only:
            _add_numbers(self._db)
        (listed,) = self._db.execute(_FIND, statement_values(question, some)).fetchone()
        return parse_matches(listed, len(some))

    @override
    def _read(self, question: int) -> RunningSums:
        row = self._tally(question)
        cells = self.task.survey.questions[question].cells
        return (
            parse_sums(row[0], row[1], cells)
            if row
            else RunningSums(0, np.zeros(cells, dtype=np.int64))
        )

    def _tally(self, question: int) -> tuple[int, bytes, bytes] | None:
        row: tuple[int, bytes, bytes] | None = self._db.execute(
            "SELECT reports, sums, digest FROM tallies WHERE question = ?", (question,)
        ).fetchone()
        return row

    @override
    def _write(self, question: int, kept: RunningSums, fresh: StoredReports) -> None:
        row = self._tally(question)
        before = int.from_bytes(row[2]) if row else 0
        digest = (before + digest_reports(question, fresh)) % DIGEST_END
        values = question, kept.reports, sums_blob(kept.sums), digest.to_bytes(_DIGEST_BYTES)
        self._db.execute(_WRITE, values)

    @override
    def _enrol(self, names: Sequence[str]) -> tuple[Ints, Ints]:
        known = {name: (number, count) for number, (name, count) in self._members().items()}
        for name in names:
            if name not in known:
                known[name] = len(known) + 1, 0
                self._db.execute("INSERT INTO members VALUES (?, ?, 0)", (known[name][0], name))
        found = np.array([known[name] for name in names], dtype=np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    @override
    def _credit(self, numbers: Ints, more: Ints) -> None:
        self._db.executemany(
            "UPDATE members SET reports = reports + ? WHERE number = ?",
            zip(more.tolist(), numbers.tolist(), strict=True),
        )

    @override
    def _members(self) -> dict[int, tuple[str, int]]:
        rows = self._db.execute("SELECT number, name, reports FROM members")
        return {number: (name, count) for number, name, count in rows}

    @override
    def _stored(self, question: int) -> Iterator[StoredReports]:
        width = self.task.survey.questions[question].report_bytes
        statement = "SELECT id, member, report FROM reports WHERE question = ?"
        rows = self._db.execute(statement, (question,))
        while some := rows.fetchmany(rows_at_once(width)):
            yield parse_reports(some, width)


def digest_reports(question: int, some: StoredReports) -> int:
    """Return the sum of the hashes of reports with their ids, members and question.

    The digest detects accidents: a row in which one bit has flipped certainly has another hash, and
    rows that were added, lost or swapped almost certainly have another sum. Each word of a row is
    mixed by its position, and then their sum is mixed.

    Returns:
        A number below 2^64; add digests of several parts modulo 2^64.
    """
    width = some.reports.shape[1]
    total = 0
    for chunk in client_slices(len(some), 2 * (_HEAD_BYTES + width + 8)):
        part = some.at(chunk)
        row = np.zeros((len(part), _HEAD_BYTES + -(-width // 8) * 8), dtype=np.uint8)
        row[:, :ID_BYTES] = part.ids
        row[:, ID_BYTES : ID_BYTES + NUMBER_BYTES] = number_blob(part.members)
        row[:, ID_BYTES + NUMBER_BYTES : _HEAD_BYTES] = number_blob(np.array([question]))
        row[:, _HEAD_BYTES : _HEAD_BYTES + width] = part.reports
        words = row.view("<u8")
        by_word = _mixed(words ^ _places(words.shape[1]))
        by_row = _mixed(by_word.sum(axis=1, dtype=np.uint64))
        total += int(by_row.sum(dtype=np.uint64))
    return total % DIGEST_END


@lru_cache(maxsize=64)
def _places(count: int) -> NDArray[np.uint64]:
    """Return a constant for each word position, so that swapped words are detected."""
    return _mixed(np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN))


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Permute the 64-bit words: variant 13 of MurmurHash3's finaliser (Stafford 2011)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
