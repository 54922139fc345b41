"""PP-kNN without a network has the answers of networked parties."""

import tracemalloc
from itertools import permutations

import numpy as np
import pytest
from scipy import stats
from tests.protocols.ring.worlds import bound

from veilring.arrays import Floats
from veilring.data.table import Rows, pairwise_distances
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import Ring
from veilring.protocols.ring import FixedPoint, KNNParameters, Weights, pooled_knn, private_knn
from veilring.protocols.ring.algorithm import classify
from veilring.protocols.ring.algorithm.classify import Classified, ring_knn
from veilring.protocols.ring.roles import SCALE_BITS

FALSE_ALARM = 1e-6
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


@pytest.mark.parametrize("weights", ["uniform", "distance"])
async def test_without_noise_it_equals_the_networked_answer(weights: Weights) -> None:
    """With P0 = 0 labels, vote totals and nearest distances are equal to the bit."""
    rows, queries = _rows(1), np.random.default_rng(2).random((40, 2))
    parameters = bound(2, 3, P0=0.0, rounds=1, weights=weights)
    async with Cluster(PARTIES, own=rows, seed=3) as cluster:
        run = await cluster.run(
            private_knn, only={"a": {"queries": queries}}, client="a", parameters=parameters
        )
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
    async with Cluster(PARTIES, own=rows, seed=5) as cluster:
        for order in permutations(PARTIES):
            run = await cluster.run(
                private_knn,
                only={"a": {"queries": query}},
                client="a",
                parameters=parameters,
                ring=Ring(order),
            )
            radii.append(run.result.nearest[:, -1])
            labels.append(run.result.labels)
    found = _locally(rows, query.repeat(6, axis=0), parameters, seed=6)
    same_radius = stats.ks_2samp(np.concatenate(radii), found.nearest[:, -1]).pvalue
    assert same_radius > FALSE_ALARM / 2
    counts = [np.bincount(each, minlength=3) for each in (np.concatenate(labels), found.labels)]
    met = np.sum(counts, axis=0) > 0
    assert met.sum() > 1  # else the label would say nothing
    assert stats.chi2_contingency(np.array(counts)[:, met]).pvalue > FALSE_ALARM / 2


def test_enough_rounds_give_the_pooled_labels() -> None:
    """With an error of PP-TopK below 1e-20, the labels are those of the pooled classifier."""
    rows, queries = _rows(7), np.random.default_rng(8).random((50, 2))
    parameters = bound(2, 3, k=3, rounds=12, weights="distance")
    features = np.concatenate([party.features for party in rows])
    labels = np.concatenate([party.labels for party in rows])
    pooled = pooled_knn(queries, features, labels, 3, 3, "distance")
    np.testing.assert_array_equal(_locally(rows, queries, parameters).labels, pooled)


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
