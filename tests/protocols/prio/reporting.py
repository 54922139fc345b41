"""Reports of clients, and a leader with its helper, in memory."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from tests.privacy.generators import seeded

from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import LEDGER, Ledger, open_ledger
from veilring.privacy.statefile import open_state_file
from veilring.protocols.prio.aggregator import Counting, Helper, Leader
from veilring.protocols.prio.algorithm.prio3 import Prio3
from veilring.protocols.prio.exchange import open_plain
from veilring.protocols.prio.messages import BatchAnswer, TotalShare
from veilring.protocols.prio.release import Releases, noise_of, open_total
from veilring.protocols.prio.scheme import scheme_of
from veilring.protocols.prio.store import SHARES, ShareStore, Upload
from veilring.protocols.prio.task import Task, Vdaf

KEY: Final = bytes(range(16))
CLOSES: Final = 3600
HISTOGRAM: Final = Vdaf(kind="histogram", length=5, chunk_length=2)


def make_task(
    vdaf: Vdaf = HISTOGRAM,
    *,
    minimum: int = 4,
    epsilon: float | None = None,
    closes: int | None = CLOSES,
) -> Task:
    """Return a task, whose reports are of the time 0."""
    return Task(
        leader="https://leader.example/",
        helper="https://helper.example/",
        vdaf=vdaf,
        time_precision=60,
        minimum=minimum,
        closes=closes,
        epsilon=epsilon,
    )


def uploads_of(task: Task, measurements: NDArray[Any], rng: Generator) -> list[Upload]:
    """Return a report of each measurement, whose helper's share is not encrypted."""
    prio, count = scheme_of(task.vdaf), len(measurements)
    nonces = np.frombuffer(rng.bytes(16 * count), np.uint8).reshape(count, 16)
    rand = np.frombuffer(rng.bytes(prio.rand_size * count), np.uint8).reshape(count, -1)
    public, (leader, helper) = prio.shard(measurements, nonces, rand)
    columns = (nonces, np.zeros(count, np.int64), public, leader, helper)
    rows = zip(*columns, strict=True)
    return [
        Upload(id_.tobytes(), int(time), *(part.tobytes() for part in parts))
        for id_, time, *parts in rows
    ]


def forged(upload: Upload) -> Upload:
    """Return a report whose measurement is not valid: the proof does not hold."""
    return upload._replace(share=bytes([upload.share[0] ^ 1]) + upload.share[1:])


@dataclass
class Pair:
    """A leader and its helper, whose clocks can be set."""

    task: Task
    leader: Leader
    helper: Helper
    totals: dict[str, Releases]
    time: float = 0.0

    @classmethod
    def of(cls, task: Task, budget: float = 1e5) -> "Pair":
        """Return a new pair."""
        prio, totals = scheme_of(task.vdaf), dict[str, Releases]()
        draws = count()
        made: Pair

        def rng() -> Generator:
            return seeded("noise", next(draws))

        def counting(
            name: str, draw: Callable[[], bytes]
        ) -> tuple[Task, Prio3, ShareStore, Callable[[], float]]:
            file = open_state_file(None, LEDGER, SHARES)
            store = ShareStore(file, task, draw)
            ledger = open_ledger(file, Budgets("epsilon", budget))
            price, noise = task.epsilon or 0.0, noise_of(task)
            totals[name] = Releases(task, prio, store, ledger, price, noise, rng)
            return task, prio, store, lambda: made.time

        leader = Leader(*counting("leader", lambda: KEY))
        made = cls(task, leader, Helper(*counting("helper", bytes), open_plain), totals)
        return made

    @property
    def both(self) -> tuple[Counting, Counting]:
        """The leader and the helper."""
        return self.leader, self.helper

    @property
    def ledgers(self) -> list[Ledger]:
        """The ledgers of both."""
        return [each.ledger for each in self.totals.values()]

    def verify(self, *, loses: str = "") -> int:
        """Verify what waits in one exchange; return the number of accepted reports.

        Args:
            loses: The message that is lost: `request`, `answer` or none.
        """
        exchange = self.leader.prepare()
        if exchange is None or loses == "request":
            return 0
        answer = self.helper.answer(exchange.message, "leader")
        return 0 if loses else self.leader.finish(exchange, answer, "helper")

    def close(self, *, loses: str = "") -> int:
        """Close a batch, and return the number of exchanges that it took."""
        proposal, exchanges = self.leader.propose(), 0
        while loses != "request":
            answer: BatchAnswer = self.helper.consider(proposal.message, "leader")
            exchanges += 1
            if loses:
                return exchanges
            following = self.leader.settle(proposal, answer, "helper")
            if following is None:
                return exchanges
            proposal = following
        return exchanges

    def share(self, name: str, number: int = 0) -> TotalShare:
        """Return a party's share of the total of a batch."""
        releases = self.totals[name]
        batch = releases.store.batch(number)
        assert batch is not None
        share = releases.release(batch, "collector")
        assert isinstance(share, TotalShare)
        return share

    def total(self, number: int = 0) -> list[int]:
        """Return the total of a batch, as the collector computes it."""
        shares = (self.share("leader", number), self.share("helper", number))
        return open_total(scheme_of(self.task.vdaf), *shares, names=("leader", "helper"))

    def ids(self, number: int) -> tuple[set[bytes], set[bytes]]:
        """Return the ids of a batch at both."""
        leader, helper = (set(each.store.ids_of(number)) for each in self.both)
        return leader, helper


def add(pair: Pair, measurements: Iterable[int], rng: Generator) -> list[Upload]:
    """Upload reports of some measurements, and return them."""
    uploads = uploads_of(pair.task, np.array(list(measurements)), rng)
    assert pair.leader.store.add(uploads) == ["stored"] * len(uploads)
    return uploads
