"""The terms of noisy votes: what they cost, which rows vote, and how a row is read."""

from functools import cached_property
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field
from typing_extensions import override

from veilring.config import Section, as_scenario_errors, read_toml, require_key
from veilring.data import Table
from veilring.deployment.schema import Schema, features_of_table
from veilring.privacy.checks import require
from veilring.privacy.ledger.units import AMOUNT_MAX
from veilring.privacy.polya import POLYA_SCALE_MAX
from veilring.protocols.noisyvotes import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    queries_max,
)
from veilring.protocols.radius.algorithm.conversion import GRID_FEATURES_MAX, ByGrid
from veilring.protocols.ring import SumMethod

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
    def checked(self) -> Self:
        super().checked()
        chosen = self.votes
        both = "given with k" if chosen.r is not None else "missing, and so is k"
        require_key((chosen.r is None) != (chosen.k is None), "votes.r", both, "either r or k")
        public = "given with k, and only then"
        require_key((chosen.rows is None) == (chosen.k is None), "votes.rows", chosen.rows, public)
        enough = chosen.budget >= chosen.epsilon
        require_key(enough, "votes.budget", chosen.budget, "at least epsilon, what a batch costs")
        with as_scenario_errors(_KEYS, "votes"):
            _require_noise(self.parameters, self.batch)
        return self

    def _nearest(self, k: int, epsilon: float) -> NearestRows:
        grid = self.width <= GRID_FEATURES_MAX
        conversion = ByGrid() if grid else ByAnnuli()
        return NearestRows(k, epsilon, rows=self.votes.rows, conversion=conversion)


def load_votes_terms(path: Path, parties: int) -> VotesTerms:
    """Read a file of terms and check it.

    Args:
        path: The file.
        parties: How many there are: some ways to sum need more than others, and some of them have
            to add noise.

    Raises:
        ScenarioError: With all mistakes: the key, its value and what is allowed.
    """
    terms = read_toml(path, VotesTerms).checked()
    with as_scenario_errors(_KEYS, "votes"):
        terms.parameters.exponent(parties)
    return terms


def votes_terms_of_table(table: Table, votes: VotesSection, parties: int) -> VotesTerms:
    """Return terms that fit a table: for trials, where one holds all rows.

    The ranges are the table's own: see `features_of_table`.

    Raises:
        ScenarioError: If they do not fit together.
    """
    terms = VotesTerms(votes=votes, classes=table.class_names, features=features_of_table(table))
    with as_scenario_errors(_KEYS, "votes"):
        terms.checked().parameters.exponent(parties)
    return terms


def _require_noise(parameters: NoisyVotesParameters, queries: int) -> None:
    """Refuse batches of which a query's share of a budget may be too small to draw noise for."""
    budgets = [parameters.epsilon_vote]
    if isinstance(parameters.neighbours, NearestRows):
        budgets.append(parameters.neighbours.epsilon_conversion)
    most = int(min(budgets) * POLYA_SCALE_MAX) - 1
    require(queries <= most, "batch", queries, f"at most {most} queries under these budgets")
