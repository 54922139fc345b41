"""Noisy votes: r-N and k-N classification among parties, without a trusted owner.

Each party counts its own rows near the queries and adds its share of the noise; a secure sum adds
them up. Nobody has all rows, or all noise. `algorithm` contains pure functions; the classifier is
that of the family `radius`, and the sums are those of `ring`.
"""

from veilring.protocols.noisyvotes.algorithm.parameters import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    guarantee,
    protecting_shares,
    remaining_epsilon,
    worst_plans,
)
from veilring.protocols.noisyvotes.algorithm.releases import VotesAnswer, noisy_votes
from veilring.protocols.noisyvotes.roles import (
    private_votes,
    queries_max,
    votes_cost,
    votes_membership,
)

__all__ = (
    "ByAnnuli",
    "NearestRows",
    "NoisyVotesParameters",
    "VotesAnswer",
    "WithinRadius",
    "guarantee",
    "noisy_votes",
    "private_votes",
    "protecting_shares",
    "queries_max",
    "remaining_epsilon",
    "votes_cost",
    "votes_membership",
    "worst_plans",
)
