"""The tree walk as a system, and its walks and responses as roles on every runtime."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from tests.protocols.test_served import WAYS, handed, played

from veilring.arrays import Floats
from veilring.errors import InputError, ProtocolViolation, RunFailed
from veilring.nodes.adversary import Alter
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.protocols.treewalk.algorithm.mechanisms import (
    Comparison,
    bucket_distribution,
    bucket_points,
    respond,
)
from veilring.protocols.treewalk.algorithm.tree import Places
from veilring.protocols.treewalk.plan import (
    Buckets,
    FoundPlaces,
    KnownTop,
    LookupPlan,
    Top,
    response_cost,
    walk_cost,
)
from veilring.protocols.treewalk.roles import (
    NearestPlaces,
    bucket_client,
    bucket_server,
    walk_client,
    walk_server,
)
from veilring.protocols.treewalk.system import TreeWalk
from veilring.randomness import Streams
from veilring.testing import ProtocolRunner, assert_cost
from veilring.transport.messages import Message

Role = Callable[..., Awaitable[object]]


async def tree_walk(party: Party, own: object, *, plan: LookupPlan, steps: Comparison) -> object:
    """Play the client if the party's data are queries, and the server if they are places."""
    if isinstance(own, Places):
        return await walk_server(party, own)
    assert isinstance(own, np.ndarray)
    return await walk_client(party, own, plan=plan, steps=steps)


async def responded(
    party: Party, own: object, *, plan: LookupPlan, epsilon: float, known: KnownTop | None = None
) -> object:
    """Play the client of bucket responses, or their server."""
    if isinstance(own, Places):
        return await bucket_server(party, own)
    assert isinstance(own, np.ndarray)
    return await bucket_client(party, own, plan=plan, epsilon=epsilon, known=known)


CLIENT, SERVER = "party-0", "party-1"
ASKED = 6
DRAWS = np.random.default_rng(8)
PLACES = Places.of(DRAWS.random((100, 2)))
QUERIES = DRAWS.random((ASKED, 2))
PLAN = LookupPlan(3, neighbours=1, queries=ASKED)
TOP = KnownTop(PLACES.tree.splits[:16])


def _client_rng(seed: int) -> np.random.Generator:
    session = Streams(seed).token("session", 0)
    return Streams(seed).generator("party", CLIENT, "session", session.hex())


@pytest.mark.parametrize(
    "known", [None, TOP, KnownTop(TOP.splits + 1)], ids=["none", "same", "old"]
)
def test_a_response_in_a_network_is_that_of_the_algorithm(
    known: KnownTop | None, run_protocol: ProtocolRunner
) -> None:
    """Buckets, points and costs are those of the vectorised response and of the closed form."""
    own = [QUERIES, PLACES]
    run = run_protocol(responded, 2, own=own, plan=PLAN, epsilon=4.0, known=known)
    named = respond(TOP.splits, QUERIES, bucket_distribution(7, 3, 4.0), _client_rng(0))
    np.testing.assert_array_equal(run.results[SERVER], named)
    result = run.results[CLIENT]
    assert isinstance(result, tuple)
    answer, top = result
    assert isinstance(answer, NearestPlaces)
    found = PLACES.with_neighbours(bucket_points(PLACES.tree, 3, named), 1)
    np.testing.assert_array_equal(answer.found, PLACES.tree.order[found])
    np.testing.assert_array_equal(answer.points, PLACES.tree.points[found])
    np.testing.assert_array_equal(top.splits, TOP.splits)
    forecast = response_cost(PLAN, 100, 2, is_known=known is not None)
    assert_cost(run, messages=2, bytes=forecast.traffic.bytes, rounds=forecast.rounds)
    if known is None or known is TOP:
        assert run.cost.setup == forecast.setup
    assert forecast.rounds == 2


def _cost_of(role: Role, query: float, seed: int, **public: Any) -> object:
    async def main() -> object:
        async with Cluster(2, own=[np.full((1, 2), query), PLACES], seed=seed) as cluster:
            return (await cluster.run(role, **public)).cost.by_round

    return asyncio.run(main())


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("query", [-5.0, 0.0, 0.3, 1.0])
def test_message_sizes_do_not_depend_on_the_query(query: float, seed: int) -> None:
    """For any query and draw, each round has equal messages of equal bytes."""
    plan = LookupPlan(2)
    first = _cost_of(responded, 0.5, 0, plan=plan, epsilon=1.0)
    assert _cost_of(responded, query, seed, plan=plan, epsilon=1.0) == first
    steps = Comparison(1.0)
    walked = _cost_of(tree_walk, 0.5, 0, plan=plan, steps=steps)
    assert _cost_of(tree_walk, query, seed, plan=plan, steps=steps) == walked


@pytest.mark.parametrize("points", [1, 2, 100])
def test_a_walk_takes_two_rounds_per_level(points: int) -> None:
    """Its rounds have their closed form, even in a tree of one point."""
    places = Places.of(np.linspace(0, 1, points)[:, None])

    async def main() -> int:
        async with Cluster(2, own=[np.full((1, 1), 0.3), places], seed=1) as cluster:
            run = await cluster.run(tree_walk, plan=LookupPlan(), steps=Comparison(1.0))
            return run.cost.rounds

    levels = (points - 1).bit_length()
    assert asyncio.run(main()) == walk_cost(LookupPlan(), points, 1).rounds == 2 * levels + 1


def test_neighbours_are_the_nearest_points() -> None:
    """The B neighbours of a found point are the other points nearest to it."""
    places = Places.of(np.array([[0.0], [1.0], [3.0], [3.0], [7.0]]))
    found = places.with_neighbours(np.array([[2], [4]], dtype=np.int32), 2)
    assert places.tree.points[found, 0].tolist() == [[3.0, 3.0, 1.0], [7.0, 3.0, 3.0]]
    assert all(len(set(row)) == 3 for row in found.tolist())


@pytest.mark.parametrize(
    ("plan", "queries", "field"),
    [
        (LookupPlan(2, queries=2), QUERIES, "queries"),
        (LookupPlan(2, queries=ASKED), QUERIES[:, :1], "queries"),
        (LookupPlan(8, queries=ASKED), QUERIES, "splits"),
        (LookupPlan(2, neighbours=100, queries=ASKED), QUERIES, "neighbours"),
        (LookupPlan(6, neighbours=99, queries=12), np.tile(QUERIES, (2, 1)), "queries"),
    ],
    ids=["count", "dimensions", "splits", "too-many-neighbours", "too-large"],
)
@pytest.mark.parametrize("role", [responded, tree_walk])
def test_invalid_input_is_refused(
    role: Role, plan: LookupPlan, queries: Floats, field: str
) -> None:
    """A plan or a query that does not fit ends the session with its name."""

    async def main() -> None:
        public = {"epsilon": 1.0} if role is responded else {"steps": Comparison(1.0)}
        async with Cluster(2, own=[queries, PLACES], seed=1) as cluster:
            await cluster.run(role, plan=plan, **public)

    with pytest.raises(RunFailed) as failed:
        asyncio.run(main())
    assert isinstance(failed.value.root, InputError)
    assert failed.value.root.field == field


def renumbered(place: int, number: int | None) -> Callable[[Any], Message]:
    """Return a lie about the number of a place found: of another place, or of the first one."""

    def change(message: FoundPlaces) -> Message:
        places = message.places.copy()
        places[0, place] = places[0, 0] if number is None else number
        return FoundPlaces(places=places, points=message.points)

    return change


UNKNOWN = "sent place number 100; the numbers must be below 100"
TWICE = "sent two points for one place"


@pytest.mark.parametrize(
    ("role", "culprit", "kind", "change", "said"),
    [
        (responded, CLIENT, Buckets, lambda _: Buckets(named=np.array([16], np.uint32)), "named"),
        (responded, SERVER, Top, lambda _: Top(splits=np.zeros(0)), "sent numbers of shape"),
        (responded, SERVER, Top, lambda _: Top(splits=np.full(16, np.nan)), "is not finite"),
        (responded, SERVER, FoundPlaces, renumbered(0, 100), UNKNOWN),
        (responded, SERVER, FoundPlaces, renumbered(-1, None), TWICE),
        (tree_walk, SERVER, FoundPlaces, renumbered(0, 100), UNKNOWN),
        (tree_walk, SERVER, FoundPlaces, renumbered(-1, None), TWICE),
    ],
    ids=["bucket", "no-splits", "nan", "unknown", "two-points", "walk-unknown", "walk-two-points"],
)
def test_a_malicious_party_is_named(
    role: Role, culprit: str, kind: type[Message], change: Callable[[Any], Message], said: str
) -> None:
    """A bucket, splits or places that no honest party sends name the culprit."""
    public = {"epsilon": 1.0} if role is responded else {"steps": Comparison(1.0)}

    async def main() -> None:
        async with Cluster(2, own=[QUERIES[:1], PLACES], seed=1) as cluster:
            liars = {culprit: Alter(change, only=(kind,))}
            await cluster.run(role, plan=LookupPlan(3), adversaries=liars, **public)

    with pytest.raises(RunFailed) as failed:
        asyncio.run(main())
    errors = [each for each in failed.value.errors.values() if isinstance(each, ProtocolViolation)]
    assert [error.culprit for error in errors] == [culprit]
    assert said in str(errors[0])


@pytest.mark.parametrize("way", [name for name, each in WAYS.items() if each.name == "tree-walk"])
def test_a_query_spends_at_most_epsilon(way: str) -> None:
    """The drawn distribution is slightly noisier than requested, for any number of batches."""
    setup = handed(WAYS[way].replaced(epsilon=6.0))
    spent = setup.spent(3)
    assert spent == setup.spent(1)
    assert spent.epsilon is not None
    assert 0.999999 * 6.0 < spent.epsilon <= 6.0
    assert (spent.delta, spent.times, spent.unit) == (0.0, 1, "query")
    assert setup.promise.epsilon == spent.epsilon


def test_the_promise() -> None:
    """The guarantee covers any two queries."""
    promise = TreeWalk().promise()
    assert (promise.epsilon, promise.delta, promise.unit) == (8.0, 0.0, "query")
    assert (promise.measure, promise.adjacency) == ("ε-LDP", "any two queries")


async def test_equal_queries_of_a_batch_are_asked_once() -> None:
    """Equal queries of a batch have one answer, are paid for once and keep their positions."""
    setup = handed(TreeWalk(epsilon=1e-3, k=1))
    queries = np.random.default_rng(2).random((10, 2))
    twice = np.vstack([queries[::-1], queries, queries])
    run, play = await played(setup, twice), setup.play(twice)
    cost = play.forecast(run)
    assert cost == setup.lookup.cost(10)
    assert (run.cost.rounds, run.cost.bytes) == (cost.rounds, cost.traffic.bytes)
    labels = run.results["ann"]
    np.testing.assert_array_equal(labels[10:20], labels[:10][::-1])
    np.testing.assert_array_equal(labels[20:], labels[10:20])


def test_the_reference_is_the_classifier_without_privacy() -> None:
    """The reference equals scikit-learn over all rows, and a look-up of all rows."""
    setup = handed(TreeWalk(k=3, by="walk", splits=6))
    queries = np.random.default_rng(2).random((30, 2))
    rows = np.vstack([part.features for part in setup.parts.values()])
    labels = np.concatenate([part.labels for part in setup.parts.values()])
    expected = KNeighborsClassifier(3).fit(rows, labels).predict(queries)
    np.testing.assert_array_equal(setup.reference(queries), expected)
    np.testing.assert_array_equal(setup.label(queries, np.random.default_rng(0)), expected)
