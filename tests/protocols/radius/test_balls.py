"""Balls, their votes, radii and overlaps, and budgets: loops, closed forms, other libraries."""

import math
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from papers.answers import hostile_batch
from papers.owner import nearest_votes, true_radii
from sklearn.neighbors import NearestNeighbors
from tests.protocols.radius.tables import banana, rows_of, some_rows

from veilring.arrays import Bools, Floats
from veilring.data.table import Rows, pairwise_distances
from veilring.errors import InputError
from veilring.protocols.radius.algorithm.allocation import allocate_budget, largest_cliques
from veilring.protocols.radius.algorithm.balls import count_votes, overlap_graph
from veilring.protocols.radius.algorithm.conversion import (
    CANDIDATES_MAX,
    GRID_CELLS_MAX,
    ByCandidates,
    ByGrid,
    Conversion,
    NoisyGrid,
    candidate_qualities,
    candidate_radii,
    cell_points,
    convert_to_radii,
    covered_1d,
    covered_2d,
    grid_radii,
    grid_side,
    noisy_grid,
    uniform_radius,
)
from veilring.protocols.radius.algorithm.nearest import (
    BudgetParts,
    NearestParameters,
    label_nearest,
    label_within,
    release_row_count,
)


@given(st.integers(0, 30), st.integers(1, 5), st.integers(0, 2**32))
def test_votes_are_counted_one_by_one(rows: int, features: int, seed: int) -> None:
    """Each count equals a loop over rows with the distance in the same floats."""
    table, rng = some_rows(rows, features, seed), np.random.default_rng(seed + 1)
    queries, radii = rng.random((4, features)), rng.random(4)
    expected = np.zeros((4, 3), dtype=np.int64)
    for (place, label), q in product(zip(table.features, table.labels, strict=True), range(4)):
        expected[q, label] += math.dist(queries[q], place) <= radii[q]
    assert count_votes(queries, radii, table, 3).tolist() == expected.tolist()


def test_counts_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one chunk or in several, counts and qualities are equal."""
    table, queries = some_rows(100, 2, 0), some_rows(7, 2, 1).features
    radii, candidates = np.full(7, 0.3), np.array([0.1, 0.3])

    def counted() -> list[object]:
        qualities = candidate_qualities(queries, candidates, table, 5)
        return [count_votes(queries, radii, table, 3).tolist(), qualities.tolist()]

    whole = counted()
    monkeypatch.setattr("veilring.protocols.radius.algorithm.balls._CHUNK_ENTRIES", 50)
    assert counted() == whole


def test_true_radii_and_votes_are_those_of_scikit_learn() -> None:
    """The open conversion and the neighbours' votes agree with its nearest neighbours."""
    table, queries = some_rows(200, 3, 2), some_rows(20, 3, 3).features
    found = NearestNeighbors(n_neighbors=9).fit(table.features).kneighbors(queries)
    assert true_radii(queries, table.features, 9) == pytest.approx(found[0][:, -1], rel=1e-12)
    expected = [np.bincount(table.labels[those], minlength=3).tolist() for those in found[1]]
    assert nearest_votes(queries, table, 9, 3).tolist() == expected
    assert nearest_votes(queries, rows_of((), 3), 9, 3).tolist() == [[0, 0, 0]] * 20


@pytest.mark.parametrize("features", [1, 2, 3, 7])
def test_candidates_end_at_twice_the_radius_that_holds_k_rows(features: int) -> None:
    """Density times the volume of the ball is k, by recurrence; candidates are in equal ratios."""
    volume = {0: 1.0, 1: 2.0}
    for n in range(2, features + 1):
        volume[n] = volume[n - 2] * 2 * math.pi / n
    r = uniform_radius(30, 1000, features)
    assert 1000 * volume[features] * r**features == pytest.approx(30, rel=1e-12)
    expected = [r / 8, r / 4, r / 2, r, 2 * r]
    assert candidate_radii(r, 5) == pytest.approx(expected, rel=1e-14)


def test_many_classes_take_no_more_memory_than_many_queries() -> None:
    """A query over twenty thousand rows of a thousand classes is counted in a few chunks."""
    rows = some_rows(20_000, 1, 20, classes=1000)
    tracemalloc.start()
    counts = count_votes(np.full((1, 1), 0.5), np.ones(1), rows, 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert counts.sum() == 20_000
    assert peak < 40e6  # all at once would be 80 MB


@pytest.mark.parametrize("conversion", [ByGrid(), ByCandidates()])
def test_a_large_budget_is_as_good_as_no_privacy(conversion: Conversion) -> None:
    """With epsilon in the millions, the rows within the radii vote, which are about k."""
    places, labels = banana(2000, np.random.default_rng(9))
    rows, queries = Rows(places[200:], labels[200:]), places[:200]
    parameters = NearestParameters(30, 2, BudgetParts(0.0, 5e5, 5e5), len(rows), conversion)
    found = label_nearest(queries, rows, parameters, np.random.default_rng(10))
    votes = nearest_votes(queries, rows, 30, 2)
    clear = np.abs(votes[:, 0] - votes[:, 1]) >= 20
    assert clear.mean() > 0.6
    assert (found.labels == votes.argmax(axis=1))[clear].mean() > 0.97
    within = count_votes(queries, found.radii, rows, 2)
    assert 10 < np.median(within.sum(axis=1)) < 60
    settled = within[:, 0] != within[:, 1]
    assert (found.labels == within.argmax(axis=1))[settled].all()


def test_a_noisy_number_of_rows_is_near_and_positive() -> None:
    """It is the public number, or the number with noise, and never below 1."""
    rows, rng = some_rows(100, 1, 14), np.random.default_rng(15)
    free = BudgetParts(0.0, 1.0, 1.0)
    assert release_row_count(rows, NearestParameters(1, 3, free, rows=7), rng) == 7
    assert release_row_count(rows, NearestParameters(1, 3, free, rows=0), rng) == 1
    paid = NearestParameters(1, 3, BudgetParts(1.0, 1.0, 1.0))
    drawn = [release_row_count(rows, paid, rng) for _ in range(50)]
    # Noise beyond 20 has probability 2 e^-20 each.
    assert len(set(drawn)) > 1
    assert all(80 <= number <= 120 for number in drawn)
    nobody = [release_row_count(rows_of((), 1), paid, rng) for _ in range(50)]
    assert min(nobody) == 1


@pytest.mark.parametrize("features", [1, 2])
def test_halving_finds_what_the_papers_loop_finds(features: int) -> None:
    """As in Algorithm 7, it finds the least multiple of gamma whose ball has mass k, or all."""
    rng = np.random.default_rng(features)
    grid = NoisyGrid(4, features, rng.integers(0, 9, size=4**features))
    queries, step = rng.random((10, features)), 0.01 * grid.diagonal
    covered = covered_1d if features == 1 else covered_2d

    def mass(query: Floats, radius: float) -> float:
        return float(covered(query[None], np.array([radius]), grid.side)[0] @ grid.counts)

    for k in (1, 5, 20, 10_000):
        for query, found in zip(queries, grid_radii(grid, queries, k, 0.01), strict=True):
            radius = step
            while radius < grid.diagonal and mass(query, radius) < k:
                radius += step
            assert found == pytest.approx(min(radius, grid.diagonal), rel=1e-9)


def test_points_represent_the_mass_of_their_cells() -> None:
    """In three dimensions, points within the radius have mass k, and less at one step less."""
    rng = np.random.default_rng(5)
    grid = NoisyGrid(3, 3, rng.integers(0, 20, size=27))
    queries, step = rng.random((6, 3)), 0.01 * math.sqrt(3)
    points = cell_points(3, 3, 16_384)
    mass = grid.counts[:, None] / points.shape[1]
    for k in (1, 10, 100):
        for query, radius in zip(queries, grid_radii(grid, queries, k, 0.01), strict=True):
            away = np.linalg.norm(points - query, axis=2)
            assert (mass * (away <= radius + 1e-9)).sum() >= k - 1e-9
            assert (mass * (away <= radius - step - 1e-9)).sum() < k
    assert grid_radii(grid, queries, 10_000) == pytest.approx(math.sqrt(3))


def test_one_more_row_changes_one_cell_by_one() -> None:
    """With noise from equal generators, neighbouring tables' counts differ in one cell."""
    table = some_rows(500, 3, 6)
    one_more = Rows(np.vstack([table.features, [[1.0, 1.0, 1.0]]]), np.append(table.labels, 0))
    grids = [noisy_grid(rows, 4, 0.01, np.random.default_rng(7)) for rows in (table, one_more)]
    differences = grids[1].counts - grids[0].counts
    assert np.flatnonzero(differences).tolist() in ([63], [])  # the last cell, unless cut at 0
    assert differences.sum() in {0, 1}
    assert min(grid.counts.min() for grid in grids) == 0
    exact = [noisy_grid(rows, 4, 60.0, np.random.default_rng(8)) for rows in (table, one_more)]
    assert (exact[1].counts - exact[0].counts).tolist() == [0] * 63 + [1]
    assert exact[0].counts.sum() == 500


def test_a_grid_has_su_et_als_cells_and_a_limit() -> None:
    """The number of cells per side follows their formula; too many features are refused."""
    assert grid_side(4240, 2, 0.5) == round(212**0.5) == 15
    assert grid_side(1098, 4, 0.5) == round(54.9 ** (1 / 3)) == 4
    assert grid_side(0, 2, 0.5) == 1
    assert grid_side(10_000, 6, 1.0) == 6
    assert grid_side(10**9, 2, 1.0) ** 2 == grid_side(10**9, 4, 1.0) ** 4 == GRID_CELLS_MAX
    with pytest.raises(InputError, match="21 features with 2 cells a side has more than"):
        grid_side(5760, 21, 1.0)


def test_intervals_cover_their_fraction_of_cells() -> None:
    """In one dimension, the fraction of a cell is the length of the overlap."""
    covered = covered_1d(np.array([[0.5], [0.0]]), np.array([0.3, 0.1]), 4)
    assert covered == pytest.approx(np.array([[0.2, 1, 1, 0.2], [0.4, 0, 0, 0]]), abs=1e-15)


@given(st.integers(1, 6), st.floats(0.001, 1.5), st.integers(0, 2**32))
def test_discs_cover_their_fraction_of_cells(side: int, radius: float, seed: int) -> None:
    """In two dimensions, fractions equal an integral over the disc's chords."""
    query = np.random.default_rng(seed).random((1, 2))
    covered = covered_2d(query, np.array([radius]), side).reshape(side, side)
    steps, edges = 4000, np.linspace(0, 1, side + 1)
    width = 1 / side / steps
    for i, start in enumerate(edges[:-1]):
        x = start + (np.arange(steps) + 0.5) * width - query[0, 0]
        half = np.sqrt(np.maximum(radius**2 - x**2, 0))
        low = np.maximum(edges[:-1, None] - query[0, 1], -half)
        high = np.minimum(edges[1:, None] - query[0, 1], half)
        areas = np.maximum(high - low, 0).sum(axis=1) * width
        # A midpoint sum of a function of variation V errs by V * width / 2; V is at most two rises
        # and falls of a cell's height.
        limit = 4 / side * width / 2 * side**2 + 1e-12
        assert (np.abs(covered[i] - areas * side**2) <= limit).all()


def test_points_lie_in_their_cells() -> None:
    """Each cell gets an equal number of points inside it, without repetition."""
    points = cell_points(3, 4, 81 * 50)
    assert points.shape == (81, 50, 4)
    corners = np.indices((3,) * 4).reshape(4, -1).T / 3
    inside = points - corners[:, None, :]
    assert (inside > 0).all()
    assert (inside < 1 / 3).all()
    assert inside == pytest.approx(np.broadcast_to(inside[:1], inside.shape), abs=1e-12)
    assert len(np.unique(inside[0].round(9), axis=0)) == 50


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
    inside = pairwise_distances(points, places) <= radii[:, None]
    spent = np.array([Fraction(float(share)) for share in shares.epsilons], dtype=object)
    assert all(sum(spent[those]) <= Fraction(epsilon) for those in inside.T)


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


def test_a_relative_slack_alone_is_not_enough() -> None:
    """Two balls of radius 0 can share a row through underflow; only an absolute slack finds it."""
    queries, radii = np.array([[0.0], [2e-162]]), np.zeros(2)
    between = Rows(np.array([[1e-162]]), np.zeros(1, dtype=np.int64))
    assert count_votes(queries, radii, between, 1).tolist() == [[1], [1]]
    assert not overlap_graph(queries, radii, absolute_slack=0.0)[0, 1]
    assert overlap_graph(queries, radii)[0, 1]


@given(st.integers(1, 16), st.floats(0, 1), st.integers(0, 2**32), st.integers(0, 60))
@example(80, 0.05, 0, 10_000)
@example(80, 0.3, 1, 10_000)
@example(80, 0.6, 2, 10_000)
def test_the_largest_clique_through_each_vertex_is_found(
    vertices: int, density: float, seed: int, work: int
) -> None:
    """With enough work, each bound is the size that networkx enumerates; no bound is ever below."""
    upper = np.triu(np.random.default_rng(seed).random((vertices, vertices)) < density, 1)
    graph, sizes = upper | upper.T, [1] * vertices
    for clique in nx.find_cliques(nx.from_numpy_array(graph)):
        for v in clique:
            sizes[v] = max(sizes[v], len(clique))
    bounds, few = largest_cliques(graph), largest_cliques(graph, work=work)
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


def test_hard_queries_leave_work_for_the_others() -> None:
    """If some queries use up their share of the work, the bounds of all others are exact."""
    rng, graph = np.random.default_rng(0), np.zeros((210, 210), dtype=np.bool_)
    for part, density in ((slice(150), 0.9), (slice(150, 210), 0.3)):
        upper = np.triu(rng.random(graph[part, part].shape) < density, 1)
        graph[part, part] = upper | upper.T
    exact = largest_cliques(graph, work=100_000).exact
    assert exact[150:].all()
    assert not exact[:150].any()


def graph_of(queries: ArrayLike, radii: ArrayLike) -> Bools:
    """Return the overlaps of balls, given as lists."""
    return overlap_graph(np.array(queries), np.array(radii))


TEN, NARROW, WIDE = some_rows(10, 2, 19), np.zeros((1, 1)), np.zeros((1, 2))
POINT, RNG = np.zeros(1), np.random.default_rng(0)
NARROW_SAYS = r"queries has the shape \(1, 1\); .* \(Q, 2\)"
converted = partial(convert_to_radii, epsilon=1.0, known_rows=10)
GRAPH = np.zeros((1, 1), dtype=np.bool_)
LOOP, ARROW = np.eye(2, dtype=np.bool_), np.array([[False, True], [False, False]])
OBLONG = np.zeros((2, 3), dtype=np.bool_)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (partial(count_votes, NARROW, POINT, TEN, 3), NARROW_SAYS),
        (partial(label_within, NARROW, POINT, TEN, RNG, epsilon=1.0, classes=3), NARROW_SAYS),
        (partial(nearest_votes, NARROW, TEN, 1, 3), NARROW_SAYS),
        (partial(converted, NARROW, TEN, 1, ByCandidates(), RNG), NARROW_SAYS),
        (partial(candidate_qualities, NARROW, np.ones(2), TEN, 1), NARROW_SAYS),
        (partial(count_votes, WIDE, POINT, TEN, 1), "labels must be below"),
        (partial(converted, WIDE, TEN, 0, ByGrid(), RNG), "k is 0"),
        (partial(candidate_radii, 0.5, 1), "candidates is 1"),
        *(
            (partial(ByCandidates, n), f"candidates is {n}; allowed: ")
            for n in (1, CANDIDATES_MAX + 1)
        ),
        *((partial(ByGrid, g), f"gamma is {g}; allowed: ") for g in (0.0, 5e-324, 1.5, math.nan)),
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
    """Wrong widths, ranges and sizes, classes, candidates, steps, budgets and graphs are named."""
    with pytest.raises(InputError, match=message):
        act()
