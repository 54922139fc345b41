"""Rings of rings: exact, at the promised cost, and without disclosure of a group's total."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.protocols.ring.dealing import dealt

from veilring.data.table import Rows
from veilring.errors import InputError, ProtocolViolation, RunFailed
from veilring.nodes.adversary import Alter
from veilring.nodes.cluster import Cluster
from veilring.nodes.cost import Cost
from veilring.nodes.ring import Ring
from veilring.nodes.run import Run
from veilring.protocols.ring import (
    Forecast,
    KNNAnswer,
    KNNParameters,
    SumMethod,
    TopKParameters,
    Weights,
    exactness_bound,
    group_sizes,
    nest,
    nested_cost,
    nested_exactness_bound,
    nested_knn,
    nested_rounds_for,
    pooled_knn,
    private_knn,
)
from veilring.protocols.ring.algorithm.topk import own_smallest, run_nested_rings, true_topk
from veilring.protocols.ring.messages import TopKResult
from veilring.testing import ProtocolRunner
from veilring.transport.messages import Message

FALSE_ALARM = 1e-6
TRIALS = 20_000
ELEVEN = [f"party-{n}" for n in range(11)]


def _forecast_of(cost: Cost) -> Forecast:
    return Forecast(cost.rounds, type(cost.setup)(cost.messages, cost.bytes), cost.setup)


class TestRings:
    """The members of each ring."""

    @pytest.mark.parametrize(("parties", "groups"), [(9, 3), (11, 3), (29, 4), (100, 7)])
    def test_every_party_is_in_one_group(self, parties: int, groups: int) -> None:
        """Groups partition the order, differ in size by at most one, and know their numbers."""
        order = Ring([f"p{n}" for n in range(parties)])
        rings = nest(order, groups)
        assert tuple(itertools.chain(*(group.order for group in rings.groups))) == order.order
        assert tuple(map(len, rings.groups)) == group_sizes(parties, groups)
        assert len(rings.groups[0]) - len(rings.groups[-1]) in {0, 1}
        assert rings.starters.order == tuple(group.starter for group in rings.groups)
        for number, group in enumerate(rings.groups):
            assert {rings.number(party) for party in group.order} == {number}

    @pytest.mark.parametrize(
        ("parties", "groups", "allowed"),
        [(8, 3, "at least 9 parties"), (12, 2, "3 to 4 for 12"), (12, 5, "3 to 4 for 12")],
    )
    def test_every_ring_has_three_parties(self, parties: int, groups: int, allowed: str) -> None:
        """A split with a ring of two is refused, and the error gives the allowed values."""
        with pytest.raises(InputError, match=allowed):
            group_sizes(parties, groups)


class TestExactness:
    """The bound over both levels."""

    @pytest.mark.parametrize(("P0", "d", "rounds", "k"), [(1.0, 0.5, 2, 3), (0.6, 0.8, 1, 2)])
    def test_the_result_is_exact_at_the_stated_rate(
        self, P0: float, d: float, rounds: int, k: int
    ) -> None:
        """The bound holds, and its formula is exact in contributing parties plus their groups."""
        rng = np.random.default_rng([rounds, k])
        parameters = TopKParameters(k=k, P0=P0, d=d, rounds=rounds, delta=0.05, upper=1.0)
        groups = [np.sort(rng.random((TRIALS, m, k)), axis=2) for m in (4, 3, 3)]
        truth = true_topk(np.concatenate(groups, axis=1), parameters)
        exact = (run_nested_rings(groups, parameters, rng) == truth).all(axis=1)
        contributing = [group[:, :, 0] <= truth[:, -1:] for group in groups]
        coins = sum(each.sum(axis=1) + each.any(axis=1) for each in contributing)
        bound = nested_exactness_bound(k, P0, d, rounds, groups=3)
        test = stats.binomtest(int(exact.sum()), TRIALS, bound, alternative="less")
        assert test.pvalue > FALSE_ALARM / 2
        for c in np.unique(coins):
            among = exact[coins == c]
            bound = exactness_bound(int(c), P0, d, rounds)
            assert stats.binomtest(int(among.sum()), among.size, bound).pvalue > FALSE_ALARM / (
                4 * k
            )

    def test_short_unions_are_padded(self) -> None:
        """Groups with fewer values than k, or none, and ties do not change the k smallest."""
        rows: list[list[list[float]]] = [
            [[3.0], [3.0, 9.0], []],
            [[], [], []],
            [[9.0], [], [5.0]],
        ]
        parameters = TopKParameters(k=4, P0=1.0, d=0.5, rounds=12, delta=0.5, upper=9.0)
        groups = [
            np.stack([own_smallest(np.array([row]), 4) for row in group], axis=1) for group in rows
        ]
        found = run_nested_rings(groups, parameters, np.random.default_rng(0))
        assert found.tolist() == [[3.0, 3.0, 5.0, 9.0]]

    def test_rounds_suffice_for_the_error(self) -> None:
        """The fewest rounds for an error suffice, and one fewer does not."""
        rounds = nested_rounds_for(1e-6, 5, 1.0, 0.5, groups=8)
        assert nested_exactness_bound(5, 1.0, 0.5, rounds, 8) >= 1 - 1e-6
        assert nested_exactness_bound(5, 1.0, 0.5, rounds - 1, 8) < 1 - 1e-6
        with pytest.raises(InputError, match="groups is 2"):
            nested_rounds_for(1e-6, 5, 1.0, 0.5, groups=2)


class TestRole:
    """The behaviour of the parties on every runtime."""

    def test_labels_costs_and_transcript(self, run_protocol: ProtocolRunner) -> None:
        """Labels are the pooled ones, the cost is the closed form, and transcripts are equal."""
        rng = np.random.default_rng(1)
        own, queries = dealt(11, rng), rng.random((12, 3))
        parameters = KNNParameters(
            features=3, classes=3, k=4, rounds=nested_rounds_for(1e-6, 4, 1.0, 0.5, groups=3)
        )
        run = run_protocol(
            nested_knn,
            ELEVEN,
            own=own,
            only={"party-2": {"queries": queries}},
            client="party-2",
            parameters=parameters,
            rings=3,
        )
        pooled = _pooled(own, queries, 4, "uniform")
        for answer in run.results.values():
            np.testing.assert_array_equal(answer.labels, pooled)
        assert _forecast_of(run.cost) == nested_cost(11, 12, parameters, 3)
        assert run.cost.messages == 11 * (parameters.rounds + 3) + 3 * (parameters.rounds + 1) - 2
        assert run.transcript[:16] == "331937a2af96ac28"

    @pytest.mark.parametrize("weights", ["uniform", "distance"])
    async def test_a_ring_of_rings_answers_like_one_ring(self, weights: Weights) -> None:
        """Result and totals equal those of PP-kNN in one ring, to the last bit."""
        rng = np.random.default_rng(2)
        own, queries = dealt(13, rng), rng.random((20, 3))
        parameters = KNNParameters(features=3, classes=3, k=3, rounds=9, weights=weights)
        only = {"party-0": {"queries": queries}}
        async with Cluster(13, own=own, seed=3) as cluster:
            one: Run[KNNAnswer] = await cluster.run(
                private_knn, only=only, client="party-0", parameters=parameters
            )
            many: Run[KNNAnswer] = await cluster.run(
                nested_knn, only=only, client="party-0", parameters=parameters, rings=4
            )
        np.testing.assert_array_equal(many.result.nearest, one.result.nearest)
        np.testing.assert_array_equal(many.result.votes, one.result.votes)
        np.testing.assert_array_equal(many.result.labels, _pooled(own, queries, 3, weights))

    @pytest.mark.parametrize(("parties", "groups"), [(9, 3), (10, 3), (14, 4), (25, 5)])
    async def test_its_cost_is_the_closed_form_for_all_sizes(
        self, parties: int, groups: int
    ) -> None:
        """With groups of equal and of different sizes, messages, bytes and rounds are equal."""
        rng = np.random.default_rng(4)
        parameters = KNNParameters(features=3, classes=3, k=2, rounds=3)
        async with Cluster(parties, own=dealt(parties, rng, 1), seed=1) as cluster:
            run = await cluster.run(
                nested_knn,
                only={"party-0": {"queries": rng.random((2, 3))}},
                client="party-0",
                parameters=parameters,
                rings=nest(Ring(cluster.parties), groups),
            )
        assert _forecast_of(run.cost) == nested_cost(parties, 2, parameters, groups, drawn=False)

    async def test_refusals(self) -> None:
        """Too few parties for the groups and other methods of summing are refused at once."""
        by_shares = KNNParameters(features=3, classes=3, sum=SumMethod("shares"))
        async with Cluster(9, own=dealt(9, np.random.default_rng(0))) as cluster:
            for terms, rings in ((by_shares, 3), (KNNParameters(features=3, classes=3), 4)):
                with pytest.raises(RunFailed) as caught:
                    await cluster.run(nested_knn, client="party-0", parameters=terms, rings=rings)
                assert {type(error) for error in caught.value.errors.values()} == {InputError}

    async def test_a_starter_with_an_impossible_result_is_named(self) -> None:
        """A result above the public bound names the starter that sent it to its group."""
        order = Ring(ELEVEN)
        liar = {order.order[4]: Alter(_inflate, only=(TopKResult,))}  # the second starter
        rng = np.random.default_rng(5)
        async with Cluster(ELEVEN, own=dealt(11, rng)) as cluster:
            with pytest.raises(RunFailed) as caught:
                await cluster.run(
                    nested_knn,
                    adversaries=liar,
                    only={"party-0": {"queries": rng.random((2, 3))}},
                    client="party-0",
                    parameters=KNNParameters(features=3, classes=3),
                    rings=nest(order, 3),
                )
        culprits = {
            error.culprit
            for error in caught.value.errors.values()
            if isinstance(error, ProtocolViolation)
        }
        assert culprits == {"party-4"}


def _inflate(message: Message) -> Message:
    return TopKResult(values=np.asarray(message.fields()[-1]) + 100.0)


def _pooled(own: list[Rows], queries: NDArray[np.float64], k: int, w: Weights) -> NDArray[np.int64]:
    features = np.concatenate([rows.features for rows in own])
    labels = np.concatenate([rows.labels for rows in own])
    return pooled_knn(queries, features, labels, classes=3, k=k, weights=w)
