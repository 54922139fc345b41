"""Votes and labels of PP-kNN, compared with scikit-learn, and with networked parties."""

import math
import tracemalloc
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.neighbors import KNeighborsClassifier
from tests.protocols.ring.worlds import FALSE_ALARM, bound, play

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.nodes.ring import Ring
from veilring.nodes.run import Run
from veilring.protocols.ring import FixedPoint, KNNAnswer, KNNParameters, private_knn
from veilring.protocols.ring.algorithm import classify
from veilring.protocols.ring.algorithm.classify import (
    MOST_WEIGHT,
    Classified,
    Weights,
    decide_labels,
    local_votes,
    pooled_knn,
    ring_knn,
)
from veilring.protocols.ring.algorithm.topk import own_smallest
from veilring.protocols.ring.roles import SCALE_BITS

PARTIES = ("a", "b", "c")


def _rows(seed: int, count: int = 60) -> list[Rows]:
    """Return random rows of three parties, one of which has fewer than k = 5."""
    rng = np.random.default_rng(seed)
    features, labels = rng.random((count, 2)), rng.integers(0, 3, count)
    cuts = ((0, 4), (4, 25), (25, count))
    return [Rows(features[low:high], labels[low:high]) for low, high in cuts]


def _locally(
    rows: list[Rows], queries: Floats, parameters: KNNParameters, seed: int = 0
) -> Classified:
    """Answer queries without a network."""
    return ring_knn(
        [pairwise_distances(queries, party.features) for party in rows],
        [party.labels for party in rows],
        parameters.topk,
        np.random.default_rng(seed),
        fixed=FixedPoint(SCALE_BITS, len(rows)),
        classes=parameters.facts.classes,
        weights=parameters.system.weights,
    )


async def ask(
    rows: list[Rows], queries: Floats, parameters: KNNParameters, **options: Any
) -> Run[KNNAnswer]:
    """Answer queries over a network."""
    only = {"a": {"queries": queries}}
    return await play(
        private_knn, rows, names=PARTIES, client="a", parameters=parameters, only=only, **options
    )


@pytest.mark.parametrize("weights", ["uniform", "distance"])
async def test_without_noise_it_equals_the_networked_answer(weights: Weights) -> None:
    """With P0 = 0 labels, vote totals and nearest distances are equal to the bit."""
    rows, queries = _rows(1), np.random.default_rng(2).random((40, 2))
    parameters = bound(2, 3, P0=0.0, rounds=1, weights=weights)
    run = await ask(rows, queries, parameters)
    found = _locally(rows, queries, parameters)
    np.testing.assert_array_equal(found.labels, run.result.labels)
    np.testing.assert_array_equal(found.votes, run.result.votes)
    np.testing.assert_array_equal(found.nearest, run.result.nearest)


async def test_with_noise_it_follows_the_distribution_of_networked_parties() -> None:
    """Over all orders of the ring, radius and label have one distribution (false alarm 1e-6).

    Networked parties answer one query 400 times in each of the six orders of three parties.
    """
    rows, query = _rows(14), np.full((400, 2), 0.5)
    parameters = bound(2, 3, P0=1.0, rounds=1, delta=0.05)
    radii, labels = [], []
    for seed, order in enumerate(permutations(PARTIES)):
        run = await ask(rows, query, parameters, seed=seed, ring=Ring(order))
        radii.append(run.result.nearest[:, -1])
        labels.append(run.result.labels)
    found = _locally(rows, query.repeat(6, axis=0), parameters, seed=6)
    same_radius = stats.ks_2samp(np.concatenate(radii), found.nearest[:, -1]).pvalue
    assert same_radius > FALSE_ALARM / 2
    counts = [np.bincount(each, minlength=3) for each in (np.concatenate(labels), found.labels)]
    met = np.sum(counts, axis=0) > 0
    assert met.sum() > 1  # else the label would say nothing
    assert stats.chi2_contingency(np.array(counts)[:, met]).pvalue > FALSE_ALARM / 2


def test_chunks_of_queries_do_not_change_exact_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory limit of a few queries per chunk gives equal answers without noise."""
    rows, queries = _rows(9), np.random.default_rng(10).random((20, 2))
    parameters = bound(2, 3, P0=0.0, rounds=1)
    whole = _locally(rows, queries, parameters)
    monkeypatch.setattr(classify, "INPUT_ENTRIES", 50)
    np.testing.assert_array_equal(_locally(rows, queries, parameters).votes, whole.votes)


def test_the_pooled_classifier_processes_queries_in_parts() -> None:
    """Distances of 20,000 queries to 1,000 rows would take 160 MB at once; labels are equal."""
    rng = np.random.default_rng(0)
    rows, labels, queries = (
        rng.random((1_000, 1)),
        rng.integers(0, 2, 1_000),
        rng.random((20_000, 1)),
    )
    tracemalloc.start()
    found = pooled_knn(queries, rows, labels, 2, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150_000_000
    np.testing.assert_array_equal(found[-9:], pooled_knn(queries[-9:], rows, labels, 2, 5))


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


@pytest.mark.parametrize(
    ("distances", "result", "weights", "votes"),
    [
        ([0, 1, 2, 2, 5], [0, 1, 2], "uniform", [1, 1, 2, 0]),  # rows that tie at rank k all vote
        ([0, 1, 2, 2, 5], [0, 1, 2, 2, 5, math.inf], "uniform", [1, 1, 2, 1]),  # fewer than k
        ([1, 2, 3, 3, 6], [1, 2, 3, 3], "distance", [1, 1 / 2, 2 / 3, 0]),
        ([0, 1, 2, 2, 5], [0, 1, 2, 2], "distance", [1, 0, 0, 0]),  # an exact match
        # A noisy result lifts weights at most to the public cap, even at distance 0.
        ([0, 1e-6, 0.5, 0.5, 3], [1, 2], "distance", [MOST_WEIGHT, MOST_WEIGHT, 4, 0]),
    ],
)
def test_votes_are_those_counted_by_hand(
    distances: list[float], result: list[float], weights: Weights, votes: list[float]
) -> None:
    """A row within the radius votes once, or with nearest/distance."""
    found = local_votes(np.array([distances]) + 0.0, LABELS, np.array([result]), CLASSES, weights)
    assert found[0] == pytest.approx(votes, rel=1e-15)


def test_ties_of_votes_go_to_the_lowest_class() -> None:
    """Equal totals are decided for the class with the lowest index."""
    assert decide_labels(np.array([[1.0, 3.0, 3.0], [0.0, 0.0, 0.0]])).tolist() == [1, 0]
