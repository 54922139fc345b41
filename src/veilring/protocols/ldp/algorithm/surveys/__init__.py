"""The surveys: what is asked for frequencies, for means, and for the two kinds of naive Bayes."""

from veilring.protocols.ldp.algorithm.surveys.bayes import (
    BayesSurvey,
    DiscreteBayesSurvey,
    GaussianBayesSurvey,
    MakeOracle,
)
from veilring.protocols.ldp.algorithm.surveys.making import make_oracle
from veilring.protocols.ldp.algorithm.surveys.shares import FrequencySurvey, MeanSurvey

__all__ = (
    "BayesSurvey",
    "DiscreteBayesSurvey",
    "FrequencySurvey",
    "GaussianBayesSurvey",
    "MakeOracle",
    "MeanSurvey",
    "make_oracle",
)
