"""The scikit-learn estimators: scikit-learn's own checks, and that clients are really played."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import estimator_checks_generator
from tests.privacy.generators import seeded

from veilring.errors import InputError
from veilring.estimators import LDPGaussianNaiveBayes, LDPNaiveBayes
from veilring.protocols.ldp.algorithm.oracles import ORACLES
from veilring.protocols.ldp.algorithm.survey import answer, tally
from veilring.randomness import Streams

ESTIMATORS = [
    LDPNaiveBayes(),
    LDPNaiveBayes(math.inf),
    LDPGaussianNaiveBayes(),
    LDPGaussianNaiveBayes(math.inf),
]
# These ask for pandas or for the array API, which veilring does not need and tests do not install.
ELSEWHERE = {"check_array_api_input", "check_classifier_data_not_an_array"}
CHECKS = [
    (estimator, check)
    for each in ESTIMATORS
    for estimator, check in estimator_checks_generator(each)
    if check.func.__name__ not in ELSEWHERE
]
Blobs = tuple[NDArray[np.float64], NDArray[np.str_]]


def words(value: Any) -> str:  # noqa: ANN401  (an estimator, or one of scikit-learn's checks)
    """Name an estimator or a check in a test's name."""
    if isinstance(value, LDPNaiveBayes | LDPGaussianNaiveBayes):
        return f"{type(value).__name__}-{value.epsilon:g}"
    return str(value.func.__name__)


@pytest.fixture(scope="module")
def blobs() -> Blobs:
    """Return rows of three features in two named classes."""
    rng = seeded("blobs")
    labels = rng.integers(0, 2, 12_000)
    rows = rng.normal(np.array([[-1.0, 0.5, 0.0], [1.0, -0.5, 0.3]])[labels], 1.0)
    return rows, np.array(["left", "right"])[labels]


@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=words)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_checks_pass(estimator: Any, check: Any) -> None:  # noqa: ANN401  (as above)
    """Each check that scikit-learn has for a classifier passes, with noise and without.

    With noise an estimator says so (`poor_score`, `non_deterministic`), and is not asked for good
    accuracy from thirty rows, nor for equal results without a seed.
    """
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=words)
def test_equal_seeds_give_equal_models(estimator: LDPNaiveBayes, blobs: Blobs) -> None:
    """A seed fixes every report; without one, clients draw from the operating system's."""
    first, again = (clone(estimator).set_params(random_state=3).fit(*blobs) for _ in range(2))
    for one, other in zip(first.tally_.sums, again.tally_.sums, strict=True):
        assert (one == other).all()
    other = clone(estimator).fit(*blobs)
    same = all((a == b).all() for a, b in zip(first.tally_.sums, other.tally_.sums, strict=True))
    assert same == (estimator.epsilon == math.inf and isinstance(estimator, LDPNaiveBayes))


def test_fit_plays_the_clients_of_the_survey(blobs: Blobs) -> None:
    """The tally is that of the very answers that clients with this randomness give."""
    rows, labels = blobs
    model = LDPNaiveBayes(1.0, oracle="olh", random_state=5).fit(rows, labels)
    numbers = np.searchsorted(model.classes_, labels)
    answers = answer(model.survey_, rows, numbers, Streams(5).generator("estimator"))
    expected = tally(model.survey_, answers.reports)
    assert model.tally_.counts == expected.counts
    for one, other in zip(model.tally_.sums, expected.sums, strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("name", ORACLES)
def test_epsilon_is_the_exact_one(name: str, blobs: Blobs) -> None:
    """With any oracle it is at most what was asked for, and above 0."""
    rows, labels = blobs[0][:500], blobs[1][:500]
    for model in (
        LDPNaiveBayes(0.9, oracle=name, random_state=1),
        LDPGaussianNaiveBayes(0.9, oracle=name, random_state=1),
    ):
        model.fit(rows, labels)
        assert 0 < model.epsilon_ <= 0.9
        assert model.epsilon_ == model.survey_.exact_epsilon
        assert model.tally_.clients == 500


def test_without_noise_they_are_scikit_learns(blobs: Blobs) -> None:
    """Binned rows go as into CategoricalNB, scaled ones as into GaussianNB, to the last label."""
    rows, labels = blobs
    ranges = (rows.min(axis=0), rows.max(axis=0))
    discrete = LDPNaiveBayes(math.inf, bins=6, ranges=ranges, smoothing=1.0).fit(rows, labels)
    binned = discrete.survey_.steps[0](rows)
    reference = CategoricalNB(alpha=1.0, min_categories=6).fit(binned, labels)
    assert (discrete.predict(rows) == reference.predict(binned)).all()
    assert discrete.score(rows, labels) == reference.score(binned, labels)
    gaussian = LDPGaussianNaiveBayes(math.inf, ranges=ranges, variance_floor=1e-9).fit(rows, labels)
    scaled = gaussian.survey_.steps[0](rows)
    plain = GaussianNB(var_smoothing=0).fit(scaled, labels)
    assert (gaussian.predict(rows) == plain.predict(scaled)).all()
    assert gaussian.predict_proba(rows).sum(axis=1) == pytest.approx(np.ones(len(rows)))


def test_numbered_values_need_no_bins() -> None:
    """With domains given, rows are values from 0, and others are refused."""
    rng = seeded("numbered")
    rows, labels = rng.integers(0, 3, (300, 2)), rng.integers(0, 2, 300)
    model = LDPNaiveBayes(1.0, domains=(3, 3), random_state=1).fit(rows, labels)
    assert model.predict(rows).shape == (300,)
    assert model.ranges_origin_ == "no ranges: values are numbered"
    with pytest.raises(InputError, match="column 0"):
        LDPNaiveBayes(1.0, domains=(2, 3), random_state=1).fit(rows, labels)


def test_where_ranges_come_from_is_said(blobs: Blobs) -> None:
    """Ranges that were given are public; those of the rows tell of them, and it says so."""
    rows, labels = blobs[0][:200], blobs[1][:200]
    given = LDPNaiveBayes(1.0, ranges=((-4.0,) * 3, (4.0,) * 3)).fit(rows, labels)
    assert given.ranges_origin_ == "given as public"
    taken = LDPGaussianNaiveBayes(1.0).fit(rows, labels)
    assert taken.ranges_origin_ == "the rows themselves, which is not private"


def test_they_work_in_pipelines_and_searches(blobs: Blobs) -> None:
    """Parameters are found by name, and cloned estimators are fitted anew."""
    rows, labels = blobs[0][:600], blobs[1][:600]
    pipeline = make_pipeline(MinMaxScaler(), LDPNaiveBayes(random_state=1))
    search = GridSearchCV(pipeline, {"ldpnaivebayes__epsilon": [0.5, math.inf]}, cv=2)
    assert search.fit(rows, labels).best_params_["ldpnaivebayes__epsilon"] == math.inf


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 21.0, math.nan])
def test_an_epsilon_that_is_none_is_refused(epsilon: float, blobs: Blobs) -> None:
    """So is an oracle or an approach that there is not."""
    rows, labels = blobs[0][:50], blobs[1][:50]
    for estimator in (LDPNaiveBayes(epsilon), LDPGaussianNaiveBayes(epsilon)):
        with pytest.raises(InputError, match="epsilon"):
            estimator.fit(rows, labels)
    with pytest.raises(InputError, match="oracle"):
        LDPNaiveBayes(oracle="delphi").fit(rows, labels)
