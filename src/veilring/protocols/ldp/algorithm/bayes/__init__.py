"""Naive Bayes: from a tally to a classifier."""

from veilring.protocols.ldp.algorithm.bayes.consistency import (
    CONSISTENCIES,
    Consistency,
    consistent,
    norm_sub,
)
from veilring.protocols.ldp.algorithm.bayes.discrete import DiscreteBayes, learn_discrete
from veilring.protocols.ldp.algorithm.bayes.evidence import evidence
from veilring.protocols.ldp.algorithm.bayes.gaussian import GaussianBayes, learn_gaussian
from veilring.protocols.ldp.algorithm.bayes.posterior import Posterior

__all__ = (
    "CONSISTENCIES",
    "Consistency",
    "DiscreteBayes",
    "GaussianBayes",
    "Posterior",
    "consistent",
    "evidence",
    "learn_discrete",
    "learn_gaussian",
    "norm_sub",
)
