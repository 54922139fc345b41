"""Deployed noisy votes: their terms, and a party that votes with a ledger of its own."""

import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field
from typing_extensions import override

from veilring.config import Section, as_scenario_errors, require_key
from veilring.deployment.config import AnAddress, FilePath, TermsConfig, load_credentials
from veilring.deployment.connecting import meeting
from veilring.deployment.schema import OUTSIDE_MAX, OutsideMax, Schema
from veilring.errors import InputError, ScenarioError
from veilring.nodes.party import Parties
from veilring.nodes.service import Service
from veilring.privacy.budgets import AMOUNT_MAX, Budgets
from veilring.privacy.checks import require
from veilring.privacy.ledger import open_ledger
from veilring.privacy.noise import POLYA_SCALE_MAX
from veilring.protocols.noisyvotes import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    queries_max,
)
from veilring.protocols.noisyvotes.member import VotesMember
from veilring.protocols.radius.algorithm.conversion import GRID_FEATURES_MAX, ByGrid
from veilring.protocols.ring import SumMethod
from veilring.transport.roster import Roster
from veilring.transport.tls import LOOPBACK

# Where the code below has another name for a key of `votes`.
_KEYS: Final = {
    "epsilon_vote": "votes.epsilon",
    "epsilon_conversion": "votes.epsilon",
    "radius": "votes.r",
    "sum.name": "votes.sum",
    "sum.cycles": "votes.cycles",
    "parties": "roster",
}


class VotesSection(Section):
    """How parties vote: see `veilring.protocols.noisyvotes.NoisyVotesParameters`.

    Attributes:
        epsilon: What a batch costs.
        budget: What all batches together may cost, for as long as the ledgers live.
        r: The radius around each query within which rows vote, in the unit cube; or else
        k: about how many rows vote.
        rows: With k: how many rows all parties have together, which is public then.
        conversion_share: With k: which share of a batch's epsilon turns k into radii: by a grid
            with up to six features, by annuli with more.
        tolerated: How many parties' shares of noise may be missing, those of whoever looks and of
            its colluders among them.
        sum: How votes are added up.
        cycles: For `sum = "cycles"`: how many edge-disjoint cycles.
        batch: At most how many queries are asked at once.
    """

    epsilon: float = Field(gt=0, description="a number above 0")
    budget: float = Field(gt=0, le=AMOUNT_MAX, description=f"a number above 0, up to {AMOUNT_MAX}")
    r: float | None = Field(None, ge=0, description="a number of at least 0, if k is left out")
    k: int | None = Field(None, ge=1, description="a whole number above 0, if r is left out")
    rows: int | None = Field(None, ge=1, description="a whole number above 0, if k is given")
    conversion_share: float = Field(0.5, gt=0, lt=1, description="a number between 0 and 1")
    tolerated: int = Field(1, ge=0, description="a whole number of at least 0")
    sum: Literal["ring", "cycles", "shares"] = Field("shares", description="ring, cycles or shares")
    cycles: int = Field(1, ge=1, description="a whole number of at least 1")
    batch: int = Field(1000, ge=1, description="a whole number of at least 1")


class VotesTerms(Schema):
    """What parties vote on, at which price, and how a row is read.

    Attributes:
        votes: How they vote.
    """

    votes: VotesSection

    @cached_property
    def parameters(self) -> NoisyVotesParameters:
        """The protocol's public parameters."""
        chosen = self.votes
        finding = chosen.epsilon * chosen.conversion_share if chosen.k is not None else 0.0
        return NoisyVotesParameters(
            features=self.width,
            classes=len(self.classes),
            epsilon_vote=chosen.epsilon - finding,
            neighbours=WithinRadius(chosen.r)
            if chosen.k is None
            else self._nearest(chosen.k, finding),
            tolerated=chosen.tolerated,
            sum=SumMethod(chosen.sum, chosen.cycles),
        )

    @property
    def batch(self) -> int:
        """How many queries are asked at once: as many as the terms and a message allow."""
        return min(self.votes.batch, queries_max(self.parameters))

    @override
    def checked(self, parties: int | None = None) -> Self:
        super().checked(parties)
        chosen = self.votes
        both = "given with k" if chosen.r is not None else "missing, and so is k"
        require_key((chosen.r is None) != (chosen.k is None), "votes.r", both, "either r or k")
        public = "given with k, and only then"
        require_key((chosen.rows is None) == (chosen.k is None), "votes.rows", chosen.rows, public)
        enough = chosen.budget >= chosen.epsilon
        require_key(enough, "votes.budget", chosen.budget, "at least epsilon, what a batch costs")
        with as_scenario_errors(_KEYS, "votes"):
            _require_noise(self.parameters, self.batch)
            if parties is not None:
                self.parameters.exponent(parties)
        return self

    def _nearest(self, k: int, epsilon: float) -> NearestRows:
        grid = self.width <= GRID_FEATURES_MAX
        conversion = ByGrid() if grid else ByAnnuli()
        return NearestRows(k, epsilon, rows=self.votes.rows, conversion=conversion)


def _require_noise(parameters: NoisyVotesParameters, queries: int) -> None:
    """Refuse batches of which a query's share of a budget may be too small to draw noise for."""
    budgets = [parameters.epsilon_vote]
    if isinstance(parameters.neighbours, NearestRows):
        budgets.append(parameters.neighbours.epsilon_conversion)
    most = int(min(budgets) * POLYA_SCALE_MAX) - 1
    require(queries <= most, "batch", queries, f"at most {most} queries under these budgets")


_log = logging.getLogger("veilring.votes")

_AN_AMOUNT: Final = "a number of at least 0"
_Amount = Annotated[float, Field(ge=0, description=_AN_AMOUNT)]


class VotesMemberConfig(TermsConfig):
    """A party that labels queries together with all others, by noisy votes.

    Attributes:
        role: `votes-member`.
        rows: The CSV file with this party's own rows; the label is its last column.
        ledger: The file that remembers what was spent, and the labels of each batch that was asked
            here.
        amend: Whether another budget than before is meant; what was spent stays spent.
        outside_max: The share of a column's values that may lie outside of its public range. With
            more the party does not start.
        listen: The address to listen at; loopback unless it says otherwise.
    """

    role: Literal["votes-member"] = Field(description="votes-member")
    rows: FilePath
    ledger: FilePath = "votes.db"
    client: _Amount | None = Field(None, description=_AN_AMOUNT)
    clients: Mapping[str, _Amount] = Field({}, description="a table of names and numbers")
    amend: bool = Field(default=False, description="true or false")
    outside_max: OutsideMax = OUTSIDE_MAX
    listen: AnAddress = LOOPBACK


async def serve_votes(
    config: VotesMemberConfig, *, on_ready: Callable[[VotesMember], None] | None = None
) -> None:
    """Vote until cancelled.

    All files are read and checked first; then the member waits for the others, and answers. Until
    all are there it refuses requests, and names the parties it waits for. A member that was lost is
    dialled again, and takes part again in what is asked after that.

    Args:
        config: Which files to read, and where to listen.
        on_ready: Called once all members are connected.

    Raises:
        ScenarioError: If a file does not fit.
        InputError: If another process writes the ledger, or it was begun with other budgets.
        HandshakeError: If a member is missing after a day.
        StoreFailed: If the disk fails. What was answered until then is on it.
    """
    identity, roster = load_credentials(config)
    terms = VotesTerms.load(Path(config.terms), len(roster.parties))
    rows = terms.read_own_rows(Path(config.rows), config.outside_max, _log)
    budgets = _budgets(config, terms, roster)
    with open_ledger(Path(config.ledger), budgets, amend=config.amend) as ledger:
        place = (config.listen, _log, config.limits, terms.keys)
        async with meeting(identity, roster, *place) as met:
            parties, limits = Parties(roster.parties), config.limits
            member = VotesMember(
                met.node, rows, parties, terms.parameters, ledger, terms.digest, limits
            )
            async with Service(met.node, member.offers()):
                await met.all_here()
                _log.info("%s is ready", met.node.name)
                if on_ready is not None:
                    on_ready(member)
                await met.stay(member.failure())


def _budgets(config: VotesMemberConfig, terms: VotesTerms, roster: Roster) -> Budgets:
    strangers = sorted(set(config.clients) - (set(roster.names) - set(roster.parties)))
    if strangers:
        raise ScenarioError("clients", ", ".join(strangers), "clients of the roster")
    total, each = terms.votes.budget, dict(config.clients)
    if config.client is not None:  # which limits clients, not the parties that they ask
        each |= dict.fromkeys(roster.parties, total)
    try:
        return Budgets("epsilon", total, config.client, each)
    except InputError as error:
        key = error.field.replace("analyst", "client", 1)
        raise ScenarioError(key, error.value, error.allowed) from error
