"""scikit-learn's own checks, on each estimator and each of its variants."""

import math
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.estimators.tables import ESTIMATORS

from veilring.estimators import (
    IndKNNClassifier,
    LDPGaussianNaiveBayes,
    LDPNaiveBayes,
    NoisyVotesClassifier,
    OwnerKNNClassifier,
    OwnerRadiusClassifier,
    PrivateKNNClassifier,
    RankSearchClassifier,
    ReleasedClassifier,
    TreeWalkClassifier,
)

WAYS = [
    PrivateKNNClassifier(rounds=2, weights="distance", sum="shares", partition="by-label"),
    RankSearchClassifier(arity=2, sum="star", weights="distance", partition="by-label"),
    NoisyVotesClassifier(k=5, sum="ring"),
    ReleasedClassifier(statistic="means", trusted=True),
    ReleasedClassifier(statistic="counts", delta=0.0),
    OwnerRadiusClassifier(),
    OwnerKNNClassifier(conversion="candidates", public_rows=True),
    IndKNNClassifier(kernel="rbf", accountant="rdp"),
    TreeWalkClassifier(by="walk"),
    LDPNaiveBayes(math.inf),
    LDPGaussianNaiveBayes(math.inf),
]


# No check is expected to fail. Some are skipped: they ask for pandas or for the array API, which
# veilring does not need, or for equal answers twice, which an estimator that draws noise denies.
_skipping = pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")


@_skipping
@parametrize_with_checks(ESTIMATORS[:1])  # type: ignore[untyped-decorator]  # scikit-learn has no types
def test_scikit_learns_checks_pass_for_the_first_estimator(estimator: Any, check: Any) -> None:
    """Each check that scikit-learn has for a classifier passes for one of them."""
    check(estimator)


@pytest.mark.sklearn
@_skipping
@parametrize_with_checks([*ESTIMATORS[1:], *WAYS])  # type: ignore[untyped-decorator]  # likewise
def test_scikit_learns_checks_pass(estimator: Any, check: Any) -> None:
    """Each of scikit-learn's checks for classifiers passes for all others."""
    check(estimator)
