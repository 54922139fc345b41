"""The ring's roles: exact on every runtime, at the forecast cost, and robust to lies."""

import asyncio
from typing import Any

import numpy as np
import pytest
from tests.protocols.ring.cheats import LIES_IN_SUM, LIES_IN_TOPK, Liar, ask_nonsense
from tests.protocols.ring.worlds import METHODS, NAMES, RING, bound, culprits, each_method, play

from veilring import simulation
from veilring.data.table import Rows
from veilring.errors import InputError, RunFailed
from veilring.nodes.adversary import Alter
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import Cost, Traffic
from veilring.nodes.ring import Ring
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated
from veilring.protocols.batches import Queries
from veilring.protocols.promise import Facts, Forecast
from veilring.protocols.ring import (
    FixedPoint,
    KNNAnswer,
    SumMethod,
    TopKParameters,
    Weights,
    knn_cost,
    pooled_knn,
    pp_topk,
    private_knn,
    rounds_for,
    secure_sum,
    sum_cost,
    topk_cost,
)
from veilring.protocols.ring.system import PrivateKNN
from veilring.simulation import Constant, LinkModel, Topology
from veilring.testing import ProtocolRunner

TOPK = TopKParameters(k=4, P0=1.0, d=0.5, rounds=rounds_for(1e-6, 4, 1.0, 0.5), delta=0.1, upper=1)


def forecast_of(cost: Cost) -> Forecast:
    """Return a measured cost in the form of a forecast."""
    total = Forecast(cost.rounds, Traffic(cost.messages, cost.bytes), cost.setup)
    assert sum(t.messages for t in cost.by_party.values()) == cost.messages
    assert sum(t.bytes for t in cost.by_kind.values()) == cost.bytes
    return total


def test_topk_finds_the_smallest_of_the_union(run_protocol: ProtocolRunner) -> None:
    """With rounds for an error of 1e-6 all parties learn the k smallest, at the forecast cost."""
    rng = np.random.default_rng(1)
    own = [rng.random((20, m)) for m in (7, 0, 1, 4, 9)]
    run = run_protocol(pp_topk, NAMES, own=own, ring=RING, parameters=TOPK)
    expected = np.sort(np.concatenate(own, axis=1), axis=1)[:, :4]
    for result in run.results.values():
        np.testing.assert_array_equal(result, expected)
    assert forecast_of(run.cost) == topk_cost(5, 20, TOPK)
    assert run.cost.messages == 5 * TOPK.rounds + 4


@each_method
def test_every_method_sums_exactly(run_protocol: ProtocolRunner, method: SumMethod) -> None:
    """All parties end with the total of integers, to the last unit, at the forecast cost."""
    rng = np.random.default_rng(2)
    own = [rng.integers(-1000, 1000, (3, 6)).astype(float) for _ in NAMES]
    fixed = FixedPoint(24, len(NAMES))
    run = run_protocol(secure_sum, NAMES, own=own, ring=RING, fixed=fixed, method=method)
    for total in run.results.values():
        np.testing.assert_array_equal(total, sum(own))
    assert forecast_of(run.cost) == sum_cost(5, 3, 6, method)
    direct = {"shares": 2 * 5 * 4, "masks": 5 * 4}
    assert run.cost.messages == direct.get(method.name, 5 * method.cycles + 4)


@each_method
async def test_messages_of_a_sum_are_masked(method: SumMethod) -> None:
    """If all inputs are zero, only the total contains zeros: all other words are uniform."""
    own = [np.zeros((1, 64)) for _ in NAMES]
    fixed = FixedPoint(24, len(NAMES))
    run = await play(secure_sum, own, ring=RING, fixed=fixed, method=method, watch=NAMES)
    seen = [seen.message for view in run.views.values() for seen in view.received]
    unmasked = {"ring.sum.total", "masks.key"}
    masked = [message for message in seen if message.kind not in unmasked]
    assert masked
    for message in masked:
        words = np.asarray(message.fields()[-1]).reshape(-1).view(np.uint8)
        # 512 uniform bytes contain fewer than 30 zeros, except with probability below 1e-20.
        assert np.count_nonzero(words == 0) < 30


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@each_method
def test_private_and_pooled_knn_agree(
    run_protocol: ProtocolRunner, method: SumMethod, weights: Weights
) -> None:
    """All labels are those of the pooled, non-private classifier, at the forecast cost."""
    rng = np.random.default_rng(4)
    features, labels = rng.random((120, 3)), rng.integers(0, 3, 120)
    queries = rng.random((30, 3))
    parameters = bound(3, 3, k=4, rounds=TOPK.rounds, weights=weights, method=method)
    run = run_protocol(
        private_knn,
        NAMES,
        own=[Rows(features[n::5], labels[n::5]) for n in range(5)],
        only={"party-2": {"queries": queries}},
        client="party-2",
        parameters=parameters,
    )
    pooled = pooled_knn(queries, features, labels, classes=3, k=4, weights=weights)
    for answer in run.results.values():
        np.testing.assert_array_equal(answer.labels, pooled)
    assert forecast_of(run.cost) == knn_cost(5, 30, parameters)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("method", [*METHODS, SumMethod("cycles", 3)], ids=repr)
def test_the_rounds_are_the_longest_chain_of_messages(method: SumMethod) -> None:
    """With one second per hop a run takes one simulated second per round, at the forecast cost."""
    parameters = bound(1, 2, k=2, rounds=3, method=method)
    ring = Ring([f"party-{n}" for n in range(7)])
    rows = [Rows(np.full((1, 1), party / 7), np.array([0])) for party in range(7)]
    run = simulation.simulate(
        play(
            private_knn,
            rows,
            names=ring.order,
            runtime=Simulated(Topology(LinkModel(latency=Constant(1.0)))),
            only={"party-0": {"queries": np.array([[0.5]])}},
            client="party-0",
            parameters=parameters,
            ring=ring,
        )
    )
    # The client is the starter, so that its round 1 need not wait for the queries to arrive, only
    # for keys, which others send when they have the queries.
    assert forecast_of(run.cost) == knn_cost(7, 1, parameters, drawn=False)
    assert run.seconds == run.cost.rounds + (2 if method.name == "masks" else 0)


def test_the_transcript_is_equal_on_every_runtime(run_protocol: ProtocolRunner) -> None:
    """One seed gives one transcript on any runtime, with these first digits."""
    rng = np.random.default_rng(5)
    own = [rng.random((2, 6)) for _ in NAMES]
    run = run_protocol(pp_topk, NAMES, own=own, seed=11, ring=RING, parameters=TOPK)
    assert run.transcript[:16] == "b314108a9edbcbf8"


@pytest.mark.parametrize("lie", LIES_IN_TOPK)
def test_a_lie_in_topk_names_the_liar(run_protocol: ProtocolRunner, lie: str) -> None:
    """Each vector that no honest party sends ends the run with its sender's name."""
    own = [np.full((2, 3), 0.1 * n) for n in range(1, 6)]
    liars = {"party-4": Liar("topk", lie)}
    with pytest.raises(RunFailed) as caught:
        run_protocol(pp_topk, NAMES, own=own, adversaries=liars, ring=RING, parameters=TOPK)
    assert culprits(caught.value) == {"party-4"}


@pytest.mark.parametrize("lie", LIES_IN_SUM)
@each_method
def test_a_lie_in_a_sum_names_the_liar(
    run_protocol: ProtocolRunner, method: SumMethod, lie: str
) -> None:
    """Each part that no honest party sends ends the run with its sender's name."""
    with pytest.raises(RunFailed) as caught:
        run_protocol(
            secure_sum,
            NAMES,
            own=[np.ones((2, 3)) for _ in NAMES],
            adversaries={"party-4": Liar("sum", lie)},
            ring=RING,
            fixed=FixedPoint(24, 5),
            method=method,
        )
    assert culprits(caught.value) == {"party-4"}


def test_invalid_queries_name_the_client(run_protocol: ProtocolRunner) -> None:
    """A party that distributes queries outside the unit cube has broken the protocol."""
    with pytest.raises(RunFailed) as caught:
        run_protocol(
            private_knn,
            NAMES,
            own=[Rows(np.zeros((1, 2)), np.zeros(1, dtype=int)) for _ in NAMES],
            adversaries={"party-0": Alter(ask_nonsense, only=(Queries,))},
            only={"party-0": {"queries": np.zeros((1, 2))}},
            client="party-0",
            parameters=bound(2, 2),
        )
    assert culprits(caught.value) == {"party-0"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k is 0"),
        ({"P0": 1.5}, "P0 is 1.5"),
        ({"d": 0.0}, "d is 0"),
        ({"d": 1.0}, "d is 1.0; allowed: below 1 if P0 is 1"),
        ({"rounds": 0}, "rounds is .*0"),
        ({"delta": 0.0}, "delta is 0"),
        ({"cycles": 2}, "cycles is 2; allowed: 2 or more if sum is"),
        ({"features": 0}, "features is 0"),
        ({"classes": 0}, "classes is 0"),
        ({"weights": "loud"}, "weights is .*loud.*; allowed: uniform or distance"),
    ],
)
def test_invalid_parameters_are_refused(arguments: dict[str, Any], message: str) -> None:
    """The error names the parameter and the allowed values."""
    shape = {name: arguments.pop(name, 2) for name in ("features", "classes")}
    with pytest.raises(InputError, match=message):
        PrivateKNN(**arguments).bind(Facts(5, **shape))


async def test_an_input_that_could_overflow_is_refused_before_sending() -> None:
    """The party with the large input fails with its own error, and no part was sent."""
    own = [np.full((1, 1), 1e15) for _ in NAMES]
    with pytest.raises(RunFailed) as caught:
        await play(secure_sum, own, ring=RING, fixed=FixedPoint(24, 5), method=SumMethod())
    assert {type(error) for error in caught.value.errors.values()} == {InputError}
    assert "1e+15" not in str(caught.value)  # an error never shows a secret


def test_invalid_rows_are_refused_and_never_shown() -> None:
    """A party's table is checked at once, and no text shows it."""
    good = Rows(np.array([[0.123456]]), np.array([0]))
    assert "0.123456" not in repr(good)
    assert len(good) == 1
    for features, labels, message in (
        (np.zeros(3), np.zeros(3, dtype=int), "has the shape"),
        (np.full((1, 1), 1.5), np.zeros(1, dtype=int), "features must be in"),
        (np.full((1, 1), np.nan), np.zeros(1, dtype=int), "features must be in"),
        (np.zeros((1, 1)), np.array([-1]), "class numbers from 0"),
    ):
        with pytest.raises(InputError, match=message):
            Rows(features, labels)


async def test_the_largest_batch_fits_its_frames() -> None:
    """A batch of `queries_max` queries is answered: none of its messages exceeds a frame."""
    parameters = bound(4, 2, k=2, rounds=1, P0=0.0)
    queries = np.random.default_rng(0).random((parameters.queries_max, 4))
    rows = [Rows(queries[n : n + 2], np.array([0, 1])) for n in range(3)]
    only = {"party-0": {"queries": queries}}
    options: dict[str, Any] = {"only": only, "client": "party-0", "parameters": parameters}
    run = await play(private_knn, rows, names=NAMES[:3], **options)
    assert len(run.result.labels) == parameters.queries_max
