"""Naive Bayes: from a tally to a classifier."""

from veilring.protocols.ldp.algorithm.bayes.classifier import BayesModel, Classifier, learn
from veilring.protocols.ldp.algorithm.bayes.discrete import DiscreteBayes, learn_discrete
from veilring.protocols.ldp.algorithm.bayes.evidence import CONSISTENCIES, evidence
from veilring.protocols.ldp.algorithm.bayes.gaussian import GaussianBayes, learn_gaussian
from veilring.protocols.ldp.algorithm.bayes.posterior import Posterior

__all__ = (
    "CONSISTENCIES",
    "BayesModel",
    "Classifier",
    "DiscreteBayes",
    "GaussianBayes",
    "Posterior",
    "evidence",
    "learn",
    "learn_discrete",
    "learn_gaussian",
)
