"""Parties on machines of their own: what they agree on, how each is configured, and how it runs.

Two files are the same everywhere and public: the roster says who takes part by which key, and the
terms say what is run on which schema. Two are each party's own: its key and its rows.

A collection has one party, the collector, and clients that hand in reports; what it asks is in its
own terms, which it publishes.

Noisy votes are run as a ring does, and each party has a ledger of its own.

A data owner has terms and answers analysts by itself, under the budgets of a ledger.

A server of places has places that anybody may know; a seeker does not tell it where it looks.

A prediction server has records that curators add and have forgotten while it answers queriers.
"""

from veilring.deployment.analyst import AnalystConfig, label
from veilring.deployment.client import ask
from veilring.deployment.collector import collect
from veilring.deployment.columns import FeatureTerms
from veilring.deployment.config import (
    ClientConfig,
    CollectorConfig,
    MemberConfig,
    SubmitterConfig,
)
from veilring.deployment.curator import CuratorConfig
from veilring.deployment.estimating import Estimates, estimate
from veilring.deployment.member import serve
from veilring.deployment.owner import OwnerConfig, own
from veilring.deployment.owner_terms import OwnerTerms, load_owner_terms
from veilring.deployment.places import (
    Area,
    PlacesConfig,
    PlacesTerms,
    load_places_terms,
    serve_places,
)
from veilring.deployment.prediction import PredictionServerConfig, predict
from veilring.deployment.prediction_terms import PredictionTerms, load_prediction_terms
from veilring.deployment.querier import QuerierConfig, Unfinished, query
from veilring.deployment.roles import (
    ROLES,
    Part,
    asking,
    load_config,
    load_config_of,
    seeking,
    serving,
)
from veilring.deployment.seeker import Chance, Near, SeekerConfig, chance_of, seek
from veilring.deployment.submitter import Submitted, submit
from veilring.deployment.survey_terms import SurveyTerms, load_survey_terms
from veilring.deployment.terms import Terms, load_terms
from veilring.deployment.votes_member import VotesMemberConfig, serve_votes
from veilring.deployment.votes_terms import VotesTerms, load_votes_terms

__all__ = (
    "ROLES",
    "AnalystConfig",
    "Area",
    "Chance",
    "ClientConfig",
    "CollectorConfig",
    "CuratorConfig",
    "Estimates",
    "FeatureTerms",
    "MemberConfig",
    "Near",
    "OwnerConfig",
    "OwnerTerms",
    "Part",
    "PlacesConfig",
    "PlacesTerms",
    "PredictionServerConfig",
    "PredictionTerms",
    "QuerierConfig",
    "SeekerConfig",
    "Submitted",
    "SubmitterConfig",
    "SurveyTerms",
    "Terms",
    "Unfinished",
    "VotesMemberConfig",
    "VotesTerms",
    "ask",
    "asking",
    "chance_of",
    "collect",
    "estimate",
    "label",
    "load_config",
    "load_config_of",
    "load_owner_terms",
    "load_places_terms",
    "load_prediction_terms",
    "load_survey_terms",
    "load_terms",
    "load_votes_terms",
    "own",
    "predict",
    "query",
    "seek",
    "seeking",
    "serve",
    "serve_places",
    "serve_votes",
    "serving",
    "submit",
)
