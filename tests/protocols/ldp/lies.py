"""Malformed reports that no client sends; processes import them by name."""

from collections.abc import Callable
from typing import Final

import numpy as np

from veilring.protocols.ldp.messages import ID_BYTES, ReportBatch, ReportVerdict
from veilring.transport.messages import Message


def as_batch(message: Message) -> ReportBatch:
    """Require that a message has reports."""
    assert isinstance(message, ReportBatch)
    return message


def with_fields(message: Message, **changed: object) -> ReportBatch:
    """Change some fields."""
    return as_batch(message).model_copy(update=changed)


def ragged_ids(message: Message) -> Message:
    """Keep only a part of an id."""
    return with_fields(message, ids=as_batch(message).ids[:-1])


def other_task(message: Message) -> Message:
    """Answer a different task."""
    return with_fields(message, task=bytes(32))


def short_hash(message: Message) -> Message:
    """Omit the hash of the task."""
    return with_fields(message, task=b"")


def no_such_question(message: Message) -> Message:
    """Answer an unknown question."""
    return with_fields(message, question=99)


def too_few_bytes(message: Message) -> Message:
    """Truncate the last report."""
    return with_fields(message, reports=as_batch(message).reports[:-1])


def too_many_bytes(message: Message) -> Message:
    """Make each report too long."""
    return with_fields(message, reports=as_batch(message).reports * 2)


def too_many_reports(message: Message) -> Message:
    """Send more reports than a message may have."""
    return with_fields(message, ids=bytes(ID_BYTES * (1 << 14) + ID_BYTES), reports=b"")


def out_of_domain(message: Message) -> Message:
    """Report padding bits or an unknown value, which no client can draw."""
    reports = np.full(len(as_batch(message).reports), 255, dtype=np.uint8)
    return with_fields(message, reports=reports.tobytes())


REFUSALS: Final[dict[Callable[[Message], Message], ReportVerdict]] = {
    other_task: ReportVerdict.OTHER_TASK,
    short_hash: ReportVerdict.OTHER_TASK,
    no_such_question: ReportVerdict.MALFORMED,
    too_few_bytes: ReportVerdict.MALFORMED,
    too_many_bytes: ReportVerdict.OVERSIZED,
    too_many_reports: ReportVerdict.OVERSIZED,
    out_of_domain: ReportVerdict.OUT_OF_DOMAIN,
}
"""The reason for which each malformed report is refused."""
LIES: Final = (ragged_ids, *REFUSALS)
