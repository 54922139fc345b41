"""Releases: one sum in `fit`, then any number of labels, and a model file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.estimators.tables import RANGES, three_classes

import veilring as vr
from veilring.estimators import ReleasedClassifier

ROWS, LABELS = three_classes(150)
QUERIES, TRUTH = three_classes(400, seed=2)


def test_predicting_is_free() -> None:
    """One release is spent by `fit`, and nothing by any number of batches."""
    model = ReleasedClassifier(epsilon=1.5, ranges=RANGES).fit(ROWS, LABELS)
    before, cost = model.privacy_, model.cost_
    for queries in (QUERIES, QUERIES[:3], QUERIES[::-1]):
        model.predict(queries)
    assert (model.privacy_, model.cost_) == (before, cost)
    assert (before.epsilon, before.unit) == (1.5, "release")
    assert before.guarantee.startswith("ε = 1.5")


def test_a_pure_release_is_reported_as_pure() -> None:
    """Counts need no δ, even if one was allowed."""
    for statistic, measure in (("grid", "pure ε-DP"), ("means", "(ε, δ)-DP")):
        model = ReleasedClassifier(statistic=statistic, ranges=RANGES).fit(ROWS, LABELS)
        assert model.privacy_.measure == model.model_.promise.measure == measure
        assert (model.privacy_.delta == 0.0) == (measure == "pure ε-DP")


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("statistic", ["means", "lda", "counts", "grid", "trees"])
def test_its_model_is_a_file_with_equal_labels(
    statistic: Any, trusted: bool, tmp_path: Path
) -> None:
    """This holds for ranges of zero width; the file has class names and the guarantee."""
    wide = np.c_[ROWS, np.ones(len(ROWS))] if statistic != "grid" else ROWS
    ranges = ([-4.0, -4.0, 1.0][: wide.shape[1]], [4.0, 4.0, 1.0][: wide.shape[1]])
    model = ReleasedClassifier(
        epsilon=30.0, statistic=statistic, trusted=trusted, ranges=ranges, random_state=1
    ).fit(wide, LABELS)
    labels = model.predict(wide)
    # With next to no noise all statistics find three clusters that lie apart.
    assert (labels == LABELS).mean() > 0.8
    model.model_.save(tmp_path / "model.json")
    kept = vr.load_model(tmp_path / "model.json")
    assert (kept.predict(wide) == labels).all()
    assert kept.promise == model.privacy_
    assert kept.schema.classes == ("ash", "elm", "oak")


@pytest.mark.parametrize(
    ("given", "why"), [({}, "ranges"), ({"ranges": RANGES, "random_state": 1}, "seed")]
)
def test_a_model_that_reveals_more_states_it_in_its_file(given: Any, why: str) -> None:
    """With ranges of the rows and a seed, the file claims no ε."""
    promise = ReleasedClassifier(**given).fit(ROWS, LABELS).model_.promise
    assert promise.epsilon is None
    assert why in promise.measure


def test_probabilities_exist_only_for_probabilistic_scores() -> None:
    """Class means have none; the others sum to 1, and the label has the greatest."""
    means = ReleasedClassifier(statistic="means", ranges=RANGES).fit(ROWS, LABELS)
    assert not hasattr(means, "predict_proba")
    model = ReleasedClassifier(statistic="lda", ranges=RANGES).fit(ROWS, LABELS)
    found = model.predict_proba(QUERIES)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[found.argmax(axis=1)], model.predict(QUERIES))


def test_columns_of_a_frame_become_those_of_the_model() -> None:
    """Otherwise they are numbered."""
    fitted = ReleasedClassifier(ranges=RANGES).fit(ROWS, LABELS)
    assert [each.name for each in fitted.model_.schema.features] == ["x0", "x1"]
