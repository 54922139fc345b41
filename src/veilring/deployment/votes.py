"""Deployed noisy votes: their terms, and a party with a ledger of its own."""

from collections.abc import Callable
from functools import cached_property
from types import MappingProxyType
from typing import Final, Literal, Self

from pydantic import Field
from typing_extensions import override

from veilring.config import Section, as_scenario_errors, require_key, require_key_that, same_field
from veilring.deployment.config import FilePath
from veilring.deployment.peers import HolderConfig, Member, MemberTerms, serve_peers
from veilring.privacy.budgets import AMOUNT_MAX
from veilring.privacy.checks import require
from veilring.privacy.polya import POLYA_SCALE_MAX
from veilring.protocols.membership import Membership
from veilring.protocols.noisyvotes import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    queries_max,
    votes_membership,
)
from veilring.protocols.noisyvotes.system import NoisyVotes

# keys of `votes` that have another name in the code below
_KEYS: Final = {
    "epsilon_vote": "votes.epsilon",
    "epsilon_conversion": "votes.epsilon",
    "parties": "roster",
}


class VotesSection(Section):
    """The votes: see `veilring.protocols.noisyvotes.system.NoisyVotes`.

    Attributes:
        epsilon: The price of a batch.
        budget: The maximum price of all batches together, over the lifetime of the ledgers.
        radius: The radius around each query within which rows vote, in the unit cube; alternative
            to k.
        k: The approximate number of rows that vote; alternative to radius.
        rows: With k: the total number of rows of all parties, which is then public.
        conversion_share: With k: the share of a batch's epsilon that pays for converting k to
            radii: by a grid with up to six features, by annuli with more.
        tolerated: The number of parties that may collude or add no noise, the observer included.
        sum: The method of the secure sum.
        cycles: For `sum = "cycles"`: the number of edge-disjoint cycles.
        batch: The maximum number of queries asked at once.
    """

    renamed = MappingProxyType({"r": "radius"})

    epsilon: float = same_field(NoisyVotes, "epsilon", required=True)
    budget: float = Field(gt=0, le=AMOUNT_MAX, description=f"a number above 0, up to {AMOUNT_MAX}")
    radius: float | None = Field(None, ge=0, description="a number of at least 0, if k is left out")
    k: int | None = Field(None, ge=1, description="a whole number above 0, if radius is left out")
    rows: int | None = Field(None, ge=1, description="a whole number above 0, if k is given")
    conversion_share: float = same_field(NoisyVotes, "conversion_share")
    tolerated: int = same_field(NoisyVotes, "tolerated")
    sum: Literal["ring", "cycles", "shares", "masks"] = same_field(NoisyVotes, "sum")
    cycles: int = same_field(NoisyVotes, "cycles")
    batch: int = same_field(NoisyVotes, "batch")


class VotesTerms(MemberTerms):
    """The terms of noisy votes.

    Attributes:
        votes: The votes and their price.
    """

    votes: VotesSection

    @property
    @override
    def system(self) -> type[NoisyVotes]:
        return NoisyVotes

    @cached_property
    def parameters(self) -> NoisyVotesParameters:
        """The protocol's public parameters."""
        chosen = self.votes
        system = NoisyVotes(
            epsilon=chosen.epsilon,
            radius="auto" if chosen.radius is None else chosen.radius,
            k=chosen.k or 0,
            public_rows=True,
            conversion_share=chosen.conversion_share,
            tolerated=chosen.tolerated,
            sum=chosen.sum,
            cycles=chosen.cycles,
        )
        return system.bind(self.width, len(self.classes), rows=chosen.rows)

    @property
    def batch(self) -> int:
        """The number of queries asked at once: the maximum allowed by terms and message size."""
        return min(self.votes.batch, queries_max(self.parameters))

    @override
    def membership(self, parties: int, *, count: str = "roster") -> Membership:
        return votes_membership(self.parameters, self.batch)

    @override
    def price(self, parties: int) -> float:
        return self.parameters.epsilon

    @property
    @override
    def total(self) -> float:
        return self.votes.budget

    @override
    def checked(self, parties: int | None = None) -> Self:
        super().checked(parties)
        chosen = self.votes
        require_key_that(
            (chosen.radius is None) != (chosen.k is None),
            "votes.radius",
            "give either radius or k",
        )
        require_key_that(
            (chosen.rows is None) == (chosen.k is None),
            "votes.rows",
            "give rows together with k, and only with k",
        )
        enough = chosen.budget >= chosen.epsilon
        require_key(enough, "votes.budget", chosen.budget, "at least epsilon, the price of a batch")
        with as_scenario_errors(_KEYS, "votes"):
            _require_noise(self.parameters, self.batch)
            if parties is not None:
                self.parameters.exponent(parties)
        return self


def _require_noise(parameters: NoisyVotesParameters, queries: int) -> None:
    """Refuse batches in which a query's share of the budget may be too small for its noise."""
    budgets = [parameters.epsilon_vote]
    near = parameters.neighbours
    if isinstance(near, NearestRows) and isinstance(near.conversion, ByAnnuli):
        budgets.append(near.epsilon_conversion)
    most = int(min(budgets) * POLYA_SCALE_MAX) - 1
    require(queries <= most, "batch", queries, f"at most {most} queries under these budgets")


class VotesMemberConfig(HolderConfig):
    """A party that labels queries together with all others, by noisy votes.

    Attributes:
        role: `votes-member`.
    """

    role: Literal["votes-member"] = Field(description="votes-member")
    ledger: FilePath = "votes.db"


async def serve_votes(
    config: VotesMemberConfig, *, on_ready: Callable[[Member], None] | None = None
) -> None:
    """Take part in votes until cancelled: see `serve_peers`."""
    await serve_peers(config, VotesTerms, on_ready)
