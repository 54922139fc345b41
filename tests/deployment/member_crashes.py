"""Deployed members of noisy votes, killed repeatedly while a client asks them.

To run it manually: `python -m tests.deployment.member_crashes ROUNDS`.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
from tests.deployment import crashing
from tests.deployment.commands import PARTIES, Deployment
from tests.deployment.crashing import Asker, kill_one, report_crashes, until_answered
from tests.deployment.members import labels_of

PRICE, BUDGET = 0.5, 10_000.0
QUERIES = 38  # held out of iris: any two of them begin and end a batch
Batch = tuple[int, int]


@dataclass
class Crashes(crashing.Crashes):
    """The observations, with the number of charges of each member after the last kill."""

    spent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTIES, 0))

    def __str__(self) -> str:
        counts = f"{self.retried} repeated, {self.interrupted} interrupted attempts"
        return f"{self.answered} answered, {counts}\ncharges of each member: {self.spent}; "


async def crash_rounds(folder: Path, rounds: int, seed: int) -> Crashes:
    """Kill members, then repeat all batches, which must cost nothing."""
    priced = ("--set", f"protocol.epsilon={PRICE}", "--budget", BUDGET)
    deployed = Deployment(folder, "votes", *priced)
    deployed.let_all(*PARTIES)
    seen, rng = Crashes(), np.random.default_rng(seed)
    new = list(combinations(range(QUERIES), 2))
    order = iter(rng.permutation(len(new)).tolist())

    async def labels(batch: Batch) -> list[str]:
        return await until_answered(lambda: labels_of(folder, *batch), seen)

    client = Asker[Batch](lambda: new[next(order)], labels, rng, seen)
    check = partial(_check, deployed, seen)
    try:
        await asyncio.to_thread(deployed.serve, *PARTIES)
        for _ in range(rounds):
            await kill_one(deployed, PARTIES, [client.go_on], rng, check)
        for name in PARTIES:
            check(name)
        charged = dict(seen.spent)
        await client.ask_all_again()
        for name in PARTIES:
            check(name)
        assert seen.spent == charged, "a repeated batch was charged"
    finally:
        deployed.kill()
    return seen


def _check(deployed: Deployment, seen: Crashes, name: str) -> None:
    """Compare a ledger with the client's answers and attempts, each of which is charged once."""
    charges = deployed.totals(name).spent / PRICE
    assert round(deployed.usage(name)[1] / PRICE) == round(charges), "not counted as charged"
    assert charges >= seen.answered, "an answer left before it was paid for"
    joined = [each["number"] for each in deployed.trail(name, "admitted") if each["charged"]]
    assert len(joined) == round(charges), "a member took part without an entry"
    answered = {each["request"] for each in deployed.trail(name, "answered")}
    assert len(answered) >= (seen.answered if name == PARTIES[0] else 0), "not entered"
    asking = 1  # the batch in flight
    assert charges <= seen.answered + seen.interrupted + asking, "a batch was charged twice"
    assert charges >= seen.spent[name], "a charge was lost or refunded"
    seen.spent[name] = round(charges)


if __name__ == "__main__":
    report_crashes(crash_rounds, end="")
