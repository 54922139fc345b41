"""Local differential privacy: many clients, one untrusted aggregator.

Source: Yilmaz, Al-Rubaie and Chang, "Locally differentially private naive Bayes classification",
2019. Each client sends one perturbed report; the aggregator estimates frequencies and means, and
learns a naive Bayes classifier.

The mathematics is in `algorithm`. A long-lived collection uses a `collector` with a `store`, and an
`outbox` at each survey client; `parquet` exports reports.
"""

from veilring.protocols.ldp.algorithm.bayes import (
    Classifier,
    evidence,
    learn,
    learn_discrete,
    learn_gaussian,
)
from veilring.protocols.ldp.algorithm.means import make_means
from veilring.protocols.ldp.algorithm.oracles import (
    ORACLES,
    make_oracle,
    oracle_options,
    recommend_oracle,
)
from veilring.protocols.ldp.algorithm.randomiser import SurveyEstimate
from veilring.protocols.ldp.algorithm.steps import (
    Bins,
    LinearProjection,
    Scaling,
    discriminant_components,
    principal_components,
)
from veilring.protocols.ldp.algorithm.survey import (
    Answers,
    DiscreteBayesSurvey,
    FrequencySurvey,
    GaussianBayesSurvey,
    MeanSurvey,
    Survey,
    Tally,
    answer,
    tally_reports,
)
from veilring.protocols.ldp.messages import Task
from veilring.protocols.ldp.roles import ClientPool, gather, gather_cost, submit_reports
from veilring.protocols.ldp.saved import load_classifier, save_classifier

__all__ = (
    "ORACLES",
    "Answers",
    "Bins",
    "Classifier",
    "ClientPool",
    "DiscreteBayesSurvey",
    "FrequencySurvey",
    "GaussianBayesSurvey",
    "LinearProjection",
    "MeanSurvey",
    "Scaling",
    "Survey",
    "SurveyEstimate",
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
    "load_classifier",
    "make_means",
    "make_oracle",
    "oracle_options",
    "principal_components",
    "recommend_oracle",
    "save_classifier",
    "submit_reports",
    "tally_reports",
)
