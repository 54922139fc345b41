"""scikit-learn classifiers for all systems, and regressors for those that predict numbers.

Each of them plays all parties of its protocol in one process, with the same steps that networked
parties run. Accuracy, cost and spent budget therefore equal those of a deployment. Privacy does
not: the caller of `fit` has all rows, and a fitted model (or its pickle) contains them, along with
the randomness of all parties. Use an estimator to predict, on data that you may look at, the
results of a deployment.

After `predict`, `cost_` is the cost of the batch on a network, by the system's closed form, and
`privacy_` is the guarantee and the budget spent since `fit`. With ranges computed from private
rows, or with a seed, no ε holds, and `fit` warns; `deployment_privacy_` is the guarantee without
either.
"""

from veilring.errors import PrivacyLeakWarning
from veilring.extras import name_missing_extras
from veilring.protocols.promise import Promise

with name_missing_extras():
    from veilring.estimators.base import RangesLike, Seed, SystemClassifier
    from veilring.estimators.classifiers import (
        IndKNNClassifier,
        LDPGaussianNaiveBayes,
        LDPNaiveBayes,
        NoisyVotesClassifier,
        OwnerKNNClassifier,
        OwnerRadiusClassifier,
        PrivateKNNClassifier,
        RankSearchClassifier,
        RankSearchRegressor,
        ReleasedClassifier,
        ReleasedRegressor,
        TreeWalkClassifier,
        as_classifier,
        classifier_of,
    )

__all__ = (
    "IndKNNClassifier",
    "LDPGaussianNaiveBayes",
    "LDPNaiveBayes",
    "NoisyVotesClassifier",
    "OwnerKNNClassifier",
    "OwnerRadiusClassifier",
    "PrivacyLeakWarning",
    "PrivateKNNClassifier",
    "Promise",
    "RangesLike",
    "RankSearchClassifier",
    "RankSearchRegressor",
    "ReleasedClassifier",
    "ReleasedRegressor",
    "Seed",
    "SystemClassifier",
    "TreeWalkClassifier",
    "as_classifier",
    "classifier_of",
)
