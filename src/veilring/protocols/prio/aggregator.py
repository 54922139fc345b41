"""A leader and a helper verify reports, and fix the same batches.

Here is no network: each function takes a message and returns the answer, once everything in the
answer is on disk. The sessions are in `veilring.protocols.prio.exchange`.

**Exactly once.** A report is counted by both aggregators or by neither. The helper stores its
verdict before it answers, and answers a repeated request alike; so a leader that was interrupted
sends the same reports again. A batch is fixed by its leader first. The helper agrees if its own
accepted reports are exactly the same, and fixes them before it answers; otherwise it names its
reports where they differ. Those that only the helper has accepted are left out: the leader has
refused them, or verifies them again for a later batch. Nothing is opened before both agree.

**Liars.** A helper that denies a report that it has accepted, or answers what no honest helper
answers, is named, and the batch stays closed. So is a leader that proposes reports which the helper
has not accepted, that changes the verification key, or that proposes fewer than the minimum, unless
the task has ended and its totals have noise. Either aggregator can change the total unnoticed, by
its own share of it.

The leader draws the key, and may have seen reports before, which the draft forbids. It gains
nothing by that: only the helper sees both preparation shares, and it refuses a falsified one
whatever the report is, since random seeds hide the wires at each point that it allows. The helper,
which sees both, cannot choose the key.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np

from veilring.arrays import Ints
from veilring.errors import ProtocolViolation
from veilring.privacy.checks import require_that
from veilring.protocols.prio.algorithm.prio3 import Preparation, Prio3
from veilring.protocols.prio.messages import (
    ANSWERS,
    ID_BYTES,
    KEY_BYTES,
    BatchAnswer,
    PreparedReports,
    PrepareReports,
    ProposeBatch,
    Verdict,
    as_rows,
    split_ids,
    split_sealed,
)
from veilring.protocols.prio.store import (
    PART_DIGEST_BYTES,
    PARTS,
    Batch,
    Judged,
    ShareStore,
    Upload,
    digest_ids,
    digest_of,
)
from veilring.protocols.prio.task import CLOCK_SKEW_SECONDS, Task
from veilring.transport.frames import CONTENT_BYTES_MAX

LEADER, HELPER = range(2)
"""The numbers of the aggregators, as their shares have them (VDAF-08)."""

EXCHANGE_REPORTS_MAX: Final = 4096
"""The maximum number of reports that are verified in one exchange."""
EXCHANGE_BYTES_MAX: Final = 64 << 20
"""The maximum size of the leader's shares in one exchange, unless one share is larger."""
_IDS_MAX: Final = EXCHANGE_REPORTS_MAX  # of reports that the helper has yet to refuse, a message
_ROOM: Final = CONTENT_BYTES_MAX - _IDS_MAX * ID_BYTES - KEY_BYTES
_LISTED_MAX: Final = _ROOM // ID_BYTES - PARTS
_RESTORED: Final = "; after an older state of either aggregator was restored, begin a new task"
_SIZE_BYTES: Final = 4  # of an encrypted share's size
_TIME_BYTES: Final = 8

Unseal = Callable[[Sequence[Upload]], list[bytes | None]]
"""Opens the helper's encrypted input shares; none for one that cannot be opened. The `share` of
each upload is empty."""


@dataclass(frozen=True, slots=True)
class Counting:
    """The public rules and the store of an aggregator.

    Attributes:
        prio: The scheme of the task.
        now: A clock: the seconds since 1970 (UTC).
    """

    task: Task
    prio: Prio3
    store: ShareStore
    now: Callable[[], float]

    def has_ended(self, slack: float = 0.0) -> bool:
        """Return whether no further report is accepted."""
        return self.task.closes is not None and self.now() + slack >= self.task.closes

    def fewest(self, slack: float = 0.0) -> int:
        """Return the smallest number of reports of a batch now.

        After the end, noise alone protects a report. Exact totals have no noise.
        """
        is_free = self.has_ended(slack) and self.task.epsilon is not None
        return 1 if is_free else self.task.minimum


def _row_bytes(prio: Prio3, sealed: int) -> int:
    """Return the bytes of one report in an exchange, with an encrypted share of this size."""
    row = ID_BYTES + _TIME_BYTES + _SIZE_BYTES
    return row + prio.public_share_size + prio.prep_share_size + sealed


def exchange_reports(prio: Prio3, sealed: int) -> int:
    """Return the maximum number of reports of one exchange, which bounds the memory that it takes.

    Args:
        sealed: The size in bytes of each encrypted share.

    Raises:
        InputError: If no report fits a frame.
    """
    row = _row_bytes(prio, sealed)
    require_that(
        row <= _ROOM,
        "chunk_length",
        f"the proof of a report takes {row:,} bytes between the aggregators, and {_ROOM:,} fit;"
        " use a smaller chunk_length",
    )
    wide = max(1, EXCHANGE_BYTES_MAX // prio.input_share_sizes[LEADER])
    return min(EXCHANGE_REPORTS_MAX, _ROOM // row, wide)


class Exchange(NamedTuple):
    """Reports that a leader is about to verify with its helper.

    Attributes:
        numbers: The numbers of the reports in the store.
        state: The leader's state of their preparation.
        disowned: The ids in the message that the helper must refuse.
    """

    numbers: list[int]
    state: Preparation
    disowned: list[bytes]
    message: PrepareReports


class Proposal(NamedTuple):
    """A batch that a leader is about to fix with its helper.

    Attributes:
        disowned: The ids in the message that the helper must refuse.
        later: The ids in the message that wait for a later batch.
    """

    batch: Batch
    disowned: list[bytes]
    later: list[bytes]
    message: ProposeBatch


@dataclass(frozen=True, slots=True)
class Leader(Counting):
    """The aggregator that receives uploads, and decides when a batch closes."""

    def prepare(self, flying: Exchange | None = None) -> Exchange | None:
        """Return the next reports to verify, at most those that the batch lacks; none without any.

        Args:
            flying: The reports that are being verified meanwhile.
        """
        while uploads := self._next_uploads([] if flying is None else flying.numbers):
            numbers, kept = list(uploads), list(uploads.values())
            prepared = self.prio.prepare(
                self.store.verify_key,
                LEADER,
                as_rows([each.id for each in kept], ID_BYTES),
                as_rows([each.public for each in kept], self.prio.public_share_size),
                as_rows([each.share for each in kept], self.prio.input_share_sizes[LEADER]),
            )
            if not prepared.valid.all():  # which no honest client sends
                bad = np.flatnonzero(~prepared.valid).tolist()
                self.store.settle([(numbers[n], Verdict.INVALID, b"") for n in bad])
                continue
            disowned = self.store.ids(Verdict.DISPUTED, _IDS_MAX)
            message = PrepareReports(
                verify_key=self.store.verify_key,
                ids=as_rows([each.id for each in kept], ID_BYTES),
                times=np.array([each.time for each in kept], dtype=np.uint64),
                public=as_rows([each.public for each in kept], self.prio.public_share_size),
                prepared=prepared.prep_shares,
                sealed=b"".join(each.sealed for each in kept),
                sealed_sizes=np.array([len(each.sealed) for each in kept], dtype=np.uint32),
                disowned=b"".join(disowned),
            )
            return Exchange(numbers, prepared, disowned, message)
        return None

    def finish(self, exchange: Exchange, answer: PreparedReports, helper: str) -> int:
        """Store the verdicts on reports, and return the number of those that were accepted.

        Reports that the helper finds too early wait, since their clients were told that they are
        stored: its clock is behind, or this one is ahead.

        Raises:
            ProtocolViolation: If no honest helper answers so, or the clocks differ too much.
        """
        verdicts = [Verdict(each) for each in answer.verdicts.tolist() if each in ANSWERS]
        accepted = np.flatnonzero(answer.verdicts == Verdict.ACCEPTED)
        if not len(verdicts) == len(answer.verdicts) == len(exchange.numbers):
            raise ProtocolViolation(helper, "sent verdicts that do not fit the reports")
        if answer.replies.shape != (len(accepted), self.prio.prep_message_size):
            raise ProtocolViolation(
                helper, "sent preparation messages that do not fit its verdicts"
            )
        messages = np.zeros((len(verdicts), self.prio.prep_message_size), dtype=np.uint8)
        messages[accepted] = answer.replies
        outputs, valid = self.prio.finish(exchange.state, messages)
        shares = self.prio.field.encode(outputs)
        settled = list[tuple[int, Verdict, bytes]]()
        for n, (number, verdict) in enumerate(zip(exchange.numbers, verdicts, strict=True)):
            if verdict == Verdict.EARLY:
                continue
            is_disputed = verdict == Verdict.ACCEPTED and not valid[n]
            found = Verdict.DISPUTED if is_disputed else verdict
            share = shares[n].tobytes() if found == Verdict.ACCEPTED else b""
            settled.append((number, found, share))
        self.store.settle(settled)
        self.store.disown(exchange.disowned)
        if len(settled) < len(verdicts):
            said = "finds reports of a time far ahead; compare the clocks of both aggregators"
            raise ProtocolViolation(helper, said)
        return sum(verdict == Verdict.ACCEPTED for _, verdict, _ in settled)

    def has_proposed(self) -> bool:
        """Return whether the helper has yet to agree to a batch, before more is verified."""
        last = self.store.last_batch()
        return last is not None and not last.agreed

    def is_due(self) -> bool:
        """Return whether a batch closes now: it is full, or the task with its noise has ended."""
        if self.has_proposed():
            return True
        return self.store.count(Verdict.ACCEPTED) >= self.fewest()

    def propose(self, others: Sequence[bytes] = (), later: Sequence[bytes] = ()) -> Proposal:
        """Fix the next batch, and return its proposal to the helper.

        Args:
            others: The ids of reports that the helper has accepted, and that are not in the batch.
            later: The ids of earlier ones of these, which wait for a later batch.
        """
        batch, known = self.store.propose(), self.store.known(others)
        waits = {each for each in others if each in known and known[each].verdict in _MAY_COUNT}
        disowned = self.store.ids(Verdict.DISPUTED, _IDS_MAX)
        disowned += (each for each in others if each not in waits)
        later = [*later, *(each for each in others if each in waits)]
        message = ProposeBatch(
            number=batch.number,
            reports=batch.reports,
            digests=digest_ids(self.store.ids_of(batch.number)),
            disowned=b"".join(disowned),
            later=b"".join(later),
        )
        return Proposal(batch, disowned, later, message)

    def settle(self, proposal: Proposal, answer: BatchAnswer, helper: str) -> Proposal | None:
        """Mark a batch as agreed, or return the next proposal for it.

        Raises:
            ProtocolViolation: If the helper denies reports that it has accepted.
        """
        self.store.disown(proposal.disowned)  # as the helper has done, whatever it answers
        number = proposal.batch.number
        if answer.agreed:
            self.store.agree(number)
            return None
        left_out = {*self.store.ids_of(number), *proposal.later}
        others = [each for each in split_ids(answer.ids, helper) if each not in left_out]
        if not others:
            said = f"denies reports of batch {number} that it has accepted{_RESTORED}"
            raise ProtocolViolation(helper, said)
        return self.propose(others, proposal.later)

    def _next_uploads(self, flying: Sequence[int]) -> dict[int, Upload]:
        """Return the next reports of one exchange, after refusing those of a wrong size."""
        lacking = self.task.minimum - self.store.count(Verdict.ACCEPTED) - len(flying)
        most = exchange_reports(self.prio, 0)
        most = most if self.has_ended() else max(0, min(lacking, most))
        uploads = self.store.waiting(most, max(flying, default=0))
        sizes = self.prio.public_share_size, self.prio.input_share_sizes[LEADER]
        wrong = [n for n, each in uploads.items() if (len(each.public), len(each.share)) != sizes]
        if wrong:
            self.store.settle([(number, Verdict.INVALID, b"") for number in wrong])
            return self._next_uploads(flying)
        ends = accumulate(_row_bytes(self.prio, len(each.sealed)) for each in uploads.values())
        fit = sum(end <= _ROOM for end in ends)
        return dict(list(uploads.items())[: max(1, fit)])


@dataclass(frozen=True, slots=True)
class Helper(Counting):
    """The aggregator that answers a leader.

    Args:
        unseal: Opens its encrypted input shares.
    """

    unseal: Unseal

    def answer(self, message: PrepareReports, leader: str) -> PreparedReports:
        """Verify reports, and store the verdicts.

        Raises:
            ProtocolViolation: If no honest leader sends such a message.
        """
        reports = self._read(message, leader)
        if not self.store.learn_key(message.verify_key):
            raise ProtocolViolation(leader, "has changed the key of verification")
        self.store.disown(split_ids(message.disowned, leader))
        known = self.store.known(each.id for each in reports)
        fresh = [n for n, each in enumerate(reports) if each.id not in known]
        found = {each.id: each for each in self._judge(message, reports, fresh)}
        verdicts = list[Verdict]()
        replies = list[bytes]()
        for each in reports:
            before = known.get(each.id)
            judged = found[each.id] if before is None else _again(before, each)
            verdicts.append(judged.verdict)
            if judged.verdict == Verdict.ACCEPTED:
                replies.append(judged.reply)
        return PreparedReports(
            verdicts=np.array(verdicts, dtype=np.uint8),
            replies=as_rows(replies, self.prio.prep_message_size),
        )

    def consider(self, message: ProposeBatch, leader: str) -> BatchAnswer:
        """Fix a batch as proposed if it has the same reports here; otherwise say which differ.

        Raises:
            ProtocolViolation: If no honest leader proposes such a batch.
        """
        if message.digests.shape != (PARTS, PART_DIGEST_BYTES):
            raise ProtocolViolation(leader, "sent digests of another shape")
        batch = self.store.batch(message.number)
        if batch is not None:
            if (batch.reports, batch.digest) != (message.reports, digest_of(message.digests)):
                raise ProtocolViolation(leader, f"has changed batch {message.number}{_RESTORED}")
            return BatchAnswer(agreed=True, ids=b"")
        last = self.store.last_batch()
        if message.number != (0 if last is None else last.number + 1):
            said = f"proposed batch {message.number} before its turn{_RESTORED}"
            raise ProtocolViolation(leader, said)
        fewest = self.fewest(CLOCK_SKEW_SECONDS)
        if message.reports < fewest:
            said = f"proposed a batch of {message.reports} reports; the minimum is"
            raise ProtocolViolation(leader, f"{said} {fewest}")
        self.store.disown(split_ids(message.disowned, leader))
        later = set(split_ids(message.later, leader))
        ids = [each for each in self.store.pool() if each not in later]
        differ = (digest_ids(ids) != message.digests).any(axis=1)
        if not differ.any():
            if len(ids) != message.reports:  # which would be a way around the minimum
                said = f"proposed a batch of {len(ids)} reports as one of"
                raise ProtocolViolation(leader, f"{said} {message.reports}")
            self.store.fix(message.number, ids)
            return BatchAnswer(agreed=True, ids=b"")
        listed = [each for each in ids if differ[each[0]]]
        return BatchAnswer(agreed=False, ids=b"".join(listed[:_LISTED_MAX]))

    def _read(self, message: PrepareReports, leader: str) -> list[Upload]:
        """Return the reports of a message, each with the leader's preparation as its share."""
        count = len(message.ids)
        shapes = (message.ids.shape, message.public.shape, message.prepared.shape)
        widths = (ID_BYTES, self.prio.public_share_size, self.prio.prep_share_size)
        counts = (len(message.times), len(message.sealed_sizes))
        if shapes != tuple((count, width) for width in widths) or counts != (count, count):
            raise ProtocolViolation(leader, "sent reports whose parts do not fit each other")
        if count > exchange_reports(self.prio, 0):
            raise ProtocolViolation(leader, f"sent {count} reports at once")
        ids = [each.tobytes() for each in message.ids]
        if len(set(ids)) != count:
            raise ProtocolViolation(leader, "sent a report twice at once")
        columns = (
            message.times.tolist(),
            [each.tobytes() for each in message.public],
            [each.tobytes() for each in message.prepared],
            split_sealed(message, leader),
        )
        return [Upload(*row) for row in zip(ids, *columns, strict=True)]

    def _judge(
        self, message: PrepareReports, reports: Sequence[Upload], fresh: Sequence[int]
    ) -> list[Judged]:
        """Verify new reports, store the verdicts, and return them."""
        verdicts = {n: self._timely(reports[n].time) for n in fresh}
        timely = [n for n in fresh if verdicts[n] == Verdict.ACCEPTED]
        opened = self.unseal([reports[n]._replace(share=b"") for n in timely])
        shares = dict[int, bytes]()
        for n, share in zip(timely, opened, strict=True):
            if share is None or len(share) != self.prio.input_share_sizes[HELPER]:
                verdicts[n] = Verdict.UNREADABLE
            else:
                shares[n] = share
        places = np.array(list(shares), dtype=np.int64)
        done = self._verified(message, places, list(shares.values()))
        judged = list[Judged]()
        for n, verdict in verdicts.items():
            each, (share, reply) = reports[n], done.get(n, (b"", b""))
            if n in shares and n not in done:
                verdict = Verdict.INVALID  # noqa: PLW2901  (found later than the others)
            judged.append(Judged(each.id, each.time, each.digest, verdict, share, reply))
        self.store.keep(each for each in judged if each.verdict not in _BY_CLOCK)
        return judged

    def _verified(
        self, message: PrepareReports, places: Ints, shares: list[bytes]
    ) -> dict[int, tuple[bytes, bytes]]:
        """Return the output share and the preparation message of each report that is valid."""
        if not shares:
            return {}
        own = self.prio.prepare(
            self.store.verify_key,
            HELPER,
            message.ids[places],
            message.public[places],
            as_rows(shares, self.prio.input_share_sizes[HELPER]),
        )
        messages, combined = self.prio.combine(message.prepared[places], own.prep_shares)
        outputs, finished = self.prio.finish(own, messages)
        encoded = self.prio.field.encode(outputs)
        return {
            int(places[n]): (encoded[n].tobytes(), messages[n].tobytes())
            for n in np.flatnonzero(combined & finished).tolist()
        }

    def _timely(self, time: int) -> Verdict:
        """Return whether reports of a time are accepted."""
        if self.task.closes is not None and time >= self.task.closes:
            return Verdict.LATE
        if time > self.now() + 2 * CLOCK_SKEW_SECONDS:
            return Verdict.EARLY
        return Verdict.ACCEPTED


_MAY_COUNT: Final = frozenset({Verdict.WAITING, Verdict.ACCEPTED})
"""The verdicts of a leader on reports that may be in a later batch."""
_BY_CLOCK: Final = frozenset({Verdict.LATE, Verdict.EARLY})
"""The verdicts that follow from a time, and need not be stored."""


def _again(before: Judged, upload: Upload) -> Judged:
    """Return the verdict on a report that was verified before, as the leader may see it now."""
    if before.digest != upload.digest:
        return before._replace(verdict=Verdict.REUSED_ID)
    if before.batch is not None:
        return before._replace(verdict=Verdict.COLLECTED)
    return before
