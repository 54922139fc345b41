"""Noisy votes as a system: parameters, guarantee, and the play of a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal, Self, cast

import numpy as np
from numpy.random import Generator
from pydantic import Field
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, check_rows
from veilring.errors import InputError
from veilring.nodes.ring import Ring
from veilring.privacy.accounting import PureDP
from veilring.privacy.checks import require
from veilring.privacy.divisible import POLYA_SCALE_MAX
from veilring.privacy.shares import DELTA_MAX
from veilring.protocols.membership import Membership
from veilring.protocols.noisyvotes.algorithm.noise import deviations, kurtosis
from veilring.protocols.noisyvotes.algorithm.parameters import (
    VOTES_EPSILON_MAX,
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    guarantee,
    protecting_shares,
    worst_loss,
)
from veilring.protocols.noisyvotes.algorithm.releases import (
    VotesAnswer,
    batch_steps,
    noisy_counts,
    noisy_votes,
)
from veilring.protocols.noisyvotes.roles import (
    Radii,
    queries_max,
    scores_of,
    votes_cost,
    votes_membership,
)
from veilring.protocols.promise import (
    Facts,
    Forecast,
    Promise,
    Spent,
    colluding,
    in_batches,
    measure_of,
)
from veilring.protocols.radius.algorithm.balls import BATCH_MAX
from veilring.protocols.radius.algorithm.conversion import GRID_FEATURES_MAX, ByGrid
from veilring.protocols.radius.algorithm.nearest import BudgetParts
from veilring.protocols.radius.neighbourhood import NearVotes, public_k, radius_among
from veilring.protocols.ring.algorithm.sums import SumMethod
from veilring.protocols.system import PARTIES, PeerSetup, PlannedNoise, Play, Scored


class NoisyVotes(NearVotes):
    """Parties count their own rows near a query, each with its share of the noise.

    A secure sum adds them up, so nobody has all rows or all noise. All queries of a batch share
    `epsilon` by the overlap of the balls around them. A radius that follows from the queries is
    sent with them.

    Attributes:
        name: `noisy-votes`.
        delta: The δ of a batch. Its noise is Gaussian where this is less noise, because many
            queries share `epsilon`; otherwise it is pure. With 0 all noise is pure.
        conversion: The conversion of k to radii. `auto` is `grid` with up to six features and
            `annuli` with more.
        tolerated: The number of parties that may collude or add no noise, the observer included.
        sum: The method of the secure sum.
        cycles: For `sum = "cycles"`: the number of edge-disjoint cycles.
    """

    trust: ClassVar[str] = "{honest} of {parties}"
    # 3: the noise may be Gaussian. 4: a batch beyond the limit of work has other bounds.
    messages_format: ClassVar[int] = 4
    title: ClassVar[str] = "noisy votes"
    summary: ClassVar[str] = "Parties add up votes near a query, each with its share of the noise."

    name: Literal["noisy-votes"] = "noisy-votes"
    epsilon: float = Field(
        1.0,
        gt=1 / POLYA_SCALE_MAX,
        le=VOTES_EPSILON_MAX,
        description=f"a number above 1/{POLYA_SCALE_MAX} and up to {VOTES_EPSILON_MAX:,}",
    )
    delta: float = Field(1e-5, ge=0, le=DELTA_MAX)
    conversion: Literal["auto", "grid", "annuli"] = "auto"
    tolerated: int = Field(1, ge=0)
    sum: Literal["ring", "cycles", "shares", "masks"] = "shares"
    cycles: int = Field(1, ge=1)
    batch: int = Field(1000, ge=1, le=BATCH_MAX)

    @property
    @override
    def reveals_scores(self) -> bool:
        return True

    @property
    @override
    def draws_ring(self) -> bool:
        return self.sum in {"ring", "cycles"}

    @override
    def pooling(self, parties: int) -> int:
        return self._together

    @override
    def promise(self, *, parties: int = PARTIES) -> Promise:
        """Return the guarantee for everyone, including the parties.

        If a coalition of `tolerated` parties, or a single one, leaves less noise than `epsilon`
        needs, the bound is the maximum loss of a full batch.
        """
        # Annuli lose the most; without the number of features they may be used.
        width = GRID_FEATURES_MAX + 1 if self.conversion != "grid" else 1
        public = self.bind(Facts(parties, width, 1, rows=1))
        adding = "the others add" if self.tolerated > 1 else "all add"
        notes = ["The number of rows is public."] * self.counts_publicly
        if protecting_shares(parties, self._together, public.sum) < parties - self.tolerated:
            notes.append(
                f"This ε is larger than the {self.epsilon:g} that was chosen, because the parties"
                " themselves know too many of the noise shares."
            )
        return Promise(
            protects="each party's rows",
            against="anyone who sees labels and totals, including the other parties",
            threat_model=f"semi-honest parties: {colluding(self.tolerated, parties)}, and {adding}"
            " their noise",
            adjacency="one row added or removed",
            epsilon=self.loss(public, parties, self.largest_batch(public)),
            delta=self.delta,
            unit="batch",
            measure=measure_of(self.delta),
            learned="all parties: the queries, the noisy totals and the labels"
            + (", and the radii" if self.k else ""),
            note=" ".join(notes),
        )

    @classmethod
    @override
    def forms(cls, *, epsilon: float | None, k: int, tolerated: int) -> Mapping[str, Self]:
        """Return noisy votes with and without a δ."""
        usual = cls.suited(epsilon=epsilon, k=k, tolerated=tolerated)
        return {"": usual, "pure": usual.replaced(delta=0.0)}

    @override
    def forecast_for(self, facts: Facts, queries: int) -> Forecast:
        """Return the cost of labelling queries, before anything is run.

        With `k` and a grid the cost depends on the number of rows, which the parties count with
        noise unless it is public: the forecast is then the cost for noise 0.
        """
        public = self.bind(facts)
        size = self.largest_batch(public)
        return in_batches(
            lambda count: votes_cost(facts.parties, count, public, rows=facts.rows), queries, size
        )

    def bind(self, facts: Facts) -> NoisyVotesParameters:
        """Return the public parameters; refuse those that do not fit the public facts."""
        neighbours, epsilon_vote = self._neighbours(facts)
        parameters = NoisyVotesParameters(
            facts.features,
            facts.classes,
            epsilon_vote,
            neighbours,
            self.tolerated,
            SumMethod(self.sum, self.cycles),
            delta=self.delta,
        )
        parameters.exponent(facts.parties)  # refuses an invalid number of parties
        return parameters

    def largest_batch(self, parameters: NoisyVotesParameters) -> int:
        """Return the number of queries that a batch can always hold.

        Every message must fit into a frame, and noise must be available for each query's share of
        the budgets, for any overlap of the balls around the queries.
        """
        budgets, near = [parameters.epsilon_vote], parameters.neighbours
        if isinstance(near, NearestRows) and isinstance(near.conversion, ByAnnuli):
            budgets.append(near.epsilon_conversion)
        most = int(min(budgets) * POLYA_SCALE_MAX) - 1
        allowed = "a larger number; the noise for one query cannot be drawn at this value"
        require(most >= 1, "epsilon", self.epsilon, allowed)
        return min(self.batch, most, queries_max(parameters))

    def loss(self, parameters: NoisyVotesParameters, parties: int, queries: int) -> float:
        """Return the maximum epsilon that a batch of the given number of queries loses."""
        there = protecting_shares(parties, self._together, parameters.sum)
        if there >= parties - self.tolerated:
            return self.epsilon
        return worst_loss(parameters, parties, queries)

    @override
    def membership(self, facts: Facts) -> Membership:
        if self.counts_publicly and facts.rows is None:
            raise InputError.because(
                "the number of rows of all parties, which is public, is missing; give `rows`, or a"
                " radius or k that does not depend on it",
                field="rows",
            )
        parameters = self.bind(facts)
        return votes_membership(parameters, self.largest_batch(parameters), self.radii_for(facts))

    @override
    def setup(self, parts: Mapping[str, Rows], facts: Facts) -> "VotesSetup":
        return VotesSetup(self, parts, facts)

    @property
    def _together(self) -> int:
        """The number of parties that may collude: even one knows its own share."""
        return max(1, self.tolerated)

    def radii_for(self, facts: Facts) -> Radii | None:
        """Return how the client chooses radii; None if the parameters determine them."""
        if self.k or self.radius != "auto":
            return None
        return partial(_radii_among, facts, self.epsilon)

    def _neighbours(self, facts: Facts) -> tuple[WithinRadius | NearestRows, float]:
        """Return the rows that vote, and the budget that is left for the vote."""
        if not self.k:
            return WithinRadius(None if self.radius == "auto" else self.radius), self.epsilon
        features, rows = facts.features, facts.rows
        is_public, k = self.public_rows or self.k == "auto", public_k(self.k, features, rows)
        if is_public and rows is None:
            raise InputError.because(
                "the number of rows of all parties, which is public, is missing; give `rows`",
                field="rows",
            )
        auto = self.conversion == "auto"
        grid = features <= GRID_FEATURES_MAX if auto else self.conversion == "grid"
        counting = 0.0 if is_public else self.count_share
        parts = BudgetParts.of(self.epsilon, counting, self.conversion_share)
        nearest = NearestRows(
            k,
            parts.converting,
            rows=rows if is_public else None,
            epsilon_count=parts.counting,
            conversion=ByGrid() if grid else ByAnnuli(),
        )
        return nearest, parts.voting


def _radii_among(facts: Facts, epsilon: float, queries: Floats) -> Floats:
    return np.full(len(queries), radius_among(queries, facts, epsilon))


class VotesSetup(PeerSetup):
    """Parties that are ready to vote."""

    def __init__(self, system: NoisyVotes, parts: Mapping[str, Rows], facts: Facts) -> None:
        super().__init__(system, parts, facts)
        self._votes = system
        self.parameters = system.bind(facts)
        for rows in parts.values():
            check_rows(rows, self.parameters.features, self.parameters.classes)

    @override
    def play(
        self, queries: Floats, *, among: Sequence[str] | None = None, ring: Ring | None = None
    ) -> Play:
        play = super().play(queries, among=among, ring=ring)
        parties = play.learners
        return replace(
            play,
            # If rows are counted with noise, all parties know the number used for the grid.
            forecast=lambda run: votes_cost(
                len(parties),
                len(queries),
                self.parameters,
                drawn=ring is None,
                rows=cast("VotesAnswer", run.results[parties[0]]).rows,
            ),
            public={**play.public, "ring": ring},
        )

    @override
    def label(self, queries: Floats, rng: Generator) -> Ints:
        return self.answer(queries, rng).labels

    @override
    def score(self, queries: Floats, rng: Generator) -> Scored:
        said = self.answer(queries, rng)
        return Scored(said.labels, scores_of(said))

    def answer(self, queries: Floats, rng: Generator) -> VotesAnswer:
        """Return the public result of a batch, computed without messages."""
        parts, radii = list(self.parts.values()), self.radii(queries)
        return noisy_votes(queries, parts, self.parameters, rng, radii=radii)

    @override
    def observe(self, queries: Floats, runs: int, rng: Generator) -> Floats:
        """Draw the noisy votes of a batch, which all parties learn."""
        parts, parameters, radii = list(self.parts.values()), self.parameters, self.radii(queries)
        if parameters.radii_of(queries, radii) is None:  # noise decides which rows vote
            answers = (self.answer(queries, rng).totals for _ in range(runs))
            return np.array([totals.ravel() for totals in answers], np.float64)
        exponent = parameters.exponent(len(parts))
        voting = next(batch_steps(queries, parameters, radii, shares=exponent.denominator))
        counts = [np.tile(voting.count(rows), runs) for rows in parts]
        totals = np.sum([noisy_counts(own, voting.plan, exponent, rng) for own in counts], axis=0)
        by_run = totals.reshape(len(queries), runs, -1).swapaxes(0, 1)
        return np.asarray(by_run.reshape(runs, -1), np.float64)

    @override
    def noise(self, queries: Floats, answer: VotesAnswer) -> PlannedNoise | None:
        """Return the noise of the votes; None if noise also decides which rows vote."""
        if self._votes.k:
            return None
        parts, public, radii = list(self.parts.values()), self.parameters, self.radii(queries)
        rng = np.random.default_rng(0)  # draws nothing
        exact = noisy_votes(queries, parts, public, rng, radii=radii, missing=len(parts))
        (plan,) = answer.spent
        deviation = deviations(plan, len(parts), public.shares(len(parts)))
        noise = (answer.totals - exact.totals) / deviation[:, None]
        return PlannedNoise(noise.ravel(), kurtosis(plan))

    def radii(self, queries: Floats) -> Floats | None:
        """Return the radii of a batch, shape (queries,); none if the parameters determine them."""
        choose = self._votes.radii_for(self.facts)
        return None if choose is None else choose(queries)

    def loss_of(self, answer: VotesAnswer) -> float:
        """Return the epsilon that a batch has lost, or its upper bound for radii found for k."""
        public, parties = self.parameters, len(self.parts)
        # For k, plans depend on rows, but a guarantee must not.
        if isinstance(public.neighbours, NearestRows):
            return worst_loss(public, parties, len(answer.labels))
        together, tolerated = max(1, public.tolerated), public.tolerated
        return guarantee(answer.spent, parties, together, public.sum, tolerated=tolerated)

    @override
    def spent(self, batches: int) -> Spent:
        loss = self._votes.loss(self.parameters, len(self.parts), self.batch_max)
        epsilon = PureDP(loss).repeat(batches).epsilon()
        return Spent(epsilon, self._votes.delta * batches, batches, "batch")
