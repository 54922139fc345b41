"""Counts, conversions and labels: against plain loops, closed forms and the data itself."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from tests.protocols.radius.tables import banana, rows_of

from veilring.errors import InputError
from veilring.protocols.radius.algorithm import (
    CELLS_MAX,
    ByCandidates,
    ByGrid,
    Conversion,
    KNNParameters,
    NoisyGrid,
    RNParameters,
    answer_next,
    candidate_qualities,
    candidate_radii,
    cell_points,
    convert,
    count_votes,
    covered_1d,
    covered_2d,
    grid_radii,
    grid_side,
    label_batch,
    label_nearest,
    label_nearest_baseline,
    label_openly,
    nearest_votes,
    noisy_grid,
    released_rows,
    true_radii,
    uniform_radius,
)
from veilring.protocols.rows import Rows


def some_rows(rows: int, features: int, seed: int, classes: int = 3) -> Rows:
    """Return uniform rows."""
    rng = np.random.default_rng(seed)
    return Rows(rng.random((rows, features)), rng.integers(classes, size=rows))


@given(st.integers(0, 30), st.integers(1, 5), st.integers(0, 2**32))
def test_votes_are_counted_one_by_one(rows: int, features: int, seed: int) -> None:
    """Each count is that of a loop over rows with the distance in the same floats."""
    table = some_rows(rows, features, seed)
    rng = np.random.default_rng(seed + 1)
    queries, radii = rng.random((4, features)), rng.random(4)
    expected = np.zeros((4, 3), dtype=np.int64)
    for place, label in zip(table.features, table.labels, strict=True):
        for q in range(4):
            expected[q, label] += math.dist(queries[q], place) <= radii[q]
    assert count_votes(queries, radii, table, 3).tolist() == expected.tolist()


def test_counts_do_not_depend_on_how_rows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one piece or in pieces of a few rows, counts and qualities are the same."""
    table, queries = some_rows(100, 2, 0), some_rows(7, 2, 1).features
    radii, candidates = np.full(7, 0.3), np.array([0.1, 0.3])
    whole = (
        count_votes(queries, radii, table, 3),
        candidate_qualities(queries, candidates, table, 5),
    )
    for module in ("balls", "candidates"):
        name = f"veilring.protocols.radius.algorithm.{module}._CHUNK_ENTRIES"
        monkeypatch.setattr(name, 50)
    cut = count_votes(queries, radii, table, 3), candidate_qualities(queries, candidates, table, 5)
    assert [each.tolist() for each in whole] == [each.tolist() for each in cut]


def test_true_radii_and_votes_are_those_of_scikit_learn() -> None:
    """The open conversion and the neighbours' votes agree with its nearest neighbours."""
    table, queries = some_rows(200, 3, 2), some_rows(20, 3, 3).features
    found = NearestNeighbors(n_neighbors=9).fit(table.features).kneighbors(queries)
    assert true_radii(queries, table.features, 9) == pytest.approx(found[0][:, -1], rel=1e-12)
    expected = [np.bincount(table.labels[those], minlength=3).tolist() for those in found[1]]
    assert nearest_votes(queries, table, 9, 3).tolist() == expected
    assert nearest_votes(queries, rows_of((), 3), 9, 3).tolist() == [[0, 0, 0]] * 20


@pytest.mark.parametrize("features", [1, 2, 3, 7])
def test_the_uniform_radius_holds_k_of_evenly_spread_rows(features: int) -> None:
    """Density times the volume of the ball is k, with volumes from their recurrence."""
    volume = {0: 1.0, 1: 2.0}
    for n in range(2, features + 1):
        volume[n] = volume[n - 2] * 2 * math.pi / n
    r = uniform_radius(30, 1000, features)
    assert 1000 * volume[features] * r**features == pytest.approx(30, rel=1e-12)


def test_candidates_are_the_papers_or_in_equal_ratios() -> None:
    """The paper's example, r_unif = 0.5 and n = 4; both end at twice r_unif."""
    assert candidate_radii(0.5, 4, "linear") == pytest.approx([0.25, 0.5, 0.75, 1.0], rel=1e-15)
    geometric = candidate_radii(0.5, 5, "geometric")
    assert geometric == pytest.approx([1 / 16, 1 / 8, 1 / 4, 1 / 2, 1], rel=1e-14)


def test_intervals_cover_their_share_of_cells() -> None:
    """In one dimension, the share of a cell is the length of the overlap."""
    covered = covered_1d(np.array([[0.5], [0.0]]), np.array([0.3, 0.1]), 4)
    assert covered == pytest.approx(np.array([[0.2, 1, 1, 0.2], [0.4, 0, 0, 0]]), abs=1e-15)


@given(st.integers(1, 6), st.floats(0.001, 1.5), st.integers(0, 2**32))
def test_discs_cover_their_share_of_cells(side: int, radius: float, seed: int) -> None:
    """In two dimensions, shares are those that an integral over the disc's chords gives."""
    query = np.random.default_rng(seed).random((1, 2))
    covered = covered_2d(query, np.array([radius]), side).reshape(side, side)
    steps = 4000
    edges = np.linspace(0, 1, side + 1)
    for i in range(side):
        width = 1 / side / steps
        x = edges[i] + (np.arange(steps) + 0.5) * width - query[0, 0]
        half = np.sqrt(np.maximum(radius**2 - x**2, 0))
        for j in range(side):
            low = np.maximum(edges[j] - query[0, 1], -half)
            high = np.minimum(edges[j + 1] - query[0, 1], half)
            area = np.maximum(high - low, 0).sum() * width
            # A midpoint sum of a function of variation V errs by V * width / 2; V is at most two
            # rises and falls of a cell's height.
            assert abs(covered[i, j] - area * side**2) <= 4 / side * width / 2 * side**2 + 1e-12


def test_points_lie_in_their_cells() -> None:
    """Each cell gets the same points, inside it, and none twice."""
    points = cell_points(3, 4, 81 * 50)
    assert points.shape == (81, 50, 4)
    corners = np.indices((3,) * 4).reshape(4, -1).T / 3
    inside = points - corners[:, None, :]
    assert (inside > 0).all()
    assert (inside < 1 / 3).all()
    assert inside == pytest.approx(np.broadcast_to(inside[:1], inside.shape), abs=1e-12)
    assert len(np.unique(inside[0].round(9), axis=0)) == 50


def by_steps(grid: NoisyGrid, query: NDArray[np.float64], k: int, gamma: float) -> float:
    """Grow the radius step by step, as Algorithm 7 is written, in one or two dimensions."""
    covered = covered_1d if grid.features == 1 else covered_2d
    radius = step = gamma * grid.diagonal
    while radius < grid.diagonal:
        if covered(query[None], np.array([radius]), grid.side)[0] @ grid.counts >= k:
            return radius
        radius += step
    return grid.diagonal


@pytest.mark.parametrize("features", [1, 2])
def test_halving_finds_what_the_papers_loop_finds(features: int) -> None:
    """The least multiple of gamma whose ball is full enough, or the diagonal if there is none."""
    rng = np.random.default_rng(features)
    grid = NoisyGrid(4, features, rng.integers(0, 9, size=4**features))
    queries = rng.random((10, features))
    for k in (1, 5, 20, 10_000):
        found = grid_radii(grid, queries, k, 0.01)
        expected = [by_steps(grid, query, k, 0.01) for query in queries]
        assert found == pytest.approx(expected, rel=1e-9)


def test_points_stand_for_the_mass_of_their_cells() -> None:
    """In three dimensions, points within the radius have mass k, a step less they have not."""
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


def test_a_row_more_changes_one_cell_by_one() -> None:
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
    """The number of cells a side is theirs; with too many features there are too many cells."""
    assert grid_side(4240, 2, 0.5) == round(212**0.5) == 15
    assert grid_side(1098, 4, 0.5) == round(54.9 ** (1 / 3)) == 4
    assert grid_side(0, 2, 0.5) == 1
    assert grid_side(10_000, 6, 1.0) == 6
    assert grid_side(10**9, 2, 1.0) ** 2 == grid_side(10**9, 4, 1.0) ** 4 == CELLS_MAX
    with pytest.raises(InputError, match="features is 21 with 2 cells a side; allowed: at most"):
        grid_side(5760, 21, 1.0)


@pytest.mark.parametrize("conversion", [ByGrid(), ByCandidates(), ByCandidates.paper()])
def test_a_large_budget_is_as_good_as_none(conversion: Conversion) -> None:
    """With epsilon in the millions, labels are nearly those that no privacy would give."""
    places, labels = banana(2000, np.random.default_rng(9))
    rows, queries = Rows(places[200:], labels[200:]), places[:200]
    parameters = KNNParameters.halves(1e6, 30, 2, len(rows), conversion)
    found = label_nearest(queries, rows, parameters, np.random.default_rng(10))
    votes = nearest_votes(queries, rows, 30, 2)
    clear = np.abs(votes[:, 0] - votes[:, 1]) >= 20
    assert clear.mean() > 0.6
    assert (found.labels == votes.argmax(axis=1))[clear].mean() > 0.97
    within = count_votes(queries, found.radii, rows, 2).sum(axis=1)
    assert 10 < np.median(within) < 60


def test_a_large_budget_finds_the_open_answer() -> None:
    """r-N without noise is r-N; a baseline without noise is k-N; a filter without limit is r-N."""
    places, labels = banana(600, np.random.default_rng(11))
    rows, queries, radii = Rows(places[60:], labels[60:]), places[:60], np.full(60, 0.1)
    rng = np.random.default_rng(12)
    counts = count_votes(queries, radii, rows, 2)
    settled = counts[:, 0] != counts[:, 1]
    openly = label_openly(queries, radii, rows, 2, rng)
    for parameters in (
        RNParameters(1e6, 2),
        RNParameters.paper(1e6, 2),
        RNParameters.baseline(1e6, 2),
    ):
        labels = label_batch(queries, radii, rows, parameters, rng)
        assert (labels == openly)[settled].all()
    left, costs = np.full(len(rows), 1e9), np.full(60, 1e4)
    answered = answer_next(queries, radii, costs, rows, left, rng, classes=2)
    assert (answered.labels == openly)[settled].all()
    assert (answered.left < left).any()
    votes = nearest_votes(queries, rows, 15, 2)
    labels = label_nearest_baseline(queries, rows, 15, 2, 1e6, rng)
    assert (labels == votes.argmax(axis=1)).all()


def test_rows_that_have_spent_all_do_not_vote() -> None:
    """The second of two equal queries finds nobody who can pay for it, and answers at random."""
    rows = Rows(np.full((1000, 1), 0.5), np.zeros(1000, dtype=np.int64))
    queries, costs = np.full((41, 1), 0.5), np.full(41, 1.0)
    rng = np.random.default_rng(13)
    answered = answer_next(
        queries, np.full(41, 0.1), costs, rows, np.full(1000, 1.0), rng, classes=2
    )
    assert answered.labels[0] == 0  # wrong with probability below e^-1000
    assert set(answered.labels[1:].tolist()) == {0, 1}  # else all 40 coins fell alike: 2e-12
    assert (answered.left == 0).all()


def test_a_noisy_number_of_rows_is_near_and_positive() -> None:
    """It is what is public, or the number with noise, and never below 1."""
    rows, rng = some_rows(100, 1, 14), np.random.default_rng(15)
    assert released_rows(rows, KNNParameters(1, 3, 1.0, 1.0, rows=7), rng) == 7
    assert released_rows(rows, KNNParameters(1, 3, 1.0, 1.0, rows=0), rng) == 1
    paid = KNNParameters(1, 3, 1.0, 1.0, epsilon_count=1.0)
    drawn = [released_rows(rows, paid, rng) for _ in range(50)]
    # Noise beyond 20 has probability 2 e^-20 each.
    assert len(set(drawn)) > 1
    assert all(80 <= number <= 120 for number in drawn)
    nobody = [released_rows(rows_of((), 1), paid, rng) for _ in range(50)]
    assert min(nobody) == 1


def test_equal_generators_give_equal_answers() -> None:
    """The same seed labels the same batch in the same way."""
    rows, queries = some_rows(300, 2, 16), some_rows(50, 2, 17).features
    parameters = KNNParameters.paper(1.0, 10, 3, 300, ByGrid())
    first, again = (
        label_nearest(queries, rows, parameters, np.random.default_rng(18)) for _ in range(2)
    )
    assert first.labels.tolist() == again.labels.tolist()
    assert first.radii.tolist() == again.radii.tolist()


def test_what_does_not_fit_is_refused() -> None:
    """Widths, classes, candidates, k and gamma, each by its name."""
    rows, queries, rng = some_rows(10, 2, 19), np.zeros((1, 2)), np.random.default_rng(0)
    narrow = np.zeros((1, 1))
    wrong = r"queries is of shape \(1, 1\); allowed: shape \(Q, 2\)"
    with pytest.raises(InputError, match=wrong):
        count_votes(narrow, np.zeros(1), rows, 3)
    with pytest.raises(InputError, match=wrong):
        label_batch(narrow, np.zeros(1), rows, RNParameters(1.0, 3), rng)
    with pytest.raises(InputError, match=wrong):
        nearest_votes(narrow, rows, 1, 3)
    with pytest.raises(InputError, match=wrong):
        convert(narrow, rows, 1, ByCandidates(), rng, epsilon=1.0, known_rows=10)
    with pytest.raises(InputError, match=wrong):
        candidate_qualities(narrow, np.ones(2), rows, 1)
    with pytest.raises(InputError, match=r"rows\.labels is a class too high"):
        count_votes(queries, np.zeros(1), rows, 1)
    with pytest.raises(InputError, match="candidates is 1"):
        candidate_radii(0.5, 1, "linear")
    with pytest.raises(InputError, match="k is 0"):
        convert(queries, rows, 0, ByGrid(), rng, epsilon=1.0, known_rows=10)
    with pytest.raises(InputError, match="gamma is 0"):
        convert(queries, rows, 1, ByGrid(0.0), rng, epsilon=1.0, known_rows=10)
    unknown = RNParameters(1.0, 3, "clique", "best")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(InputError, match="mechanism is best"):
        label_batch(queries, np.zeros(1), rows, unknown, rng)
    how = ByCandidates(chooser="best")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(InputError, match="chooser is best"):
        convert(queries, rows, 1, how, rng, epsilon=1.0, known_rows=10)
