"""The durable reports of one aggregator, each with its verdict, and the batches that they are in.

A leader stores a report before it acknowledges the upload, and a helper stores its verdict before
it answers the leader. All of it is in the party's one state file, beside the ledger: the total of a
batch gets its noise in the transaction that charges for it.

The share of a report is erased as soon as it is verified, and what it adds to a total as soon as
that total is stored. An id stays, so that no report counts twice.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, StoreFailed
from veilring.privacy.files import as_store_failed
from veilring.privacy.statefile import MEMORY, Section, StateFile
from veilring.protocols.prio.messages import Verdict
from veilring.protocols.prio.task import Task

Added = Literal["stored", "same", "different"]
"""Whether an upload is new, the same as an earlier one, or another report with the same id."""

SHARES: Final = Section(
    name="store of shares",
    version=1,
    schema="""
CREATE TABLE aggregation (task BLOB NOT NULL, verify_key BLOB NOT NULL) STRICT;
CREATE TABLE uploads (
    number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, time INTEGER NOT NULL,
    digest BLOB NOT NULL, verdict INTEGER NOT NULL, batch INTEGER
) STRICT;
CREATE INDEX uploads_without_batch ON uploads (verdict, number) WHERE batch IS NULL;
CREATE INDEX uploads_by_batch ON uploads (batch) WHERE batch IS NOT NULL;
CREATE TABLE inputs (
    number INTEGER PRIMARY KEY, public BLOB NOT NULL, share BLOB NOT NULL, sealed BLOB NOT NULL
) STRICT;
CREATE TABLE outputs (
    number INTEGER PRIMARY KEY, share BLOB NOT NULL, reply BLOB NOT NULL
) STRICT;
CREATE TABLE batches (
    number INTEGER PRIMARY KEY, reports INTEGER NOT NULL, digest BLOB NOT NULL,
    agreed INTEGER NOT NULL, total BLOB
) STRICT;
""",
    sealed=("aggregation", "uploads", "inputs", "outputs", "batches"),
    loss="acknowledged reports are lost, and counted ones can be counted again, with other noise",
    log_bytes_max=64 << 20,
)
"""The section of a state file with the reports of an aggregator."""

# Output shares that are read and added up at once, for reports of any width.
READ_BYTES_MAX: Final = 16 << 20
_READ_MAX: Final = 1 << 16
# The ids of a batch are compared in this many parts, so that only the differing parts are sent.
PARTS: Final = 256
PART_DIGEST_BYTES: Final = 16  # of SHA-256: nobody finds two sets of ids with the same digest
Digests = NDArray[np.uint8]
"""The digests of the parts of a set of ids, shape (`PARTS`, `PART_DIGEST_BYTES`)."""


class Upload(NamedTuple):
    """A report as a client has uploaded it, after the leader has opened its own share.

    Attributes:
        time: The time of the report in seconds since 1970 (UTC), rounded down.
        public: The public share.
        share: The leader's input share.
        sealed: The helper's input share, encrypted to the helper.
    """

    id: bytes
    time: int
    public: bytes
    share: bytes
    sealed: bytes

    @property
    def digest(self) -> bytes:
        """The hash of all but the id, by which a repeated upload is known."""
        digest = hashlib.sha256(self.time.to_bytes(8))
        for part in (self.public, self.share, self.sealed):
            digest.update(len(part).to_bytes(4))
            digest.update(part)
        return digest.digest()


class Judged(NamedTuple):
    """A report that this aggregator has verified.

    Attributes:
        digest: The hash of what was verified.
        share: The output share, empty unless the report was accepted.
        reply: The preparation message that was sent to the leader, for a repeated request.
        batch: The number of its batch, if it is in one.
    """

    id: bytes
    time: int
    digest: bytes
    verdict: Verdict
    share: bytes = b""
    reply: bytes = b""
    batch: int | None = None


class Batch(NamedTuple):
    """A fixed set of accepted reports.

    Attributes:
        number: Its place among the batches of the task, from 0.
        reports: The number of reports.
        digest: The hash of their ids.
        agreed: Whether the helper has fixed the same reports.
        total: This aggregator's noisy share of the total, once it was charged for.
    """

    number: int
    reports: int
    digest: bytes
    agreed: bool
    total: bytes | None = None


def digest_ids(ids: Iterable[bytes]) -> Digests:
    """Return the digests of a set of ids, which are divided by their first byte."""
    parts = [hashlib.sha256() for _ in range(PARTS)]
    for each in sorted(ids):
        parts[each[0]].update(each)
    joined = b"".join(part.digest()[:PART_DIGEST_BYTES] for part in parts)
    return np.frombuffer(joined, np.uint8).reshape(PARTS, PART_DIGEST_BYTES)


def digest_of(digests: Digests) -> bytes:
    """Return one hash of all parts."""
    return hashlib.sha256(digests.tobytes()).digest()


class ShareStore:
    """The reports of one aggregator. Threads take turns by the guard of its file.

    Args:
        file: The open state file. It belongs to the first task that uses it.
        draw: Returns the verification key of a new store; a helper, which learns it from its
            leader, has none before.

    Raises:
        InputError: If the file holds reports to another task.
        StoreFailed: If the disk fails. All methods may raise this.
    """

    def __init__(self, file: StateFile, task: Task, draw: Callable[[], bytes] = bytes) -> None:
        self.file, self._path = file, file.path or Path(MEMORY)
        with as_store_failed(f"the {SHARES.name} failed", self._path):
            file.add(SHARES)
        row = self._one("SELECT task, verify_key FROM aggregation")
        if row is None:
            row = task.encoded, draw()
            with self.transaction() as db:
                db.execute("INSERT INTO aggregation VALUES (?, ?)", row)
        if row[0] != task.encoded:
            raise InputError.because(
                f"{self._path} holds reports to another task; restore the terms with which it"
                " began, or use a new state file for a new task",
                field="state",
            )
        self.verify_key: bytes = row[1]
        """The key with which both aggregators verify, secret from clients; empty if unknown."""

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for a transaction that is on disk at the end of the block."""
        failure = as_store_failed(f"the {SHARES.name} failed", self._path)
        with failure, self.file.transaction() as db:
            yield db

    def learn_key(self, key: bytes) -> bool:
        """Keep the verification key that the leader sends; return whether it is the only one."""
        if not self.verify_key:
            with self.transaction() as db:
                db.execute("UPDATE aggregation SET verify_key = ?", (key,))
            self.verify_key = key
        return self.verify_key == key

    # What a leader stores.

    def add(self, uploads: Sequence[Upload]) -> list[Added]:
        """Store uploads in one transaction; when this returns, the new ones are durable."""
        with self.transaction() as db:
            return [_add(db, upload) for upload in uploads]

    def waiting(self, most: int, after: int = 0) -> dict[int, Upload]:
        """Return the first reports that are not verified, by their numbers.

        Args:
            after: The number below the numbers of all of them.
        """
        rows = self._all(
            "SELECT number, id, time, public, inputs.share, sealed"
            " FROM uploads JOIN inputs USING (number)"
            " WHERE verdict = ? AND batch IS NULL AND number > ? ORDER BY number LIMIT ?",
            (Verdict.WAITING, after, most),
        )
        return {number: Upload(*rest) for number, *rest in rows}

    def settle(self, verdicts: Iterable[tuple[int, Verdict, bytes]]) -> None:
        """Store verdicts on waiting reports, with the output share of each accepted one.

        Args:
            verdicts: Each with the number of its report.
        """
        with self.transaction() as db:
            for number, verdict, share in verdicts:
                db.execute("UPDATE uploads SET verdict = ? WHERE number = ?", (verdict, number))
                db.execute("DELETE FROM inputs WHERE number = ?", (number,))
                if verdict == Verdict.ACCEPTED:
                    db.execute("INSERT INTO outputs VALUES (?, ?, ?)", (number, share, b""))

    def propose(self) -> Batch:
        """Fix all accepted reports as the next batch, unless an earlier one is not agreed yet."""
        last = self.last_batch()
        if last is not None and not last.agreed:
            return last
        number = 0 if last is None else last.number + 1
        return self._fix(number, self.pool(), agreed=False)

    def agree(self, number: int) -> None:
        """Mark a batch as fixed at the helper, too."""
        with self.transaction() as db:
            db.execute("UPDATE batches SET agreed = 1 WHERE number = ?", (number,))

    # What a helper stores.

    def known(self, ids: Iterable[bytes]) -> dict[bytes, Judged]:
        """Return the reports with some ids that were verified before.

        Shares and replies are empty once the report is part of a total.
        """
        find = (
            "SELECT id, time, digest, verdict, coalesce(share, x''), coalesce(reply, x''), batch"
            " FROM uploads LEFT JOIN outputs USING (number) WHERE id = ?"
        )
        with self.file.guard:
            db = self.file.connection
            rows = [db.execute(find, (each,)).fetchone() for each in ids]
        found = [Judged(*row)._replace(verdict=Verdict(row[3])) for row in rows if row]
        return {each.id: each for each in found}

    def keep(self, judged: Iterable[Judged]) -> None:
        """Store verified reports, whose ids are new, in one transaction."""
        with self.transaction() as db:
            for each in judged:
                number = _insert(db, each.id, each.time, each.digest, each.verdict)
                if each.verdict == Verdict.ACCEPTED:
                    row = number, each.share, each.reply
                    db.execute("INSERT INTO outputs VALUES (?, ?, ?)", row)

    def fix(self, number: int, ids: Sequence[bytes]) -> Batch:
        """Fix accepted reports as a batch that the leader has proposed."""
        return self._fix(number, ids, agreed=True)

    # What both store.

    def pool(self) -> list[bytes]:
        """Return the ids of all accepted reports that are in no batch."""
        return self.ids(Verdict.ACCEPTED)

    def ids(self, verdict: Verdict, most: int = -1) -> list[bytes]:
        """Return the ids of the reports in no batch with a verdict, in order of arrival.

        Args:
            most: The maximum number; -1 for all.
        """
        find = "SELECT id FROM uploads WHERE verdict = ? AND batch IS NULL ORDER BY number LIMIT ?"
        return [each for (each,) in self._all(find, (verdict, most))]

    def count(self, verdict: Verdict) -> int:
        """Return the number of reports in no batch with a verdict."""
        find = "SELECT count(*) FROM uploads WHERE verdict = ? AND batch IS NULL"
        row = self._one(find, (verdict,))
        return 0 if row is None else int(row[0])

    def ids_of(self, number: int) -> list[bytes]:
        """Return the ids of the reports of a batch."""
        return [each for (each,) in self._all("SELECT id FROM uploads WHERE batch = ?", (number,))]

    def disown(self, ids: Iterable[bytes]) -> None:
        """Refuse accepted or disputed reports that are in no batch, and erase their shares."""
        with self.transaction() as db:
            for each in ids:
                find = "SELECT number FROM uploads WHERE id = ? AND batch IS NULL"
                for (number,) in db.execute(find, (each,)).fetchall():
                    row = Verdict.DISOWNED, number
                    db.execute("UPDATE uploads SET verdict = ? WHERE number = ?", row)
                    db.execute("DELETE FROM outputs WHERE number = ?", (number,))

    def batch(self, number: int) -> Batch | None:
        """Return a batch by its number, if there is one."""
        row = self._one("SELECT * FROM batches WHERE number = ?", (number,))
        return None if row is None else _batch(row)

    def last_batch(self) -> Batch | None:
        """Return the newest batch, if there is one."""
        row = self._one("SELECT * FROM batches ORDER BY number DESC LIMIT 1")
        return None if row is None else _batch(row)

    def output_shares(self, number: int, width: int) -> Iterator[NDArray[np.uint8]]:
        """Yield the output shares of a batch in pieces of shape (reports, width)."""
        find = "SELECT outputs.share FROM uploads JOIN outputs USING (number) WHERE batch = ?"
        rows = self.file.connection.execute(find, (number,))
        while some := rows.fetchmany(max(1, min(_READ_MAX, READ_BYTES_MAX // width))):
            shares = [share for (share,) in some]
            if any(len(share) != width for share in shares):
                raise StoreFailed("a stored share has the wrong length")
            yield np.frombuffer(b"".join(shares), np.uint8).reshape(-1, width)

    def write_total(self, number: int, total: bytes, db: sqlite3.Connection) -> None:
        """Store the noisy share of a total, and erase the shares that it was made of.

        Args:
            db: The transaction that charges for it.
        """
        db.execute("UPDATE batches SET total = ? WHERE number = ?", (total, number))
        db.execute(
            "DELETE FROM outputs WHERE number IN (SELECT number FROM uploads WHERE batch = ?)",
            (number,),
        )

    def counts(self) -> dict[Verdict, int]:
        """Return the number of reports with each verdict."""
        rows = self._all("SELECT verdict, count(*) FROM uploads GROUP BY verdict")
        return {Verdict(verdict): count for verdict, count in rows}

    def progress(self) -> dict[str, int]:
        """Return the number of reports in each state, by its name in words."""
        counts, pool = self.counts(), self.count(Verdict.ACCEPTED)
        waiting, accepted = (counts.pop(each, 0) for each in (Verdict.WAITING, Verdict.ACCEPTED))
        return {
            "not verified": waiting,
            "verified": pool,
            "in batches": accepted - pool,
            "refused": sum(counts.values()),
        }

    def _fix(self, number: int, ids: Sequence[bytes], *, agreed: bool) -> Batch:
        batch = Batch(number, len(ids), digest_of(digest_ids(ids)), agreed)
        with self.transaction() as db:
            db.executemany("UPDATE uploads SET batch = ? WHERE id = ?", ((number, i) for i in ids))
            db.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?)", batch)
        return batch

    def _one(self, statement: str, values: Sequence[object] = ()) -> tuple[Any, ...] | None:
        with self.file.guard:
            row: tuple[Any, ...] | None
            row = self.file.connection.execute(statement, values).fetchone()
        return row

    def _all(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self.file.guard:
            return self.file.connection.execute(statement, values).fetchall()


def _batch(row: Sequence[Any]) -> Batch:
    number, reports, digest, agreed, total = row
    return Batch(number, reports, digest, bool(agreed), total)


def _add(db: sqlite3.Connection, upload: Upload) -> Added:
    digest = upload.digest
    found = db.execute("SELECT digest FROM uploads WHERE id = ?", (upload.id,)).fetchone()
    if found is not None:
        return "same" if found[0] == digest else "different"
    number = _insert(db, upload.id, upload.time, digest, Verdict.WAITING)
    row = number, upload.public, upload.share, upload.sealed
    db.execute("INSERT INTO inputs VALUES (?, ?, ?, ?)", row)
    return "stored"


def _insert(db: sqlite3.Connection, id_: bytes, time: int, digest: bytes, verdict: Verdict) -> int:
    row = id_, time, digest, verdict
    insert = "INSERT INTO uploads (id, time, digest, verdict) VALUES (?, ?, ?, ?)"
    return db.execute(insert, row).lastrowid or 0
