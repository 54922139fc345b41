"""Judging what clients sent, before anything of it counts. No I/O.

Every field of every report is judged. What a message as a whole has wrong is every report's in it;
else each report is judged by itself, and one that is refused does not sink the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import ProtocolViolation
from veilring.protocols.ldp.algorithm.randomiser import Reports
from veilring.protocols.ldp.messages import ID_BYTES, Receipt, ReportBatch
from veilring.protocols.ldp.task import Task
from veilring.protocols.ldp.verdicts import Verdict

# More than a batch of the smallest reports has; what it costs to judge a message is bounded by it.
BATCH_REPORTS_MAX: Final = 1 << 14

Verdicts = NDArray[np.uint8]
"""One `Verdict` a report."""


@dataclass(frozen=True, slots=True, eq=False)
class Accepted:
    """Reports to one question that a client could have made.

    Attributes:
        question: Which.
        ids: Shape (reports, `ID_BYTES`).
        reports: Shape (reports, bytes).
        places: Where each one's verdict stands among all that came.
    """

    question: int
    ids: NDArray[np.uint8]
    reports: Reports
    places: NDArray[np.int64]


def count_reports(message: ReportBatch, sender: str) -> int:
    """Return how many reports a message has.

    Raises:
        ProtocolViolation: If its ids cannot be told apart, so that no report could be answered.
    """
    reports, rest = divmod(len(message.ids), ID_BYTES)
    if rest:
        raise ProtocolViolation(sender, f"sent {len(message.ids)} bytes of ids")
    return reports


def sift(task: Task, messages: Sequence[ReportBatch]) -> tuple[Verdicts, tuple[Accepted, ...]]:
    """Judge the reports of some messages by all that is public.

    Returns:
        One verdict a report, in order, `COUNTED` where nothing is wrong with it; and those reports,
        by question.
    """
    counts = np.array([len(message.ids) // ID_BYTES for message in messages], dtype=np.int64)
    # Looked up once: of single reports there are as many messages.
    digest, widths = task.digest, [each.report_bytes for each in task.survey.questions]
    wrong = np.array([_wrong(each, digest, widths) for each in messages], dtype=np.uint8)
    verdicts = np.repeat(wrong, counts)
    asked = np.array([m.question if v == 0 else -1 for m, v in zip(messages, wrong, strict=True)])
    question_of = np.repeat(asked, counts)
    accepted = []
    for question, ids, reports in _by_question(task, messages, asked):
        places = np.flatnonzero(question_of == question)
        good = task.survey.questions[question].accept(reports)
        verdicts[places[~good]] = Verdict.OUT_OF_DOMAIN
        if good.all():
            accepted.append(Accepted(question, ids, reports, places))
        else:
            accepted.append(Accepted(question, ids[good], reports[good], places[good]))
    return verdicts, tuple(accepted)


def _by_question(
    task: Task, messages: Sequence[ReportBatch], asked: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.uint8], Reports]]:
    for question in np.unique(asked[asked >= 0]).tolist():
        members = [messages[number] for number in np.flatnonzero(asked == question).tolist()]
        width = task.survey.questions[question].report_bytes
        ids = np.frombuffer(b"".join([each.ids for each in members]), np.uint8)
        reports = np.frombuffer(b"".join([each.reports for each in members]), np.uint8)
        yield question, ids.reshape(-1, ID_BYTES), reports.reshape(-1, width)


def _wrong(message: ReportBatch, digest: bytes, widths: Sequence[int]) -> Verdict:
    """Return what is wrong with a message as a whole, or `COUNTED`."""
    reports = len(message.ids) // ID_BYTES
    if reports > BATCH_REPORTS_MAX:
        return Verdict.OVERSIZED
    if message.task != digest:
        return Verdict.OTHER_TASK
    if message.question >= len(widths):
        return Verdict.MALFORMED
    given, due = len(message.reports), reports * widths[message.question]
    if given == due:
        return Verdict.COUNTED
    return Verdict.OVERSIZED if given > due else Verdict.MALFORMED


def receipt(verdicts: Verdicts) -> Receipt:
    """Return what tells a client the verdicts on its next reports."""
    others = np.flatnonzero(verdicts)
    return Receipt(
        reports=len(verdicts), places=others.astype(np.uint32), verdicts=verdicts[others]
    )
