"""Both naive Bayes classifiers as scikit-learn estimators.

`fit` plays all clients: each row goes through the very `perturb` that a client on its own machine
calls, and only the reports' sums reach the model. So the accuracy is that of a real collection. It
is a simulation of one nevertheless: whoever calls `fit` has all rows.
"""

from veilring.protocols.ldp.estimators.discrete import LDPNaiveBayes
from veilring.protocols.ldp.estimators.gaussian import LDPGaussianNaiveBayes
from veilring.protocols.ldp.estimators.playing import RangesLike

__all__ = ("LDPGaussianNaiveBayes", "LDPNaiveBayes", "RangesLike")
