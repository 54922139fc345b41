"""Handing reports to a collector that acknowledges what it has stored."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import numpy as np

from veilring.errors import ProtocolViolation
from veilring.nodes.party import Party
from veilring.protocols.ldp.intake import Verdicts
from veilring.protocols.ldp.messages import Receipt
from veilring.protocols.ldp.pool import Batch
from veilring.protocols.ldp.task import Task
from veilring.protocols.ldp.verdicts import Verdict

# Messages that a client may have sent without an answer. At 10 ms a commit, 512 single reports are
# 50,000 a second from one client.
WINDOW_MESSAGES_MAX: Final = 512
# The same in bytes, for batches: what a collector holds for one session. A message that is larger
# than what is left waits.
WINDOW_BYTES_MAX: Final = 1 << 20

Settled: TypeAlias = Callable[[Batch, Verdicts], None]
"""Told what became of a batch's reports, once the collector has stored those that count."""


async def submit(party: Party, batches: Iterable[Batch], *, task: Task, settled: Settled) -> None:
    """Send batches to a collector, several at a time, until all are acknowledged.

    A batch that was sent and not acknowledged may have been stored: send it again, with the same
    ids and the same bytes.

    Args:
        party: This participant, in a session with the collector alone.
        batches: What to send; none of them empty. They are asked for as there is room.
        task: What the reports were made for.
        settled: Called once a batch, in order.

    Raises:
        ProtocolViolation: If the collector acknowledged what was not sent.
    """
    (collector,) = party.peers
    flying: deque[Batch] = deque()
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


async def _receive(party: Party, collector: str, flying: deque[Batch], settled: Settled) -> int:
    """Take a receipt, and return how many bytes are not under way any more."""
    receipt = await party.receive(Receipt, sender=collector)
    if (
        receipt.places.shape != receipt.verdicts.shape
        or np.any(receipt.places >= receipt.reports)
        or np.any(receipt.verdicts > max(Verdict))
    ):
        raise ProtocolViolation(collector, "sent a receipt that cannot be read")
    left = receipt.reports
    if not 0 < left <= sum(map(len, flying)):
        raise ProtocolViolation(collector, f"acknowledged {left} reports, which were not sent")
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


def _with_more(batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
    """Yield each batch with whether another follows."""
    each = iter(batches)
    batch = next(each, None)
    while batch is not None:
        following = next(each, None)
        yield batch, following is not None
        batch = following
