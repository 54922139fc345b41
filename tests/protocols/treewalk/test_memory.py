"""A client's memory and budget with a malicious server, and what a server or network sees."""

import asyncio
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papers.overheard import walk_log_likelihood
from tests.outcomes import Outcome, world
from tests.protocols.ring.worlds import play
from typing_extensions import override

from veilring.arrays import Bools, Floats
from veilring.errors import BudgetExhausted, InputError, ProtocolViolation, RunFailed
from veilring.nodes.adversary import Adversary, Lines, corrupt
from veilring.nodes.node import Node
from veilring.nodes.party import Party
from veilring.nodes.service import Offer, opening
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.treewalk.algorithm.mechanisms import Comparison
from veilring.protocols.treewalk.algorithm.tree import Places
from veilring.protocols.treewalk.memory import RememberedAnswer, WalkMemory, ask_once
from veilring.protocols.treewalk.plan import (
    Bits,
    FoundPlaces,
    Ground,
    LookupPlan,
    Nodes,
    Top,
    WalkRequest,
)
from veilring.protocols.treewalk.roles import (
    Keeper,
    NearestPlaces,
    bucket_client,
    bucket_server,
    walk_client,
    walk_server,
)
from veilring.transport.messages import Message

CLIENT, SERVER = "party-0", "party-1"
TERMS = bytes(32)
DRAWS = np.random.default_rng(12)
PLACES = Places.of(DRAWS.random((64, 2)))
OTHERS = Places.of(DRAWS.random((64, 2)))
QUERIES = DRAWS.random((3, 2))
STEPS = 6
STEP = Comparison(1.0)
LOST = InputError("answer", "lost", "nothing")


@dataclass
class Asking:
    """A client with a memory, a server, and the server's view."""

    memory: WalkMemory
    places: Places = PLACES
    splits: int = 0
    leaves_after: int | None = None
    names_bucket: bool = False
    seed: int = 0
    seen: list[Bools] = field(default_factory=list)

    async def __call__(self, queries: Floats, keeper: Keeper) -> NearestPlaces:
        """Ask on a fresh cluster with a new seed each time."""
        self.seed += 1
        both = [queries, self.places]
        run = await play(self._role, both, names=(CLIENT, SERVER), seed=self.seed, keeper=keeper)
        self.seen.append(run.results[SERVER])
        answer: NearestPlaces = run.results[CLIENT]
        return answer

    async def _role(self, party: Party, own: Any, *, keeper: Keeper) -> Any:
        if isinstance(own, Places):
            if self.leaves_after is not None:
                return await self._leave(party, own)
            return await (bucket_server if self.names_bucket else walk_server)(party, own)
        plan = LookupPlan(self.splits, queries=len(own))
        if not self.names_bucket:
            return await walk_client(party, own, plan=plan, steps=STEP, keeper=keeper)
        return await bucket_client(party, own, plan=plan, epsilon=0.5, keeper=keeper)

    async def _leave(self, party: Party, own: Places) -> object:
        """Play a server that records the bits of some levels and then sends an invalid level."""
        walks = (await party.receive(WalkRequest, sender=CLIENT)).queries
        await party.send(CLIENT, Ground(points=len(own.tree), dimensions=2))
        nodes = np.ones(walks, dtype=np.int64)
        for _ in range(self.leaves_after or 0):
            await party.send(CLIENT, Nodes(values=own.tree.splits[nodes]))
            bits = np.unpackbits((await party.receive(Bits, sender=CLIENT)).packed)[:walks]
            self.seen.append(bits.astype(np.bool_))
            nodes = 2 * nodes + bits
        await party.send(CLIENT, Nodes(values=np.zeros(0)))
        return await party.receive(Bits, sender=CLIENT)

    def ask(self, queries: Floats = QUERIES, *, most: float = inf) -> list[RememberedAnswer]:
        """Ask, or recall."""
        return asyncio.run(ask_once(self.memory, queries, self, most=most))

    def fail(self, *, most: float = inf) -> BaseException:
        """Return the first error of the run in which the queries are asked."""
        with pytest.raises(RunFailed) as failed:
            self.ask(most=most)
        return failed.value.root


def _memory(budget: float | None = None, path: Path | None = None) -> WalkMemory:
    is_new = path is None or not path.exists()
    return WalkMemory(open_ledger(path, Budgets(analyst=budget), new=is_new), SERVER, b"")


def _spent(memory: WalkMemory) -> float:
    return memory.ledger.totals().spent


def test_each_query_is_asked_once() -> None:
    """A repeated batch gets equal answers, sends no message and costs nothing.

    Five rows with two distinct queries, of which both zeros are one, take two walks.
    """
    asking = Asking(_memory())
    queries = np.array([[0.0, 0.5], [-0.0, 0.5], [0.25, 0.5], [0.0, 0.5], [0.25, 0.5]])
    first, again = asking.ask(queries), asking.ask(queries[::-1])
    for one, other in [*zip(first, reversed(again), strict=True), (first[0], first[3])]:
        np.testing.assert_array_equal(one.found, other.found)
        np.testing.assert_array_equal(one.points, other.points)
    (seen,) = asking.seen
    assert seen.shape == (2, STEPS)
    assert _spent(asking.memory) == pytest.approx(2 * STEPS * 0.5)


def test_ten_queries_reveal_no_more_than_one() -> None:
    """With a memory, ten equal queries show the server one walk; without one, ten walks."""
    asking, forgetful = Asking(_memory()), Asking(_memory())
    for _ in range(10):
        asking.ask(QUERIES[:1])
        forgetful.memory = _memory()
        forgetful.ask(QUERIES[:1])
    bits, more = (np.vstack(one.seen).astype(np.bool_) for one in (asking, forgetful))
    assert bits.shape == (1, STEPS)
    assert more.shape == (10, STEPS)
    once, all_ten = (
        walk_log_likelihood(PLACES.tree, STEP, 0, each, QUERIES).sum(axis=0)
        for each in (bits, more)
    )
    budget = STEPS * STEP.step_loss
    assert np.ptp(once) <= budget * (1 + 1e-9)
    assert np.ptp(all_ten) > np.ptp(once)


@pytest.mark.parametrize("levels", range(STEPS))
def test_an_interrupted_walk_repeats_its_bits(levels: int, tmp_path: Path) -> None:
    """After losing a server at any level, a retry repeats its bits and pays nothing."""
    path = tmp_path / "ledger"
    asking = Asking(_memory(path=path), leaves_after=levels)
    asking.fail()
    asking.memory.ledger.close()
    said = np.array(asking.seen).reshape(levels, len(QUERIES)).T
    paid = Asking(_memory(path=path), seed=100)
    assert _spent(paid.memory) == pytest.approx(3 * STEPS * 0.5)
    paid.ask()
    (seen,) = paid.seen
    np.testing.assert_array_equal(seen[:, :levels], said)
    assert _spent(paid.memory) == pytest.approx(3 * STEPS * 0.5)
    paid.memory.ledger.close()


@pytest.mark.parametrize(
    ("paid", "levels", "other", "spent"),
    [(PLACES, 3, OTHERS, STEPS), (Places.of(np.array([[0.0, 0.0], [1.0, 1.0]])), 0, PLACES, 1)],
    ids=["other nodes", "deeper"],
)
def test_another_tree_gets_no_bits_of_a_paid_walk(
    paid: Places, levels: int, other: Places, spent: int
) -> None:
    """A server that shows other nodes, or claims more of them, at a retry gets no further bit."""
    asking = Asking(_memory(), places=paid, leaves_after=levels)
    asking.fail()
    assert _spent(asking.memory) == pytest.approx(3 * spent * 0.5)
    retried = Asking(asking.memory, places=other, leaves_after=levels + 1)
    error = retried.fail()
    assert isinstance(error, ProtocolViolation)
    assert "a different tree" in error.reason
    assert not retried.seen


@pytest.mark.parametrize(
    ("budget", "most", "error"),
    [(None, STEPS * 0.5 - 0.01, ProtocolViolation), (5.0, inf, BudgetExhausted)],
    ids=["a tree above the allowed cost", "a batch beyond the remaining budget"],
)
def test_what_cannot_be_paid_gets_no_bit(
    budget: float | None, most: float, error: type[Exception]
) -> None:
    """A batch that costs more than is allowed or left is refused, and no bit is sent or paid."""
    asking = Asking(_memory(budget=budget), leaves_after=2)
    assert isinstance(asking.fail(most=most), error)
    assert not asking.seen
    assert _spent(asking.memory) <= (budget or 0.0)
    Asking(asking.memory).ask(QUERIES[:1], most=STEPS * 0.5)


def test_other_terms_make_another_query() -> None:
    """Equal queries under other terms are asked and paid for separately."""
    asking = Asking(_memory())
    asking.ask()
    other = Asking(WalkMemory(asking.memory.ledger, SERVER, b"another edition"))
    other.ask()
    assert len(other.seen) == 1
    assert _spent(asking.memory) == pytest.approx(2 * 3 * STEPS * 0.5)


def test_a_walk_without_steps_costs_nothing() -> None:
    """A client that fetches all places reveals nothing and pays nothing."""
    asking = Asking(_memory(), splits=STEPS)
    asking.ask()
    assert _spent(asking.memory) == 0.0


def test_a_ledger_in_another_unit_is_refused() -> None:
    """A memory counts in epsilon."""
    with pytest.raises(InputError, match="ledger's unit is rho; use a ledger"):
        WalkMemory(open_ledger(None, Budgets("rho")), SERVER, b"")


def test_one_message_is_stored_and_repeated() -> None:
    """After a lost answer, the same bits are sent again; afterwards the answer is recalled."""
    asking = Asking(_memory(), splits=2, names_bucket=True)

    async def lose(queries: Floats, keeper: Keeper) -> NearestPlaces:
        await asking(queries, keeper)
        raise LOST

    with pytest.raises(InputError, match="lost"):
        asyncio.run(ask_once(asking.memory, QUERIES, lose))
    asking.ask()
    asking.ask()
    first, again = asking.seen
    np.testing.assert_array_equal(first, again)
    assert _spent(asking.memory) == pytest.approx(3 * 0.5, rel=1e-6)


def test_values_sent_to_all_queries_are_stored_once() -> None:
    """A batch of responses stores one copy of the splits for all queries."""
    queries, splits, peaks = np.arange(2000.0).reshape(1000, 2), np.arange(4096.0), list[int]()

    async def ask(asked: Floats, keeper: Keeper) -> NearestPlaces:
        tracemalloc.start()
        keeper.pay(0.5, 1)
        keeper.settle(0, splits[None], np.zeros((len(asked), 1), np.uint32))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        found = np.zeros((len(asked), 1), np.int64)
        return NearestPlaces(found[:, 0], np.zeros(len(asked)), found, np.zeros((len(asked), 1, 2)))

    asyncio.run(ask_once(_memory(), queries, ask))
    assert peaks[0] < 4e6  # a copy for each is 33 MB


def test_values_of_one_query_hold_for_all() -> None:
    """A batch with a single row may continue only with an equal row for each query."""
    memory, splits, said = (_memory(), np.arange(8.0), list[list[int]]())

    async def ask(asked: Floats, keeper: Keeper, shown: Floats) -> NearestPlaces:
        keeper.pay(0.5, 1)
        drawn = np.random.default_rng(len(said)).integers(8, size=(len(asked), 1), dtype=np.uint32)
        said.append(keeper.settle(0, shown, drawn).ravel().tolist())
        raise LOST

    for shown in (splits[None], np.tile(splits, (3, 1))):
        with pytest.raises(InputError, match="lost"):
            asyncio.run(ask_once(memory, QUERIES, partial(ask, shown=shown)))
    assert said[0] == said[1]
    with pytest.raises(ProtocolViolation, match="different tree"):
        asyncio.run(ask_once(memory, QUERIES, partial(ask, shown=splits[None] + 1)))


Query = tuple[float, float]
COORDINATES = st.sampled_from([0.0, 0.5, 1.0]) | st.floats(-2.0, 2.0)
NUMBERS = st.sampled_from([0.0, 0.5, 1e9, 1e308, float("nan"), float("inf")])


@st.composite
def _matrices(draw: st.DrawFn) -> Floats:
    shape = draw(st.sampled_from([(1, 1), (1, 4), (4, 2), (3, 2), (0, 0)]))
    return np.full(shape, draw(NUMBERS))


REPLIES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Ground, points=st.sampled_from([2, 64, 65, 1 << 29, 1 << 40]), dimensions=st.just(2)),
    st.builds(Ground, points=st.just(64), dimensions=st.sampled_from([1, 3])),
    st.builds(Nodes, values=st.builds(np.full, st.sampled_from([0, 1, 4]), NUMBERS)),
    st.builds(Top, splits=st.sampled_from([0, 16, 17]).map(partial(np.linspace, 0, 1))),
    st.builds(
        FoundPlaces,
        places=st.tuples(st.sampled_from([1, 4, 5]), st.sampled_from([0, 63, 64])).map(
            lambda each: np.full((1, each[0]), each[1], dtype=np.uint32)
        ),
        points=_matrices(),
    ),
)
Lies = dict[int, Message]
"""The messages that a server sends in place of its own, by their number."""
SERVERS = st.dictionaries(st.integers(0, 4), REPLIES, max_size=2)


class Liar(Adversary):
    """A server that follows its role except for some altered messages."""

    def __init__(self, lies: Lies) -> None:
        self._lies, self._said = lies, 0

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        self._said += 1
        return [(to, self._lies.get(self._said - 1, message))]


async def _play(
    by: str, queries: Sequence[Query], servers: Sequence[Lies], budget: float
) -> list[Outcome]:
    """Ask queries in sequence, each at another server, and return the outcomes."""
    ledger = open_ledger(None, Budgets(total=budget))
    memory, plan, outcomes = WalkMemory(ledger, "server", TERMS), LookupPlan(2), list[Outcome]()

    async def question(party: Party, query: Query) -> list[RememberedAnswer]:
        async def ask(asked: Floats, keeper: Keeper) -> NearestPlaces:
            if by == "walk":
                steps = Comparison(0.25)
                return await walk_client(party, asked, plan=plan, steps=steps, keeper=keeper)
            return await bucket_client(party, asked, plan=plan, epsilon=0.5, keeper=keeper)

        return await ask_once(memory, np.array([query]), ask)

    def offers(lies: Lies, _node: Node) -> dict[str, Offer]:
        async def serve(party: Party, opener: str) -> None:
            server = walk_server if by == "walk" else bucket_server
            await corrupt(server, Liar(lies))(party, PLACES)
            if lies:  # and a client that was told of a deeper tree waits for more
                await party.send(opener, Nodes(values=np.zeros(0)))

        return {"near": Offer(serve, TERMS, lambda _peer: True)}

    for query, lies in zip(queries, servers, strict=True):
        async with world({"server": partial(offers, lies)}, "client") as parties:
            role = opening(question, "near", TERMS)
            outcomes.append(
                await parties.ask(role, "client", "server", query, charged=ledger.totals)
            )
    return outcomes


each_way = pytest.mark.parametrize("by", ["response", "walk"])


@pytest.mark.slow
@each_way
@settings(max_examples=60)
@given(
    st.lists(st.tuples(COORDINATES, COORDINATES), min_size=4, max_size=4, unique=True),
    st.tuples(SERVERS, SERVERS, SERVERS),
    st.sampled_from([0.1, 0.6, 10.0]),
)
def test_no_outcome_depends_on_a_clients_location(
    by: str, places: list[Query], servers: tuple[Lies, ...], budget: float
) -> None:
    """Errors, messages, frames and charges are equal for two histories of queries."""
    one, two, other, last = places
    histories = ((one, one, two), (other, other, last))
    outcomes = [asyncio.run(_play(by, each, servers, budget)) for each in histories]
    assert outcomes[0] == outcomes[1]


@pytest.mark.slow
@each_way
def test_an_honest_server_answers_paid_queries(by: str) -> None:
    """A repeated query is answered from memory, and refused if the budget is exhausted."""
    queries = [(0.2, 0.2), (0.2, 0.2), (0.7, 0.1)]
    played = asyncio.run(_play(by, queries, [{}] * 3, budget=0.6))
    assert [each.ending for each in played] == ["answered", "answered", "BudgetExhausted"]
    assert len(played[0].wire) > len(played[1].wire)
