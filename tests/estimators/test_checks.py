"""scikit-learn's own checks, on each estimator and each of its variants."""

import math
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.estimators.tables import ESTIMATORS

import veilring.estimators as ve

WAYS = [
    ve.PrivateKNNClassifier(rounds=2, weights="distance", sum="shares", partition="by-label"),
    ve.RankSearchClassifier(arity=2, sum="star", weights="distance", partition="by-label"),
    ve.NoisyVotesClassifier(k=5, sum="ring"),
    ve.ReleasedClassifier(statistic="means", trusted=True),
    ve.ReleasedClassifier(statistic="counts", delta=0.0),
    ve.OwnerRadiusClassifier(),
    ve.OwnerKNNClassifier(conversion="candidates", public_rows=True),
    ve.IndKNNClassifier(kernel="rbf", accountant="rdp"),
    ve.TreeWalkClassifier(by="walk"),
    ve.LDPNaiveBayes(math.inf),
    ve.LDPGaussianNaiveBayes(math.inf),
]


OTHERS = [each for each in ESTIMATORS if not isinstance(each, ve.PrivateKNNClassifier)]


# No check is expected to fail. Some are skipped: they ask for pandas or for the array API, which
# veilring does not need, or for equal answers twice, which an estimator that draws noise denies.
_skipping = pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")


@_skipping
@parametrize_with_checks([ve.PrivateKNNClassifier()])  # type: ignore[untyped-decorator]  # scikit-learn has no types
def test_scikit_learns_checks_pass_for_the_first_estimator(estimator: Any, check: Any) -> None:
    """Each check that scikit-learn has for a classifier passes for one of them."""
    check(estimator)


@pytest.mark.sklearn
@_skipping
@parametrize_with_checks([*OTHERS, *WAYS])  # type: ignore[untyped-decorator]  # likewise
def test_scikit_learns_checks_pass(estimator: Any, check: Any) -> None:
    """Each of scikit-learn's checks for classifiers passes for all others."""
    check(estimator)
