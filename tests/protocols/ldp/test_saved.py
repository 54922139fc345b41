"""Classifiers as files: exact, with their public steps, and nothing else is accepted."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.privacy.generators import seeded

from veilring.arrays import Floats
from veilring.data.table import Ranges
from veilring.errors import InputError
from veilring.estimators import LDPGaussianNaiveBayes, LDPNaiveBayes
from veilring.protocols.ldp.algorithm.bayes import Classifier, learn
from veilring.protocols.ldp.algorithm.means import make_means
from veilring.protocols.ldp.algorithm.oracles import DirectEncoding, OptimisedUnary
from veilring.protocols.ldp.algorithm.steps import Bins, Scaling, principal_components
from veilring.protocols.ldp.algorithm.survey import (
    DiscreteBayesSurvey,
    GaussianBayesSurvey,
    Tally,
    answer,
    tally_reports,
)
from veilring.protocols.ldp.saved import load_classifier, save_classifier

Case = tuple[Classifier, Floats]


def cases() -> list[Case]:
    """Return classifiers of each kind with rows, one of them with infinities in its evidence."""
    rng = seeded("models")
    rows, labels = rng.normal(0.0, 3.0, (50, 3)), rng.integers(0, 2, 50)
    ranges = Ranges((-2.0, -3.0, 0.1), (2.0, 3.5, 0.7))
    bins = (Bins(ranges, (3, 2, 4)),)
    discrete = DiscreteBayesSurvey.of((3, 2, 4), 2, lambda d: OptimisedUnary(d, 1.0), bins)
    projection = principal_components(rng.normal(size=(20, 3)), 2, origin="drawn for this test")
    steps = (projection, Scaling(Ranges((-4.0, -4.0), (4.0, 4.0))))
    gaussian = GaussianBayesSurvey(DirectEncoding(2, 1.0), make_means(1.0, 2, 2), steps)
    told, moments = (
        tally_reports(each, answer(each, rows, labels, rng).reports)
        for each in (discrete, gaussian)
    )
    pairs = ((discrete, told), (discrete, Tally.empty(discrete)), (gaussian, moments))
    return [(learn(survey, tally), rows) for survey, tally in pairs]


@pytest.mark.parametrize("number", range(3))
def test_a_saved_classifier_is_read_back_exactly(number: int, tmp_path: Path) -> None:
    """Steps, counts, moments, evidence and infinities are exact; files are never overwritten."""
    (classifier, rows), path = cases()[number], tmp_path / "model.json"
    save_classifier(classifier, path)
    again = load_classifier(path)
    assert again.steps == classifier.steps
    assert repr(again) == repr(classifier)
    assert again.joint(rows).tobytes() == classifier.joint(rows).tobytes()
    for one, other in zip(again.model.evidence, classifier.model.evidence, strict=True):
        for name in ("values", "variance", "low", "high"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    with pytest.raises(InputError, match="nothing is overwritten"):
        save_classifier(classifier, path)


@pytest.mark.parametrize(
    "estimator", [LDPNaiveBayes(ranges=(-12.0, 12.0)), LDPGaussianNaiveBayes(math.inf)], ids=repr
)
def test_a_saved_estimator_is_not_needed_to_classify(
    estimator: LDPNaiveBayes | LDPGaussianNaiveBayes, tmp_path: Path
) -> None:
    """The file alone classifies the original rows of the estimator."""
    rng = seeded("saved estimator")
    rows, labels = rng.normal(0.0, 3.0, (200, 3)), rng.integers(0, 2, 200)
    estimator.fit(rows, labels)
    save_classifier(estimator.model_, tmp_path / "model.json")
    found = load_classifier(tmp_path / "model.json").log_probabilities(rows)
    assert (found == estimator.predict_log_proba(rows)).all()


def step(kind: str, **fields: Any) -> dict[str, Any]:
    """Return the steps of a file: one that does not fit the model, or no step at all."""
    return {"steps": [{"step": kind, "lows": [0.0], "highs": [1.0], **fields}]}


RANGES = {"step": "ranges", "lows": [0.0] * 5, "highs": [1.0] * 5}
CHANGES: list[dict[str, Any]] = [
    {"version": 1},
    {"format": "another"},
    {"kind": "forest"},
    *(
        {"class_counts": each}
        for each in (
            [[1.0]],
            ["nan", 1.0],
            [math.nan, 1.0],
            [math.inf, 1.0],
            [-1.0, 1.0],
            [10**400, 1.0],
            [],
        )
    ),
    {"feature_counts": [[[1.0]]]},
    {"evidence": [{}]},
    {"evidence": []},
    *({"smoothing": each} for each in (None, math.nan, -1.0, math.inf, 10**400)),
    {"steps": None},
    step("magic"),
    step("ranges"),
    step("ranges", highs=[math.inf]),
    step("ranges", lows=[1.0], highs=[0.0]),
    *(step("bins", counts=[each]) for each in (math.inf, 2.5, 0, 10**400, 7)),
    {"steps": [{"step": "projection", "centre": [0.0], "axes": [[1.0]], "origin": ""}]},
    {"steps": [RANGES, {"step": "bins", "lows": [0.0], "highs": [1.0], "counts": [2]}]},
]
EVIDENCE: list[dict[str, Any]] = [
    {"values": ["inf"]},
    {"values": [math.nan]},
    {"variance": [-1.0]},
    {"low": ["nan"]},
    {"high": [0.0, 0.0, 0.0]},
    {"clients": -1},
    {"clients": 1.5},
    {"clients": math.inf},
]
MOMENTS: list[dict[str, Any]] = [
    {"means": [[1.5, 0.0], [0.0, 0.0]]},
    {"means": [[math.nan, 0.0], [0.0, 0.0]]},
    {"variances": [[0.0, 0.5], [0.5, 0.5]]},
    {"variances": [[math.inf, 0.5], [0.5, 0.5]]},
    {"variances": [[0.5, 0.5]]},
]


@pytest.mark.parametrize(
    ("number", "within", "change"),
    [
        *((0, "", each) for each in CHANGES),
        *((0, "evidence", each) for each in EVIDENCE),
        *((2, "", each) for each in MOMENTS),
    ],
    ids=str,
)
def test_an_invalid_file_is_refused(
    number: int, within: str, change: dict[str, Any], tmp_path: Path
) -> None:
    """A wrong version, kind, shape, number, moment, estimate or step is refused by the name."""
    path = tmp_path / "model.json"
    save_classifier(cases()[number][0], path)
    content = json.loads(path.read_text())
    (content[within][0] if within else content).update(change)
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"model\.json"):
        load_classifier(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", "[" * 100_000, "1" * 5000])
def test_a_foreign_file_is_refused(text: str, tmp_path: Path) -> None:
    """A file is refused if it is missing or is not valid JSON of its kind."""
    path = tmp_path / "model.json"
    with pytest.raises(InputError, match=r"model\.json"):
        load_classifier(path)
    path.write_text(text)
    with pytest.raises(InputError, match=r"model\.json"):
        load_classifier(path)


def test_a_model_without_its_steps_refuses_numbers(tmp_path: Path) -> None:
    """If the bins were removed from a file, numbers are refused with the reason."""
    path = tmp_path / "model.json"
    save_classifier(
        LDPNaiveBayes(ranges=(0.0, 1.0)).fit(np.zeros((20, 2)), np.arange(20) % 2).model_, path
    )
    path.write_text(json.dumps({**json.loads(path.read_text()), "steps": []}))
    with pytest.raises(InputError, match="number the values first"):
        load_classifier(path).classify(np.array([[0.5, 0.5]]))
