"""The task of an LDP collection, its messages, and the collector's checks of them.

Every field of every report is checked. A fault of the message as a whole rejects all its reports;
otherwise each report is checked individually, and a bad one does not affect the others. There is no
I/O here.

A `Task` is the questions of an aggregator to its clients, as bytes with one hash. The aggregator is
not trusted. A client does not rely on the published survey: it rebuilds the survey from the task's
terms and compares every public number exactly.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from veilring.arrays import Ints
from veilring.protocols.digests import canonical_json
from veilring.protocols.intake import ReasonedVerdict
from veilring.protocols.ldp.algorithm.randomiser import Reports
from veilring.protocols.ldp.algorithm.survey import Survey
from veilring.transport.handshake import FORMAT
from veilring.transport.messages import Array, Message

TASK_FORMAT: Final = 3
"""The version of the encoding."""
REPORTS_FORMAT: Final = 1
"""The version of the messages that carry tasks and reports."""
TASK_DIGEST_BYTES: Final = 32  # of SHA-256


def format_terms() -> dict[str, str]:
    """Return the terms in the greetings of a collector and its clients: their formats."""
    return {f"task {FORMAT}": str(TASK_FORMAT), f"ldp-bayes {FORMAT}": str(REPORTS_FORMAT)}


def other_format(encoded: bytes) -> str:
    """Return the format of an encoded task, as in "format 1, from an older veilring".

    Return nothing if the format is ours or missing.
    """
    try:
        found = json.loads(encoded)["format"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    if type(found) is not int or found == TASK_FORMAT:
        return ""
    return f"format {found}, from {'an older' if found < TASK_FORMAT else 'a newer'} veilring"


@dataclass(frozen=True, eq=False)
class Task:
    """A survey with its terms and its deadline, on which a client relies.

    Attributes:
        closes: The time after which no new report is accepted, in seconds since 1970 (UTC), or
            None.
    """

    terms: Mapping[str, Any]
    survey: Survey
    closes: float | None = None

    @cached_property
    def encoded(self) -> bytes:
        """The task in canonical JSON: two tasks have equal bytes if and only if they are equal."""
        content = {
            "format": TASK_FORMAT,
            "terms": self.terms,
            "numbers": self.survey.public,
            "closes": self.closes,
        }
        return canonical_json(content)

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 hash of `encoded`, which every report carries."""
        return hashlib.sha256(self.encoded).digest()

    def is_closed(self, now: float) -> bool:
        """Return whether a time, in seconds since 1970 (UTC), is past the deadline."""
        return self.closes is not None and now >= self.closes


ID_BYTES: Final = 16  # the size of a UUID: never drawn twice by chance
ID_PREFIX_BYTES: Final = 12  # drawn for up to 2^32 reports together: never twice either
# More than a batch of the smallest reports; it bounds the cost of checking a message.
BATCH_REPORTS_MAX: Final = 1 << 14
# A quarter of a frame: large enough that a message's overhead is negligible, small enough that
# several are in flight while one is stored.
BATCH_BYTES_MAX: Final = 1 << 18
_Number = Annotated[int, Field(ge=0)]


def _whole(ids: bytes) -> bytes:
    """Refuse a part of an id: in joined messages it would become one with the next part."""
    if len(ids) % ID_BYTES:
        raise PydanticCustomError("ids", "a multiple of {size} bytes", {"size": ID_BYTES})
    return ids


class Published(Message, kind="ldp.task"):
    """A task as its aggregator publishes it: `Task.encoded`."""

    task: bytes


class ReportBatch(Message, kind="ldp.reports"):
    """One or more reports, all to one question of one task.

    Attributes:
        task: The hash of the task that the reports were made for.
        ids: The concatenated ids, `ID_BYTES` per report.
        more: Whether another batch follows in this session.
    """

    joins = "ids", "reports"
    task: bytes
    question: _Number
    ids: Annotated[bytes, AfterValidator(_whole)]
    reports: bytes
    more: bool


class ReportReceipt(Message, kind="ldp.receipt"):
    """The verdicts on the next reports, in the order in which they were sent.

    Reports that are not listed are stored and counted; each other report is listed with its
    position and verdict.

    Attributes:
        reports: The number of settled reports.
        places: The positions of the reports with a verdict other than `COUNTED`, from 0.
    """

    reports: _Number
    places: Annotated[NDArray[np.uint32], Array("<u4", 1)]
    verdicts: Annotated[NDArray[np.uint8], Array("|u1", 1)]


class ReportVerdict(ReasonedVerdict):
    """The collector's decision on one report."""

    COUNTED = 0, "stored and counted"
    KNOWN = 1, "stored before, and counted once"
    MALFORMED = 2, "unknown question, or too short for its question"
    OVERSIZED = 3, "too long, or in too large a batch"
    OUT_OF_DOMAIN = 4, "impossible values, which no client could have drawn"
    REUSED_ID = 5, "id already used by another report"
    OTHER_TASK = 6, "made for another task"
    CLOSED = 7, "collection closed"
    OVER_QUOTA = 8, "no more reports accepted from this client (see reports_max)"

    @property
    def is_kept(self) -> bool:
        """Whether the report is stored and counted, once."""
        return self <= ReportVerdict.KNOWN


Verdicts = NDArray[np.uint8]
"""One `ReportVerdict` per report."""


@dataclass(frozen=True, slots=True, eq=False)
class ClientBatch:
    """Reports to one question, each with its id.

    Attributes:
        clients: The clients that made the reports, as positions in a pool or numbers in an outbox;
            never sent.
    """

    question: int
    ids: NDArray[np.uint8]
    reports: Reports
    clients: Ints

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def payload_bytes(self) -> int:
        """The size in bytes of the reports and their ids."""
        return self.ids.nbytes + self.reports.nbytes

    def message(self, task: Task, *, more: bool) -> ReportBatch:
        """Return the message that carries these reports."""
        return ReportBatch(
            task=task.digest,
            question=self.question,
            ids=self.ids.tobytes(),
            reports=self.reports.tobytes(),
            more=more,
        )


def number_ids(prefix: bytes, first: int, count: int) -> NDArray[np.uint8]:
    """Return ids of consecutive reports: a common random prefix, and their numbers.

    Reports that arrive together then lie together in a database, which would otherwise change a
    page of its index for each of them.

    Args:
        prefix: `ID_PREFIX_BYTES` bytes, drawn for the reports that a member makes together.
        first: The number of the first report, in the order in which they are sent: the order of
            the rows would reveal ranks in a sorted file.

    Returns:
        Shape (count, `ID_BYTES`).
    """
    ids = np.empty((count, ID_BYTES), dtype=np.uint8)
    ids[:, :ID_PREFIX_BYTES] = np.frombuffer(prefix, np.uint8)
    ids[:, ID_PREFIX_BYTES:] = np.arange(first, first + count, dtype=">u4")[:, None].view(np.uint8)
    return ids


def batch_reports(report_bytes: int) -> int:
    """Return the maximum number of reports of the given width in a batch."""
    return max(1, BATCH_BYTES_MAX // (ID_BYTES + report_bytes))


@dataclass(frozen=True, slots=True, eq=False)
class Accepted:
    """Reports to one question that a client could have made.

    Attributes:
        ids: Shape (reports, `ID_BYTES`).
        reports: Shape (reports, bytes).
    """

    question: int
    ids: NDArray[np.uint8]
    reports: Reports
    places: Ints


def judge_batches(
    task: Task, messages: Sequence[ReportBatch]
) -> tuple[Verdicts, tuple[Accepted, ...]]:
    """Check reports against all public values; return their verdicts, and the valid ones.

    The verdict on a valid report is `COUNTED`.
    """
    counts = np.array([len(message.ids) // ID_BYTES for message in messages], dtype=np.int64)
    # looked up once: with single reports, there is a message per report
    digest, widths = task.digest, [each.report_bytes for each in task.survey.questions]
    wrong = np.array([_wrong(each, digest, widths) for each in messages], dtype=np.uint8)
    verdicts = np.repeat(wrong, counts)
    asked = np.array([m.question if v == 0 else -1 for m, v in zip(messages, wrong, strict=True)])
    question_of = np.repeat(asked, counts)
    accepted = []
    for question, ids, reports in _by_question(task, messages, asked):
        places = np.flatnonzero(question_of == question)
        good = task.survey.questions[question].accept(reports)
        verdicts[places[~good]] = ReportVerdict.OUT_OF_DOMAIN
        if good.all():
            accepted.append(Accepted(question, ids, reports, places))
        else:
            accepted.append(Accepted(question, ids[good], reports[good], places[good]))
    return verdicts, tuple(accepted)


def _by_question(
    task: Task, messages: Sequence[ReportBatch], asked: Ints
) -> Iterator[tuple[int, NDArray[np.uint8], Reports]]:
    for question in np.unique(asked[asked >= 0]).tolist():
        members = [messages[number] for number in np.flatnonzero(asked == question).tolist()]
        width = task.survey.questions[question].report_bytes
        ids = np.frombuffer(b"".join([each.ids for each in members]), np.uint8)
        reports = np.frombuffer(b"".join([each.reports for each in members]), np.uint8)
        yield question, ids.reshape(-1, ID_BYTES), reports.reshape(-1, width)


def _wrong(message: ReportBatch, digest: bytes, widths: Sequence[int]) -> ReportVerdict:
    """Return the fault of a message as a whole, or `COUNTED`."""
    reports = len(message.ids) // ID_BYTES
    if reports > BATCH_REPORTS_MAX:
        return ReportVerdict.OVERSIZED
    if message.task != digest:
        return ReportVerdict.OTHER_TASK
    if message.question >= len(widths):
        return ReportVerdict.MALFORMED
    given, due = len(message.reports), reports * widths[message.question]
    if given == due:
        return ReportVerdict.COUNTED
    return ReportVerdict.OVERSIZED if given > due else ReportVerdict.MALFORMED


def make_receipt(verdicts: Verdicts) -> ReportReceipt:
    """Return the receipt with the verdicts on a client's next reports."""
    others = np.flatnonzero(verdicts)
    return ReportReceipt(
        reports=len(verdicts), places=others.astype(np.uint32), verdicts=verdicts[others]
    )
