"""A client that sends only lies and replays, one report per message.

To run it manually: `python -m tests.protocols.ldp.hostile MESSAGES [memory | tls]`.
"""

import asyncio
import sys
import tempfile
import time
import tracemalloc
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path

import numpy as np
import psutil
from tests.protocols.ldp.collecting import batches
from tests.protocols.ldp.lies import REFUSALS, as_batch, too_many_reports, with_fields
from tests.protocols.ldp.sessions import Setting, collecting

from veilring.nodes.cluster import RUNTIMES, RuntimeName
from veilring.nodes.party import Party
from veilring.protocols.ldp.messages import (
    ID_BYTES,
    ClientBatch,
    ReportBatch,
    ReportReceipt,
    ReportVerdict,
    Task,
)
from veilring.protocols.ldp.roles import WINDOW_MESSAGES_MAX

HONEST = 400
SESSIONS = 4
LARGE_EVERY = 64  # honest reports that are bent in each way
Sent = Iterator[tuple[ReportBatch, ReportVerdict]]


@dataclass
class Attack:
    """The observations of an attack.

    Attributes:
        honest: Reports that were stored before the attack.
        messages: The number of the liar's messages; most contain one report.
        verdicts: The number of its reports with each verdict; each verdict is the right one.
        held: The bytes allocated by Python after each of the liar's sessions.
        resident: Bytes of resident memory of the process at that time.
    """

    honest: int = HONEST
    messages: int = 0
    verdicts: Counter[ReportVerdict] = field(default_factory=Counter)
    held: list[int] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)


async def attack(setting: Setting, messages: int) -> Attack:
    """Let a client report honestly and another one lie, and compare each verdict with its lie."""
    task, seen = setting.task, Attack()
    made = batches(task, HONEST, at_once=1)
    await setting.submit_reports("ada", made)
    lies = _lies(task, made)
    tracemalloc.start()
    try:
        for _ in range(SESSIONS):
            part = islice(lies, messages // SESSIONS)
            await setting.play("eve", partial(_send, lies=part, seen=seen))
            seen.held.append(tracemalloc.get_traced_memory()[0])
            seen.resident.append(psutil.Process().memory_info().rss)
    finally:
        tracemalloc.stop()
    return seen


def _lies(task: Task, made: list[ClientBatch]) -> Sent:
    """Yield messages endlessly, each with its expected verdict."""
    lies = [(lie, verdict) for lie, verdict in REFUSALS.items() if lie is not too_many_reports]
    for number, batch in enumerate(cycle(made)):
        honest = batch.message(task, more=True)
        other = next(each for each in made if each.question != batch.question)
        yield honest, ReportVerdict.KNOWN
        yield with_fields(honest, ids=other.ids.tobytes()), ReportVerdict.REUSED_ID
        for lie, verdict in lies:
            yield as_batch(lie(honest)), verdict
        if number % LARGE_EVERY == 0:
            yield as_batch(too_many_reports(honest)), ReportVerdict.OVERSIZED


async def _send(party: Party, lies: Sent, seen: Attack) -> None:
    flying: deque[tuple[int, ReportVerdict]] = deque()
    message, verdict = next(lies)
    for following in chain(lies, (None,)):
        while len(flying) >= WINDOW_MESSAGES_MAX:
            await _hear(party, flying, seen)
        flying.append((len(message.ids) // ID_BYTES, verdict))
        await party.send("census", with_fields(message, more=following is not None))
        if following is not None:
            message, verdict = following
    while flying:
        await _hear(party, flying, seen)


async def _hear(party: Party, flying: deque[tuple[int, ReportVerdict]], seen: Attack) -> None:
    """Receive a receipt, and compare it with the sent messages."""
    receipt = await party.receive(ReportReceipt, sender="census")
    verdicts = np.zeros(receipt.reports, dtype=np.uint8)
    verdicts[receipt.places] = receipt.verdicts
    while len(verdicts):
        reports, due = flying.popleft()
        assert (verdicts[:reports] == due).all(), f"not {due!r}"
        seen.verdicts[due] += reports
        seen.messages += 1
        verdicts = verdicts[reports:]


async def _by_hand(messages: int, runtime: RuntimeName) -> None:
    with tempfile.TemporaryDirectory() as where:
        async with collecting(Path(where) / "reports.sqlite", runtime=runtime) as setting:
            seen = await attack(setting, messages)
            assert setting.store.recount().clients == seen.honest
    for verdict, reports in sorted(seen.verdicts.items()):
        print(f"{reports:9,} {verdict.name}")
    print(f"{seen.messages:,} messages; of {seen.honest} honest reports all count, no other")
    print("MiB held:", *(f"{each / (1 << 20):.2f}" for each in seen.held))
    print("MiB resident:", *(f"{each / (1 << 20):.0f}" for each in seen.resident))


if __name__ == "__main__":
    started = time.monotonic()
    (chosen,) = (name for name in RUNTIMES if name == (*sys.argv[2:], "memory")[0])
    asyncio.run(_by_hand(int(sys.argv[1]), chosen))
    print(f"{time.monotonic() - started:.0f} s")
