"""Votes and labels of PP-kNN, compared with scikit-learn, and with networked parties."""

import math
import tracemalloc
from functools import partial
from itertools import permutations

import numpy as np
import pytest
from scipy import stats
from sklearn.neighbors import KNeighborsClassifier
from tests.protocols.ring.worlds import FALSE_ALARM, ask, bound, rng

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.nodes.ring import Ring
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
from veilring.protocols.ring.algorithm.sums import FixedPoint
from veilring.protocols.ring.algorithm.topk import own_smallest
from veilring.protocols.ring.roles import SCALE_BITS, KNNParameters

PARTIES = ("a", "b", "c")
asked = partial(ask, names=PARTIES, client="a")


def _rows(seed: int, count: int = 60) -> list[Rows]:
    """Return random rows of three parties, one of which has fewer than k = 5."""
    draws = rng(seed)
    features, labels = draws.random((count, 2)), draws.integers(0, 3, count)
    cuts = ((0, 4), (4, 25), (25, count))
    return [Rows(features[low:high], labels[low:high]) for low, high in cuts]


def _locally(rows: list[Rows], queries: Floats, terms: KNNParameters, seed: int = 0) -> Classified:
    """Answer queries without a network."""
    return ring_knn(
        [pairwise_distances(queries, party.features) for party in rows],
        [party.labels for party in rows],
        terms.topk,
        rng(seed),
        fixed=FixedPoint(SCALE_BITS, len(rows)),
        classes=terms.facts.classes,
        weights=terms.system.weights,
    )


@pytest.mark.parametrize("weights", ["uniform", "distance"])
async def test_without_noise_it_equals_the_networked_answer(weights: Weights) -> None:
    """With P0 = 0 labels, vote totals and nearest distances are equal to the bit."""
    rows, queries = _rows(1), rng(2).random((40, 2))
    parameters = bound(2, 3, P0=0.0, rounds=1, weights=weights)
    run = await asked(rows, queries, parameters)
    found = _locally(rows, queries, parameters)
    for part in ("labels", "votes", "nearest"):
        np.testing.assert_array_equal(getattr(found, part), getattr(run.result, part))


async def test_with_noise_it_follows_the_distribution_of_networked_parties() -> None:
    """Over all orders of the ring, radius and label have one distribution (false alarm 1e-6).

    Networked parties answer one query 400 times in each of the six orders of three parties.
    """
    rows, query = _rows(14), np.full((400, 2), 0.5)
    parameters = bound(2, 3, P0=1.0, rounds=1, delta=0.05)
    radii, labels = [], []
    for seed, order in enumerate(permutations(PARTIES)):
        run = await asked(rows, query, parameters, seed=seed, ring=Ring(order))
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
    rows, queries = _rows(9), rng(10).random((20, 2))
    parameters = bound(2, 3, P0=0.0, rounds=1)
    whole = _locally(rows, queries, parameters)
    monkeypatch.setattr(classify, "INPUT_ENTRIES", 50)
    np.testing.assert_array_equal(_locally(rows, queries, parameters).votes, whole.votes)


def test_the_pooled_classifier_processes_queries_in_parts() -> None:
    """Distances of 20,000 queries to 1,000 rows would take 160 MB at once; labels are equal."""
    draws = rng(0)
    rows, labels, queries = (
        draws.random((1_000, 1)),
        np.arange(1_000) % 2,
        draws.random((20_000, 1)),
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
    draws = rng(2)
    labels = draws.integers(0, CLASSES, 400)
    rows = draws.normal(size=(400, 3)) + draws.normal(size=(CLASSES, 3))[labels]
    return draws.normal(size=(150, 3)), rows, labels


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("k", [1, 2, 5, 9, 30, 400])
def test_the_pooled_classifier_equals_scikit_learns(blobs: Blobs, weights: Weights, k: int) -> None:
    """If no distances tie, the labels are those of KNeighborsClassifier.

    With weights by distance, a query that is a row gets the label of that row.
    """
    queries, rows, labels = blobs
    reference = KNeighborsClassifier(k, weights=weights, algorithm="kd_tree").fit(rows, labels)
    for places in (queries, rows):
        ours = pooled_knn(places, rows, labels, CLASSES, k, weights)
        assert ours.tolist() == reference.predict(places).tolist()
    if weights == "distance":
        assert ours.tolist() == labels.tolist()


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_the_parties_votes_add_up_to_the_pooled_votes(blobs: Blobs, weights: Weights) -> None:
    """For any partition, with one party without rows, local votes sum to the pooled ones.

    Each distance equals the pooled one to the bit: it depends only on its own pair.
    """
    queries, rows, labels = blobs
    pooled = pairwise_distances(queries, rows)
    result = own_smallest(pooled, 7)
    whole = local_votes(pooled, labels, result, CLASSES, weights)
    parts = [slice(0, 10), slice(10, 10), slice(10, 250), slice(250, 400)]
    apart = [pairwise_distances(queries, rows[part]) for part in parts]
    assert np.concatenate(apart, axis=1).tobytes() == pooled.tobytes()
    local = [
        local_votes(distances, labels[part], result, CLASSES, weights)
        for distances, part in zip(apart, parts, strict=True)
    ]
    assert np.sum(local, axis=0) == pytest.approx(whole, rel=1e-14)
    if weights == "uniform":
        assert (whole.sum(axis=1) == 7).all()


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
