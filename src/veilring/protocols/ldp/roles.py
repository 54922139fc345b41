"""The clients' roles: one collection in one session, or reports for a long-lived collector.

`gather` is a whole protocol: each client of a `ClientPool` reports once, and one party adds up the
reports; `gather_cost` forecasts it. `submit_reports` sends reports to a `Collector`, which
acknowledges the stored ones.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Ints
from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.journal import Traffic
from veilring.nodes.party import Party
from veilring.protocols.ldp.algorithm.changing import Memos
from veilring.protocols.ldp.algorithm.packing import reports_at_once
from veilring.protocols.ldp.algorithm.survey import Tally, answer
from veilring.protocols.ldp.messages import (
    ID_BYTES,
    ID_PREFIX_BYTES,
    ClientBatch,
    ReportBatch,
    ReportReceipt,
    ReportVerdict,
    Task,
    Verdicts,
    batch_reports,
    judge_batches,
    number_ids,
)
from veilring.protocols.promise import Forecast, repeated

# The maximum number of unanswered messages of a client, half of what a session holds unread. With
# a commit every 10 ms, 512 single reports allow 50,000 per second from one client.
WINDOW_MESSAGES_MAX: Final = 512
# The same limit in bytes, for batches: a quarter of what a session holds unread. A message that
# exceeds the remaining room waits.
WINDOW_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ClientPool:
    """Clients with one row each. The values are never shown.

    Attributes:
        memos: The clients' permanent answers, for a task whose answers may change.
    """

    rows: NDArray[Any]
    labels: Ints
    memos: Memos | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"ClientPool({len(self)} clients)"

    def answer(
        self, task: Task, rng: Generator, *, at_once: int | None = None
    ) -> Iterator[ClientBatch]:
        """Yield each client's one report, in batches by question, in a random order.

        Every call makes new reports and spends the task's epsilon again.

        Args:
            rng: The clients' secret randomness; the prefix of the ids is drawn from it, too.
            at_once: The maximum number of reports in a batch; by default limited by
                `BATCH_BYTES_MAX`.
        """
        answers = answer(task.survey, self.rows, self.labels, rng, memos=self.memos)
        prefix, made = rng.bytes(ID_PREFIX_BYTES), 0
        for question, reports in answers:
            # The order of the rows would reveal ranks in a sorted file, and link a client's reports
            # to different tasks.
            order = rng.permutation(len(reports))
            clients, reports = answers.clients[question][order], reports[order]  # noqa: PLW2901  (in sending order)
            size = reports_at_once(at_once, batch_reports(reports.shape[1]))
            for first in range(0, len(reports), size):
                part = slice(first, first + size)
                ids = number_ids(prefix, made, len(clients[part]))
                yield ClientBatch(question, ids, reports[part], clients[part])
                made += len(ids)


async def gather(
    party: Party, clients: ClientPool | None, *, aggregator: str, task: Task
) -> Tally | None:
    """Play a client, or a pool of them, or the aggregator.

    A client sends one message, and a pool one for each question and `BATCH_BYTES_MAX`, in one
    round. Clients get no answer: the aggregator, which gets the tally, decides what to publish.

    Raises:
        ProtocolViolation: If a peer sent something that no client sends. This ends the run, whereas
            a `Collector` rejects such reports and continues.
    """
    if party.me != aggregator:
        if clients is None:
            raise InputError.because(
                f"every party except {aggregator} needs a client pool", field="clients"
            )
        await _report(party, clients, aggregator, task)
        return None
    total = Tally.empty(task.survey)
    for peer in party.peers:
        more = True
        while more:
            batch = await party.receive(ReportBatch, sender=peer)
            verdicts, accepted = judge_batches(task, [batch])
            if verdicts.any():
                worst = ReportVerdict(verdicts.max())
                raise ProtocolViolation(peer, f"sent a report that is refused: {worst.reason}")
            total += Tally.of(task.survey, [(part.question, part.reports) for part in accepted])
            more = batch.more
    return total


async def _report(party: Party, clients: ClientPool, aggregator: str, task: Task) -> None:
    party.round(1)
    nothing = np.zeros((0, 0), dtype=np.uint8)
    empty = ClientBatch(0, nothing, nothing, np.zeros(0, dtype=np.int64))
    batches = list(clients.answer(task, party.rng)) or [empty]
    for left, batch in zip(range(len(batches) - 1, -1, -1), batches, strict=True):
        await party.send(aggregator, batch.message(task, more=left > 0))


def gather_cost(task: Task, asked: Sequence[Sequence[int]]) -> Forecast:
    """Forecast `gather`: one message per client, in one round.

    A pool sends `ceil(c / s)` messages for a question drawn by c of its clients, where `s =
    batch_reports(report_bytes)`, and one empty message if it has no clients.

    Args:
        asked: For each party except the aggregator, the number of its clients that drew each
            question.
    """
    total = Traffic()
    for counts in asked:
        for question, clients in enumerate(counts):
            size = batch_reports(_width(task, question))
            full, rest = divmod(clients, size)
            total = total.plus(batch_traffic(task, question, size, times=full))
            total = total.plus(batch_traffic(task, question, rest, times=int(rest > 0)))
        if not sum(counts):
            total = total.plus(batch_traffic(task, 0, 0))
    return Forecast(1, total)


def gather_cost_bounds(task: Task, parties: int, rows: int) -> Forecast:
    """Forecast `gather` before clients draw questions: the minimum, with the maximum as `most`."""
    questions = range(len(task.survey.questions))
    widths = [ID_BYTES + _width(task, question) for question in questions]
    sizes = [batch_reports(_width(task, question)) for question in questions]
    empty = [batch_traffic(task, question, 0).bytes for question in questions]
    full = [
        batch_traffic(task, question, size).bytes - size * width
        for question, size, width in zip(questions, sizes, widths, strict=True)
    ]
    # A pool without clients sends a message, too. This number of empty pools gives the most
    # messages.
    idle = max(0, parties - -(-rows // len(questions)))
    fewest = max(parties, -(-rows // max(sizes)))
    most = idle + min(rows, (parties - idle) * len(questions)) + rows // min(sizes)
    return Forecast(
        rounds=1,
        traffic=Traffic(fewest, fewest * min(empty) + rows * min(widths)),
        most=Forecast(1, Traffic(most, most * max(full) + rows * max(widths))),
    )


def batch_traffic(task: Task, question: int, reports: int, *, times: int = 1) -> Traffic:
    """Return the traffic of `times` batches with the given number of reports each.

    One report takes `report_bytes + ID_BYTES` bytes, and a batch about 70 bytes more, of which the
    task's hash is 32 and the session's name 16.
    """
    batch = ReportBatch(
        task=task.digest,
        question=question,
        ids=bytes(ID_BYTES * reports),
        reports=bytes(_width(task, question) * reports),
        more=False,
    )
    return repeated(times, batch)


def _width(task: Task, question: int) -> int:
    return task.survey.questions[question].report_bytes


Settled: TypeAlias = Callable[[ClientBatch, Verdicts], None]
"""A callback for the verdicts on a batch's reports, once valid reports have been stored."""


async def submit_reports(
    party: Party, batches: Iterable[ClientBatch], *, task: Task, settled: Settled
) -> None:
    """Send batches to a collector, several at a time, until all are acknowledged.

    A batch that was sent and not acknowledged may have been stored: send it again, with the same
    ids and the same bytes.

    Args:
        batches: The batches to send, none of them empty. They are consumed as the window allows.
        settled: A callback, once per batch, in order.

    Raises:
        ProtocolViolation: If the collector acknowledged reports that were not sent.
    """
    (collector,) = party.peers
    flying: deque[ClientBatch] = deque()
    held = 0
    for batch, more in _with_more(batches):
        while flying and (
            len(flying) >= WINDOW_MESSAGES_MAX or held + batch.payload_bytes > WINDOW_BYTES_MAX
        ):
            held -= await _receive(party, collector, flying, settled)
        flying.append(batch)
        held += batch.payload_bytes
        await party.send(collector, batch.message(task, more=more))
    while flying:
        await _receive(party, collector, flying, settled)


async def _receive(
    party: Party, collector: str, flying: deque[ClientBatch], settled: Settled
) -> int:
    """Process a receipt, and return the number of bytes no longer in flight."""
    receipt = await party.receive(ReportReceipt, sender=collector)
    if (
        receipt.places.shape != receipt.verdicts.shape
        or np.any(receipt.places >= receipt.reports)
        or np.any(receipt.verdicts > max(ReportVerdict))
    ):
        raise ProtocolViolation(collector, "sent an unreadable receipt")
    left = receipt.reports
    if not 0 < left <= sum(map(len, flying)):
        raise ProtocolViolation(collector, f"acknowledged {left} reports that were not sent")
    verdicts = np.zeros(left, dtype=np.uint8)
    verdicts[receipt.places] = receipt.verdicts
    freed = 0
    while left:
        batch = flying.popleft()
        if len(batch) > left:
            raise ProtocolViolation(collector, "acknowledged a part of a message")
        settled(batch, verdicts[len(verdicts) - left :][: len(batch)])
        left -= len(batch)
        freed += batch.payload_bytes
    return freed


def _with_more(batches: Iterable[ClientBatch]) -> Iterator[tuple[ClientBatch, bool]]:
    """Yield each batch, and whether another follows."""
    each = iter(batches)
    batch = next(each, None)
    while batch is not None:
        following = next(each, None)
        yield batch, following is not None
        batch = following
