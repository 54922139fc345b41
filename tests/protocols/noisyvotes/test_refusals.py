"""Refusals of a batch without its totals never depend on the presence of a row."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.outcomes import Outcome, Repeating, World, neighbours, world

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import InputError, StoreFailed
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import Offer
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import Ledger, open_ledger
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
    """The parameters and budgets of three parties; and clients, asked parties and queries."""

    parameters: NoisyVotesParameters
    budgets: tuple[Budgets, ...]
    asked: tuple[tuple[str, str, Floats], ...]


@dataclass
class Deployed:
    """The ledgers and members of three parties, their nodes' world, and a client's role."""

    ledgers: Sequence[Ledger]
    role: Callable[..., Awaitable[Any]]
    members: dict[str, PeerMember] = field(default_factory=dict)
    world: World = field(init=False)

    def spent(self) -> list[float]:
        """Return the charges of each member."""
        return [ledger.totals().spent for ledger in self.ledgers]


@asynccontextmanager
async def deployed(
    parts: Sequence[Rows], chosen: NoisyVotesParameters, budgets: Iterable[Budgets], *clients: str
) -> AsyncIterator[Deployed]:
    """Serve three members that pay from in-memory ledgers."""
    membership = votes_membership(chosen, queries_max(chosen))
    facts = Facts(parties=len(PARTIES), features=FEATURES, classes=CLASSES)
    with ExitStack() as stack:
        ledgers = [stack.enter_context(open_ledger(None, each)) for each in budgets]
        made = Deployed(ledgers, peer_client(TERMS, CLASSES, chosen.epsilon))

        def offers(place: int, node: Node) -> dict[str, Offer]:
            till, rows = Till(ledgers[place], chosen.epsilon, TERMS), parts[place]
            member = PeerMember(node, rows, PARTIES, membership, facts, TERMS, till=till)
            made.members[node.name] = member
            return member.offers()

        servers = {name: partial(offers, place) for place, name in enumerate(PARTIES)}
        async with world(servers, *clients) as made.world:
            yield made


async def outcomes_of(parts: tuple[Rows, ...], case: Case) -> list[Outcome]:
    """Ask real parties with the given rows, batch after batch."""
    async with deployed(parts, case.parameters, case.budgets, *CLIENTS) as made:
        return [
            await made.world.ask(
                made.role,
                client,
                asked,
                queries,
                charged=lambda: [ledger.totals() for ledger in made.ledgers],
            )
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

    def fail_for_cyd(_queries: object, _radii: object, rows: Rows, _classes: int) -> object:
        if rows is parts[2]:
            raise error
        return np.zeros((1, CLASSES), np.int64)

    monkeypatch.setattr(releases, "count_votes", fail_for_cyd)
    budgets = [Budgets(total=9.0)] * 3
    async with deployed(parts, parameters, budgets, "ann") as made:
        for batch in range(3):
            queries = np.full((1, FEATURES), batch / 3)
            outcome = await made.world.ask(made.role, "ann", "ada", queries, charged=made.spent)
            assert "StoreFailed" in outcome.text
            assert "cyd" in outcome.text
            assert outcome.charged == [1.0, 1.0, 0.0]
        with pytest.raises(StoreFailed) as failed:
            await made.members["cyd"].failure()
    assert "row 7" not in str(failed.value)
    assert type(error).__name__ in str(failed.value)


@pytest.mark.parametrize("limits", [{"analysts": {"eve": 1.0}}, {"total": 1.0}])
async def test_a_budget_for_one_batch_pays_for_one_of_several_at_once(
    limits: dict[str, Any],
) -> None:
    """The batches that cannot be paid for are refused before any party is charged for them."""
    parameters = NoisyVotesParameters(FEATURES, CLASSES, 1.0, WithinRadius(0.5))
    rows = Rows(np.full((4, FEATURES), 0.5), np.arange(4) % CLASSES)
    budgets = (Budgets(**limits), Budgets(), Budgets())
    async with deployed([rows] * 3, parameters, budgets, "eve") as made:
        sessions = (
            made.world.nodes["eve"].run(
                made.role,
                made.world.streams.token("session", number),
                Parties(("eve", "ada")),
                np.full((1, FEATURES), number / 3),
            )
            for number in range(3)
        )
        told = await asyncio.gather(*sessions, return_exceptions=True)
        kinds = sorted(type(each).__name__ for each in told)
        assert kinds == ["BudgetExhausted", "BudgetExhausted", "ndarray"]
        assert made.spent() == [1.0] * 3
