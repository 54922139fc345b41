"""Rank search as a classifier: pooled labels, the cost of a real run, and no claim of an ε."""

from typing import Literal

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from tests.estimators.tables import RANGES, scaled, three_classes

from veilring.estimators import RankSearchClassifier, as_classifier
from veilring.protocols.ranksearch.system import RankSearch
from veilring.protocols.ring import pooled_knn

ROWS, LABELS = three_classes(150)
QUERIES, _ = three_classes(60, seed=2)


@pytest.mark.parametrize("k", [1, 5, 150])
@pytest.mark.parametrize("partition", ["iid", "dirichlet", "by-label"])
def test_labels_equal_a_pooled_knn(
    k: int, partition: Literal["iid", "dirichlet", "by-label"]
) -> None:
    """For any partition, labels equal those of the pooled kNN and of scikit-learn's."""
    model = RankSearchClassifier(5, k, partition=partition, ranges=RANGES, random_state=4)
    labels = model.fit(ROWS, LABELS).predict(QUERIES)
    numbers = np.searchsorted(model.classes_, LABELS)
    pooled = pooled_knn(scaled(QUERIES), scaled(ROWS), numbers, 3, k)
    np.testing.assert_array_equal(labels, model.classes_[pooled])
    theirs = KNeighborsClassifier(k).fit(scaled(ROWS), LABELS)
    np.testing.assert_array_equal(labels, theirs.predict(scaled(QUERIES)))


def test_queries_beyond_a_batch_are_asked_in_several() -> None:
    """Labels stay the same, and each batch has its own set-up."""
    whole = RankSearchClassifier(3, ranges=RANGES, random_state=4).fit(ROWS, LABELS)
    parts = RankSearchClassifier(3, ranges=RANGES, random_state=4, batch=20).fit(ROWS, LABELS)
    np.testing.assert_array_equal(whole.predict(QUERIES), parts.predict(QUERIES))
    assert parts.cost_.setup.messages == 3 * whole.cost_.setup.messages


def test_no_epsilon_is_claimed() -> None:
    """Totals are exact for any number of requests."""
    model = RankSearchClassifier(3, ranges=RANGES).fit(ROWS, LABELS)
    before = model.privacy_
    model.predict(QUERIES)
    assert before.epsilon is None
    assert before.guarantee == "sums only, no ε"
    assert model.privacy_ == before


def test_a_system_becomes_the_same_classifier() -> None:
    """Every parameter of a deployment is a parameter of the classifier."""
    model = as_classifier(RankSearch(k=3, arity=4, weights="distance"), parties=4)
    assert isinstance(model, RankSearchClassifier)
    assert model.get_params().items() >= {"k": 3, "arity": 4, "parties": 4}.items()
