"""Local votes of PP-kNN, compared with scikit-learn and with the pooled computation."""

import math

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from veilring.arrays import Floats, Ints
from veilring.data.table import pairwise_distances
from veilring.errors import InputError
from veilring.protocols.ring.algorithm.classify import (
    MOST_WEIGHT,
    Weights,
    decide_labels,
    local_votes,
    pooled_knn,
)
from veilring.protocols.ring.algorithm.topk import own_smallest

CLASSES = 4
ROWS = np.array([[0.0], [1.0], [2.0], [2.0], [5.0]])
LABELS = np.array([0, 1, 2, 2, 3])
QUERY = np.array([[0.0]])

Blobs = tuple[Floats, Floats, Ints]


@pytest.fixture(scope="module")
def blobs() -> Blobs:
    """Return queries, rows and labels of four overlapping normal classes, without ties."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, CLASSES, 400)
    rows = rng.normal(size=(400, 3)) + rng.normal(size=(CLASSES, 3))[labels]
    return rng.normal(size=(150, 3)), rows, labels


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("k", [1, 2, 5, 30, 400])
def test_the_pooled_classifier_equals_scikit_learns(blobs: Blobs, weights: Weights, k: int) -> None:
    """If no distances tie, the labels are those of KNeighborsClassifier."""
    queries, rows, labels = blobs
    reference = KNeighborsClassifier(k, weights=weights, algorithm="brute").fit(rows, labels)
    ours = pooled_knn(queries, rows, labels, CLASSES, k, weights)
    assert ours.tolist() == reference.predict(queries).tolist()


def test_an_exact_match_decides_alone_as_in_scikit_learn(blobs: Blobs) -> None:
    """With weights by distance, a query that is a row gets the label of that row."""
    _, rows, labels = blobs
    reference = KNeighborsClassifier(9, weights="distance", algorithm="kd_tree").fit(rows, labels)
    ours = pooled_knn(rows, rows, labels, CLASSES, 9, "distance")
    assert ours.tolist() == reference.predict(rows).tolist() == labels.tolist()


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_the_parties_votes_add_up_to_the_pooled_votes(blobs: Blobs, weights: Weights) -> None:
    """For any partition, with one party without rows, local votes sum to the pooled ones."""
    queries, rows, labels = blobs
    pooled = pairwise_distances(queries, rows)
    result = own_smallest(pooled, 7)
    whole = local_votes(pooled, labels, result, CLASSES, weights)
    parts = [slice(0, 10), slice(10, 10), slice(10, 250), slice(250, 400)]
    local = [
        local_votes(pairwise_distances(queries, rows[part]), labels[part], result, CLASSES, weights)
        for part in parts
    ]
    assert np.sum(local, axis=0) == pytest.approx(whole, rel=1e-14)
    if weights == "uniform":
        assert (whole.sum(axis=1) == 7).all()


def test_a_partys_distances_equal_the_pooled_ones_exactly(blobs: Blobs) -> None:
    """Each distance depends only on its own pair, for any other rows."""
    queries, rows, _ = blobs
    pooled = pairwise_distances(queries, rows)
    for part in (slice(0, 1), slice(17, 60), slice(60, 400)):
        assert pairwise_distances(queries[3:8], rows[part]).tobytes() == pooled[3:8, part].tobytes()


def test_all_rows_that_tie_at_the_radius_vote() -> None:
    """With k = 3 and a tie at the third distance, four rows vote."""
    away = pairwise_distances(QUERY, ROWS)
    result = own_smallest(away, 3)
    assert result.tolist() == [[0.0, 1.0, 2.0]]
    assert local_votes(away, LABELS, result, CLASSES).tolist() == [[1.0, 1.0, 2.0, 0.0]]
    assert pooled_knn(QUERY, ROWS, LABELS, CLASSES, 3).tolist() == [2]


def test_weights_by_distance_are_nearest_over_distance() -> None:
    """A row at twice the nearest distance has half a vote; an exact match removes all others."""
    away = pairwise_distances(np.array([[-1.0], [0.0]]), ROWS)
    votes = local_votes(away, LABELS, own_smallest(away, 4), CLASSES, "distance")
    assert votes[0] == pytest.approx([1.0, 1 / 2, 2 / 3, 0.0], rel=1e-15)
    assert votes[1].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_a_noisy_result_cannot_lift_a_vote_above_the_cap() -> None:
    """If the public nearest is too large, weights grow with it up to the public cap, even at 0."""
    away = np.array([[0.0, 1e-6, 0.5, 3.0]])
    votes = local_votes(away, np.arange(4), np.array([[1.0, 2.0]]), CLASSES, "distance")
    assert votes.tolist() == [[MOST_WEIGHT, MOST_WEIGHT, 2.0, 0.0]]


def test_fewer_rows_than_k_all_vote() -> None:
    """If k exceeds the number of rows, every row votes."""
    away = pairwise_distances(QUERY, ROWS)
    result = own_smallest(away, 9)
    assert result[0, -1] == math.inf
    assert local_votes(away, LABELS, result, CLASSES).sum() == len(ROWS)


def test_ties_of_votes_go_to_the_lowest_class() -> None:
    """Equal totals are decided for the class with the lowest index."""
    assert decide_labels(np.array([[1.0, 3.0, 3.0], [0.0, 0.0, 0.0]])).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("field", "labels", "result", "classes", "weights"),
    [
        ("labels", [0, 1], [[1.0]], 4, "uniform"),
        ("labels", [0, 1, 4, 0, 0], [[1.0]], 4, "uniform"),
        ("labels", [0, 1, -1, 0, 0], [[1.0]], 4, "uniform"),
        ("classes", [0, 0, 0, 0, 0], [[1.0]], 0, "uniform"),
        ("result", [0, 0, 0, 0, 0], [[1.0], [1.0]], 4, "uniform"),
        ("weights", [0, 0, 0, 0, 0], [[1.0]], 4, "gaussian"),
    ],
)
def test_votes_refuse_invalid_arguments(
    field: str, labels: list[int], result: list[list[float]], classes: int, weights: Weights
) -> None:
    """Labels, results, classes or weights that do not fit are refused by name."""
    away = pairwise_distances(QUERY, ROWS)
    with pytest.raises(InputError) as caught:
        local_votes(away, np.array(labels), np.array(result), classes, weights)
    assert caught.value.field == field


def test_rows_of_another_schema_are_refused() -> None:
    """Rows and queries of different numbers of features are refused."""
    with pytest.raises(InputError, match=r"rows has the shape \(5, 1\)"):
        pairwise_distances(np.zeros((2, 3)), ROWS)
