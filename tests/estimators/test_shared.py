"""The behaviour of all estimators: searches, ranges, seeds, copies and repeated batches."""

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from tests.estimators.tables import ESTIMATORS, RANGES, each, named, three_classes

import veilring.estimators as ve
from veilring.errors import InputError
from veilring.protocols.promise import Forecast

ROWS, LABELS = three_classes(120)
QUERIES, _ = three_classes(20, seed=2)
# Little noise, so that accuracy says something; and a parameter by which it is good, or useless.
ACCURATE: list[tuple[Any, str, list[Any]]] = [
    (ve.PrivateKNNClassifier(), "k", [5, 60]),
    (ve.RankSearchClassifier(), "k", [5, 60]),
    (ve.NoisyVotesClassifier(epsilon=100.0), "radius", [0.2, 0.0]),
    (ve.OwnerRadiusClassifier(10.0), "radius", [0.2, 0.0]),
    (ve.OwnerKNNClassifier(10.0), "k", [10, 80]),
    (ve.IndKNNClassifier(50.0, tau=0.9), "sigma2", [2.0, 1e9]),
    (ve.TreeWalkClassifier(20.0, splits=0), "epsilon", [20.0, 1e-3]),
    (ve.ReleasedClassifier(epsilon=20.0), "epsilon", [20.0, 1e-3]),
    (ve.LDPNaiveBayes(np.inf), "epsilon", [np.inf, 1e-3]),
    (ve.LDPGaussianNaiveBayes(np.inf), "epsilon", [np.inf, 1e-3]),
]


@pytest.mark.parametrize(("estimator", "name", "values"), ACCURATE, ids=str)
def test_they_are_scored_searched_and_piped(estimator: Any, name: str, values: list[Any]) -> None:
    """Estimators beat chance in cross-validation, in a grid search and in a pipeline.

    Always naming one class is right at that class's frequency; a guess exceeds this rate by the
    given margin only once in a million times, by Hoeffding's bound.
    """
    public = clone(estimator).set_params(ranges=RANGES, random_state=1)
    chance = np.unique(LABELS, return_counts=True)[1].max() / len(LABELS)
    guessed = chance + np.sqrt(np.log(1e6) / (2 * len(LABELS)))
    assert cross_val_score(public, ROWS, LABELS, cv=2).mean() > guessed
    found = GridSearchCV(public, {name: values}, cv=2).fit(ROWS, LABELS)
    good, useless = found.cv_results_["mean_test_score"]
    assert found.best_params_ == {name: values[0]}
    assert good > guessed > useless
    piped = make_pipeline(FunctionTransformer(), public).fit(ROWS, LABELS)
    alone = clone(public).fit(ROWS, LABELS)
    np.testing.assert_array_equal(piped.predict(QUERIES), alone.predict(QUERIES))


@each
def test_a_seed_determines_all_draws(estimator: Any) -> None:
    """Equal seeds give equal labels, and a repeated batch its labels, even after a pickle."""
    fitted = [clone(estimator).set_params(random_state=7).fit(ROWS, LABELS) for _ in range(2)]
    first, second = (one.predict(QUERIES) for one in fitted)
    np.testing.assert_array_equal(first, second)
    before = fitted[0].privacy_
    np.testing.assert_array_equal(fitted[0].predict(QUERIES), first)
    assert fitted[0].privacy_ == before
    again = pickle.loads(pickle.dumps(fitted[0]))
    np.testing.assert_array_equal(again.predict(QUERIES), first)
    assert (again.cost_, again.privacy_) == (fitted[0].cost_, before)


@pytest.mark.parametrize("estimator", [*ESTIMATORS, ve.TreeWalkClassifier(by="walk")], ids=str)
def test_numbers_of_a_grid_are_numbers(estimator: Any) -> None:
    """NumPy's numbers behave like Python's, including in measured messages."""
    kinds = {int: np.int64, float: np.float32}
    usual = estimator.get_params() | ({"k": 3} if "k" in estimator.get_params() else {})
    given = {n: kinds[type(each)](each) for n, each in usual.items() if type(each) in kinds}
    model = clone(estimator).set_params(**given, ranges=RANGES).fit(ROWS, LABELS)
    model.predict(QUERIES)
    assert model.cost_.traffic.bytes > 0
    assert isinstance(model.privacy_, ve.Promise)


@each
def test_cost_and_privacy_need_a_prediction(estimator: Any) -> None:
    """Cost and privacy exist only after a prediction, and never for a model that was not fitted."""
    model = clone(estimator).set_params(ranges=RANGES)
    for name in ("cost_", "privacy_"):
        with pytest.raises(NotFittedError):
            getattr(model, name)
    model.fit(ROWS, LABELS).predict(QUERIES)
    assert isinstance(model.cost_, Forecast)
    assert isinstance(model.privacy_, ve.Promise)
    assert model.cost_.rounds > 0


def test_a_model_without_a_batch_has_no_cost() -> None:
    """A fitted model that has answered no batch reports so."""
    model = ve.PrivateKNNClassifier().fit(ROWS, LABELS)
    with pytest.raises(AttributeError, match="only after a batch"):
        _ = model.cost_


@each
def test_values_outside_the_ranges_are_clipped(estimator: Any) -> None:
    """Rows and queries far outside count as values at the end, and one bound suits all features."""
    wide = clone(estimator).set_params(ranges=(-1.0, 1.0), random_state=3)
    narrow = clone(estimator).set_params(ranges=((-1.0, -1.0), (1.0, 1.0)), random_state=3)
    wide.fit(ROWS, LABELS)
    narrow.fit(np.clip(ROWS, -1.0, 1.0), LABELS)
    inside = narrow.predict(np.clip(QUERIES, -1.0, 1.0))
    np.testing.assert_array_equal(wide.predict(QUERIES), inside)


@each
def test_invalid_ranges_are_refused(estimator: Any) -> None:
    """Ranges in reverse order, or for other features, end the fit."""
    for ranges in ((1.0, -1.0), ((0.0,) * 3, (1.0,) * 3), (0.0, np.inf)):
        with pytest.raises(InputError):
            clone(estimator).set_params(ranges=ranges).fit(ROWS, LABELS)


# Numbers of their own: with `auto` the number of rows counts as public.
CENTRAL = [
    ve.NoisyVotesClassifier(radius=0.2),
    ve.OwnerRadiusClassifier(radius=0.2),
    ve.OwnerKNNClassifier(k=10),
    ve.IndKNNClassifier(tau=0.8),
]


@pytest.mark.parametrize("estimator", CENTRAL, ids=named)
def test_only_labels_depend_on_a_row(estimator: Any) -> None:
    """With public ranges, rules, parameters, costs and guarantees are equal without a row."""
    told = []
    for rows in (ROWS, ROWS[:-1]):
        model = clone(estimator).set_params(ranges=RANGES, random_state=1)
        model.fit(rows, LABELS[: len(rows)]).predict(QUERIES)
        public = getattr(model.setup_, "rules", None) or model.setup_.parameters
        rules = public(len(QUERIES)) if callable(public) else public
        told.append([rules, model.cost_, model.privacy_])
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("ranges", "found"),
    [
        ([(-4, 4)] * 10, "ranges must be"),
        (((-4, -4, -4), (4, 4, 4)), "ranges have bounds of the shape"),
        (4, "ranges must be"),
        (((-4, 4), (-4, 4)), "ranges have no width in column 0, where rows differ"),
    ],
)
def test_ranges_are_lows_and_highs(ranges: Any, found: str) -> None:
    """A pair for each column is refused, with the expected form in the error."""
    with pytest.raises(InputError, match=f"{found}.*two entries, the lows and the highs"):
        ve.OwnerRadiusClassifier(ranges=ranges).fit(ROWS, LABELS)


def test_at_most_all_rows_vote() -> None:
    """If the number of rows is public, k is at most that number."""
    assert ve.PrivateKNNClassifier(k=len(ROWS)).fit(ROWS, LABELS).setup_.parameters.topk.k == len(
        ROWS
    )
    with pytest.raises(InputError, match=f"k is {len(ROWS) + 1}; allowed: at most {len(ROWS)},"):
        ve.PrivateKNNClassifier(k=len(ROWS) + 1).fit(ROWS, LABELS)


def test_a_rank_search_for_more_rows_than_exist_uses_all() -> None:
    """The parties learn the number of their rows, and the labels are those of all rows."""
    few, many = (ve.RankSearchClassifier(k=len(ROWS) + more).fit(ROWS, LABELS) for more in (0, 9))
    np.testing.assert_array_equal(few.predict(QUERIES), many.predict(QUERIES))


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (ve.PrivateKNNClassifier, {"parties": 2}),
        (ve.PrivateKNNClassifier, {"partition": "alphabet"}),
        (ve.NoisyVotesClassifier, {"tolerated": 8}),
        (ve.ReleasedClassifier, {"statistic": "lda", "delta": 0.0}),
        (ve.OwnerRadiusClassifier, {"radius": -1.0}),
        (ve.OwnerKNNClassifier, {"k": 0}),
        (ve.OwnerKNNClassifier, {"k": 2.5}),
        (ve.IndKNNClassifier, {"queries": 3}),
        (ve.TreeWalkClassifier, {"neighbours": len(ROWS)}),
    ],
    ids=str,
)
def test_invalid_parameters_are_refused(
    kind: type[ve.SystemClassifier], wrong: dict[str, object]
) -> None:
    """Parameters that a system does not support end the fit, and the error names one of them."""
    with pytest.raises(InputError) as caught:
        kind(**wrong).fit(ROWS, LABELS)
    assert any(name in f"{caught.value.field}: {caught.value}" for name in wrong)


@pytest.mark.parametrize(
    "kind", [ve.NoisyVotesClassifier, ve.OwnerRadiusClassifier, ve.OwnerKNNClassifier]
)
def test_a_batch_that_is_too_large_spends_nothing(kind: type[ve.SystemClassifier]) -> None:
    """It is refused before any draw."""
    model = kind(ranges=RANGES).fit(ROWS, LABELS)
    with pytest.raises(InputError, match="4097 queries"):
        model.predict(np.zeros((4097, 2)))
    assert model.deployment_privacy_.epsilon == 0.0
