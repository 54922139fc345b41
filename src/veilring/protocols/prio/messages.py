"""The messages of the leader, the helper and the collector of a verified sum.

A leader and its helper verify many reports in one exchange, and fix a batch in another one; the
collector asks each of them for its share of a total. All of it runs in sessions of two parties.
"""

from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.errors import ProtocolViolation
from veilring.protocols.intake import ReasonedVerdict
from veilring.transport.messages import Array, Message

ID_BYTES: Final = 16  # the size of a report id, which is also the nonce (DAP-09, VDAF-08)
KEY_BYTES: Final = 16  # the size of a verification key
AGGREGATORS_FORMAT: Final = 1
"""The version of these messages."""
_Count = Annotated[int, Field(ge=0, lt=1 << 63)]  # as large as a state file holds
_Bytes = Annotated[NDArray[np.uint8], Array("|u1", 2)]
"""Rows of bytes, one for each report."""


class Verdict(ReasonedVerdict):
    """The decision of an aggregator on one report."""

    ACCEPTED = 0, "verified, and counted in one batch"
    WAITING = 1, "not verified yet"
    UNREADABLE = 2, "the helper could not open its share"
    INVALID = 3, "its proof fails"
    REUSED_ID = 4, "its id belongs to another report"
    COLLECTED = 5, "already part of a total"
    LATE = 6, "after the end of the task"
    EARLY = 7, "of a time far ahead"
    DISPUTED = 8, "accepted by the helper, and refused by the leader"
    DISOWNED = 9, "refused by the leader after the helper had accepted it"


ANSWERS: Final = frozenset(
    {
        Verdict.ACCEPTED,
        Verdict.UNREADABLE,
        Verdict.INVALID,
        Verdict.REUSED_ID,
        Verdict.COLLECTED,
        Verdict.LATE,
        Verdict.EARLY,
        Verdict.DISOWNED,
    }
)
"""The verdicts that a helper answers with."""


class LeaderMessage(Message, kind="prio.leader"):
    """Any message that a helper answers."""


class PrepareReports(LeaderMessage, kind="prio.prepare"):
    """Reports to verify, from the leader: one row each.

    Attributes:
        verify_key: The key with which both aggregators verify, always the same.
        ids: Shape (reports, `ID_BYTES`).
        times: The times of the reports in seconds since 1970 (UTC), shape (reports,).
        public: The public shares, shape (reports, bytes).
        prepared: The leader's preparation shares, shape (reports, bytes).
        sealed: The helper's encrypted input shares, one after the other.
        sealed_sizes: The size in bytes of each, shape (reports,).
        disowned: The ids of reports that the helper has accepted and the leader refused, one after
            the other.
    """

    verify_key: Annotated[bytes, Field(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    ids: _Bytes
    times: Annotated[NDArray[np.uint64], Array("<u8", 1)]
    public: _Bytes
    prepared: _Bytes
    sealed: bytes
    sealed_sizes: Annotated[NDArray[np.uint32], Array("<u4", 1)]
    disowned: bytes


class PreparedReports(Message, kind="prio.prepared"):
    """The helper's verdicts, and what the leader needs to finish.

    Attributes:
        verdicts: One `Verdict` for each report, shape (reports,).
        replies: The preparation message of each accepted report, in order: shape (accepted, bytes).
    """

    verdicts: Annotated[NDArray[np.uint8], Array("|u1", 1)]
    replies: _Bytes


class ProposeBatch(LeaderMessage, kind="prio.propose"):
    """A batch that the leader wants to close.

    Attributes:
        number: Its number; batches are numbered from 0.
        reports: The number of its reports.
        digests: The digests of the parts of its ids: see `veilring.protocols.prio.store`.
        disowned: As in `PrepareReports`.
        later: The ids of reports that the helper has accepted, and that wait for a later batch, one
            after the other.
    """

    number: _Count
    reports: _Count
    digests: _Bytes
    disowned: bytes
    later: bytes


class BatchAnswer(Message, kind="prio.agree"):
    """Whether the helper has fixed the same batch.

    Attributes:
        agreed: Whether it is fixed; otherwise nothing has changed.
        ids: The helper's ids in the parts that differ, one after the other.
    """

    agreed: bool
    ids: bytes


class CollectBatch(Message, kind="prio.collect"):
    """A collector's request for an aggregator's share of a total."""

    number: _Count


class BatchState(Message, kind="prio.state"):
    """The answer to a collector; the share of the total follows if there is one.

    Attributes:
        verdict: A `veilring.protocols.requests.RequestVerdict`.
        left: The remaining budget if that is insufficient, otherwise 0.
        batches: The number of batches that are closed.
    """

    verdict: _Count
    left: float
    batches: _Count


class TotalShare(Message, kind="prio.total"):
    """An aggregator's noisy share of the total of a batch.

    Attributes:
        number: The number of the batch.
        reports: The number of its reports.
        digest: The hash of their ids.
        entries: The share, entry by entry: shape (entries, bytes).
    """

    number: _Count
    reports: _Count
    digest: bytes
    entries: _Bytes


def as_rows(blobs: "list[bytes]", width: int) -> NDArray[np.uint8]:
    """Return equally long bytes as rows, shape (number, width)."""
    return np.frombuffer(b"".join(blobs), np.uint8).reshape(len(blobs), width)


def split_ids(joined: bytes, sender: str) -> list[bytes]:
    """Return the ids that a peer has sent one after the other.

    Raises:
        ProtocolViolation: If they are no whole number of ids.
    """
    if len(joined) % ID_BYTES:
        raise ProtocolViolation(sender, f"sent {len(joined)} bytes of ids")
    return [joined[start : start + ID_BYTES] for start in range(0, len(joined), ID_BYTES)]


def split_sealed(message: PrepareReports, sender: str) -> list[bytes]:
    """Return the encrypted share of each report.

    Raises:
        ProtocolViolation: If the sizes are not those of the bytes.
    """
    ends = np.cumsum(message.sealed_sizes, dtype=np.uint64).tolist()
    if (ends[-1] if ends else 0) != len(message.sealed):
        raise ProtocolViolation(sender, "sent encrypted shares of other sizes than it announced")
    starts = [0, *ends[:-1]]
    return [message.sealed[start:end] for start, end in zip(starts, ends, strict=True)]
