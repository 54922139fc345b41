"""Released classifiers as documents: restored exactly, and nothing else is accepted."""

import json
from typing import Any

import numpy as np
import pytest
from tests.protocols.release.schemas import MIXED, NUMERIC, draw_rows, some_frame

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.protocols.release.algorithm.classifiers import (
    Classifier,
    Trees,
    as_document,
    from_document,
)
from veilring.protocols.release.algorithm.directions import ClassMeans, Discriminant
from veilring.protocols.release.algorithm.statistic import Statistic
from veilring.protocols.release.algorithm.tallies import ClassCounts, LabelledGrid, RandomTrees


def released(kind: str) -> tuple[Classifier, Floats]:
    """Return a classifier from noisy sums, and rows for it."""
    rng = np.random.default_rng(1)
    features = NUMERIC if kind == "grid" else MIXED
    made: dict[str, Statistic[Classifier]] = {
        "means": ClassMeans(features, some_frame(features)),
        "lda": Discriminant(features, some_frame(features)),
        "counts": ClassCounts(features),
        "grid": LabelledGrid(NUMERIC, 3),
        "trees": RandomTrees(features, Trees.draw(features, rng, trees=2, depth=3)),
    }
    statistic = made[kind]
    rows, labels = draw_rows(features, 60, rng), rng.integers(3, size=60)
    noise = rng.integers(-3, 4, statistic.length)
    return statistic.decode(statistic.sum(rows, labels) + noise, 2.0), rows


KINDS = ("means", "lda", "counts", "grid", "trees")


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifier_survives_json(kind: str) -> None:
    """Scores after a JSON round trip equal those before, bit for bit."""
    model, rows = released(kind)
    again = from_document(json.loads(json.dumps(as_document(model), allow_nan=False)))
    assert type(again) is type(model)
    assert again.classes == model.classes
    assert np.array_equal(again.scores(rows), model.scores(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_labels_have_the_greatest_score_and_probabilities_sum_to_one(kind: str) -> None:
    """Predictions agree with scores, and with probabilities if there are any."""
    model, rows = released(kind)
    scores = model.scores(rows)
    assert scores.shape == (60, 3)
    assert np.array_equal(model.predict(rows), scores.argmax(axis=1))
    assert model.scores(rows[:0]).shape == (0, 3)
    assert model.has_probabilities == (kind != "means")
    if model.has_probabilities:
        shares = model.predict_proba(rows)
        assert shares.sum(axis=1) == pytest.approx(1)
        assert np.array_equal(shares.argmax(axis=1), scores.argmax(axis=1))


@pytest.mark.parametrize("kind", KINDS)
def test_scores_do_not_depend_on_blocks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows scored one at a time get the labels that they get together."""
    model, rows = released(kind)
    together = model.scores(rows)
    monkeypatch.setattr("veilring.protocols.release.algorithm.classifiers._BLOCK", 1)
    assert model.scores(rows) == pytest.approx(together)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_another_width_are_refused(kind: str) -> None:
    """A row with one feature too many is refused."""
    model, rows = released(kind)
    with pytest.raises(InputError, match="it must be"):
        model.predict(np.hstack((rows, rows[:, :1])))


def every_change(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return documents with one field missing, of another type or shape, or not finite."""
    changed = [{**document, "more": 1}, {**document, "kind": "forest"}, {**document, "kind": [1]}]
    for name, value in document.items():
        changed.append({key: held for key, held in document.items() if key != name})
        changed += [{**document, name: other} for other in (None, "text", {"a": 1}, 1.5)]
        if isinstance(value, list):
            changed += [{**document, name: [*value, value[0]]} for _ in value[:1]]
            changed.append({**document, name: [[1, 2], [3]]})
            changed.append({**document, name: [float("nan")] * max(1, len(value))})
        elif not isinstance(value, str):
            changed.append({**document, name: -1})
    return changed


@pytest.mark.parametrize("kind", KINDS)
def test_invalid_documents_are_refused(kind: str) -> None:
    """Every field that is missing, unknown, ragged, not finite or of another type is refused."""
    document = as_document(released(kind)[0])
    for changed in every_change(document):
        with pytest.raises(InputError):
            from_document(changed)
