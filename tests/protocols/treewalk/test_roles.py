"""Walks and bucket responses as roles, on every runtime."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from tests.protocols.treewalk.parties import responded, tree_walk

from veilring.arrays import Floats
from veilring.errors import InputError, ProtocolViolation, RunFailed
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.protocols.treewalk.algorithm.mechanisms import (
    Comparison,
    bucket_distribution,
    bucket_points,
    respond,
    walk,
)
from veilring.protocols.treewalk.algorithm.tree import Places, nearest_found
from veilring.protocols.treewalk.plan import (
    BucketRequest,
    Buckets,
    Ground,
    KnownTop,
    LookupPlan,
    Top,
    response_cost,
    walk_cost,
)
from veilring.protocols.treewalk.roles import NearestPlaces, bucket_client, bucket_server
from veilring.randomness import Streams
from veilring.testing import ProtocolRunner, assert_cost

Role = Callable[..., Awaitable[object]]

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


@pytest.mark.parametrize("splits", [0, 3])
def test_roles_walk_like_the_algorithm(splits: int, run_protocol: ProtocolRunner) -> None:
    """Networked walks see the bits, find the points and cost the bytes of the vectorised ones."""
    plan, steps = LookupPlan(splits, 2, ASKED), Comparison(2.0)
    run = run_protocol(tree_walk, 2, own=[QUERIES, PLACES], plan=plan, steps=steps)
    expected = walk(PLACES.tree, QUERIES, steps, splits, _client_rng(0))
    np.testing.assert_array_equal(run.results[SERVER], expected.bits)
    answer = run.results[CLIENT]
    assert isinstance(answer, NearestPlaces)
    found = PLACES.with_neighbours(expected.found, 2)
    np.testing.assert_array_equal(answer.found, PLACES.tree.order[found])
    nearest, distances = nearest_found(QUERIES, PLACES.tree.points[found])
    np.testing.assert_array_equal(answer.places, answer.found[np.arange(ASKED), nearest])
    np.testing.assert_array_equal(answer.distances, distances)
    forecast = walk_cost(plan, 100, 2)
    assert_cost(
        run,
        messages=forecast.traffic.messages,
        bytes=forecast.traffic.bytes,
        rounds=forecast.rounds,
    )
    assert run.cost.setup == forecast.setup


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


async def _rogue_client(party: Party, own: object, *, named: int) -> object:
    if isinstance(own, Places):
        return await bucket_server(party, own)
    request = BucketRequest(splits=3, neighbours=0, queries=1, known=b"")
    await party.send(SERVER, request)
    await party.receive(Ground, sender=SERVER)
    await party.receive(Top, sender=SERVER)
    party.round(1)
    await party.send(SERVER, Buckets(named=np.array([named], dtype=np.uint32)))
    return None


async def _rogue_server(party: Party, own: object, *, splits: Floats) -> object:
    if isinstance(own, np.ndarray):
        return await bucket_client(party, own, plan=LookupPlan(3), epsilon=1.0)
    await party.receive(BucketRequest, sender=CLIENT)
    await party.send(CLIENT, Ground(points=100, dimensions=2))
    await party.send(CLIENT, Top(splits=splits))
    return await party.receive(Buckets, sender=CLIENT)


@pytest.mark.parametrize(
    ("role", "public", "culprit"),
    [
        (_rogue_client, {"named": 16}, CLIENT),
        (_rogue_server, {"splits": np.zeros(0)}, SERVER),
        (_rogue_server, {"splits": np.full(16, np.nan)}, SERVER),
    ],
    ids=["bucket", "no-splits", "nan"],
)
def test_a_malicious_party_is_named(role: Role, public: dict[str, Any], culprit: str) -> None:
    """An invalid bucket, or splits that no honest server sends, name the culprit."""

    async def main() -> None:
        async with Cluster(2, own=[QUERIES[:1], PLACES], seed=1) as cluster:
            await cluster.run(role, **public)

    with pytest.raises(RunFailed) as failed:
        asyncio.run(main())
    assert isinstance(failed.value.root, ProtocolViolation)
    assert failed.value.root.culprit == culprit
