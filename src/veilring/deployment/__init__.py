"""Parties on machines of their own: what they agree on, how each is configured, and how it runs.

Two files are the same everywhere and public: the roster says who takes part by which key, and the
terms say what is run on which schema. Two are each party's own: its key and its rows.
"""

from veilring.deployment.client import ask
from veilring.deployment.columns import FeatureTerms
from veilring.deployment.config import ClientConfig, MemberConfig, load_config
from veilring.deployment.member import serve
from veilring.deployment.terms import Terms, load_terms

__all__ = (
    "ClientConfig",
    "FeatureTerms",
    "MemberConfig",
    "Terms",
    "ask",
    "load_config",
    "load_terms",
    "serve",
)
