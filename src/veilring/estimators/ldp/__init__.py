"""Both naive Bayes classifiers under local differential privacy.

`fit` plays all clients: each row goes through the very `perturb` that a client on its own machine
calls, and only the reports' sums reach the model. So the accuracy is that of a real collection.
"""

from veilring.estimators.ldp.discrete import LDPNaiveBayes
from veilring.estimators.ldp.gaussian import LDPGaussianNaiveBayes

__all__ = ("LDPGaussianNaiveBayes", "LDPNaiveBayes")
