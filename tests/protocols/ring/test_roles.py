"""The ring's roles: exact on every runtime, at the forecast cost, and robust to lies."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from tests.protocols.ring.cheats import ask_nonsense
from tests.protocols.ring.worlds import (
    METHODS,
    NAMES,
    RING,
    ask,
    bound,
    culprits,
    each_method,
    play,
    sum_up,
)

from veilring import simulation
from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import RunFailed
from veilring.nodes.adversary import Adversary, Alter
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import Ring
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated
from veilring.protocols.batches import Queries
from veilring.protocols.masks import MaskedWords
from veilring.protocols.promise import Forecast
from veilring.protocols.ring import roles
from veilring.protocols.ring.algorithm.classify import Weights, pooled_knn
from veilring.protocols.ring.algorithm.sums import FixedPoint, SumMethod
from veilring.protocols.ring.algorithm.topk import TopKParameters, rounds_for
from veilring.protocols.ring.cost import knn_cost, sum_cost, topk_cost
from veilring.protocols.ring.roles import KNNAnswer, pp_topk, private_knn, secure_sum
from veilring.simulation import Constant, LinkModel, Topology
from veilring.testing import ProtocolRunner
from veilring.transport.messages import Message

TOPK = TopKParameters(k=4, P0=1.0, d=0.5, rounds=rounds_for(1e-6, 4, 1.0, 0.5), delta=0.1, upper=1)


def test_topk_finds_the_smallest_of_the_union(run_protocol: ProtocolRunner) -> None:
    """With rounds for an error of 1e-6 all parties learn the k smallest, at the forecast cost.

    One seed gives one transcript on any runtime, with these first digits.
    """
    rng = np.random.default_rng(1)
    own = [rng.random((20, m)) for m in (7, 0, 1, 4, 9)]
    run = run_protocol(pp_topk, NAMES, own=own, ring=RING, parameters=TOPK)
    expected = np.sort(np.concatenate(own, axis=1), axis=1)[:, :4]
    assert all(np.array_equal(result, expected) for result in run.results.values())
    assert Forecast.measured(run.cost) == topk_cost(5, 20, TOPK)
    assert run.cost.messages == 5 * TOPK.rounds + 4
    rng = np.random.default_rng(5)
    own = [rng.random((2, 6)) for _ in NAMES]
    run = run_protocol(pp_topk, NAMES, own=own, seed=11, ring=RING, parameters=TOPK)
    assert run.transcript[:16] == "b314108a9edbcbf8"


@each_method
def test_every_method_sums_exactly(run_protocol: ProtocolRunner, method: SumMethod) -> None:
    """All parties end with the total of integers, to the last unit, at the forecast cost."""
    rng = np.random.default_rng(2)
    own = [rng.integers(-1000, 1000, (3, 6)).astype(float) for _ in NAMES]
    fixed = FixedPoint(24, len(NAMES))
    run = run_protocol(secure_sum, NAMES, own=own, ring=RING, fixed=fixed, method=method)
    assert all(np.array_equal(total, sum(own)) for total in run.results.values())
    assert Forecast.measured(run.cost) == sum_cost(5, 3, 6, method)
    direct = {"shares": 2 * 5 * 4, "masks": 5 * 4}
    assert run.cost.messages == direct.get(method.name, 5 * method.cycles + 4)


@each_method
async def test_messages_of_a_sum_are_masked(method: SumMethod) -> None:
    """If all inputs are zero, only the total contains zeros: all other words are uniform."""
    own = [np.zeros((1, 64)) for _ in NAMES]
    run = await sum_up(own, method=method, watch=NAMES)
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
def test_knn_is_exact(run_protocol: ProtocolRunner, method: SumMethod, weights: Weights) -> None:
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
    assert all(np.array_equal(answer.labels, pooled) for answer in run.results.values())
    assert Forecast.measured(run.cost) == knn_cost(5, 30, parameters)


@pytest.mark.slow
@pytest.mark.parametrize("n", range(3, 51))
async def test_messages_equal_the_closed_forms_for_all_sizes(n: int) -> None:
    """For n = 3 … 50, r = 1 … 6 and k = 1 … 20 a batch takes n(r + 3) - 2 messages.

    Each r is played with up to 12 parties, and two of them, in turn, with more.
    """
    rows = [Rows(np.full((1, 1), party / n), np.array([party % 2])) for party in range(n)]
    queries = np.array([[0.3], [0.7]])
    async with Cluster(n, own=rows, seed=n) as cluster:
        for rounds in range(1, 7) if n <= 12 else (1 + n % 6, 1 + (n + 3) % 6):
            parameters = bound(1, 2, k=1 + (n * 7 + rounds * 3) % 20, rounds=rounds)
            run: Run[KNNAnswer] = await cluster.run(
                private_knn,
                only={"party-1": {"queries": queries}},
                client="party-1",
                parameters=parameters,
                ring=Ring(cluster.parties),
            )
            assert run.cost.messages == n * (rounds + 3) - 2
            assert Forecast.measured(run.cost) == knn_cost(n, 2, parameters, drawn=False)


@pytest.mark.slow
@pytest.mark.parametrize("method", [*METHODS, SumMethod("cycles", 3)], ids=repr)
def test_the_rounds_are_the_longest_chain_of_messages(method: SumMethod) -> None:
    """With one second per hop a run takes one simulated second per round, at the forecast cost."""
    parameters = bound(1, 2, k=2, rounds=3, method=method)
    ring = Ring([f"party-{n}" for n in range(7)])
    rows = [Rows(np.full((1, 1), party / 7), np.array([0])) for party in range(7)]
    runtime = Simulated(Topology(LinkModel(latency=Constant(1.0))))
    asked = ask(rows, np.array([[0.5]]), parameters, names=ring.order, runtime=runtime, ring=ring)
    run = simulation.simulate(asked)
    # The client is the starter, so that its round 1 need not wait for the queries to arrive, only
    # for keys, which others send when they have the queries.
    assert Forecast.measured(run.cost) == knn_cost(7, 1, parameters, drawn=False)
    assert run.seconds == run.cost.rounds + (2 if method.name == "masks" else 0)


def put(column: int, value: float, values: Floats) -> Floats:
    """Return vectors with another entry in one column."""
    changed = values.copy()
    changed[:, column] = value
    return changed


def vectors(change: Callable[[Floats], Floats]) -> Adversary:
    """Return a liar that changes all of its vectors, and the result."""

    def lie(message: Any) -> Message:
        return cast("Message", message.model_copy(update={"values": change(message.values)}))

    return Alter(lie, only=(roles.TopKVector, roles.TopKResult))


def next_one(field: str, message: Message) -> Message:
    """Return a message with the number of the next round or cycle."""
    return message.model_copy(update={field: getattr(message, field) + 1})


def longer(message: Any) -> Message:
    """Return a part of a sum with twice as many entries."""
    if isinstance(message, MaskedWords):
        return MaskedWords(digest=message.digest, words=message.words * 2)
    return cast("Message", message.model_copy(update={"values": np.vstack([message.values] * 2)}))


TOPK_RUN = partial(play, pp_topk, [np.full((2, 3), 0.1 * n) for n in range(1, 6)], parameters=TOPK)
SUM_RUN = partial(sum_up, [np.ones((2, 3))] * 5)
ONES = [Rows(np.zeros((1, 2)), np.zeros(1, dtype=int))] * 5
KNN_RUN = partial(ask, ONES, np.zeros((1, 2)), bound(2, 2), client="party-4")
WORDS = roles.SumShare(values=np.zeros((2, 3), dtype=np.uint64))
VECTOR = roles.TopKVector(round=1, values=np.zeros((2, 3)))
PARTS = (roles.SumPart, roles.SumShare, roles.SumPartial, roles.SumTotal, MaskedWords)
LIES_IN_SUM = {
    "wrong shape": Alter(longer, only=PARTS),
    "wrong type": Alter(lambda _message: VECTOR),
    "wrong cycle": Alter(partial(next_one, "cycle"), only=(roles.SumPart,)),
}
LIES: dict[str, tuple[Callable[..., Any], Adversary]] = {
    "wrong round": (TOPK_RUN, Alter(partial(next_one, "round"), only=(roles.TopKVector,))),
    "wrong shape": (TOPK_RUN, vectors(lambda values: values[:, :-1])),
    "other batch": (TOPK_RUN, vectors(lambda values: np.vstack([values, values]))),
    "not a number": (TOPK_RUN, vectors(partial(put, -1, np.nan))),
    "infinite": (TOPK_RUN, vectors(partial(put, -1, np.inf))),
    "unsorted": (TOPK_RUN, vectors(partial(put, -1, 0.0))),
    "below all bounds": (TOPK_RUN, vectors(partial(put, 0, -0.1))),
    "above all bounds": (TOPK_RUN, vectors(partial(put, -1, 1e6))),
    "wrong type": (TOPK_RUN, Alter(lambda _message: WORDS)),
    "queries outside the unit cube": (KNN_RUN, Alter(ask_nonsense, only=(Queries,))),
    **{
        f"{name} with {method.name}": (partial(SUM_RUN, method=method), lie)
        for method in METHODS
        for name, lie in LIES_IN_SUM.items()
        if method.goes_round or name != "wrong cycle"
    },
}


@pytest.mark.parametrize(("run", "lie"), LIES.values(), ids=LIES)
async def test_a_dishonest_message_names_the_liar(run: Callable[..., Any], lie: Adversary) -> None:
    """The run ends with the name of the sender, and no other party is named."""
    with pytest.raises(RunFailed) as caught:
        await run(adversaries={"party-4": lie}, ring=RING)
    assert culprits(caught.value) == {"party-4"}


async def test_the_largest_batch_fits_its_frames() -> None:
    """A batch of `queries_max` queries is answered: none of its messages exceeds a frame."""
    parameters = bound(4, 2, k=2, rounds=1, P0=0.0)
    queries = np.random.default_rng(0).random((parameters.queries_max, 4))
    rows = [Rows(queries[n : n + 2], np.array([0, 1])) for n in range(3)]
    run = await ask(rows, queries, parameters, names=NAMES[:3])
    assert len(run.result.labels) == parameters.queries_max
