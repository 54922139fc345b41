"""One collection in one session, at a known cost; the system compares the runtimes."""

import numpy as np
import pytest
from tests.protocols.ldp.collecting import REFUSALS, Lie, batches, make_task, people, ragged_ids

from veilring.errors import ProtocolViolation, RunFailed
from veilring.nodes.adversary import Alter
from veilring.nodes.cluster import Cluster
from veilring.protocols.ldp.algorithm.survey import Tally, answer
from veilring.protocols.ldp.messages import BATCH_BYTES_MAX, ID_BYTES, ReportBatch
from veilring.protocols.ldp.roles import ClientPool, gather, gather_cost
from veilring.testing import ProtocolRunner, assert_cost

NAMES = ["census", "ada", "bob", "crowd"]
TASK = make_task()


def pools(crowd: int) -> list[ClientPool | None]:
    """Return an empty pool, two single clients and a crowd."""
    rng = np.random.default_rng(1)
    return [None, people(1, rng), people(1, rng), people(crowd, rng)]


def test_a_collection_costs_the_closed_form(run_protocol: ProtocolRunner) -> None:
    """One message per client, or per question of a pool, in one round, exact in bytes.

    Only the aggregator learns the tally.
    """
    run = run_protocol(
        gather, NAMES, own=pools(500), seed=7, watch=["census"], aggregator="census", task=TASK
    )
    asked = {name: [0, 0, 0] for name in NAMES[1:]}
    for seen in run.views["census"].received:
        assert isinstance(seen.message, ReportBatch)
        asked[seen.sender][seen.message.question] += len(seen.message.ids) // ID_BYTES
    assert [sum(counts) for counts in asked.values()] == [1, 1, 500]
    found = run.results["census"]
    assert found is not None
    assert found.counts == tuple(map(sum, zip(*asked.values(), strict=True)))
    assert [run.results[name] for name in NAMES[1:]] == [None] * 3
    cost = gather_cost(TASK, list(asked.values()))
    assert cost.traffic.messages == 1 + 1 + 3
    assert_cost(run, messages=cost.traffic.messages, bytes=cost.traffic.bytes, rounds=cost.rounds)


def test_an_empty_pool_costs_an_empty_message(run_protocol: ProtocolRunner) -> None:
    """A pool without clients says so, and the result is the empty tally."""
    run = run_protocol(gather, NAMES[:2], own=pools(0)[::3], aggregator="census", task=TASK)
    found = run.results["census"]
    assert found is not None
    assert found.clients == 0
    cost = gather_cost(TASK, [[0, 0, 0]])
    assert_cost(run, messages=1, bytes=cost.traffic.bytes, rounds=1)


def test_large_pools_are_divided_as_forecast() -> None:
    """A pool sends the minimum number of full batches to a question."""
    made = batches(TASK, 60_000)
    asked = [sum(len(each) for each in made if each.question == q) for q in range(3)]
    assert len(made) == gather_cost(TASK, [asked]).traffic.messages > 3
    assert all(each.payload_bytes <= BATCH_BYTES_MAX for each in made)


@pytest.mark.parametrize("lie", [ragged_ids, *(each for each, _ in REFUSALS.values())])
async def test_a_lie_ends_the_collection_with_its_sender(lie: Lie) -> None:
    """Each report that no client sends ends the run with its sender's name."""
    liar = {"crowd": Alter(lie, only=(ReportBatch,))}
    async with Cluster(NAMES, own=pools(500)) as cluster:
        with pytest.raises(RunFailed) as caught:
            await cluster.run(gather, adversaries=liar, aggregator="census", task=TASK)
    errors = caught.value.errors.values()
    assert {e.culprit for e in errors if isinstance(e, ProtocolViolation)} == {"crowd"}


def test_a_pool_equals_its_clients() -> None:
    """The reports of a pool add up to the algorithm's result for equal draws."""
    crowd = people(100_000, np.random.default_rng(3))
    made = list(crowd.answer(TASK, np.random.default_rng(4)))
    answers = answer(TASK.survey, crowd.rows, crowd.labels, np.random.default_rng(4))
    expected = Tally.of(TASK.survey, answers)
    found = Tally.of(TASK.survey, [(batch.question, batch.reports) for batch in made])
    assert found.counts == expected.counts
    assert all(map(np.array_equal, found.sums, expected.sums))
    clients = np.sort(np.concatenate([batch.clients for batch in made]))
    np.testing.assert_array_equal(clients, np.arange(100_000))
    ids = np.concatenate([batch.ids for batch in made])
    assert len(np.unique(ids, axis=0)) == 100_000
