"""Released models: saved models are read back exactly, and nothing else is accepted."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import polars as pl
import pytest
from tests.protocols.release.schemas import MIXED, NUMERIC, draw_rows, scores_of

import veilring as vr
from veilring.arrays import Floats
from veilring.data.schema import feature_terms
from veilring.data.table import Categories, Features, Ranges
from veilring.errors import InputError
from veilring.protocols.release import model as models
from veilring.protocols.release.algorithm.classifiers import (
    Classifier,
    DirectionClassifier,
    as_document,
    from_document,
)
from veilring.protocols.release.algorithm.rule import Method
from veilring.protocols.release.model import VERSION, ReleasedModel, load_model

ROWS = 300
METHODS = [method for method in get_args(Method) if method != "ridge"]
of_methods = pytest.mark.parametrize("method", METHODS)
MONEY = Features(
    ("income", "age", "sex=f", "sex=m", "land=x"),
    Ranges((0.0, 18.0, 0.0, 0.0, 1.0), (9e4, 99.0, 1.0, 1.0, 1.0)),
    ("no", "yes"),
    (Categories("sex", 2, ("f", "m")), Categories("land", 4, ("x",))),
)
"""A table of numbers in different units and categories, one of which has a single value."""
of_schemas = pytest.mark.parametrize(
    "features", [NUMERIC, MIXED, MONEY], ids=["numbers", "mixed", "money"]
)


def table(features: Features, rows: int = ROWS) -> vr.Table:
    """Draw a table of a schema, in its units; the first feature determines the class."""
    rng = np.random.default_rng(7)
    lows, highs = np.array(features.ranges.lows), np.array(features.ranges.highs)
    unit = draw_rows(features, rows, rng)
    drawn = lows + unit * (highs - lows)
    for each in features.categories:
        drawn[:, each.features] = unit[:, each.features]
    labels = np.minimum((unit[:, 0] * len(features.classes)).astype(int), len(features.classes) - 1)
    return vr.Table("drawn", drawn, labels, features)


def released(features: Features = NUMERIC, **parameters: Any) -> ReleasedModel:
    """Release a table among three parties, with little noise."""
    chosen: dict[str, Any] = {"epsilon": 50.0, "statistic": "means"} | parameters
    run = vr.run(vr.Release(**chosen), table(features).partition(3, seed=1), table(features, 9))
    assert isinstance(run.model, ReleasedModel)
    return run.model


def frame_of(drawn: vr.Table) -> pl.DataFrame:
    """Return the rows of a table in units of its columns, with words for categories."""
    features = drawn.features
    columns: dict[str, list[Any]] = {
        each.name: drawn.X[:, features.names.index(each.name)].tolist()
        for each in feature_terms(features)
        if not each.categories
    }
    for each in features.categories:
        chosen = drawn.X[:, each.features].argmax(axis=1)
        columns[each.column] = np.array(each.values)[chosen].tolist()
    return pl.DataFrame(columns)


@of_schemas
@of_methods
def test_a_saved_model_is_read_back_exactly(
    method: Method, features: Features, tmp_path: Path
) -> None:
    """Schema, guarantee, provenance and scores are equal, and no file is overwritten."""
    if method == "grid" and features.categories:
        pytest.skip("a grid takes numbers alone")
    model, path = released(features, statistic=method), tmp_path / "model.json"
    model.save(path)
    again = load_model(path)
    assert (again.schema, again.promise) == (model.schema, model.promise)
    assert again.provenance == model.provenance
    assert model.provenance.statistic == method
    rows = model.to_unit(table(features))
    scores = [scores_of(each.classifier, rows).tobytes() for each in (again, model)]
    assert scores[0] == scores[1]
    with pytest.raises(InputError, match="does not exist yet"):
        model.save(path)


@of_schemas
def test_rows_in_any_form_are_labelled_alike(features: Features, tmp_path: Path) -> None:
    """A table, an array, a file, and a frame with columns in any order are scaled equally."""
    model, drawn, path = released(features), table(features), tmp_path / "rows.csv"
    frame = frame_of(drawn)
    frame.with_columns(label=pl.lit("a label, which is not read")).write_csv(path)
    unit, expected = features.ranges.to_unit(drawn.X, constant=0.0), model.predict(drawn)
    for rows in (drawn, np.array(drawn.X), path, str(path), frame):
        np.testing.assert_array_equal(model.to_unit(rows), unit)
        assert (model.predict(rows) == expected).all()
    for names in itertools.islice(itertools.permutations(frame.columns), 0, None, 7):
        other = frame.select(names).with_columns(id=pl.lit("x"))
        assert (model.predict(other) == expected).all()


def test_values_in_another_unit_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A frame and an array whose values leave their ranges are counted in a warning of the log."""
    model, drawn = released(MONEY), table(MONEY)
    frame = frame_of(drawn)
    model.predict(frame)
    model.predict(np.array(drawn.X))
    assert not caplog.records
    age = MONEY.names.index("age")
    moved = np.array(drawn.X)
    moved[:, age] = MONEY.ranges.highs[age] + 1
    found = f"column 'age': {len(moved)} of {len(moved)} values are outside of its range"
    for rows in (moved, frame.with_columns(age=pl.lit(MONEY.ranges.highs[age] + 1))):
        caplog.clear()
        model.predict(rows)
        assert found in caplog.text


def test_a_run_leaves_its_model() -> None:
    """It has the run's labels and guarantee, unless a seed revealed the noise: then it has none."""
    train, test = vr.load("wine").split(test_share=0.25, seed=1)
    for system in (vr.Release(), vr.Release(trusted=True), vr.Release(statistic="lda")):
        run = vr.run(system, train.partition(4, seed=1), test)
        model = run.model
        assert isinstance(model, ReleasedModel)
        assert tuple(model.predict(test)) == run.labels
        assert model.promise == run.promise
        made = model.provenance
        peers = (1, 0) if system.trusted else (4, 1)
        assert (made.parties, made.tolerated) == peers
        assert made.rows == len(train)
    seeded = vr.run(vr.Release(), train.partition(4, seed=1), test, seed=1)
    assert isinstance(seeded.model, ReleasedModel)
    assert seeded.model.promise.epsilon is None
    assert seeded.model.promise.guarantee == "no ε: seeded noise"
    assert seeded.promise.epsilon == 1.0
    assert vr.run(vr.DataOwner(), train.partition(4, seed=1), test.take(np.arange(3))).model is None


def test_noise_is_reported_in_units_of_a_row() -> None:
    """For a grid it is the Laplace noise of both honest parties' shares, relative to 1."""
    made = released(statistic="grid", epsilon=1.0, tolerated=1).provenance
    (found,) = made.noise
    variance = 2 * math.exp(-1) / (1 - math.exp(-1)) ** 2  # of discrete Laplace noise
    assert found == pytest.approx(math.sqrt(variance * 3 / 2), rel=1e-9)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"land": None}, "column 'land'"),
        ({"age": "old"}, "a finite number"),
        ({"sex": "d"}, "one of f, m"),
    ],
)
def test_rows_of_another_schema_are_refused(
    changed: dict[str, str | None], says: str, tmp_path: Path
) -> None:
    """A frame and a file without a column, with a word for a number or another word are refused."""
    model, frame, path = released(MONEY), frame_of(table(MONEY)), tmp_path / "rows.csv"
    for name, word in changed.items():
        frame = frame.drop(name) if word is None else frame.with_columns(pl.lit(word).alias(name))
    frame.write_csv(path)
    for rows in (frame, path):
        with pytest.raises(InputError, match=says):
            model.predict(rows)


def test_invalid_rows_are_refused(tmp_path: Path) -> None:
    """Another table, another width, NaN, a gap in a frame and a file of no rows are refused."""
    model, frame, path = released(MONEY), frame_of(table(MONEY)), tmp_path / "rows.csv"
    frame.clear().write_csv(path)
    for rows, says in (
        (table(NUMERIC), "differ from the model"),
        (np.zeros((2, 4)), r"must be \(rows, 5\)"),
        (np.full((2, 5), np.nan), "only numbers"),
        (frame.with_columns(age=pl.lit(None)), "column 'age', row 1 is empty"),
        (path, "no rows"),
    ):
        with pytest.raises(InputError, match=says):
            model.predict(rows)


class Loudest(Classifier):
    """A custom classifier that gives every row the first class."""

    KIND: ClassVar[str] = "directions"

    @property
    def width(self) -> int:
        """The number of features of a row."""
        return 4

    def _score(self, rows: Floats) -> Floats:
        return np.tile([1.0, 0.0, 0.0], (len(rows), 1))


def test_a_custom_classifier_labels_rows_but_has_no_file(tmp_path: Path) -> None:
    """No other program could read it, even under the name of a known kind."""
    model = replace(released(), classifier=Loudest(NUMERIC.classes))
    assert set(model.predict(table(NUMERIC))) == {"class0"}
    with pytest.raises(InputError, match="Loudest has no document"):
        model.save(tmp_path / "model.json")
    assert not (tmp_path / "model.json").exists()
    with pytest.raises(InputError, match="differ from those of the schema"):
        replace(model, classifier=Loudest(("a", "b")))


COUNTS: dict[str, object] = {"kind": "counts", "features": 4, "numbers": [], "cuts": 1}
COUNTS |= {"firsts": [], "values": [], "log_priors": [0.0] * 3, "log_shares": [[0.0]] * 3}
GRID: dict[str, object] = {"kind": "grid", "features": 4, "side": 2, "log_shares": [[0.0] * 3]}
ABSENT = object()
INVALID: list[tuple[str, object, str]] = [
    ("format", "another", "format: "),
    ("format", ABSENT, "format: Field required"),
    ("version", VERSION + 1, f"version: Input should be {VERSION} for veilring"),
    ("version", ABSENT, "version: "),
    ("extra", 1, "extra: "),
    ("classes", ["a", "b"], "biases has the shape|weights has the shape"),
    ("classes", ["a", "a", "b"], "without repeated names"),
    ("classes", [], "classes: "),
    ("features", [], "features: "),
    ("features", [{"name": "x"}], "takes 4 features"),
    ("features", [{"name": "x"}] * 4, "without repeated names"),
    ("features", [{"name": "x", "low": math.nan}], "low: "),
    ("features", [{"name": "x", "low": 2.0, "high": 1.0}], "at least low"),
    ("promise.epsilon", ABSENT, "promise.epsilon: "),
    ("promise.epsilon", math.inf, "promise.epsilon: "),
    ("promise.epsilon", "1", "promise.epsilon: "),
    ("promise.extra", "1", "promise.extra: "),
    ("release.rows", 1.5, "release.rows: "),
    ("release.noise", [math.nan], "release.noise.0: "),
    ("classifier", ABSENT, "classifier: "),
    ("classifier.kind", "forest", "kind is 'forest'"),
    ("classifier.classes", ["a"], "its own classes"),
    ("classifier.weights", [[10**400] * 4] * 3, "has the wrong type"),
    ("classifier.units", [0.0] * 4, "above 0"),
    ("classifier.calibrated", 1, "has the wrong type; load the file unchanged$"),
    # Numbers that would make a program compute much, or need much memory.
    ("classifier", GRID | {"side": 10**9}, "fewer cells than"),
    ("classifier", GRID | {"features": 10**9, "log_shares": [[0.0] * 3] * 2}, "fewer cells than"),
    ("classifier", COUNTS | {"numbers": [0], "cuts": 10**300}, r"it must be \(3, 100000"),
    ("classifier", COUNTS | {"firsts": [3], "values": [2**63 - 1]}, "within the features"),
]


@pytest.mark.parametrize(("key", "value", "says"), INVALID, ids=range(len(INVALID)))
def test_an_invalid_file_is_refused(key: str, value: object, says: str, tmp_path: Path) -> None:
    """The error names the file and the wrong field; no file causes work beyond its own length."""
    path, document = tmp_path / "model.json", released().as_document()
    *way, last = key.split(".")
    changed = document[way[0]] if way else document
    if value is ABSENT:
        del changed[last]
    else:
        changed[last] = value
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=says) as refused:
        load_model(path)
    assert str(refused.value).startswith("model.json is not a released model: ")


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", "[" * 100_000, "1" * 5000, "\xff"])
def test_a_foreign_file_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is refused if it is missing, too large or not valid JSON of its kind."""
    path = tmp_path / "model.json"
    with pytest.raises(InputError, match=r"model\.json"):
        load_model(path)
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"model\.json"):
        load_model(path)
    monkeypatch.setattr(models, "MODEL_BYTES_MAX", 10)
    path.write_text(" " * 11)
    with pytest.raises(InputError, match="more than 10 bytes"):
        load_model(path)


def test_a_model_shows_its_promise_and_its_origin() -> None:
    """Its text lists both, and its representation has the guarantee."""
    model = released(MONEY, epsilon=1.0)
    for text in (
        "columns       4",
        "classes       no, yes",
        "3, of which up to 1 may collude",
        "ε = 1",
    ):
        assert text in str(model)
    assert "ε = 1, δ = 1e-05 for each release" in repr(model)


def classifier_of(method: Method) -> tuple[Classifier, Floats]:
    """Return a classifier of categories, if it supports them, and rows for it."""
    features = NUMERIC if method == "grid" else MIXED
    rows = draw_rows(features, 60, np.random.default_rng(1))
    found = released(features, statistic=method).classifier
    assert isinstance(found, Classifier)
    return found, rows


@of_methods
def test_a_score_decides_each_label(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels and probabilities have the greatest score, in any block; rows need their width."""
    classifier, rows = classifier_of(method)
    scores = classifier.scores(rows)
    assert scores.shape == (60, 3)
    assert np.array_equal(classifier.predict(rows), scores.argmax(axis=1))
    assert classifier.scores(rows[:0]).shape == (0, 3)
    assert classifier.has_probabilities
    shares = classifier.predict_proba(rows)
    assert shares.sum(axis=1) == pytest.approx(1)
    assert np.array_equal(shares.argmax(axis=1), scores.argmax(axis=1))
    with pytest.raises(InputError, match="it must be"):
        classifier.predict(np.hstack((rows, rows[:, :1])))
    monkeypatch.setattr("veilring.protocols.release.algorithm.classifiers._BLOCK", 1)
    assert classifier.scores(rows) == pytest.approx(scores)


def test_scores_that_are_no_logarithms_give_no_probabilities() -> None:
    """A linear classifier that is not calibrated labels rows, and refuses probabilities."""
    found, rows = classifier_of("means")
    assert isinstance(found, DirectionClassifier)
    cosines = replace(found, calibrated=False)
    assert np.array_equal(cosines.best_scores(rows), found.scores(rows))
    with pytest.raises(InputError, match="no probabilities"):
        cosines.predict_proba(rows)


@of_methods
def test_invalid_classifiers_are_refused(method: Method) -> None:
    """Every field that is missing, unknown, ragged, not finite or of another type is refused."""
    document = as_document(classifier_of(method)[0])
    changed: list[dict[str, Any]] = [{"more": 1}, {"kind": "forest"}, {"kind": [1]}]
    for name, value in document.items():
        others: list[Any] = [None, "text", {"a": 1}, 1.5]
        if isinstance(value, list):
            others += [[*value, value[0]]] if value else []
            others += [[[1, 2], [3]], [float("nan")] * max(1, len(value))]
        elif not isinstance(value, str):
            others.append(-1)
        changed += [{name: other} for other in others]
    documents = [document | each for each in changed]
    documents += [{name: document[name] for name in document if name != gone} for gone in document]
    for each in documents:
        with pytest.raises(InputError):
            from_document(each)
