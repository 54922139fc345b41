"""scikit-learn classifiers for all systems, in one form.

Each of them plays all parties of its protocol in one process: the very steps that parties on
machines of their own run, without the network in between. So accuracy, cost and what is spent are
those of a deployment. Privacy is not: whoever calls `fit` has all rows, and a fitted model (or its
pickle) holds them, and the randomness of all parties. What an estimator is for is to tell, on data
that may be looked at, what a deployment would give.

After `predict`, `cost_` says what the batch costs on a network, by the family's closed form, and
`privacy_` what is promised to whom, and what has been spent in all since `fit`. With ranges taken
from private rows, or a seed, no ε holds, and `fit` warns; `deployment_privacy_` says what the same
would promise without them.
"""

from veilring.errors import PrivacyLeakWarning
from veilring.extras import name_missing_extras
from veilring.protocols.system import Promise

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
        ReleasedClassifier,
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
    "ReleasedClassifier",
    "Seed",
    "SystemClassifier",
    "TreeWalkClassifier",
    "as_classifier",
    "classifier_of",
)
