"""The tree walk as a system: its guarantee, cost and labels on every runtime."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from tests.protocols.test_served import WAYS, handed, played

from veilring.protocols.treewalk.system import TreeWalk


@pytest.mark.parametrize("way", [name for name, each in WAYS.items() if each.name == "tree-walk"])
def test_a_query_spends_at_most_epsilon(way: str) -> None:
    """The drawn distribution is slightly noisier than requested, for any number of batches."""
    setup = handed(WAYS[way].replaced(epsilon=6.0))
    spent = setup.spent(3)
    assert spent == setup.spent(1)
    assert spent.epsilon is not None
    assert 0.999999 * 6.0 < spent.epsilon <= 6.0
    assert (spent.delta, spent.times, spent.unit) == (0.0, 1, "query")
    assert setup.promise.epsilon == spent.epsilon


def test_the_promise() -> None:
    """The guarantee covers any two queries."""
    promise = TreeWalk().promise()
    assert (promise.epsilon, promise.delta, promise.unit) == (8.0, 0.0, "query")
    assert (promise.measure, promise.adjacency) == ("ε-LDP", "any two queries")


async def test_equal_queries_of_a_batch_are_asked_once() -> None:
    """Equal queries of a batch have one answer, are paid for once and keep their positions."""
    setup = handed(TreeWalk(epsilon=1e-3, k=1))
    queries = np.random.default_rng(2).random((10, 2))
    twice = np.vstack([queries[::-1], queries, queries])
    run, play = await played(setup, twice), setup.play(twice)
    cost = play.forecast(run)
    assert cost == setup.lookup.cost(10)
    assert (run.cost.rounds, run.cost.bytes) == (cost.rounds, cost.traffic.bytes)
    labels = run.results["ann"]
    np.testing.assert_array_equal(labels[10:20], labels[:10][::-1])
    np.testing.assert_array_equal(labels[20:], labels[10:20])


def test_the_reference_is_the_classifier_without_privacy() -> None:
    """The reference equals scikit-learn over all rows, and a look-up of all rows."""
    setup = handed(TreeWalk(k=3, by="walk", splits=6))
    queries = np.random.default_rng(2).random((30, 2))
    rows = np.vstack([part.features for part in setup.parts.values()])
    labels = np.concatenate([part.labels for part in setup.parts.values()])
    expected = KNeighborsClassifier(3).fit(rows, labels).predict(queries)
    np.testing.assert_array_equal(setup.reference(queries), expected)
    np.testing.assert_array_equal(setup.label(queries, np.random.default_rng(0)), expected)
