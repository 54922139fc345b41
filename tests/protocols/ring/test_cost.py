"""The cost of runs equals the closed forms."""

import asyncio

import numpy as np
import pytest
from tests.protocols.ring.worlds import bound

from veilring import simulation
from veilring.data.table import Rows
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import Cost
from veilring.nodes.ring import Ring
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated
from veilring.protocols.promise import Forecast
from veilring.protocols.ring import (
    FixedPoint,
    KNNAnswer,
    SumMethod,
    TopKParameters,
    knn_cost,
    pp_topk,
    private_knn,
    secure_sum,
    sum_cost,
    topk_cost,
)
from veilring.simulation import Constant, LinkModel, Topology
from veilring.testing import ProtocolRunner

SEVEN = Ring([f"party-{n}" for n in range(7)])
COSTED = [
    SumMethod(),
    SumMethod("cycles", 2),
    SumMethod("cycles", 3),
    SumMethod("shares"),
    SumMethod("masks"),
]


def forecast_of(cost: Cost) -> Forecast:
    """Return a measured cost in the form of a forecast."""
    total = Forecast(cost.rounds, type(cost.setup)(cost.messages, cost.bytes), cost.setup)
    assert sum(t.messages for t in cost.by_party.values()) == cost.messages
    assert sum(t.bytes for t in cost.by_kind.values()) == cost.bytes
    return total


def test_topk_costs_its_closed_form(run_protocol: ProtocolRunner) -> None:
    """Messages, bytes and rounds of PP-TopK equal the forecast."""
    parameters = TopKParameters(k=3, P0=1.0, d=0.5, rounds=4, delta=0.1, upper=1.0)
    own = [np.full((5, 2), 0.1 * n) for n in range(7)]
    run = run_protocol(pp_topk, SEVEN.order, own=own, ring=SEVEN, parameters=parameters)
    assert forecast_of(run.cost) == topk_cost(7, 5, parameters)
    assert run.cost.messages == 7 * 4 + 6


@pytest.mark.parametrize("method", COSTED, ids=lambda method: f"{method.name}-{method.cycles}")
def test_sums_cost_their_closed_forms(run_protocol: ProtocolRunner, method: SumMethod) -> None:
    """Messages, bytes and rounds of each method of summing equal the forecast."""
    own = [np.full((5, 2), float(n)) for n in range(7)]
    fixed = FixedPoint(24, 7)
    run = run_protocol(secure_sum, SEVEN.order, own=own, ring=SEVEN, fixed=fixed, method=method)
    assert forecast_of(run.cost) == sum_cost(7, 5, 2, method)
    each = 7 * 6
    direct = {"shares": 2 * each, "masks": each}
    assert run.cost.messages == direct.get(method.name, 7 * method.cycles + 6)


@pytest.mark.parametrize("method", COSTED, ids=lambda method: f"{method.name}-{method.cycles}")
def test_knn_costs_its_closed_form(run_protocol: ProtocolRunner, method: SumMethod) -> None:
    """Messages, bytes and rounds of PP-kNN, and of its set-up, equal the forecast."""
    parameters = bound(2, 3, k=3, rounds=4, method=method)
    queries = np.random.default_rng(0).random((6, 2))
    run = run_protocol(
        private_knn,
        7,
        own=[Rows(queries[n : n + 1], np.array([0])) for n in range(6)] + [_no_rows(2)],
        only={"party-0": {"queries": queries}},
        client="party-0",
        parameters=parameters,
    )
    assert forecast_of(run.cost) == knn_cost(7, 6, parameters)
    if method.name == "ring":
        assert run.cost.messages == 7 * (4 + 3) - 2


@pytest.mark.parametrize("n", range(3, 51))
def test_messages_equal_the_closed_forms_for_all_sizes(n: int) -> None:
    """For n = 3 … 50, r = 1 … 6 and k = 1 … 20 a batch takes n(r + 3) - 2 messages.

    Each r is played with up to 12 parties, and two of them, in turn, with more.
    """
    rounds = range(1, 7) if n <= 12 else (1 + n % 6, 1 + (n + 3) % 6)
    asyncio.run(_check_sizes(n, [(r, 1 + (n * 7 + r * 3) % 20) for r in rounds]))


async def _check_sizes(n: int, sizes: list[tuple[int, int]]) -> None:
    rows = [Rows(np.full((1, 1), party / n), np.array([party % 2])) for party in range(n)]
    queries = np.array([[0.3], [0.7]])
    async with Cluster(n, own=rows, seed=n) as cluster:
        for rounds, k in sizes:
            parameters = bound(1, 2, k=k, rounds=rounds)
            run: Run[KNNAnswer] = await cluster.run(
                private_knn,
                only={"party-1": {"queries": queries}},
                client="party-1",
                parameters=parameters,
                ring=Ring(cluster.parties),
            )
            assert run.cost.messages == n * (rounds + 3) - 2
            assert forecast_of(run.cost) == knn_cost(n, 2, parameters, drawn=False)


@pytest.mark.parametrize("method", COSTED, ids=lambda method: f"{method.name}-{method.cycles}")
def test_the_rounds_are_the_longest_chain_of_messages(method: SumMethod) -> None:
    """With one second per hop a run takes one simulated second per round."""
    parameters = bound(1, 2, k=2, rounds=3, method=method)
    rows = [Rows(np.full((1, 1), party / 7), np.array([0])) for party in range(7)]

    async def main() -> tuple[Run[KNNAnswer], float]:
        topology = Topology(LinkModel(latency=Constant(1.0)))
        async with Cluster(SEVEN.order, runtime=Simulated(topology), own=rows) as cluster:
            run = await cluster.run(
                private_knn,
                only={"party-0": {"queries": np.array([[0.5]])}},
                client="party-0",
                parameters=parameters,
                ring=SEVEN,
            )
        return run, run.seconds

    run, seconds = simulation.simulate(main())
    # The client is the starter, so that its round 1 need not wait for the queries to arrive, only
    # for keys, which others send when they have the queries.
    assert run.cost.rounds == knn_cost(7, 1, parameters).rounds
    assert seconds == run.cost.rounds + (2 if method.name == "masks" else 0)


def _no_rows(features: int) -> Rows:
    return Rows(np.zeros((0, features)), np.zeros(0, dtype=np.int64))
