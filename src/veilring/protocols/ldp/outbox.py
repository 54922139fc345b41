"""`Outbox`: a client's reports, stored before they are first sent.

A report that was sent but not acknowledged may have arrived. A fresh one would spend epsilon again
and count twice, so the same bytes are sent again, even after a crash. The outbox therefore also
stores each client's lifetime budget. It is as sensitive as the rows: it contains each client's
noisy answer, and a guess of a row can be checked against its contents.

A collector may lose reports that it acknowledged, with its disk or by restoring a backup. A store
loses its newest reports first, and reports are sent in order; so it has them all if it has the
newest one to each question, and these are sent again to find out.
"""

import math
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, NamedTuple, Self

import msgpack
import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools
from veilring.errors import InputError
from veilring.privacy.files import as_store_failed
from veilring.privacy.statefile import Section, open_state_file
from veilring.protocols.ldp.algorithm.packing import reports_at_once
from veilring.protocols.ldp.messages import (
    ID_BYTES,
    ClientBatch,
    ReportVerdict,
    Task,
    Verdicts,
    batch_reports,
)

ROW_NUMBER: Final = "row number"
"""The key for clients without an identifying column."""

_WHAT: Final = "outbox"
_SCHEMA: Final = """
CREATE TABLE naming (by TEXT NOT NULL, secret BLOB NOT NULL) STRICT;
CREATE TABLE rows (
    client TEXT NOT NULL, columns BLOB NOT NULL, mark BLOB NOT NULL, PRIMARY KEY (client, columns)
) STRICT, WITHOUT ROWID;
CREATE TABLE outgoing (
    number INTEGER PRIMARY KEY,
    client TEXT NOT NULL,
    task BLOB NOT NULL,
    epsilon REAL NOT NULL,
    question INTEGER NOT NULL,
    id BLOB NOT NULL,
    report BLOB NOT NULL,
    verdict INTEGER,
    UNIQUE (client, task)
) STRICT;
CREATE INDEX waiting ON outgoing (task, question, number) WHERE verdict IS NULL;
"""
OUTBOX: Final = Section(
    name="survey client's outbox",
    version=1,
    schema=_SCHEMA,
    sealed=("naming", "rows", "outgoing"),
    loss="clients report again with new noise, and spend more than their budgets",
)
_SECRET_BYTES: Final = 32
_MARK_BYTES: Final = 16  # large enough that marks of two rows never collide by accident


class MarkedRows(NamedTuple):
    """The rows of a file in the form that an outbox recognises."""

    clients: Sequence[str]
    columns: bytes
    marks: Sequence[bytes]

    def at(self, places: Sequence[int]) -> Self:
        """Return the rows at `places`, in that order."""
        clients = [self.clients[place] for place in places]
        marks = [self.marks[place] for place in places]
        return self._replace(clients=clients, marks=marks)


class Outbox:
    """A file of reports, used by one process at a time. Use it as a context manager.

    Args:
        new: Whether to create it; then it must not exist, and otherwise it must.

    Raises:
        StoreFailed: If the file is damaged, incomplete, or missing although its lock remains.
    """

    def __init__(self, path: Path, *, new: bool = False) -> None:
        with as_store_failed(_WHAT, path):
            self._file = open_state_file(path, OUTBOX, new=new)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with as_store_failed(_WHAT):
            self._file.close()

    @property
    def _db(self) -> Connection:
        return self._file.connection

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with as_store_failed(_WHAT), self._file.transaction() as database:
            yield database

    def recognise(
        self,
        by: str,
        clients: Sequence[str],
        cells: Mapping[str, NDArray[np.str_]],
        *,
        amend: bool = False,
    ) -> MarkedRows:
        """Return marked rows, after comparing the rows of known clients with those stored.

        A client that moved to another row, or a name that now belongs to another person, would get
        a second report with new noise, or none. The outbox therefore stores a keyed hash of the
        cells with each name; the key never leaves the outbox.

        Args:
            by: The column that names clients, or `ROW_NUMBER`; it cannot change later.
            cells: The cells to compare, by header, each of shape (rows,).
            amend: Whether to accept changed cells. The client's reports stay as they are.
        """
        secret = self._secret(by)
        headers = sorted(cells)
        columns = _mark(secret, headers)
        table = zip(*(cells[header].tolist() for header in headers), strict=True)
        rows = MarkedRows(clients, columns, [_mark(secret, row) for row in table])
        if amend and by == ROW_NUMBER:
            raise InputError.because(
                f"clients identified by {ROW_NUMBER} cannot be amended; leave amend out",
                field="amend",
            )
        if amend:
            self._know_again(rows)
        else:
            self._require_same(by, rows)
        return rows

    def _secret(self, by: str) -> bytes:
        with as_store_failed(_WHAT):
            found = self._db.execute("SELECT by, secret FROM naming").fetchone()
        if found is None:
            found = by, secrets.token_bytes(_SECRET_BYTES)
            with self._transaction() as database:
                database.execute("INSERT INTO naming VALUES (?, ?)", found)
        if found[0] != by:
            allowed = (
                f"{found[0]!r}, which has identified the clients of this outbox from the start"
            )
            raise InputError("key", by, allowed)
        return bytes(found[1])

    def _require_same(self, by: str, rows: MarkedRows) -> None:
        with as_store_failed(_WHAT):
            known = self._db.execute("SELECT client, columns, mark FROM rows").fetchall()
        marks = {client: mark for client, columns, mark in known if columns == rows.columns}
        # rows known by number may belong to other people in another file
        others = {client for client, *_ in known} if by == ROW_NUMBER else set[str]()
        differs = [
            place
            for place, (client, mark) in enumerate(zip(rows.clients, rows.marks, strict=True))
            if marks.get(client, b"" if client in others else mark) != mark
        ]
        if differs:
            differ = f"{len(differs):,} rows, from row {differs[0] + 1} on, differ from those that"
            if by == ROW_NUMBER:
                cause = "were reported under their numbers"
                advice = "keep the rows in their places and columns, and add new ones at the end"
            else:
                cause = f"were reported under the same {by!r}"
                advice = "keep their cells, or set `amend = true` if clients' cells have changed"
            raise InputError.because(f"{differ} {cause}; {advice}", field="rows")

    def _know_again(self, rows: MarkedRows) -> None:
        with as_store_failed(_WHAT):
            known = {client for (client,) in self._db.execute("SELECT client FROM rows")}
        places = [place for place, client in enumerate(rows.clients) if client in known]
        with self._transaction() as database:
            _remember(database, rows.at(places))

    def reported(self, task: Task, clients: Sequence[str]) -> Bools:
        """Return whether each client has made its report to a task, shape (clients,)."""
        with as_store_failed(_WHAT):
            rows = self._db.execute("SELECT client FROM outgoing WHERE task = ?", (task.digest,))
            known = {client for (client,) in rows}
        return np.array([client in known for client in clients], dtype=np.bool_)

    def can_afford(self, clients: Sequence[str], epsilon: float, budget: float) -> Bools:
        """Return whether each client can spend epsilon within its budget, shape (clients,)."""
        with as_store_failed(_WHAT):
            rows = self._db.execute("SELECT client, epsilon FROM outgoing ORDER BY client")
            spent = {
                client: [each for _, each in made]
                for client, made in groupby(rows, key=lambda row: row[0])
            }
        nothing: list[float] = []
        return np.array(
            [math.fsum((*spent.get(client, nothing), epsilon)) <= budget for client in clients],
            dtype=np.bool_,
        )

    def permanent(self, series: bytes) -> dict[str, bytes]:
        """Return the permanent answers of each client to a series of tasks."""
        with as_store_failed(_WHAT):
            rows = self._db.execute("SELECT client, report FROM outgoing WHERE task = ?", (series,))
            return {client: bytes(memo) for client, memo in rows}

    def keep_permanent(
        self, series: bytes, epsilon: float, clients: Sequence[str], memos: NDArray[np.uint8]
    ) -> None:
        """Store permanent answers, and charge each client for all rounds of the series.

        They are a report that is never sent: its task is the series.
        """
        with self._transaction() as database:
            database.executemany(
                "INSERT INTO outgoing (client, task, epsilon, question, id, report, verdict)"
                " VALUES (?, ?, ?, 0, x'', ?, ?)",
                (
                    (client, series, epsilon, memo, int(ReportVerdict.COUNTED))
                    for client, memo in zip(clients, _rows(memos), strict=True)
                ),
            )

    def add(self, task: Task, rows: MarkedRows, batches: Iterable[ClientBatch]) -> None:
        """Store reports and their rows; when this returns, both are durable.

        A report from permanent answers costs nothing more. Both are stored in one transaction: a
        row is known if and only if its client has reported, so a row may be corrected before its
        report, and not afterwards.

        Args:
            rows: The row of each client. The batches refer to clients by their positions in it.
            batches: Reports that have not been sent yet.

        Raises:
            StoreFailed: If a client has reported to this task before. Nothing is stored then.
        """
        epsilon = 0.0 if task.survey.memoised else task.survey.exact_epsilon
        with self._transaction() as database:
            _remember(database, rows)
            for batch in batches:
                database.executemany(
                    "INSERT INTO outgoing (client, task, epsilon, question, id, report) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        (rows.clients[who], task.digest, epsilon, batch.question, name, report)
                        for who, name, report in zip(
                            batch.clients.tolist(),
                            _rows(batch.ids),
                            _rows(batch.reports),
                            strict=True,
                        )
                    ),
                )

    def waiting(
        self, task: Task, *, at_once: int | None = None, without: Collection[int] = ()
    ) -> Iterator[ClientBatch]:
        """Yield all unanswered reports, unchanged, by question.

        Args:
            at_once: The maximum number of reports in a batch; by default limited by
                `BATCH_BYTES_MAX`.
        """
        for question, randomiser in enumerate(task.survey.questions):
            width = randomiser.report_bytes
            size, last = batch_reports(width), 0
            while rows := self._page(task, question, last, size):
                last = rows[-1][0]
                rows = [row for row in rows if row[0] not in without]
                step = reports_at_once(at_once, size)
                for first in range(0, len(rows), step):
                    yield _batch(question, rows[first : first + step], width)

    def doubt(self, task: Task) -> list[ClientBatch]:
        """Remove the receipt of the newest stored report to each question, and return the reports.

        If the collector does not know one of them, it has lost reports. They wait from now on, so
        that a crash before the answer cannot hide the loss: the next ones in doubt are older.
        """
        with self._transaction() as database:
            rows = database.execute(
                "UPDATE outgoing SET verdict = NULL WHERE number IN (SELECT max(number) "
                "FROM outgoing WHERE task = ? AND verdict IN (?, ?) GROUP BY question) "
                "RETURNING question, number, id, report",
                (task.digest, int(ReportVerdict.COUNTED), int(ReportVerdict.KNOWN)),
            ).fetchall()
        widths = [randomiser.report_bytes for randomiser in task.survey.questions]
        return [_batch(question, [row], widths[question]) for question, *row in sorted(rows)]

    def _page(
        self, task: Task, question: int, after: int, size: int
    ) -> list[tuple[int, bytes, bytes]]:
        with as_store_failed(_WHAT):
            return self._db.execute(
                "SELECT number, id, report FROM outgoing WHERE verdict IS NULL "
                "AND task = ? AND question = ? AND number > ? ORDER BY number LIMIT ?",
                (task.digest, question, after, size),
            ).fetchall()

    def settle(self, settled: Iterable[tuple[ClientBatch, Verdicts]]) -> None:
        """Store the verdicts on reports, so that they are not sent again."""
        with self._transaction() as database:
            for batch, verdicts in settled:
                database.executemany(
                    "UPDATE outgoing SET verdict = ? WHERE number = ?",
                    zip(verdicts.tolist(), batch.clients.tolist(), strict=True),
                )

    def rename(self, former: bytes, task: Task) -> None:
        """Attribute the reports to a task with its former hash to the task, unless it has some."""
        with self._transaction() as database:
            database.execute(
                "UPDATE OR IGNORE outgoing SET task = ? WHERE task = ?", (task.digest, former)
            )

    def wait_again(self, task: Task, *, every: bool = False) -> None:
        """Mark reports as waiting.

        Args:
            every: Whether to mark all, because the collector lost its store; by default those
                rejected for lack of quota, because the collector may have raised it.
        """
        with self._transaction() as database:
            database.execute(
                "UPDATE outgoing SET verdict = NULL WHERE task = ? AND (? OR verdict = ?)",
                (task.digest, every, int(ReportVerdict.OVER_QUOTA)),
            )

    def count(self, task: Task) -> dict[ReportVerdict | None, int]:
        """Return the number of reports to a task by verdict, or None for those without one."""
        with as_store_failed(_WHAT):
            rows = self._db.execute(
                "SELECT verdict, count(*) FROM outgoing WHERE task = ? GROUP BY verdict",
                (task.digest,),
            ).fetchall()
        return {None if v is None else ReportVerdict(v): number for v, number in rows}


def _remember(database: Connection, rows: MarkedRows) -> None:
    known = zip(rows.clients, rows.marks, strict=True)
    database.executemany(
        "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)",
        ((client, rows.columns, mark) for client, mark in known),
    )


def _rows(table: NDArray[np.uint8]) -> Iterator[bytes]:
    width, data = table.shape[1], table.tobytes()
    return (data[start : start + width] for start in range(0, len(data), width))


def _batch(question: int, rows: Sequence[Sequence[Any]], width: int) -> ClientBatch:
    """Return reports from rows of number, id and report."""
    numbers, ids, reports = zip(*rows, strict=True)
    return ClientBatch(
        question, _joined(ids, ID_BYTES), _joined(reports, width), np.array(numbers, dtype=np.int64)
    )


def _joined(rows: Sequence[bytes], width: int) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(rows), np.uint8).reshape(-1, width)


def _mark(secret: bytes, values: Sequence[str]) -> bytes:
    packed: bytes = msgpack.packb(list(values))
    return blake2b(packed, key=secret, digest_size=_MARK_BYTES).digest()
