"""Regressors: scikit-learn's checks, pooled regression, ranges of the target, and files."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.estimators.tables import named

import veilring as vr
import veilring.estimators as ve
from veilring.data.columns import FeatureTerms, Target
from veilring.data.schema import RowSchema
from veilring.errors import InputError
from veilring.measures import measure_numbers
from veilring.protocols.ranksearch.shared import found_cost

pytestmark = pytest.mark.filterwarnings("ignore::veilring.estimators.PrivacyLeakWarning")
ROWS, VALUES = load_diabetes(return_X_y=True)
RANGES, TARGETS = (-0.2, 0.2), (25.0, 346.0)
REGRESSORS: list[Any] = [ve.RankSearchRegressor(), ve.ReleasedRegressor()]
WAYS = [
    ve.RankSearchRegressor(arity=2, sum="star", partition="by-label"),
    ve.RankSearchRegressor(reveal="votes", partition="dirichlet"),
    ve.ReleasedRegressor(trusted=True),
    ve.ReleasedRegressor(distribution="skellam", lost=1),
]
each = pytest.mark.parametrize("regressor", REGRESSORS, ids=named)


def public(regressor: Any, **changed: Any) -> Any:
    """Return a copy with public ranges, fitted to 300 rows."""
    given = {"ranges": RANGES, "target_range": TARGETS} | changed
    return clone(regressor).set_params(**given).fit(ROWS[:300], VALUES[:300])


@pytest.mark.sklearn
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([*REGRESSORS, *WAYS])  # type: ignore[untyped-decorator]  # scikit-learn has no types
def test_scikit_learns_checks_pass(estimator: Any, check: Any) -> None:
    """Each of scikit-learn's checks for regressors passes."""
    check(estimator)


@pytest.mark.parametrize("k", [1, 4, 300])
@pytest.mark.parametrize("way", WAYS[:2], ids=["totals", "votes"])
def test_predictions_equal_a_pooled_knn(way: Any, k: int) -> None:
    """They are within half a step of scikit-learn's on rounded targets; the cost is a closed form.

    The cost follows from the search in this process, which is that of the parties.
    """
    model = public(way, k=k, resolution=0.5, random_state=1)
    found = model.predict(ROWS[300:])
    pooled = KNeighborsRegressor(k).fit(ROWS[:300], np.round(2 * VALUES[:300]) / 2)
    np.testing.assert_allclose(found, pooled.predict(ROWS[300:]), rtol=0, atol=0.25 + 1e-9)
    setup, scaled = model.setup_, (ROWS[300:] + 0.2) / 0.4
    ranked = setup.search(scaled, list(setup.parts.values()))
    assert model.cost_ == found_cost(len(setup.parts), ranked.found, setup.parameters)


@each
def test_scores_and_measures_are_of_the_predictions(regressor: Any) -> None:
    """R² is scikit-learn's, without another batch; cross-validation works."""
    model = public(regressor, random_state=1)
    found, spent = model.predict(ROWS[300:]), model.privacy_
    measures = model.measures(ROWS[300:], VALUES[300:])
    assert measures == measure_numbers(VALUES[300:], found)
    assert measures.r2 is not None
    assert measures.r2.value == pytest.approx(model.score(ROWS[300:], VALUES[300:]))
    assert measures.r2.value > 0.15  # 0.3 to 0.4, with a standard deviation below 0.03
    assert model.privacy_ == spent
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(ROWS[300:]), found)
    assert cross_val_score(clone(model), ROWS, VALUES, cv=2).shape == (2,)


@each
def test_targets_are_clipped_and_rounded(regressor: Any) -> None:
    """Targets outside of the range count as its ends, and predictions are whole steps."""
    given: dict[str, Any] = {"target_range": (100.0, 200.0), "resolution": 20.0, "random_state": 1}
    wide, narrow = public(regressor, **given), clone(regressor).set_params(ranges=RANGES, **given)
    steps = np.rint((np.clip(VALUES[:300], 100, 200) - 100) / 20)
    narrow.fit(ROWS[:300], 100 + 20 * steps)
    found = wide.predict(ROWS[300:])
    np.testing.assert_array_equal(found, narrow.predict(ROWS[300:]))
    assert set(found) <= set(range(100, 201, 20))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, ()),
        ({"target_range": None}, ("range of private targets",)),
        ({"ranges": None}, ("ranges of private rows",)),
        ({"random_state": 1}, ("seeded noise",)),
    ],
    ids=["public", "targets", "rows", "seed"],
)
def test_a_release_claims_an_epsilon_only_if_it_holds(
    given: dict[str, Any], told: tuple[str, ...]
) -> None:
    """A range of private targets and a seed break it, and the file shows this."""
    model = public(ve.ReleasedRegressor(epsilon=1.5), **given)
    assert model.deployment_privacy_.epsilon == 1.5
    assert model.privacy_ == model.model_.promise
    assert (model.privacy_.epsilon is None) == bool(told)
    assert all(cause in model.privacy_.measure for cause in told)


def test_a_released_model_is_a_file_with_equal_predictions(tmp_path: Path) -> None:
    """The reader of released classifiers reads it."""
    model = public(ve.ReleasedRegressor(), resolution=0.5)
    model.model_.save(tmp_path / "model.json")
    kept = vr.load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(kept.predict(ROWS), model.predict(ROWS))


@each
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"target_range": (1.0,)}, "pair of the lowest and the highest"),
        ({"target_range": (2.0, 1.0)}, "the lowest and the highest"),
        ({"target_range": (0.0, 1.0), "resolution": 0.3}, "whole steps"),
        ({"target_range": (0.0, 1.0), "resolution": -1.0}, "resolution"),
        ({"target_range": (0.0, 1.0), "resolution": "fine"}, "resolution"),
    ],
    ids=str,
)
def test_an_invalid_range_is_refused(regressor: Any, wrong: dict[str, Any], says: str) -> None:
    """The error names the parameter."""
    with pytest.raises(InputError, match=says):
        public(regressor, **wrong)


@each
def test_a_resolution_widens_the_range_of_the_targets(regressor: Any) -> None:
    """Without a given range, that of the targets is rounded outward to whole steps."""
    fitted = public(regressor, target_range=None, resolution=10)
    assert (fitted.target_.low, fitted.target_.high) == (20.0, 350.0)
    with pytest.raises(InputError, match="y must be numbers"):
        clone(regressor).fit(ROWS[:2], ["low", "high"])


@pytest.mark.parametrize("agreed", [True, False])
def test_a_schema_declares_the_target(agreed: bool) -> None:
    """Its range and resolution are those of the target; ε holds only for an agreed range."""
    target = Target(low=0, high=400, resolution=0.5, agreed=agreed)
    columns = tuple(FeatureTerms(name=name, low=-0.2, high=0.2) for name in "abcdefghij")
    schema = RowSchema(target=target, features=columns)
    regressor = ve.ReleasedRegressor(schema=schema).fit(ROWS, VALUES)
    assert regressor.target_ == target
    assert (regressor.privacy_.epsilon is not None) == agreed


@each
def test_equal_targets_are_predicted(regressor: Any) -> None:
    """A table with one target has a range that contains it."""
    model = clone(regressor).set_params(random_state=1).fit(ROWS[:60], np.full(60, 7.0))
    assert model.target_.low == 7.0
    if isinstance(regressor, ve.RankSearchRegressor):
        np.testing.assert_array_equal(model.predict(ROWS[:5]), 7.0)
