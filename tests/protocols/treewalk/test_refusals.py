"""Observations of a server or network, which must not depend on a client's query."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.outcomes import Outcome, world
from typing_extensions import override

from veilring.arrays import Floats
from veilring.nodes.adversary import Adversary, Lines, corrupt
from veilring.nodes.node import Node
from veilring.nodes.party import Party
from veilring.nodes.service import Offer, opening
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.treewalk.algorithm.mechanisms import Comparison
from veilring.protocols.treewalk.algorithm.tree import Places
from veilring.protocols.treewalk.memory import RememberedAnswer, WalkMemory, ask_once
from veilring.protocols.treewalk.plan import FoundPlaces, Ground, LookupPlan, Nodes, Top
from veilring.protocols.treewalk.roles import (
    Keeper,
    NearestPlaces,
    bucket_client,
    bucket_server,
    walk_client,
    walk_server,
)
from veilring.transport.messages import Message

pytestmark = pytest.mark.slow

TERMS = bytes(32)
PLACES = Places.of(np.random.default_rng(3).random((64, 2)))

Query = tuple[float, float]


class Way(NamedTuple):
    """A mechanism: the roles of client and server."""

    client: Callable[[Party, Floats, Keeper | None], Awaitable[NearestPlaces]]
    server: Callable[[Party, Places], Awaitable[object]]


async def _respond(party: Party, queries: Floats, keeper: Keeper | None) -> NearestPlaces:
    plan = LookupPlan(2)
    nearest, _ = await bucket_client(party, queries, plan=plan, epsilon=0.5, keeper=keeper)
    return nearest


async def _walk(party: Party, queries: Floats, keeper: Keeper | None) -> NearestPlaces:
    steps = Comparison(0.25)
    return await walk_client(party, queries, plan=LookupPlan(2), steps=steps, keeper=keeper)


WAYS = {"response": Way(_respond, bucket_server), "walk": Way(_walk, walk_server)}
COORDINATES = st.sampled_from([0.0, 0.5, 1.0]) | st.floats(-2.0, 2.0)
QUERIES = st.tuples(COORDINATES, COORDINATES)
NUMBERS = st.sampled_from([0.0, 0.5, 1e9, 1e308, float("nan"), float("inf")])


@st.composite
def _matrices(draw: st.DrawFn) -> Floats:
    shape = draw(st.sampled_from([(1, 1), (1, 4), (4, 2), (3, 2), (0, 0)]))
    return np.full(shape, draw(NUMBERS))


REPLIES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Ground, points=st.sampled_from([2, 64, 65, 1 << 29, 1 << 40]), dimensions=st.just(2)),
    st.builds(Ground, points=st.just(64), dimensions=st.sampled_from([1, 3])),
    st.builds(Nodes, values=st.builds(np.full, st.sampled_from([0, 1, 4]), NUMBERS)),
    st.builds(
        Top, splits=st.sampled_from([0, 16, 17]).flatmap(lambda n: st.just(np.linspace(0, 1, n)))
    ),
    st.builds(
        FoundPlaces,
        places=st.tuples(st.sampled_from([1, 4, 5]), st.sampled_from([0, 63, 64])).map(
            lambda each: np.full((1, each[0]), each[1], dtype=np.uint32)
        ),
        points=_matrices(),
    ),
)
Lies = dict[int, Message]
# What a server says in place of which of its messages.
SERVERS = st.dictionaries(st.integers(0, 4), REPLIES, max_size=2)


class Liar(Adversary):
    """A server that follows its role except for some altered messages."""

    def __init__(self, lies: Lies) -> None:
        self._lies, self._said = lies, 0

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        self._said += 1
        return [(to, self._lies.get(self._said - 1, message))]


def _offers(way: str, lies: Lies, _node: Node) -> dict[str, Offer]:
    async def serve(party: Party, opener: str) -> None:
        await corrupt(WAYS[way].server, Liar(lies))(party, PLACES)
        if lies:  # and a client that was told of a deeper tree waits for more
            await party.send(opener, Nodes(values=np.zeros(0)))

    return {"near": Offer(serve, TERMS, lambda _peer: True)}


async def _play(
    way: str, queries: Sequence[Query], servers: Sequence[Lies], budget: float
) -> list[Outcome]:
    """Ask queries in sequence, each at another server, and return the outcomes."""
    ledger = open_ledger(None, Budgets(total=budget))
    memory, outcomes = WalkMemory(ledger, "server", TERMS), list[Outcome]()

    async def question(party: Party, query: Query) -> list[RememberedAnswer]:
        async def ask(asked: Floats, keeper: Keeper) -> NearestPlaces:
            return await WAYS[way].client(party, asked, keeper)

        return await ask_once(memory, np.array([query]), ask)

    for query, lies in zip(queries, servers, strict=True):
        offered = partial(_offers, way, lies)
        async with world({"server": offered}, "client") as parties:
            role = opening(question, "near", TERMS)
            outcomes.append(
                await parties.ask(role, "client", "server", query, charged=ledger.totals)
            )
    return outcomes


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=60, deadline=None)
@given(
    st.lists(QUERIES, min_size=4, max_size=4, unique=True),
    st.tuples(SERVERS, SERVERS, SERVERS),
    st.sampled_from([0.1, 0.6, 10.0]),
)
def test_no_outcome_depends_on_a_clients_location(
    way: str, places: list[Query], servers: tuple[Lies, ...], budget: float
) -> None:
    """Errors, messages, frames and charges are equal for two histories of queries."""
    one, two, other, last = places
    histories = ((one, one, two), (other, other, last))
    outcomes = [asyncio.run(_play(way, each, servers, budget)) for each in histories]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("way", WAYS)
def test_an_honest_server_answers_paid_queries(way: str) -> None:
    """A repeated query is answered from memory, and refused if the budget is exhausted."""
    queries = [(0.2, 0.2), (0.2, 0.2), (0.7, 0.1)]
    played = asyncio.run(_play(way, queries, [{}] * 3, budget=0.6))
    assert [each.ending for each in played] == ["answered", "answered", "BudgetExhausted"]
    assert len(played[0].wire) > len(played[1].wire)
