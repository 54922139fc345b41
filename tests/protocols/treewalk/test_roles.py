"""The tree walk as a system, and its walks and responses as roles on every runtime."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from tests.protocols.ring.worlds import play
from tests.protocols.test_served import WAYS, handed, played

from veilring.arrays import Floats
from veilring.errors import InputError, ProtocolViolation, RunFailed
from veilring.nodes.adversary import Alter
from veilring.nodes.party import Party
from veilring.nodes.run import Run
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


async def lookup(party: Party, own: object, *, by: str, **public: Any) -> object:
    """Play the client if the party's data are queries, and the server if they are places."""
    if isinstance(own, Places):
        return await (bucket_server if by == "response" else walk_server)(party, own)
    assert isinstance(own, np.ndarray)
    return await (bucket_client if by == "response" else walk_client)(party, own, **public)


CLIENT, SERVER = "party-0", "party-1"
ASKED = 6
DRAWS = np.random.default_rng(8)
PLACES = Places.of(DRAWS.random((100, 2)))
QUERIES = DRAWS.random((ASKED, 2))
PLAN = LookupPlan(3, neighbours=1, queries=ASKED)
TOP = KnownTop(PLACES.tree.splits[:16])
RESPONSE: dict[str, Any] = {"by": "response", "epsilon": 1.0}
WALK: dict[str, Any] = {"by": "walk", "steps": Comparison(1.0)}
each_way = pytest.mark.parametrize("way", [RESPONSE, WALK], ids=lambda way: way["by"])


def looked_up(queries: Floats, places: Places = PLACES, **options: Any) -> Run[object]:
    """Run a client with these queries and a server once in memory."""
    names = CLIENT, SERVER
    return asyncio.run(play(lookup, [queries, places], names=names, **{"seed": 1, **options}))


@pytest.mark.parametrize(
    "known", [None, TOP, KnownTop(TOP.splits + 1)], ids=["none", "same", "old"]
)
def test_a_response_in_a_network_is_that_of_the_algorithm(
    known: KnownTop | None, run_protocol: ProtocolRunner
) -> None:
    """Buckets, points and costs are those of the vectorised response and of the closed form."""
    public = {**RESPONSE, "epsilon": 4.0, "plan": PLAN, "known": known}
    run = run_protocol(lookup, 2, own=[QUERIES, PLACES], **public)
    session = Streams(0).token("session", 0).hex()
    rng = Streams(0).generator("party", CLIENT, "session", session)
    named = respond(TOP.splits, QUERIES, bucket_distribution(7, 3, 4.0), rng)
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


@each_way
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("query", [-5.0, 0.0, 0.3, 1.0])
def test_message_sizes_do_not_depend_on_the_query(
    query: float, seed: int, way: dict[str, Any]
) -> None:
    """For any query and draw, each round has equal messages of equal bytes."""
    first, other = (
        looked_up(np.full((1, 2), value), plan=LookupPlan(2), seed=draws, **way).cost.by_round
        for value, draws in ((0.5, 0), (query, seed))
    )
    assert first == other


@pytest.mark.parametrize("points", [1, 2, 100])
def test_a_walk_takes_two_rounds_per_level(points: int) -> None:
    """Its rounds have their closed form, even in a tree of one point."""
    places = Places.of(np.linspace(0, 1, points)[:, None])
    run = looked_up(np.full((1, 1), 0.3), places, plan=LookupPlan(), **WALK)
    levels = (points - 1).bit_length()
    assert run.cost.rounds == walk_cost(LookupPlan(), points, 1).rounds == 2 * levels + 1


def test_neighbours_are_the_nearest_points() -> None:
    """The B neighbours of a found point are the other points nearest to it."""
    places = Places.of(np.array([[0.0], [1.0], [3.0], [3.0], [7.0]]))
    found = places.with_neighbours(np.array([[2], [4]], dtype=np.int32), 2)
    assert places.tree.points[found, 0].tolist() == [[3.0, 3.0, 1.0], [7.0, 3.0, 3.0]]
    assert all(len(set(row)) == 3 for row in found.tolist())


@each_way
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
def test_invalid_input_is_refused(
    way: dict[str, Any], plan: LookupPlan, queries: Floats, field: str
) -> None:
    """A plan or a query that does not fit ends the session with its name."""
    with pytest.raises(RunFailed) as failed:
        looked_up(queries, plan=plan, **way)
    assert isinstance(failed.value.root, InputError)
    assert failed.value.root.field == field


def renumbered(place: int, number: int | None, message: FoundPlaces) -> Message:
    """Lie about the number of a place found: send that of another place, or of the first one."""
    places = message.places.copy()
    places[0, place] = places[0, 0] if number is None else number
    return FoundPlaces(places=places, points=message.points)


UNKNOWN = partial(renumbered, 0, 100), "sent place number 100; the numbers must be below 100"
TWICE = partial(renumbered, -1, None), "sent two points for one place"


@pytest.mark.parametrize(
    ("way", "culprit", "kind", "change", "said"),
    [
        (RESPONSE, CLIENT, Buckets, lambda _: Buckets(named=np.array([16], np.uint32)), "named"),
        (RESPONSE, SERVER, Top, lambda _: Top(splits=np.zeros(0)), "sent numbers of shape"),
        (RESPONSE, SERVER, Top, lambda _: Top(splits=np.full(16, np.nan)), "is not finite"),
        *((way, SERVER, FoundPlaces, *lie) for way in (RESPONSE, WALK) for lie in (UNKNOWN, TWICE)),
    ],
)
def test_a_malicious_party_is_named(
    way: dict[str, Any],
    culprit: str,
    kind: type[Message],
    change: Callable[[Any], Message],
    said: str,
) -> None:
    """A bucket, splits or places that no honest party sends name the culprit."""
    liars = {culprit: Alter(change, only=(kind,))}
    with pytest.raises(RunFailed) as failed:
        looked_up(QUERIES[:1], plan=LookupPlan(3), adversaries=liars, **way)
    errors = [each for each in failed.value.errors.values() if isinstance(each, ProtocolViolation)]
    assert [error.culprit for error in errors] == [culprit]
    assert said in str(errors[0])


@pytest.mark.parametrize("way", [name for name, each in WAYS.items() if each.name == "tree-walk"])
def test_a_query_spends_at_most_epsilon(way: str) -> None:
    """The drawn distribution is slightly noisier than requested, for any number of batches.

    The guarantee covers any two queries.
    """
    setup = handed(WAYS[way].replaced(epsilon=6.0))
    spent, promise = setup.spent(3), TreeWalk().promise()
    assert spent == setup.spent(1)
    assert spent.epsilon is not None
    assert 0.999999 * 6.0 < spent.epsilon <= 6.0
    assert (spent.delta, spent.times, spent.unit) == (0.0, 1, "query")
    assert setup.promise.epsilon == spent.epsilon
    assert (promise.epsilon, promise.delta, promise.unit) == (8.0, 0.0, "query")
    assert (promise.measure, promise.adjacency) == ("ε-LDP", "any two queries")


async def test_equal_queries_of_a_batch_are_asked_once() -> None:
    """Equal queries of a batch have one answer, are paid for once and keep their positions."""
    setup = handed(TreeWalk(epsilon=1e-3, k=1))
    queries = np.random.default_rng(2).random((10, 2))
    twice = np.vstack([queries[::-1], queries, queries])
    run = await played(setup, twice)
    cost = setup.play(twice).forecast(run)
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
