"""Labels and votes equal those of all rows in one place, for real tables and many ties."""

import tracemalloc

import numpy as np
import pytest
from tests.protocols.ranksearch.tables import (
    INTEGERS,
    TABLES,
    dealings,
    table,
    votes_at,
    votes_within,
)

from veilring.arrays import Floats
from veilring.data.table import Rows, pairwise_distances
from veilring.protocols.ranksearch.algorithm.search import End
from veilring.protocols.ranksearch.algorithm.votes import WEIGHT_BITS, Ranked, search_rows
from veilring.protocols.ring import Weights, pooled_knn

KS = (1, 5, 20, 100)


def ranked(  # noqa: PLR0917  (a query, tables and a classifier)
    queries: Floats,
    parts: list[Rows],
    classes: int,
    k: int,
    weights: Weights = "uniform",
    arity: int = 16,
) -> Ranked:
    """Search the rows of some parties."""
    return search_rows(
        queries,
        parts,
        classes=classes,
        k=k,
        upper=float(np.sqrt(queries.shape[1])),
        arity=arity,
        weights=weights,
    )


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("name", TABLES)
def test_votes_equal_those_of_the_pooled_classifier(name: str, k: int) -> None:
    """For any partition of the rows, each query has the pooled votes and label."""
    rows, queries, classes = table(name)
    votes = votes_within(queries, rows, classes, k)
    labels = pooled_knn(queries, rows.features, rows.labels, classes, k)
    for dealt, parts in dealings(rows):
        found = ranked(queries, parts, classes, k)
        np.testing.assert_array_equal(found.votes.values, votes, dealt)
        np.testing.assert_array_equal(found.votes.labels, labels, dealt)


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("name", TABLES)
def test_weighted_votes_do_not_depend_on_the_partition(name: str, k: int) -> None:
    """They equal one party's to the last bit, and 1/distance up to rounding.

    Each vote is rounded by at most half a unit of the fixed point.
    """
    rows, queries, classes = table(name)
    alone = ranked(queries, [rows], classes, k, "distance")
    for dealt, parts in dealings(rows):
        found = ranked(queries, parts, classes, k, "distance")
        np.testing.assert_array_equal(found.votes.values, alone.votes.values, dealt)
        np.testing.assert_array_equal(found.found.radii, alone.found.radii, dealt)
    distances, radii = pairwise_distances(queries, rows.features), alone.found.radii
    matched = (distances == 0).any(axis=1)
    weights = np.divide(radii[:, None], distances, out=np.ones_like(distances), where=distances > 0)
    votes = votes_at(distances, rows.labels, classes, np.where(matched, 0.0, radii), weights)
    voters = (distances <= radii[:, None]).sum(axis=1)
    off = np.abs(alone.votes.values - votes) - 1e-12 * votes
    assert (off <= voters[:, None] * 2.0 ** -(WEIGHT_BITS + 1)).all()


@pytest.mark.parametrize("arity", [2, 3, 16, pytest.param(256, marks=pytest.mark.slow)])
def test_the_arity_changes_no_votes(arity: int) -> None:
    """A search in two parts has the same result as one in 256."""
    rows, queries, classes = table(INTEGERS)
    for _, parts in dealings(rows):
        found = ranked(queries, parts, classes, 5, arity=arity)
        votes = votes_within(queries, rows, classes, 5)
        np.testing.assert_array_equal(found.votes.values, votes)


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_fewer_rows_than_k_all_vote(weights: Weights) -> None:
    """The radius is then the bound, even if no party has a row."""
    rng = np.random.default_rng(1)
    queries = rng.random((20, 2))
    few = [Rows(rng.random((count, 2)), np.ones(count, np.int64)) for count in (2, 0, 1)]
    found = ranked(queries, few, 2, 5, weights)
    assert (found.found.ends == End.FEW).all()
    assert (found.found.radii == np.sqrt(2.0)).all()
    assert (found.votes.labels == 1).all()
    nobody = ranked(queries, [Rows(np.zeros((0, 2)), np.zeros(0, np.int64))] * 3, 2, 5, weights)
    assert (nobody.found.ends == End.FEW).all()
    assert (nobody.votes.values == 0).all()
    assert (nobody.votes.labels == 0).all()


def test_exactly_k_rows_end_in_the_first_step() -> None:
    """All rows are the k nearest, at any distance."""
    rng = np.random.default_rng(2)
    rows = Rows(np.repeat(rng.random((1, 2)), 5, axis=0), np.array([0, 1, 1, 0, 1]))
    found = ranked(rng.random((9, 2)), [rows], 2, 5)
    assert len(found.found.steps) == 1
    assert (found.found.ends == End.EXACT).all()
    assert (found.votes.labels == 1).all()


@pytest.mark.parametrize("apart", [5e-324, 1e-310, 1e-200, 2.0**-53])
def test_rows_may_be_at_the_smallest_distances(apart: float) -> None:
    """Rows whose squared distances round to 0 tie at 0, and all others are distinguished."""
    places = np.array([[0.0], [apart], [2 * apart], [1.0]])
    rows = Rows(places, np.arange(4))
    for k in (1, 2, 3, 4):
        found = ranked(np.zeros((1, 1)), [rows], 4, k)
        np.testing.assert_array_equal(
            found.votes.values, votes_within(np.zeros((1, 1)), rows, 4, k)
        )


def test_the_sign_of_zero_does_not_matter() -> None:
    """A query or a row at -0.0 is equal to one at 0.0."""
    rows = Rows(np.array([[-0.0], [0.0], [0.5]]), np.array([1, 1, 0]))
    for query in (-0.0, 0.0):
        found = ranked(np.array([[query]]), [rows], 2, 1, "distance")
        assert found.found.ends[0] == End.TIED
        assert found.found.radii[0] == 0.0
        assert found.votes.values.tolist() == [[0.0, 2.0]]


def test_the_farthest_corner_is_within_the_bound() -> None:
    """No distance in the unit cube is rounded above the root of its dimension."""
    for features in range(1, 300):
        rows = Rows(np.ones((1, features)), np.array([1]))
        found = ranked(np.zeros((1, features)), [rows], 2, 1)
        assert found.votes.labels[0] == 1


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_memory_does_not_grow_with_rows_times_queries(weights: Weights) -> None:
    """With ties of all rows for each query, distances and weights would take 320 MB at once."""
    rows = Rows(np.full((50_000, 1), 0.5), np.arange(50_000) % 3)
    ranked(np.zeros((1, 1)), [rows], 3, 5, weights)  # loads the imports
    tracemalloc.start()
    found = ranked(np.linspace(0, 1, 400)[:, None], [rows], 3, 5, weights)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.found.tied.all()
    assert peak < 80_000_000
