"""A deployed data owner that is killed repeatedly while two analysts ask it.

To run it manually: `python -m tests.deployment.owner_crashes ROUNDS`.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from tests.deployment import crashing
from tests.deployment.commands import Deployment
from tests.deployment.crashing import Asker, connected, kill_one, play, report_crashes

from veilring.deployment.examples.folder import OWNER
from veilring.deployment.owner import OwnerTerms
from veilring.errors import BudgetExhausted
from veilring.nodes.node import Node
from veilring.nodes.service import opening
from veilring.protocols.radius.messages import LabelRequest
from veilring.protocols.radius.owner import LABEL_SERVICE, ask_within, request_labels

ANALYSTS = ("analyst-0", "analyst-1")
PRICE, LAST_PRICE = 0.001, 0.5
TOTAL, ANALYST = 20.0, 12.0


@dataclass
class Crashes(crashing.Crashes):
    """The observations, with the charges in the ledger at the end."""

    spent: float = 0.0


class Analyst(Asker[LabelRequest]):
    """An analyst with its requests and the answers."""

    def __init__(
        self, node: Node, terms: OwnerTerms, rng: np.random.Generator, seen: Crashes
    ) -> None:
        super().__init__(partial(self.request, PRICE), self.labels, rng, seen)
        self.node, self._terms = node, terms

    def request(self, price: float) -> LabelRequest:
        """Create a new request."""
        count, features = int(self.rng.integers(1, 40)), self._terms.width
        radii = self.rng.uniform(0, 0.5, count)
        return ask_within(self.rng.random((count, features)), radii, price)

    async def labels(self, request: LabelRequest) -> bytes:
        """Ask until there is an answer."""
        opened = opening(request_labels, LABEL_SERVICE, self._terms.digest)
        role = partial(opened, rules=self._terms.rules)
        return (await play(self.node, OWNER, role, request, self.seen)).labels.tobytes()

    async def exhaust(self) -> int:
        """Ask expensive requests until the budget is exhausted; return the number of answers."""
        answered, left = 0, LAST_PRICE
        while left >= LAST_PRICE:
            try:
                await self.ask(self.request(LAST_PRICE))
                answered += 1
            except BudgetExhausted as error:
                left = error.left or 0.0
        return answered


async def crash_rounds(folder: Path, rounds: int, seed: int) -> Crashes:
    """Kill the owner the given number of times, and check its invariants after each kill."""
    deployed = Deployment(folder, "owner", "--total", TOTAL, "--analyst", ANALYST)
    deployed.let_all(OWNER)
    seen, rng = Crashes(), np.random.default_rng(seed)
    await asyncio.to_thread(deployed.serve, OWNER)
    try:
        terms = OwnerTerms.load(folder / "terms.toml")
        analysts = [
            Analyst(await connected(folder, name, OWNER), terms, rng.spawn(1)[0], seen)
            for name in ANALYSTS
        ]
        check, clients = (
            partial(_check, deployed, analysts, seen),
            [each.go_on for each in analysts],
        )
        for _ in range(rounds):
            await kill_one(deployed, [OWNER], clients, rng, check)
        dear = sum(await asyncio.gather(*(analyst.exhaust() for analyst in analysts)))
        for analyst in analysts:
            await analyst.ask_all_again()
        _check_exhausted(deployed, seen, dear)
        for analyst in analysts:
            await analyst.node.close()
    finally:
        deployed.kill()
    return seen


def _check(deployed: Deployment, analysts: list[Analyst], seen: Crashes, _: str) -> None:
    """Check that no answer left before it was paid for."""
    told = sum(len(analyst.told) for analyst in analysts)
    waiting = sum(analyst.waiting is not None for analyst in analysts)
    totals = deployed.totals(OWNER)
    assert told <= totals.answers <= told + waiting, "an answer left before it was paid for"
    assert totals.spent <= TOTAL
    assert round(deployed.usage(OWNER)[1], 6) == round(totals.spent, 6), "not counted as charged"
    entered = [each for each in deployed.trail(OWNER, "answered") if each.get("charged")]
    assert len(entered) == totals.answers, "an answer was charged and not entered"
    assert all("answer" in each for each in entered)
    seen.unsent += totals.answers - told


def _check_exhausted(deployed: Deployment, seen: Crashes, dear: int) -> None:
    """Compare the ledger with the analysts' answers."""
    totals = deployed.totals(OWNER)
    assert totals.answers == seen.answered, "a request was charged twice, or for nothing"
    spent = round((seen.answered - dear) * PRICE + dear * LAST_PRICE, 6)
    assert totals.spent == spent <= TOTAL
    assert all(each.spent <= ANALYST for each in totals.analysts)
    assert TOTAL - spent < LAST_PRICE, "a budget was left that nobody could spend"
    seen.spent = spent


if __name__ == "__main__":
    report_crashes(crash_rounds)
