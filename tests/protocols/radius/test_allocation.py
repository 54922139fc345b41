"""Allocations: no row is charged more than the budget, by bounds on the cliques of overlaps."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from papers.answers import batch_probabilities, greatest_loss, hostile_batch
from tests.protocols.radius.tables import ROUNDING, rows_of

from veilring.arrays import Bools, Floats
from veilring.data.table import Rows, pairwise_distances
from veilring.errors import InputError
from veilring.protocols.radius.algorithm.allocation import (
    Allocation,
    allocate_budget,
    largest_cliques,
)
from veilring.protocols.radius.algorithm.balls import count_votes, overlap_graph
from veilring.protocols.radius.algorithm.nearest import plan_batch

NOBODY = rows_of((), 2)


def batch_loss(
    queries: Floats, radii: Floats, tables: tuple[Rows, Rows], allocation: Allocation
) -> float:
    """Return the exact privacy loss of an r-N batch of two classes between two tables."""
    return greatest_loss(
        *(batch_probabilities(queries, radii, rows, 2, allocation) for rows in tables)
    )


def dearest(queries: Floats, radii: Floats, places: Floats, shares: Allocation) -> Fraction:
    """Return the highest charge of a row at one of these places, in exact arithmetic."""
    inside = pairwise_distances(queries, places) <= radii[:, None]
    spent = np.array([Fraction(float(share)) for share in shares.epsilons], dtype=object)
    return max((sum(spent[those], Fraction(0)) for those in inside.T), default=Fraction(0))


@given(
    st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32), st.sampled_from([0, 10, 10**6])
)
def test_no_row_is_charged_more_than_the_budget(
    queries: int, features: int, seed: int, work: int
) -> None:
    """In exact arithmetic, no row at any place is charged more than the budget."""
    rng = np.random.default_rng(seed)
    points, radii = rng.random((queries, features)), rng.random(queries) * 0.6
    epsilon = float(rng.uniform(0.01, 5))
    shares = allocate_budget(overlap_graph(points, radii), epsilon, work=work)
    places = np.vstack([points, rng.random((200, features))])
    assert dearest(points, radii, places, shares) <= Fraction(epsilon)


def test_the_budget_of_small_examples_is_divided_as_defined() -> None:
    """A query's crowd is its largest clique.

    The examples are three touching balls with a fourth apart, and three that share a place, with a
    tail of two.
    """
    queries = np.array([[0.0], [0.2], [0.4], [1.0]])
    graph = overlap_graph(queries, np.full(4, 0.1))
    assert allocate_budget(graph, 1.0).crowds.tolist() == [2, 2, 2, 1]
    pair = np.array([[0.0], [0.05], [0.1], [0.29], [0.48]])
    graph = overlap_graph(pair, np.full(5, 0.1))
    assert allocate_budget(graph, 1.0).crowds.tolist() == [3, 3, 3, 2, 2]


def test_crafted_queries_break_a_plain_test_but_not_the_real_one() -> None:
    """On lines, a plain float test misses more than one edge in eight; with slack, it misses none.

    If an edge is missed, two queries each get the whole budget, and the loss of the batch exceeds
    the budget by more than 20 %.
    """
    rng, pairs = np.random.default_rng(0), 2000
    ends, share = rng.random((pairs, 2, 2)), rng.random((pairs, 1))
    targets = ends[:, 0] + share * (ends[:, 1] - ends[:, 0])
    broken = 0
    for queries, target in zip(ends, targets, strict=True):
        radii = pairwise_distances(queries, target[None])[:, 0]
        assert overlap_graph(queries, radii)[0, 1]
        missed = bool(pairwise_distances(queries[:1], queries[1:])[0, 0] > radii.sum())
        broken += missed
        if missed and broken <= 20:
            row = Rows(target[None], np.zeros(1, dtype=np.int64))
            assert count_votes(queries, radii, row, 2).tolist() == [[1, 0], [1, 0]]
            plain = overlap_graph(queries, radii, relative_slack=0.0, absolute_slack=0.0)
            careless = allocate_budget(plain, 1.0)
            assert batch_loss(queries, radii, (NOBODY, row), careless) > 1.2
            shares = plan_batch(queries, radii, 1.0)
            assert batch_loss(queries, radii, (NOBODY, row), shares) <= 1.0 + ROUNDING
    assert broken > pairs / 8


def test_a_relative_slack_alone_is_not_enough() -> None:
    """Two balls of radius 0 can share a row through underflow; only an absolute slack finds it."""
    queries, radii = np.array([[0.0], [2e-162]]), np.zeros(2)
    between = Rows(np.array([[1e-162]]), np.zeros(1, dtype=np.int64))
    assert count_votes(queries, radii, between, 1).tolist() == [[1], [1]]
    assert not overlap_graph(queries, radii, absolute_slack=0.0)[0, 1]
    assert overlap_graph(queries, radii)[0, 1]


def test_a_heuristic_clique_breaks_the_promise() -> None:
    """With a clique of networkx's heuristic, the loss exceeds ε; with the exact one it does not.

    The heuristic finds six of seven balls that share a place.
    """
    rng = np.random.default_rng(2)
    queries, radii = rng.random((14, 2)), rng.uniform(0.15, 0.35, 14)
    graph = overlap_graph(queries, radii)
    heuristic = nx.algorithms.approximation.max_clique(nx.from_numpy_array(graph))
    places = rng.random((4000, 2))
    deepest = (pairwise_distances(queries, places) <= radii[:, None]).sum(axis=0)
    assert deepest.max() == 7 > len(heuristic) == 6
    crowds = np.full(14, 6)
    careless = Allocation(crowds, np.nextafter(1 / crowds, 0), exact=True)
    shared = places[[deepest.argmax()]]
    # The loss of a monotone mechanism tends to its epsilon if no other row votes for the label.
    others = Rows(np.repeat(shared, 400, axis=0), np.ones(400, dtype=np.int64))
    one_more = Rows(np.vstack([others.features, shared]), np.append(others.labels, 0))
    exact = plan_batch(queries, radii, 1.0)
    assert batch_loss(queries, radii, (others, one_more), careless) > 1.0
    assert batch_loss(queries, radii, (others, one_more), exact) <= 1.0 + ROUNDING
    assert exact.crowds.max() == 7


def random_graph(vertices: int, density: float, seed: int) -> Bools:
    """Return a random graph without loops."""
    upper = np.triu(np.random.default_rng(seed).random((vertices, vertices)) < density, 1)
    return np.asarray(upper | upper.T)


def enumerated(graph: Bools) -> list[int]:
    """Return the largest clique through each vertex, from networkx's maximal cliques."""
    sizes = [1] * len(graph)
    for clique in nx.find_cliques(nx.from_numpy_array(graph)):
        for v in clique:
            sizes[v] = max(sizes[v], len(clique))
    return sizes


@given(st.integers(1, 16), st.floats(0, 1), st.integers(0, 2**32), st.integers(0, 60))
@example(80, 0.05, 0, 10_000)
@example(80, 0.3, 1, 10_000)
@example(80, 0.6, 2, 10_000)
def test_the_largest_clique_through_each_vertex_is_found(
    vertices: int, density: float, seed: int, work: int
) -> None:
    """With enough work, each bound is the size that networkx enumerates; no bound is ever below."""
    graph = random_graph(vertices, density, seed)
    sizes, bounds = enumerated(graph), largest_cliques(graph)
    few = largest_cliques(graph, work=work)
    assert bounds.exact.all()
    assert bounds.sizes.tolist() == sizes
    assert (few.sizes >= sizes).all()
    assert (few.sizes == sizes)[few.exact].all()


def test_a_clique_may_be_deeper_than_pythons_stack() -> None:
    """If all or none of 1,100 balls meet, the answer is immediate."""
    everyone = ~np.eye(1100, dtype=np.bool_)
    assert set(largest_cliques(everyone).sizes.tolist()) == {1100}
    assert set(largest_cliques(np.zeros((1100, 1100), dtype=np.bool_)).sizes.tolist()) == {1}
    assert largest_cliques(np.zeros((0, 0), dtype=np.bool_)).sizes.tolist() == []


def test_a_hostile_batch_ends_with_colours() -> None:
    """For a thousand balls in fifty dimensions, the search gives up deterministically."""
    graph = overlap_graph(*hostile_batch(1000, 50, 0.9, np.random.default_rng(0)))
    first, again = (largest_cliques(graph, work=300_000) for _ in range(2))
    assert not first.exact.all()
    assert first.sizes.tolist() == again.sizes.tolist()
    found = nx.algorithms.approximation.max_clique(nx.from_numpy_array(graph[:60, :60]))
    assert (first.sizes[sorted(found)] >= len(found)).all()


def graph_of(queries: ArrayLike, radii: ArrayLike) -> Bools:
    """Return the overlaps of balls, given as lists."""
    return overlap_graph(np.array(queries), np.array(radii))


GRAPH = np.zeros((1, 1), dtype=np.bool_)
LOOP, ARROW = np.eye(2, dtype=np.bool_), np.array([[False, True], [False, False]])
OBLONG = np.zeros((2, 3), dtype=np.bool_)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (partial(graph_of, [[1.5]], [0.0]), "queries must be numbers from 0 to 1"),
        (partial(graph_of, [[np.nan]], [0.0]), "queries must be numbers from 0 to 1"),
        (partial(graph_of, np.zeros((1, 0)), [0.0]), "queries has the shape"),
        *((partial(graph_of, [[0.0]], [r]), "radii must be finite") for r in (np.inf, np.nan)),
        (partial(graph_of, [[0.0]], [-1.0]), "radii must be finite"),
        (partial(graph_of, [[0.0]], [0.0, 0.0]), "radii has the shape"),
        (partial(graph_of, np.zeros((5000, 1)), np.zeros(5000)), "there are 5000 queries"),
        *((partial(allocate_budget, GRAPH, e), "epsilon is") for e in (0.0, -1.0, np.inf, np.nan)),
        *((partial(largest_cliques, g), r"graph (is|must be)") for g in (LOOP, ARROW, OBLONG)),
        (partial(largest_cliques, GRAPH, work=-1), "work is -1"),
    ],
)
def test_invalid_arguments_are_refused(act: Callable[[], object], message: str) -> None:
    """Batches of a wrong shape, range or size, budgets, graphs and negative work are refused."""
    with pytest.raises(InputError, match=message):
        act()
