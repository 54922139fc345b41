"""A client's memory and budget, also after interruptions and with a malicious server."""

import asyncio
import tracemalloc
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path

import numpy as np
import pytest
from papers.overheard import walk_log_likelihood

from veilring.arrays import Bools, Floats
from veilring.errors import BudgetExhausted, InputError, ProtocolViolation, RunFailed
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.treewalk.algorithm.mechanisms import Comparison
from veilring.protocols.treewalk.algorithm.tree import Places
from veilring.protocols.treewalk.memory import RememberedAnswer, WalkMemory, ask_once, snap
from veilring.protocols.treewalk.plan import Bits, Ground, LookupPlan, Nodes, WalkRequest
from veilring.protocols.treewalk.roles import (
    Keeper,
    NearestPlaces,
    bucket_client,
    bucket_server,
    walk_client,
    walk_server,
)

CLIENT, SERVER = "party-0", "party-1"
DRAWS = np.random.default_rng(12)
PLACES = Places.of(DRAWS.random((64, 2)))
OTHERS = Places.of(DRAWS.random((64, 2)))
QUERIES = DRAWS.random((3, 2))
STEPS = 6
STEP = Comparison(1.0)


@dataclass
class Asking:
    """A client with a memory, a server, and the server's view."""

    memory: WalkMemory
    places: Places = PLACES
    splits: int = 0
    leaves_after: int | None = None
    names_bucket: bool = False
    loses: bool = False
    seed: int = 0
    seen: list[Bools] = field(default_factory=list)

    async def __call__(self, queries: Floats, keeper: Keeper) -> NearestPlaces:
        """Ask on a fresh cluster with a new seed each time."""
        self.seed += 1
        async with Cluster(2, own=[queries, self.places], seed=self.seed) as cluster:
            run = await cluster.run(self._role, keeper=keeper)
        seen = run.results[SERVER]
        assert isinstance(seen, np.ndarray)
        self.seen.append(seen)
        if self.loses:
            raise InputError("answer", "lost", "nothing")
        answer = run.results[CLIENT]
        assert isinstance(answer, NearestPlaces)
        return answer

    async def _role(self, party: Party, own: object, *, keeper: Keeper) -> object:
        if isinstance(own, Places):
            if self.leaves_after is None:
                return await (bucket_server if self.names_bucket else walk_server)(party, own)
            return await self._leave(party, own)
        assert isinstance(own, np.ndarray)
        plan = LookupPlan(self.splits, queries=len(own))
        if not self.names_bucket:
            return await walk_client(party, own, plan=plan, steps=STEP, keeper=keeper)
        answer, _ = await bucket_client(party, own, plan=plan, epsilon=0.5, keeper=keeper)
        return answer

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


def _memory(
    budget: float | None = None, path: Path | None = None, terms: bytes = b""
) -> WalkMemory:
    budgets = Budgets(analyst=budget)
    ledger = open_ledger(path, budgets, new=path is None or not path.exists())
    return WalkMemory(ledger, SERVER, terms)


def _spent(memory: WalkMemory) -> float:
    return memory.ledger.totals().spent


def test_a_repeated_query_is_not_asked_again() -> None:
    """A repeated batch gets equal answers, sends no message and costs nothing."""
    asking = Asking(_memory())
    first, again = asking.ask(), asking.ask(QUERIES[::-1])
    assert len(asking.seen) == 1
    for one, other in zip(first, reversed(again), strict=True):
        np.testing.assert_array_equal(one.found, other.found)
        np.testing.assert_array_equal(one.points, other.points)
    assert _spent(asking.memory) == pytest.approx(3 * STEPS * 0.5)


def test_ten_queries_reveal_no_more_than_one() -> None:
    """With a memory, ten equal queries show the server one walk; without one, ten walks."""
    asking, forgetful = Asking(_memory()), Asking(_memory())
    for turn in range(10):
        asking.ask(QUERIES[:1])
        forgetful.memory = _memory(terms=bytes([turn]))
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


def test_equal_queries_of_a_batch_are_asked_once() -> None:
    """Five rows with two distinct queries take two walks; both zeros are equal."""
    asking = Asking(_memory())
    queries = np.array([[0.0, 0.5], [-0.0, 0.5], [0.25, 0.5], [0.0, 0.5], [0.25, 0.5]])
    answers = asking.ask(queries)
    (seen,) = asking.seen
    assert seen.shape == (2, STEPS)
    np.testing.assert_array_equal(answers[0].found, answers[3].found)


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


def test_a_tree_above_the_allowed_cost_gets_no_bit() -> None:
    """If the server's tree exceeds the allowed cost of a query, nothing is paid or sent."""
    asking = Asking(_memory(), leaves_after=1)
    assert isinstance(asking.fail(most=STEPS * 0.5 - 0.01), ProtocolViolation)
    assert not asking.seen
    assert _spent(asking.memory) == 0.0
    Asking(asking.memory).ask(most=STEPS * 0.5)


def test_other_terms_make_another_query() -> None:
    """Equal queries under other terms are asked and paid for separately."""
    asking = Asking(_memory())
    asking.ask()
    other = Asking(WalkMemory(asking.memory.ledger, SERVER, b"another edition"))
    other.ask()
    assert len(other.seen) == 1
    assert _spent(asking.memory) == pytest.approx(2 * 3 * STEPS * 0.5)


def test_an_exhausted_budget_sends_nothing() -> None:
    """A batch beyond the remaining budget is refused, and no bit is sent."""
    asking = Asking(_memory(budget=5.0), leaves_after=2)
    assert isinstance(asking.fail(), BudgetExhausted)
    assert not asking.seen
    assert _spent(asking.memory) <= 5.0


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
    asking = Asking(_memory(), splits=2, names_bucket=True, loses=True)
    with pytest.raises(InputError, match="lost"):
        asking.ask()
    asking.loses = False
    asking.ask()
    asking.ask()
    first, again = asking.seen
    np.testing.assert_array_equal(first, again)
    assert _spent(asking.memory) == pytest.approx(3 * 0.5, rel=1e-6)


def test_answers_survive_serialisation() -> None:
    """A recalled answer equals the stored one, and finds its nearest place."""
    answer = RememberedAnswer(np.array([4, 2]), np.array([[0.0, 0.5, 1.0], [2.0, 2.0, 2.0]]))
    kept = RememberedAnswer.from_bytes(answer.to_bytes(), 3)
    np.testing.assert_array_equal(kept.found, answer.found)
    np.testing.assert_array_equal(kept.points, answer.points)
    assert kept.nearest_to(np.array([2.0, 2.0, 1.0])) == (2, 1.0)


def test_nearby_places_have_one_name_on_a_grid() -> None:
    """Two measurements within a cell of the grid are one query."""
    near = snap(np.array([[103.0, 198.0], [99.0, 204.9]]), 10.0)
    np.testing.assert_array_equal(near, [[100.0, 200.0], [100.0, 200.0]])


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
        raise InputError("answer", "lost", "nothing")

    for shown in (splits[None], np.tile(splits, (3, 1))):
        with pytest.raises(InputError, match="lost"):
            asyncio.run(ask_once(memory, QUERIES, partial(ask, shown=shown)))
    assert said[0] == said[1]
    with pytest.raises(ProtocolViolation, match="different tree"):
        asyncio.run(ask_once(memory, QUERIES, partial(ask, shown=splits[None] + 1)))
