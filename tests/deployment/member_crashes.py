"""Deployed members of noisy votes, killed repeatedly while a client asks them.

To run it manually: `python -m tests.deployment.member_crashes ROUNDS`.
"""

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
from tests.deployment.commands import Server
from tests.deployment.members import labels_of

from veilring.data.sources import load
from veilring.deployment.examples import write_peers
from veilring.errors import BudgetExhausted, VeilringError
from veilring.privacy.ledger import read_totals
from veilring.protocols.noisyvotes.system import NoisyVotes
from veilring.testing.ports import reserve_ports

NAMES = ("party-0", "party-1", "party-2")
PRICE, BUDGET = 0.5, 10_000.0
QUERIES = 38  # held out of iris: any two of them begin and end a batch


@dataclass
class Trial:
    """Three members, a client, and the invariants after each kill.

    Attributes:
        told: The labels of each answered batch.
        interrupted: Attempts that ended without an answer; each may have been charged, once.
        retried: Batches that were repeated after they had been answered.
        spent: The number of charges of each member after the last kill.
    """

    folder: Path
    rng: np.random.Generator
    told: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    interrupted: int = 0
    retried: int = 0
    spent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))

    def __post_init__(self) -> None:
        system, port = NoisyVotes(epsilon=PRICE, radius=0.3), reserve_ports(len(NAMES))
        write_peers(
            load("iris"), system, self.folder, parties=NAMES, seed=0, port=port, budget=BUDGET
        )
        (self.folder / "queries.csv").rename(self.folder / "client.csv")
        self.servers = {name: Server(self.folder, name) for name in NAMES}
        new = list(combinations(range(QUERIES), 2))
        self._new = [new[place] for place in self.rng.permutation(len(new))]

    async def run(self, rounds: int) -> None:
        """Kill members, then repeat all batches, which must cost nothing."""
        try:
            for server in self.servers.values():
                server.start()
            for server in self.servers.values():
                await asyncio.to_thread(server.wait_until_ready)
            for _ in range(rounds):
                await self._round()
            for name in NAMES:
                self._check(name)
            charged = dict(self.spent)
            for batch in list(self.told):
                await self._ask(batch)
            for name in NAMES:
                self._check(name)
            assert self.spent == charged, "a repeated batch was charged"
        finally:
            for server in self.servers.values():
                server.kill()

    async def _round(self) -> None:
        """Ask, kill a member at some point, restart it, and finish."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ask_on(stop))
            await asyncio.sleep(self.rng.uniform(0.05, 0.5))
            name = NAMES[self.rng.integers(len(NAMES))]
            self.servers[name].kill()  # in the middle of anything that it does
            self._check(name)
            await asyncio.to_thread(self.servers[name].serve)
            stop.set()

    async def _ask_on(self, stop: asyncio.Event) -> None:
        """Ask new batches, and repeat some old ones, until told to stop."""
        while not stop.is_set():
            await self._ask(self._new.pop())
            if self.told and self.rng.random() < 0.3:
                known = list(self.told)
                await self._ask(known[self.rng.integers(len(known))])

    async def _ask(self, batch: tuple[int, int]) -> None:
        """Ask until there are labels, and compare them with earlier ones."""
        while True:
            try:
                labels = await labels_of(self.folder, *batch)
            except BudgetExhausted:
                raise
            except VeilringError:
                self.interrupted += 1
                await asyncio.sleep(0.05)
                continue
            break
        self.retried += batch in self.told
        assert self.told.setdefault(batch, labels) == labels, "a retry was answered differently"

    def _check(self, name: str) -> None:
        """Compare a ledger with the client's answers and attempts."""
        charges = read_totals(self.folder / f"{name}.db").spent / PRICE
        assert charges >= len(self.told), "an answer left before it was paid for"
        asking = 1  # the batch in flight
        assert charges <= len(self.told) + self.interrupted + asking, "a batch was charged twice"
        assert charges >= self.spent[name], "a charge was lost or refunded"
        self.spent[name] = round(charges)


async def crash_rounds(folder: Path, rounds: int, seed: int) -> Trial:
    """Kill a member the given number of times, and check the invariants after each kill."""
    trial = Trial(folder, np.random.default_rng(seed))
    await trial.run(rounds)
    return trial


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        started = time.monotonic()
        done = asyncio.run(crash_rounds(Path(where) / "votes", int(sys.argv[1]), 1))
        told, seconds = len(done.told), time.monotonic() - started
        print(f"{told} answered, {done.retried} repeated, {done.interrupted} interrupted attempts")
        print(f"charges of each member: {done.spent}; {seconds:.0f} s")
