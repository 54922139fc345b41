"""Local differential privacy: many clients, one untrusted aggregator.

Source: Yilmaz, Al-Rubaie and Chang, "Locally differentially private naive Bayes classification",
2019. Each client sends one perturbed report; the aggregator estimates frequencies and means, and
learns a naive Bayes classifier.

Rooms of their own, since they bring a database or a table along: `collector`, `store` and `outbox`;
`parquet`. `attacks` is what an adversary makes of reports.
"""

from veilring.protocols.ldp.algorithm.bayes import (
    Classifier,
    evidence,
    learn,
    learn_discrete,
    learn_gaussian,
)
from veilring.protocols.ldp.algorithm.means import make_means
from veilring.protocols.ldp.algorithm.oracles import ORACLES
from veilring.protocols.ldp.algorithm.planner import options, recommend
from veilring.protocols.ldp.algorithm.randomiser import Estimate
from veilring.protocols.ldp.algorithm.reduction import (
    Projection,
    discriminant_components,
    principal_components,
)
from veilring.protocols.ldp.algorithm.steps import Bins, Ranges
from veilring.protocols.ldp.algorithm.survey import Answers, Survey, Tally, answer, tally
from veilring.protocols.ldp.algorithm.surveys import (
    DiscreteBayesSurvey,
    FrequencySurvey,
    GaussianBayesSurvey,
    MeanSurvey,
    make_oracle,
)
from veilring.protocols.ldp.cost import gather_cost
from veilring.protocols.ldp.pool import ClientPool
from veilring.protocols.ldp.roles import gather, submit
from veilring.protocols.ldp.saved import load, save
from veilring.protocols.ldp.task import Task

__all__ = (
    "ORACLES",
    "Answers",
    "Bins",
    "Classifier",
    "ClientPool",
    "DiscreteBayesSurvey",
    "Estimate",
    "FrequencySurvey",
    "GaussianBayesSurvey",
    "MeanSurvey",
    "Projection",
    "Ranges",
    "Survey",
    "Tally",
    "Task",
    "answer",
    "discriminant_components",
    "evidence",
    "gather",
    "gather_cost",
    "learn",
    "learn_discrete",
    "learn_gaussian",
    "load",
    "make_means",
    "make_oracle",
    "options",
    "principal_components",
    "recommend",
    "save",
    "submit",
    "tally",
)
