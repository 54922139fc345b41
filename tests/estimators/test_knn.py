"""kNN over all rows: pooled labels, the cost of several batches, and no claim of an ε."""

from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from tests.estimators.tables import RANGES, scaled, three_classes

from veilring.estimators import PrivateKNNClassifier, RankSearchClassifier, as_classifier
from veilring.protocols.ranksearch.system import RankSearch
from veilring.protocols.ring import pooled_knn

ROWS, LABELS = three_classes(150)
QUERIES, _ = three_classes(60, seed=2)
both = pytest.mark.parametrize("kind", [PrivateKNNClassifier, RankSearchClassifier])


@both
@pytest.mark.parametrize("k", [1, 5, 150])
@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("partition", ["iid", "dirichlet", "by-label"])
def test_labels_equal_a_pooled_knn(kind: Any, k: int, weights: Any, partition: str) -> None:
    """For any partition, labels equal those of the pooled kNN and of scikit-learn's."""
    model = kind(5, k, weights=weights, partition=partition, ranges=RANGES, random_state=4)
    labels = model.fit(ROWS, LABELS).predict(QUERIES)
    numbers = np.searchsorted(model.classes_, LABELS)
    pooled = pooled_knn(scaled(QUERIES), scaled(ROWS), numbers, 3, k, weights)
    np.testing.assert_array_equal(labels, model.classes_[pooled])
    theirs = KNeighborsClassifier(k, weights=weights).fit(scaled(ROWS), LABELS)
    np.testing.assert_array_equal(labels, theirs.predict(scaled(QUERIES)))
    assert sorted(np.concatenate(model.parts_)) == list(range(150))
    assert len(model.parts_) == 5


def test_queries_beyond_a_message_are_asked_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels stay the same, and each batch costs a ring."""
    model = PrivateKNNClassifier(3, ranges=RANGES, random_state=4).fit(ROWS, LABELS)
    whole, cost = model.predict(QUERIES), model.cost_
    monkeypatch.setattr("veilring.protocols.ring.roles.CONTENT_BYTES_MAX", 8 * 5 * 20)
    model.fit(ROWS, LABELS)
    np.testing.assert_array_equal(model.predict(QUERIES), whole)
    assert model.cost_.rounds == 3 * cost.rounds
    assert model.cost_.traffic.messages == 3 * cost.traffic.messages


def test_queries_beyond_a_batch_are_asked_in_several() -> None:
    """Labels stay the same, and each batch has its own set-up."""
    whole = RankSearchClassifier(3, ranges=RANGES, random_state=4).fit(ROWS, LABELS)
    parts = RankSearchClassifier(3, ranges=RANGES, random_state=4, batch=20).fit(ROWS, LABELS)
    np.testing.assert_array_equal(whole.predict(QUERIES), parts.predict(QUERIES))
    assert parts.cost_.setup.messages == 3 * whole.cost_.setup.messages


@both
def test_no_epsilon_is_claimed(kind: Any) -> None:
    """The kind of leakage is reported instead, after any number of predictions."""
    model = kind(3, ranges=RANGES).fit(ROWS, LABELS)
    before = model.privacy_
    model.predict(QUERIES)
    measures = {"measured leakage, no ε", "sums only, no ε"}
    assert before.epsilon is None
    assert before.measure in measures
    assert model.privacy_ == before


def test_a_system_becomes_the_same_classifier() -> None:
    """Every parameter of a deployment is a parameter of the classifier."""
    model = as_classifier(RankSearch(k=3, arity=4, weights="distance"), parties=4)
    assert isinstance(model, RankSearchClassifier)
    assert model.get_params().items() >= {"k": 3, "arity": 4, "parties": 4}.items()
