"""Released models: saved models are read back exactly, and nothing else is accepted."""

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import polars as pl
import pytest
from tests.protocols.release.schemas import MIXED, NUMERIC, draw_rows

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
of_methods = pytest.mark.parametrize("method", get_args(Method))
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
    columns: dict[str, list[float] | list[str]] = {}
    features = drawn.features
    words = {each.column: each for each in features.categories}
    for each in feature_terms(features):
        if each.name in words:
            chosen = drawn.X[:, words[each.name].features].argmax(axis=1)
            columns[each.name] = [each.categories[number] for number in chosen]
        else:
            columns[each.name] = drawn.X[:, features.names.index(each.name)].tolist()
    return pl.DataFrame(columns)


def write_csv(path: Path, drawn: vr.Table) -> Path:
    """Write a table's rows as users have them: a category is one cell, and the label is last."""
    labels = [drawn.features.classes[label] for label in drawn.y]
    frame_of(drawn).with_columns(label=pl.Series(labels)).write_csv(path)
    return path


@of_schemas
@of_methods
def test_a_saved_model_is_read_back_exactly(
    method: str, features: Features, tmp_path: Path
) -> None:
    """Schema, guarantee, provenance and scores are equal, and no file is overwritten."""
    if method == "grid" and features.categories:
        pytest.skip("a grid takes numbers alone")
    model, path = released(features, statistic=method), tmp_path / "model.json"
    model.save(path)
    again = load_model(path)
    assert (again.schema, again.promise) == (model.schema, model.promise)
    assert again.provenance == model.provenance
    rows = model.to_unit(table(features))
    assert again.classifier.scores(rows).tobytes() == model.classifier.scores(rows).tobytes()
    with pytest.raises(InputError, match="does not exist yet"):
        model.save(path)


@of_schemas
def test_a_table_an_array_and_a_file_are_labelled_alike(features: Features, tmp_path: Path) -> None:
    """All are scaled like the rows of the release."""
    model, drawn = released(features), table(features)
    expected = model.predict(drawn)
    assert (model.predict(np.array(drawn.X)) == expected).all()
    assert (model.predict(write_csv(tmp_path / "rows.csv", drawn)) == expected).all()
    unit = features.ranges.to_unit(drawn.X, constant=0.0)
    np.testing.assert_array_equal(model.to_unit(drawn), unit)
    np.testing.assert_array_equal(model.to_unit(str(tmp_path / "rows.csv")), unit)


@of_schemas
def test_a_data_frame_is_read_by_the_names_of_its_columns(features: Features) -> None:
    """Any order of the columns, and further ones, give the labels of the table."""
    model, drawn = released(features), table(features)
    expected, frame = model.predict(drawn), frame_of(drawn)
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


def test_a_data_frame_that_does_not_fit_is_refused() -> None:
    """A missing column, words for numbers, a gap and an unknown category are named."""
    model, frame = released(MONEY), frame_of(table(MONEY))
    for other, says in (
        (frame.drop("land"), "no column 'land'"),
        (frame.with_columns(age=pl.lit("old")), "column 'age', row 1: .* a finite number"),
        (frame.with_columns(age=pl.lit(None)), "column 'age', row 1: .* a finite number"),
        (frame.with_columns(sex=pl.lit("d")), "column 'sex', row 1: .* one of f, m"),
    ):
        with pytest.raises(InputError, match=says):
            model.predict(other)


def test_a_run_leaves_its_model() -> None:
    """The model's labels and guarantee are those of the run."""
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
    assert vr.run(vr.DataOwner(), train.partition(4, seed=1), test.take(np.arange(3))).model is None


def test_a_seeded_release_promises_no_epsilon() -> None:
    """A seeded release promises no ε, since the seed reveals the noise, and its file shows it."""
    drawn = table(NUMERIC)
    run = vr.run(vr.Release(), drawn.partition(3, seed=1), drawn.take(np.arange(2)), seed=1)
    assert isinstance(run.model, ReleasedModel)
    assert run.model.promise.epsilon is None
    assert run.model.promise.guarantee == "no ε: seeded noise"
    assert run.promise.epsilon == 1.0


def test_noise_is_reported_in_units_of_a_row() -> None:
    """For a grid it is the Laplace noise of both honest parties' shares, relative to 1."""
    made = released(statistic="grid", epsilon=1.0, tolerated=1).provenance
    (found,) = made.noise
    variance = (
        2 * math.exp(-1) / (1 - math.exp(-1)) ** 2
    )  # of discrete Laplace, counts in steps of 1
    assert found == pytest.approx(math.sqrt(variance * 3 / 2), rel=1e-9)


def test_invalid_rows_are_refused(tmp_path: Path) -> None:
    """Other columns, words for numbers, unknown categories, another width and NaN are refused."""
    model = released(MONEY)
    path = tmp_path / "rows.csv"
    for text, says in (
        ("income,age,sex\n1,20,f\n", "lacks the column 'land'"),
        ("income,age,sex,land\n1,old,f,x\n", "not a finite number"),
        ("income,age,sex,land\n1,20,d,x\n", "one of f, m"),
        ("income,age,sex,land\n", "no rows"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=says):
            model.predict(path)
    with pytest.raises(InputError, match="differ from the model"):
        model.predict(table(NUMERIC))
    with pytest.raises(InputError, match=r"must be \(rows, 5\)"):
        model.predict(np.zeros((2, 4)))
    with pytest.raises(InputError, match="only numbers"):
        model.predict(np.full((2, 5), np.nan))


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


Change = Callable[[dict[str, Any]], object]


def sets(*keys: str, to: object = None, remove: bool = False) -> Change:
    """Return a function that sets or removes a key of nested tables."""

    def change(document: dict[str, Any]) -> None:
        *way, last = keys
        for key in way:
            document = document[key]
        if remove:
            del document[last]
        else:
            document[last] = to

    return change


lacks = partial(sets, remove=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (sets("format", to="another"), "format: "),
        (lacks("format"), "format: Field required"),
        (sets("version", to=VERSION + 1), f"version: Input should be {VERSION} for veilring"),
        (lacks("version"), "version: "),
        (sets("extra", to=1), "extra: "),
        (lacks("classes"), "classes: "),
        (sets("classes", to=["a", "b"]), "biases has the shape|weights has the shape"),
        (sets("classes", to=["a", "a", "b"]), "without repeated names"),
        (sets("classes", to=[]), "classes: "),
        (lacks("features"), "features: "),
        (sets("features", to=[]), "features: "),
        (sets("features", to=[{"name": "x"}]), "takes 4 features"),
        (sets("features", to=[{"name": "x"}] * 4), "without repeated names"),
        (sets("features", to=[{"name": "x", "low": math.nan}]), "low: "),
        (sets("features", to=[{"name": "x", "low": 2.0, "high": 1.0}]), "at least low"),
        (lacks("promise"), "promise: "),
        (lacks("promise", "epsilon"), "promise.epsilon: "),
        (sets("promise", "epsilon", to=math.inf), "promise.epsilon: "),
        (sets("promise", "epsilon", to="1"), "promise.epsilon: "),
        (sets("promise", "extra", to="1"), "promise.extra: "),
        (lacks("release"), "release: "),
        (sets("release", "rows", to=1.5), "release.rows: "),
        (sets("release", "noise", to=[math.nan]), "release.noise.0: "),
        (lacks("classifier"), "classifier: "),
        (sets("classifier", "kind", to="forest"), "kind is 'forest'"),
        (sets("classifier", "classes", to=["a"]), "its own classes"),
        (sets("classifier", "weights", to=[[10**400] * 4] * 3), "has the wrong type"),
        (sets("classifier", "units", to=[0.0] * 4), "above 0"),
        (sets("classifier", "calibrated", to=1), "has the wrong type; load the file unchanged$"),
    ],
    ids=range(29),
)
def test_an_invalid_file_is_refused(change: Change, says: str, tmp_path: Path) -> None:
    """The error names the file and the wrong field."""
    path = tmp_path / "model.json"
    document = released().as_document()
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=says) as refused:
        load_model(path)
    assert str(refused.value).startswith("model.json is not a released model: ")


COUNTS: dict[str, object] = {"kind": "counts", "features": 4, "numbers": [], "cuts": 1}
COUNTS |= {"firsts": [], "values": [], "log_priors": [0.0] * 3, "log_shares": [[0.0]] * 3}
GRID: dict[str, object] = {"kind": "grid", "features": 4, "side": 2, "log_shares": [[0.0] * 3]}


@pytest.mark.parametrize(
    "classifier",
    [
        GRID | {"side": 10**9},
        GRID | {"features": 10**9, "log_shares": [[0.0] * 3] * 2},
        COUNTS | {"numbers": [0], "cuts": 10**300},
        COUNTS | {"firsts": [3], "values": [2**63 - 1]},
    ],
    ids=["side", "features", "cuts", "values"],
)
def test_impossibly_large_numbers_are_refused_at_once(
    classifier: dict[str, object], tmp_path: Path
) -> None:
    """No file causes computation or memory beyond its own length."""
    path = tmp_path / "model.json"
    document = released().as_document() | {"classifier": classifier}
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"model\.json"):
        load_model(path)


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


def test_a_model_fits_its_schema() -> None:
    """A classifier of other classes or another width is refused."""
    model = released()
    other = DirectionClassifier(
        ("a", "b"), np.zeros(4), np.ones(4), np.zeros((2, 4)), np.zeros(2), calibrated=False
    )
    with pytest.raises(InputError, match="differ from those of the schema"):
        replace(model, classifier=other)


def classifier_of(method: Method) -> tuple[Classifier, Floats]:
    """Return a classifier of categories, if it supports them, and rows for it."""
    features = NUMERIC if method == "grid" else MIXED
    rows = draw_rows(features, 60, np.random.default_rng(1))
    return released(features, statistic=method).classifier, rows


@of_methods
def test_a_score_decides_each_label(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels and probabilities have the greatest score, in any block; rows need their width."""
    classifier, rows = classifier_of(method)
    scores = classifier.scores(rows)
    assert scores.shape == (60, 3)
    assert np.array_equal(classifier.predict(rows), scores.argmax(axis=1))
    assert classifier.scores(rows[:0]).shape == (0, 3)
    assert classifier.has_probabilities == (method != "means")
    if classifier.has_probabilities:
        shares = classifier.predict_proba(rows)
        assert shares.sum(axis=1) == pytest.approx(1)
        assert np.array_equal(shares.argmax(axis=1), scores.argmax(axis=1))
    else:
        with pytest.raises(InputError, match="no probabilities"):
            classifier.predict_proba(rows)
    with pytest.raises(InputError, match="it must be"):
        classifier.predict(np.hstack((rows, rows[:, :1])))
    monkeypatch.setattr("veilring.protocols.release.algorithm.classifiers._BLOCK", 1)
    assert classifier.scores(rows) == pytest.approx(scores)


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


@of_methods
def test_invalid_classifiers_are_refused(method: Method) -> None:
    """Every field that is missing, unknown, ragged, not finite or of another type is refused."""
    for changed in every_change(as_document(classifier_of(method)[0])):
        with pytest.raises(InputError):
            from_document(changed)
