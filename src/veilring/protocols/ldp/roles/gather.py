"""One collection in one session: every client reports once, and one party adds up."""

import numpy as np

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.intake import Accepted, count_reports, sift
from veilring.protocols.ldp.messages import ReportBatch
from veilring.protocols.ldp.pool import Batch, ClientPool
from veilring.protocols.ldp.task import Task
from veilring.protocols.ldp.verdicts import REASONS, Verdict


async def gather(
    party: Party, clients: ClientPool | None, *, aggregator: str, task: Task
) -> Tally | None:
    """Play a client, or a pool of them, or the aggregator.

    A client sends one message, a pool one for each question and `BATCH_BYTES_MAX`; there is one
    round. Nothing is answered: what the aggregator makes public is its own affair.

    Args:
        party: This participant.
        clients: Who answers here; nobody at the aggregator.
        aggregator: Who collects.
        task: Public.

    Returns:
        What the aggregator knows in the end; nothing at the others.

    Raises:
        InputError: If a row does not fit; nothing was sent then.
        ProtocolViolation: If a peer sent what no client sends. Here that ends the run: a
            collection that has to live with such peers is a `Collector`'s.
    """
    if party.me != aggregator:
        if clients is None:
            raise InputError("clients", "nobody", f"a pool at all parties but {aggregator}")
        await _report(party, clients, aggregator, task)
        return None
    total = Tally.empty(task.survey)
    for peer in party.peers:
        more = True
        while more:
            batch = await party.receive(ReportBatch, sender=peer)
            count_reports(batch, peer)
            verdicts, accepted = sift(task, [batch])
            if verdicts.any():
                worst = Verdict(verdicts.max())
                raise ProtocolViolation(peer, f"sent a report that is refused: {REASONS[worst]}")
            for part in accepted:
                total += _tally(task, part)
            more = batch.more
    return total


async def _report(party: Party, clients: ClientPool, aggregator: str, task: Task) -> None:
    party.round(1)
    batches = list(clients.answer(task, party.rng)) or [_nothing()]
    for left, batch in zip(range(len(batches) - 1, -1, -1), batches, strict=True):
        await party.send(aggregator, batch.message(task, more=left > 0))


def _nothing() -> Batch:
    """Return what a pool without clients sends."""
    none = np.zeros((0, 0), dtype=np.uint8)
    return Batch(0, none, none, np.zeros(0, dtype=np.int64))


def _tally(task: Task, accepted: Accepted) -> Tally:
    empty = Tally.empty(task.survey)
    sums, counts = list(empty.sums), list(empty.counts)
    sums[accepted.question] = task.survey.questions[accepted.question].aggregate(accepted.reports)
    counts[accepted.question] = len(accepted.reports)
    return Tally(tuple(sums), tuple(counts))
