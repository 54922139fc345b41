"""Client and server of a tree walk, on every runtime."""

import asyncio

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.protocols.treewalk.parties import tree_walk

from veilring.errors import InputError, RunFailed
from veilring.nodes.cluster import Cluster
from veilring.protocols.treewalk.algorithm.tree import Places, nearest_found
from veilring.protocols.treewalk.algorithm.walks import (
    BASIC,
    Comparison,
    Distance,
    Utility,
    Variant,
    walk,
)
from veilring.protocols.treewalk.plan import UtilityName, WalkPlan, walk_cost
from veilring.protocols.treewalk.roles import NearestPlaces
from veilring.randomness import Streams
from veilring.testing import ProtocolRunner, assert_cost

CLIENT, SERVER = "party-0", "party-1"
WALKS = 7
DRAWS = np.random.default_rng(5)
PLACES = Places.of(DRAWS.random((100, 2)))
QUERIES = DRAWS.random((WALKS, 2))
UTILITIES: dict[UtilityName, Utility] = {
    "comparison": Comparison(2.0),
    "distance": Distance(2.0, 1.5, 1.5),
}
VARIANTS = [BASIC, Variant("parallel", 2), Variant("early", 3), Variant("greedy")]


def _client_rng(seed: int) -> np.random.Generator:
    session = Streams(seed).token("session", 0)
    return Streams(seed).generator("party", CLIENT, "session", session.hex())


@pytest.mark.parametrize("name", UTILITIES)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.kind)
def test_roles_walk_like_the_algorithm(
    variant: Variant, name: UtilityName, run_protocol: ProtocolRunner
) -> None:
    """Networked walks see the bits, find the points and cost the bytes of the vectorised ones."""
    plan, utility = WalkPlan(name, variant, neighbours=2, walks=WALKS), UTILITIES[name]
    run = run_protocol(tree_walk, 2, own=[QUERIES, PLACES], plan=plan, utility=utility)
    expected = walk(PLACES.tree, QUERIES, utility, variant, _client_rng(0))
    np.testing.assert_array_equal(run.results[SERVER], expected.bits)
    answer = run.results[CLIENT]
    assert isinstance(answer, NearestPlaces)
    found = PLACES.with_neighbours(expected.found, 2)
    np.testing.assert_array_equal(answer.found, PLACES.tree.order[found])
    nearest, distances = nearest_found(QUERIES, PLACES.tree.points[found])
    np.testing.assert_array_equal(answer.places, answer.found[np.arange(WALKS), nearest])
    np.testing.assert_array_equal(answer.distances, distances)
    forecast = walk_cost(plan, 100, 2)
    assert_cost(
        run,
        messages=forecast.traffic.messages,
        bytes=forecast.traffic.bytes,
        rounds=forecast.rounds,
    )
    assert run.cost.setup == forecast.setup


@pytest.mark.parametrize("points", [1, 2, 100])
def test_costs_do_not_depend_on_the_query(points: int) -> None:
    """Walks of different queries cost equal bytes in each round, even in a tree of one point."""
    places = Places.of(np.linspace(0, 1, points)[:, None])
    plan = WalkPlan("comparison", walks=1)

    async def cost_of(query: float) -> object:
        async with Cluster(2, own=[np.full((1, 1), query), places], seed=1) as cluster:
            run = await cluster.run(tree_walk, plan=plan, utility=Comparison(1.0))
        return run.cost.by_round

    async def costs() -> list[object]:
        return [await cost_of(query) for query in (0.0, 0.3, 1.0)]

    first, *others = asyncio.run(costs())
    assert all(cost == first for cost in others)
    assert walk_cost(plan, points, 1).rounds == 2 * (points - 1).bit_length() + 1


@pytest.mark.parametrize(
    ("plan", "queries", "field"),
    [
        (WalkPlan(walks=2), QUERIES, "queries"),
        (WalkPlan(walks=WALKS), QUERIES[:, :1], "queries"),
        (WalkPlan("distance", walks=WALKS), QUERIES, "utility"),
        (WalkPlan(variant=Variant("early", 8), walks=WALKS), QUERIES, "splits"),
        (WalkPlan(neighbours=100, walks=WALKS), QUERIES, "neighbours"),
        (WalkPlan(variant=Variant("early", 5), neighbours=99, walks=WALKS), QUERIES, "walks"),
    ],
    ids=["count", "dimensions", "kind", "too-many-splits", "too-many-neighbours", "too-large"],
)
def test_invalid_input_is_refused(plan: WalkPlan, queries: NDArray[np.float64], field: str) -> None:
    """A plan, a query or a utility that does not fit ends the session with its name."""

    async def main() -> None:
        many = WalkPlan(
            plan.utility, plan.variant, plan.neighbours, 10_000 if field == "walks" else plan.walks
        )
        asked = np.repeat(queries, 10_000, axis=0)[:10_000] if field == "walks" else queries
        async with Cluster(2, own=[asked, PLACES], seed=1) as cluster:
            await cluster.run(tree_walk, plan=many, utility=Comparison(1.0))

    with pytest.raises(RunFailed) as failed:
        asyncio.run(main())
    assert isinstance(failed.value.root, InputError)
    assert failed.value.root.field == field


def test_neighbours_are_the_nearest_points() -> None:
    """The B neighbours of a found point are the other points nearest to it."""
    points = np.array([[0.0], [1.0], [3.0], [3.0], [7.0]])
    places = Places.of(points)
    found = places.with_neighbours(np.array([[2], [4]], dtype=np.int32), 2)
    assert places.tree.points[found, 0].tolist() == [[3.0, 3.0, 1.0], [7.0, 3.0, 3.0]]
    assert all(len(set(row)) == 3 for row in found.tolist())
