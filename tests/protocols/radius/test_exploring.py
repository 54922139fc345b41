"""Requests under faults: a client that repeats a request gets the answer it paid for."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from veilring.data.table import Rows
from veilring.errors import BudgetExhausted
from veilring.nodes.party import Party
from veilring.nodes.service import run_inline
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.promise import Facts
from veilring.protocols.radius.owner import Owner, ask_within, request_labels
from veilring.protocols.radius.system import DataOwner
from veilring.testing.exploring import explore

_RNG = np.random.default_rng(0)
ROWS = Rows(_RNG.random((30, 2)), _RNG.integers(0, 3, 30))
RULES = DataOwner().bind(Facts(1, 2, 3))
QUERIES = _RNG.random((8, 2))
REQUESTS = [ask_within(QUERIES, np.full(8, 0.2), 1.0, name=name) for name in "abc"]
TOTAL = 2.0
"""One request is left without an answer."""


class Client:
    """The state that a client remembers."""

    def __init__(self) -> None:
        self.heard: dict[int, list[int]] = {}


class Served:
    """An owner whose ledger outlives its sessions; each world begins with a new one."""

    def __init__(self) -> None:
        self.ledger = open_ledger(None, Budgets(total=TOTAL))
        self.owner = Owner(ROWS, RULES, self.ledger, run_inline)

    def __deepcopy__(self, _memo: object) -> "Served":
        return Served()


async def ask(party: Party, own: Client | Served, *, number: int) -> object:
    """Send a request by its number; return its first and its current answer."""
    (other,) = party.peers
    if isinstance(own, Served):
        await own.owner.answer(party, other)
        return own.ledger.totals().spent
    try:
        batch = await request_labels(party, REQUESTS[number], rules=RULES)
    except BudgetExhausted:
        return "refused"
    labels = batch.labels.tolist()
    return own.heard.setdefault(number, labels), labels


def is_paid_once(_inputs: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Require one answer per request, and spending within the budget."""
    assert results.get("owner", 0.0) <= TOTAL
    answer = results.get("client", "refused")
    assert answer == "refused" or answer[0] == answer[1]


def test_no_fault_draws_an_answer_twice() -> None:
    """Lost answers are sent again, budgets end, and answers never change."""
    campaign = explore(
        ask,
        {"client": Client(), "owner": Served()},
        invariant=is_paid_once,
        public=lambda _among, rng: {"number": int(rng.integers(len(REQUESTS)))},
        seeds=20,
    )
    campaign.check()
    assert campaign.reached["a request that was answered is answered again"] > 20
    assert campaign.reached["a budget does not suffice for a request"] > 20
