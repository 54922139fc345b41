"""kNN in the ring: pooled labels, the cost of a real run, and no claim of an ε."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from tests.estimators.tables import RANGES, scaled, three_classes

from veilring.estimators import PrivateKNNClassifier
from veilring.protocols.ring import pooled_knn

ROWS, LABELS = three_classes(150)
QUERIES, _ = three_classes(60, seed=2)


@pytest.mark.parametrize("k", [1, 5, 150])
@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("partition", ["iid", "dirichlet", "by-label"])
def test_labels_equal_a_pooled_knn(
    k: int,
    weights: Literal["uniform", "distance"],
    partition: Literal["iid", "dirichlet", "by-label"],
) -> None:
    """For any partition, labels equal those of the pooled kNN and of scikit-learn's."""
    model = PrivateKNNClassifier(
        5, k, weights=weights, partition=partition, ranges=RANGES, random_state=4
    ).fit(ROWS, LABELS)
    labels, numbers = model.predict(QUERIES), np.searchsorted(model.classes_, LABELS)
    pooled = pooled_knn(scaled(QUERIES), scaled(ROWS), numbers, 3, k, weights)
    np.testing.assert_array_equal(labels, model.classes_[pooled])
    theirs = KNeighborsClassifier(min(k, len(ROWS)), weights=weights).fit(scaled(ROWS), LABELS)
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


def test_no_epsilon_is_claimed() -> None:
    """The ring reports a measured leakage and no ε, after any number of predictions."""
    model = PrivateKNNClassifier(3, ranges=RANGES).fit(ROWS, LABELS)
    before = model.privacy_
    model.predict(QUERIES)
    assert before.epsilon is None
    assert "not differentially private" in before.note
    assert model.privacy_ == before == replace(before, measure="measured leakage, no ε")
