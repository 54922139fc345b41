"""Counts, candidate radii and labels: loops, closed forms, scikit-learn, and open answers."""

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from papers.owner import nearest_votes, true_radii
from sklearn.neighbors import NearestNeighbors
from tests.protocols.radius.tables import banana, rows_of, some_rows

from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.protocols.radius.algorithm.balls import count_votes
from veilring.protocols.radius.algorithm.conversion import (
    CANDIDATES_MAX,
    ByCandidates,
    ByGrid,
    Conversion,
    candidate_qualities,
    candidate_radii,
    convert_to_radii,
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
    table = some_rows(rows, features, seed)
    rng = np.random.default_rng(seed + 1)
    queries, radii = rng.random((4, features)), rng.random(4)
    expected = np.zeros((4, 3), dtype=np.int64)
    for place, label in zip(table.features, table.labels, strict=True):
        for q in range(4):
            expected[q, label] += math.dist(queries[q], place) <= radii[q]
    assert count_votes(queries, radii, table, 3).tolist() == expected.tolist()


def test_counts_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one chunk or in several, counts and qualities are equal."""
    table, queries = some_rows(100, 2, 0), some_rows(7, 2, 1).features
    radii, candidates = np.full(7, 0.3), np.array([0.1, 0.3])
    whole = (
        count_votes(queries, radii, table, 3),
        candidate_qualities(queries, candidates, table, 5),
    )
    monkeypatch.setattr("veilring.protocols.radius.algorithm.balls._CHUNK_ENTRIES", 50)
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
    """Density times the volume of the ball is k, with volumes by recurrence."""
    volume = {0: 1.0, 1: 2.0}
    for n in range(2, features + 1):
        volume[n] = volume[n - 2] * 2 * math.pi / n
    r = uniform_radius(30, 1000, features)
    assert 1000 * volume[features] * r**features == pytest.approx(30, rel=1e-12)


def test_candidates_are_in_equal_ratios() -> None:
    """They end at twice r_unif."""
    geometric = candidate_radii(0.5, 5)
    assert geometric == pytest.approx([1 / 16, 1 / 8, 1 / 4, 1 / 2, 1], rel=1e-14)


def test_invalid_arguments_are_refused() -> None:
    """Widths, classes, candidates, k and gamma are refused by name."""
    rows, queries, rng = some_rows(10, 2, 19), np.zeros((1, 2)), np.random.default_rng(0)
    narrow, radius, by = np.zeros((1, 1)), np.zeros(1), ByCandidates()
    for act in (
        lambda: count_votes(narrow, radius, rows, 3),
        lambda: label_within(narrow, radius, rows, rng, epsilon=1.0, classes=3),
        lambda: nearest_votes(narrow, rows, 1, 3),
        lambda: convert_to_radii(narrow, rows, 1, by, rng, epsilon=1.0, known_rows=10),
        lambda: candidate_qualities(narrow, np.ones(2), rows, 1),
    ):
        with pytest.raises(InputError, match=r"queries has the shape \(1, 1\); .* \(Q, 2\)"):
            act()
    with pytest.raises(InputError, match=r"labels must be below"):
        count_votes(queries, np.zeros(1), rows, 1)
    with pytest.raises(InputError, match="candidates is 1"):
        candidate_radii(0.5, 1)
    with pytest.raises(InputError, match="k is 0"):
        convert_to_radii(queries, rows, 0, ByGrid(), rng, epsilon=1.0, known_rows=10)


@pytest.mark.parametrize(
    ("conversion", "value"),
    [
        *((ByCandidates, number) for number in (1, CANDIDATES_MAX + 1)),
        *((ByGrid, gamma) for gamma in (0.0, 5e-324, 1.5, math.nan)),
    ],
)
def test_an_invalid_conversion_is_refused_before_any_row_is_read(
    conversion: Callable[[Any], object], value: float
) -> None:
    """Too few or many candidates, and a step too fine or beyond the diagonal, are refused."""
    with pytest.raises(InputError, match=f"(candidates|gamma) is {value}; allowed: "):
        conversion(value)


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
