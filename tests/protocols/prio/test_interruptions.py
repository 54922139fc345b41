"""A leader or a helper is interrupted at each of its transactions, and goes on from its file."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from sqlite3 import Connection
from typing import Final, Literal, NamedTuple

import numpy as np
import pytest
from numpy.random import Generator
from tests.privacy.generators import seeded
from tests.protocols.prio.reporting import KEY, forged, make_task, uploads_of

from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import LEDGER, open_ledger
from veilring.privacy.statefile import StateFile, open_state_file
from veilring.protocols.prio.aggregator import Helper, Leader, Proposal
from veilring.protocols.prio.exchange import open_plain
from veilring.protocols.prio.messages import TotalShare, Verdict
from veilring.protocols.prio.release import Releases, noise_of
from veilring.protocols.prio.scheme import scheme_of
from veilring.protocols.prio.store import SHARES, ShareStore, Upload

PRICE: Final = 0.5
TASK: Final = make_task(minimum=2, epsilon=PRICE)
Name = Literal["leader", "helper"]
NAMES: Final[tuple[Name, Name]] = ("leader", "helper")


class Interrupted(BaseException):
    """The process of a party has ended."""


class Moment(NamedTuple):
    """The moment at which a party is interrupted.

    Attributes:
        transaction: The number of the transaction.
        is_after: Whether that transaction is on disk.
    """

    party: Name
    transaction: int
    is_after: bool


@dataclass
class World:
    """Two parties with their files.

    Attributes:
        moment: When one of them is interrupted, once.
        interrupted: The number of interruptions so far.
        transactions: The number of transactions of each party.
        told: The shares of totals that the collector has got.
    """

    folder: Path
    moment: Moment | None = None
    interrupted: int = 0
    transactions: dict[Name, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))
    told: dict[tuple[Name, int], TotalShare] = field(default_factory=dict)
    files: dict[Name, StateFile] = field(default_factory=dict)
    totals: dict[Name, Releases] = field(default_factory=dict)
    draws: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        for name in NAMES:
            open_state_file(self.folder / f"{name}.db", SHARES, LEDGER, new=True).close()
            self.open(name)

    def open(self, name: Name) -> None:
        """Start a party from its file."""
        file = open_state_file(self.folder / f"{name}.db", SHARES, LEDGER)
        file.connection.execute("PRAGMA synchronous = OFF")  # power stays on
        self.files[name] = file
        vars(file)["transaction"] = self._watched(name, file.transaction)
        store = ShareStore(file, TASK, (lambda: KEY) if name == "leader" else bytes)
        ledger = open_ledger(file, Budgets("epsilon", 1e3))
        prio, noise = scheme_of(TASK.vdaf), noise_of(TASK)
        self.totals[name] = Releases(TASK, prio, store, ledger, PRICE, noise, self._rng)
        given = (TASK, prio, store, lambda: 0.0)
        if name == "leader":
            self.leader = Leader(*given)
        else:
            self.helper = Helper(*given, open_plain)

    def _rng(self) -> Generator:
        return seeded("noise", next(self.draws))

    def _watched(
        self, name: Name, original: Callable[[], AbstractContextManager[Connection]]
    ) -> Callable[[], AbstractContextManager[Connection]]:
        @contextmanager
        def transaction() -> Iterator[Connection]:
            number, moment = self.transactions[name], self.moment
            self.transactions[name] += 1
            is_now = moment is not None and moment[:2] == (name, number) and not self.interrupted
            if is_now and moment is not None and not moment.is_after:
                raise Interrupted(name)
            with original() as connection:
                yield connection
            if is_now:
                raise Interrupted(name)

        return transaction

    def attempt(self, step: Callable[[], bool]) -> None:
        """Take a step until it is done, and restart a party that is interrupted."""
        while True:
            try:
                if step():
                    return
            except Interrupted as error:
                self.interrupted += 1
                name: Name = "leader" if str(error) == "leader" else "helper"
                self.files[name].close()
                self.open(name)

    def upload(self, uploads: list[Upload]) -> bool:
        """Upload reports, and return whether all are acknowledged."""
        return "different" not in self.leader.store.add(uploads)

    def work(self) -> bool:
        """Verify and close everything that is due, as a served leader does."""
        while True:
            if self.leader.has_proposed():
                self.close()
            exchange = self.leader.prepare()
            if exchange is not None:
                answer = self.helper.answer(exchange.message, "leader")
                self.leader.finish(exchange, answer, "helper")
            elif self.leader.is_due():
                self.close()
            else:
                return True

    def close(self) -> None:
        """Close a batch."""
        proposal: Proposal | None = self.leader.propose()
        while proposal is not None:
            answer = self.helper.consider(proposal.message, "leader")
            proposal = self.leader.settle(proposal, answer, "helper")

    def collect(self) -> bool:
        """Collect all batches, of which each share is always the same."""
        for name in NAMES:
            store = self.totals[name].store
            last = store.last_batch()
            for number in range(0 if last is None else last.number + 1):
                batch = store.batch(number)
                assert batch is not None
                share = self.totals[name].release(batch, "collector")
                assert isinstance(share, TotalShare)
                assert self.told.setdefault((name, number), share) == share
        return True


def play(world: World) -> list[Upload]:
    """Upload, verify, close and collect; return the valid reports."""
    uploads = uploads_of(TASK, np.array([0, 1, 2, 3, 4]), seeded("clients"))
    first = [uploads[0], forged(uploads[1]), uploads[2]]
    for part in (first, uploads[3:]):
        world.attempt(partial(world.upload, part))
        world.attempt(world.work)
        world.attempt(world.collect)
    return [uploads[0], *uploads[2:]]


def require_once(world: World, valid: list[Upload]) -> None:
    """Require that each valid report is in one batch at both, which was charged once."""
    stores = [world.totals[name].store for name in NAMES]
    for store in stores:
        assert [set(store.ids_of(n)) for n in (0, 1)] == [
            {each.id for each in part} for part in (valid[:2], valid[2:])
        ]
        assert store.counts() == {Verdict.ACCEPTED: 4, Verdict.INVALID: 1}
    assert [each.ledger.totals().spent for each in world.totals.values()] == [2 * PRICE] * 2
    assert len(world.told) == 4


@pytest.mark.slow
def test_each_interruption_counts_once(tmp_path: Path) -> None:
    """Interrupted before or after any transaction, both count each report and charge once."""
    (tmp_path / "whole").mkdir()
    whole = World(tmp_path / "whole")
    whole.transactions = dict.fromkeys(NAMES, 0)
    require_once(whole, play(whole))
    moments = [
        Moment(name, number, is_after)
        for name in NAMES
        for number in range(whole.transactions[name])
        for is_after in (False, True)
    ]
    assert len(moments) > 40
    for number, moment in enumerate(moments):
        (folder := tmp_path / f"{number}").mkdir()
        world = World(folder)
        world.transactions, world.moment = dict.fromkeys(NAMES, 0), moment
        require_once(world, play(world))
        assert world.interrupted == 1
