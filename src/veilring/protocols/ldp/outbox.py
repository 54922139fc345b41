"""`Outbox`: what a client has reported, kept before it is sent for the first time.

A report that was sent and not acknowledged may have arrived. Made afresh, it would spend epsilon
again, and count twice; so the same bytes are sent again, after a crash too. For the same reason the
outbox is where a client's lifetime budget is kept. It is as private as the rows: it says who said
what, if only with noise.
"""

import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.chunks import how_many
from veilring.protocols.ldp.intake import Verdicts
from veilring.protocols.ldp.messages import ID_BYTES
from veilring.protocols.ldp.pool import Batch, batch_reports
from veilring.protocols.ldp.sqlite import as_store_failed, transaction
from veilring.protocols.ldp.task import Task
from veilring.protocols.ldp.verdicts import Verdict

__all__ = ("Outbox",)

_WHAT: Final = "outbox"
_APPLICATION: Final = 0x7665696D  # next to that of a collector's store
_SCHEMA: Final = """
CREATE TABLE reports (
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
CREATE INDEX waiting ON reports (task, question, number) WHERE verdict IS NULL;
"""


class Outbox:
    """One file, which one process uses at a time. Use it as a context manager.

    Args:
        path: The file; it is made if there is none.

    Raises:
        StoreFailed: If it cannot be opened, or another process has it open.
        InputError: If it is another program's file.
    """

    def __init__(self, path: Path) -> None:
        with as_store_failed(_WHAT, path, (sqlite3.Error, OSError)):
            path.touch(mode=0o600)  # it says who said what
            self._db = sqlite3.connect(path, isolation_level=None, timeout=0.0)
            try:
                self._prepare(path)
            except BaseException:
                self._db.close()
                raise

    def _prepare(self, path: Path) -> None:
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            (application,) = self._db.execute("PRAGMA application_id").fetchone()
            (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if tables and application != _APPLICATION:
                raise InputError("outbox", path, "a file that `veilring submit` has made")
            if not tables:
                for statement in _SCHEMA.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {_APPLICATION}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with as_store_failed(_WHAT), transaction(self._db):
            yield

    def reported(self, task: Task, clients: Sequence[str]) -> NDArray[np.bool_]:
        """Return which clients have made their report to a task, shape (clients,)."""
        with as_store_failed(_WHAT):
            rows = self._db.execute("SELECT client FROM reports WHERE task = ?", (task.digest,))
            known = {client for (client,) in rows}
        return np.array([client in known for client in clients], dtype=np.bool_)

    def can_afford(
        self, clients: Sequence[str], epsilon: float, budget: float
    ) -> NDArray[np.bool_]:
        """Return which clients can spend so much more, shape (clients,)."""
        with as_store_failed(_WHAT):
            rows = self._db.execute("SELECT client, epsilon FROM reports ORDER BY client")
            spent = {
                client: [each for _, each in made]
                for client, made in groupby(rows, key=lambda row: row[0])
            }
        nothing: list[float] = []
        return np.array(
            [math.fsum((*spent.get(client, nothing), epsilon)) <= budget for client in clients],
            dtype=np.bool_,
        )

    def add(self, task: Task, clients: Sequence[str], batches: Iterable[Batch]) -> None:
        """Keep reports; when this returns, they are durable.

        Args:
            task: What they were made for.
            clients: Each one's name. The batches say whose a report is by its place here.
            batches: Reports that were not sent anywhere.

        Raises:
            StoreFailed: If a client has reported to this task before; nothing is kept then.
        """
        epsilon = task.survey.exact_epsilon
        with self._transaction():
            for batch in batches:
                self._db.executemany(
                    "INSERT INTO reports (client, task, epsilon, question, id, report) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        (clients[who], task.digest, epsilon, batch.question, name, report)
                        for who, name, report in zip(
                            batch.clients.tolist(),
                            _rows(batch.ids),
                            _rows(batch.reports),
                            strict=True,
                        )
                    ),
                )

    def waiting(self, task: Task, *, at_once: int | None = None) -> Iterator[Batch]:
        """Yield all reports that were not answered, as they were made, by question.

        Args:
            task: What they were made for.
            at_once: How many a batch may have; as many as `BATCH_BYTES_MAX` unless given.

        Raises:
            InputError: If no report may be in a batch.
        """
        for question, randomiser in enumerate(task.survey.questions):
            width = randomiser.report_bytes
            size, last = batch_reports(width), 0
            while rows := self._page(task, question, last, size):
                last = rows[-1][0]
                numbers = np.array([number for number, _, _ in rows], dtype=np.int64)
                ids = _joined([name for _, name, _ in rows], ID_BYTES)
                reports = _joined([report for _, _, report in rows], width)
                step = how_many(at_once, len(rows))
                for first in range(0, len(rows), step):
                    part = slice(first, first + step)
                    yield Batch(question, ids[part], reports[part], numbers[part])

    def _page(
        self, task: Task, question: int, after: int, size: int
    ) -> list[tuple[int, bytes, bytes]]:
        with as_store_failed(_WHAT):
            return self._db.execute(
                "SELECT number, id, report FROM reports WHERE verdict IS NULL "
                "AND task = ? AND question = ? AND number > ? ORDER BY number LIMIT ?",
                (task.digest, question, after, size),
            ).fetchall()

    def settle(self, settled: Iterable[tuple[Batch, Verdicts]]) -> None:
        """Keep what became of reports: they are not sent again."""
        with self._transaction():
            for batch, verdicts in settled:
                self._db.executemany(
                    "UPDATE reports SET verdict = ? WHERE number = ?",
                    zip(verdicts.tolist(), batch.clients.tolist(), strict=True),
                )

    def count(self, task: Task) -> dict[Verdict | None, int]:
        """Return how many reports to a task have which verdict, or none yet."""
        with as_store_failed(_WHAT):
            rows = self._db.execute(
                "SELECT verdict, count(*) FROM reports WHERE task = ? GROUP BY verdict",
                (task.digest,),
            ).fetchall()
        return {None if v is None else Verdict(v): number for v, number in rows}


def _rows(table: NDArray[np.uint8]) -> Iterator[bytes]:
    width, data = table.shape[1], table.tobytes()
    return (data[start : start + width] for start in range(0, len(data), width))


def _joined(rows: Sequence[bytes], width: int) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(rows), np.uint8).reshape(-1, width)
