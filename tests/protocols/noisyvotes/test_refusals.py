"""Refusals of a batch without its totals never depend on the presence of a row."""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.outcomes import Outcome, Repeating, neighbours, world

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import InputError, StoreFailed
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import Offer
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import Ledger, Totals, open_ledger
from veilring.protocols import peers as member
from veilring.protocols.noisyvotes import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    queries_max,
    votes_membership,
)
from veilring.protocols.noisyvotes.algorithm import releases
from veilring.protocols.peers import PeerMember, Till, peer_client
from veilring.protocols.promise import Facts
from veilring.protocols.radius.algorithm.conversion import ByGrid
from veilring.protocols.ring import SumMethod

TERMS = bytes(32)
FEATURES, CLASSES = 2, 3
PARTIES, CLIENTS = Parties(["ada", "bob", "cyd"]), ("ann", "eve")


@dataclass(frozen=True)
class Case:
    """The public settings of three parties, and a request.

    Attributes:
        parameters: The parameters of labelling.
        budgets: The budgets of each party's ledger.
        asked: The client, the party that it asks, and its queries.
    """

    parameters: NoisyVotesParameters
    budgets: tuple[Budgets, ...]
    asked: tuple[tuple[str, str, Floats], ...]


def member_of(
    node: Node, rows: Rows, parameters: NoisyVotesParameters, ledger: Ledger
) -> PeerMember:
    """Return a member that pays from the given ledger."""
    facts = Facts(parties=len(PARTIES), features=FEATURES, classes=CLASSES)
    till = Till(ledger, parameters.epsilon, TERMS)
    membership = votes_membership(parameters, queries_max(parameters))
    return PeerMember(node, rows, PARTIES, membership, facts, TERMS, till=till)


async def outcomes_of(parts: tuple[Rows, ...], case: Case) -> list[Outcome]:
    """Ask real parties with the given rows, batch after batch."""
    with ExitStack() as stack:
        ledgers = [stack.enter_context(open_ledger(None, each)) for each in case.budgets]

        def charged() -> list[Totals]:
            return [ledger.totals() for ledger in ledgers]

        def offers(rows: Rows, ledger: Ledger, node: Node) -> dict[str, Offer]:
            return member_of(node, rows, case.parameters, ledger).offers()

        held = zip(PARTIES, parts, ledgers, strict=True)
        servers = {name: partial(offers, rows, ledger) for name, rows, ledger in held}
        role = peer_client(TERMS, CLASSES, case.parameters.epsilon)
        async with world(servers, *CLIENTS) as served:
            return [
                await served.ask(role, client, asked, queries, charged=charged)
                for client, asked, queries in case.asked
            ]


@st.composite
def parameters(draw: st.DrawFn) -> NoisyVotesParameters:
    """Draw parameters in every mode.

    A grid that is found for a released number of rows determines the size of messages; in that mode
    the number of rows is public.
    """
    epsilons = st.floats(0.01, 5.0)
    grid = draw(st.booleans())
    rows = draw(st.integers(0, 20) if grid else st.none() | st.integers(0, 20))
    nearest = NearestRows(
        draw(st.integers(1, 9)),
        draw(epsilons),
        rows,
        draw(epsilons) if rows is None else 0.0,
        ByGrid() if grid else ByAnnuli(draw(st.integers(2, 5))),
    )
    radius = draw(st.sampled_from([0.0, 0.25, 0.5, 2.0]))
    return NoisyVotesParameters(
        FEATURES,
        CLASSES,
        draw(epsilons),
        WithinRadius(radius) if draw(st.booleans()) else nearest,
        tolerated=draw(st.integers(0, 2)),
        sum=draw(st.sampled_from([SumMethod("shares"), SumMethod("masks"), SumMethod()])),
        work=draw(st.sampled_from([0, 10_000])),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw parameters, small budgets for each party, and some batches."""
    chosen = draw(parameters())
    batches = st.sampled_from([0.0, 1.0, 2.0, 1e9, 1e9, 1e9, 1e9]).map(
        lambda count: min(count * chosen.epsilon, 1e6)
    )
    budgets = st.builds(
        lambda total, client: Budgets(total=total, analysts={"eve": client}), batches, batches
    )
    cells = st.lists(st.floats(0, 1), min_size=FEATURES, max_size=FEATURES)
    batch = st.lists(cells, min_size=1, max_size=3).map(np.array)
    chances = st.tuples(st.sampled_from(CLIENTS), st.sampled_from(list(PARTIES)), batch)
    asked = draw(st.lists(chances, min_size=1, max_size=3))
    asked += draw(st.lists(st.sampled_from(asked), max_size=1))
    return Case(chosen, tuple(draw(budgets) for _ in PARTIES), tuple(asked))


@pytest.mark.slow
@settings(max_examples=100)
@given(tables=neighbours(FEATURES, CLASSES), place=st.integers(0, len(PARTIES) - 1), case=cases())
def test_no_outcome_depends_on_a_row(tables: tuple[Rows, Rows], place: int, case: Case) -> None:
    """If a party lacks a row, ending, messages, sizes and charges at all parties stay the same."""
    others = Rows(np.full((4, FEATURES), 0.5), np.arange(4) % CLASSES)

    def play(rows: Rows) -> list[Outcome]:
        parts = tuple(rows if at == place else others for at in range(len(PARTIES)))
        streams = Repeating()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(member, "Streams", lambda: streams)
            return asyncio.run(outcomes_of(parts, case))

    one, other = map(play, tables)
    event(", ".join(sorted({outcome.ending for outcome in one})))
    assert one == other


@pytest.mark.slow
@pytest.mark.parametrize("error", [MemoryError("row 7"), InputError("rows", "row 7", "none")])
async def test_a_party_that_cannot_count_its_rows_ends(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """All others get the same error for any failure, and pay for that batch only."""
    parameters = NoisyVotesParameters(FEATURES, CLASSES, 1.0, WithinRadius(0.5))
    parts = [Rows(np.full((4, FEATURES), 0.5), np.zeros(4, np.int64)) for _ in PARTIES]
    members: dict[str, PeerMember] = {}

    def fail_for_cyd(_queries: object, _radii: object, rows: Rows, _classes: int) -> object:
        if rows is parts[2]:
            raise error
        return np.zeros((1, CLASSES), np.int64)

    monkeypatch.setattr(releases, "count_votes", fail_for_cyd)
    with ExitStack() as stack:
        ledgers = [stack.enter_context(open_ledger(None, Budgets(total=9.0))) for _ in PARTIES]

        def offers(rows: Rows, ledger: Ledger, node: Node) -> dict[str, Offer]:
            members[node.name] = member_of(node, rows, parameters, ledger)
            return members[node.name].offers()

        held = zip(PARTIES, parts, ledgers, strict=True)
        servers = {name: partial(offers, rows, ledger) for name, rows, ledger in held}
        async with world(servers, "ann") as served:
            for batch in range(3):
                outcome = await served.ask(
                    peer_client(TERMS, CLASSES, parameters.epsilon),
                    "ann",
                    "ada",
                    np.full((1, FEATURES), batch / 3),
                    charged=lambda: [ledger.totals().spent for ledger in ledgers],
                )
                assert "StoreFailed" in outcome.text
                assert "cyd" in outcome.text
                assert outcome.charged == [1.0, 1.0, 0.0]
            with pytest.raises(StoreFailed) as failed:
                await members["cyd"].failure()
    assert "row 7" not in str(failed.value)
    assert type(error).__name__ in str(failed.value)


@pytest.mark.parametrize("limits", [{"analysts": {"eve": 1.0}}, {"total": 1.0}])
async def test_a_budget_for_one_batch_pays_for_one_of_several_at_once(
    limits: dict[str, Any],
) -> None:
    """The batches that cannot be paid for are refused before any party is charged for them."""
    parameters = NoisyVotesParameters(FEATURES, CLASSES, 1.0, WithinRadius(0.5))
    rows = Rows(np.full((4, FEATURES), 0.5), np.arange(4) % CLASSES)
    role = peer_client(TERMS, CLASSES, parameters.epsilon)
    with ExitStack() as stack:
        budgets = (Budgets(**limits), Budgets(), Budgets())
        ledgers = [stack.enter_context(open_ledger(None, each)) for each in budgets]

        def offers(ledger: Ledger, node: Node) -> dict[str, Offer]:
            return member_of(node, rows, parameters, ledger).offers()

        held = zip(PARTIES, ledgers, strict=True)
        async with world({name: partial(offers, ledger) for name, ledger in held}, "eve") as served:
            batches = (np.full((1, FEATURES), number / 3) for number in range(3))
            sessions = (
                served.nodes["eve"].run(
                    role, served.streams.token("session", number), Parties(("eve", "ada")), batch
                )
                for number, batch in enumerate(batches)
            )
            told = await asyncio.gather(*sessions, return_exceptions=True)
        assert sorted(type(each).__name__ for each in told) == [
            "BudgetExhausted",
            "BudgetExhausted",
            "ndarray",
        ]
        assert [ledger.totals().spent for ledger in ledgers] == [1.0] * 3
