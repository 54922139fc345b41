"""Noisy votes in a ring of peers, as a scikit-learn estimator."""

from math import inf
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.data.table import Rows
from veilring.estimators.base import BatchClassifier, RangesLike, Seed, number, whole
from veilring.estimators.dealing import Dealing, deal
from veilring.estimators.privacy import Privacy
from veilring.estimators.session import Answered
from veilring.privacy.accounting import PureDP
from veilring.privacy.checks import require
from veilring.protocols.noisyvotes import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    guarantee,
    noisy_votes,
    queries_max,
    votes_cost,
    worst_plans,
)
from veilring.protocols.radius.algorithm.conversion import GRID_FEATURES_MAX, ByGrid
from veilring.protocols.radius.rules import OwnerRules
from veilring.protocols.ring import SumMethod


class NoisyVotesClassifier(BatchClassifier):
    """r-N or k-N by peers: each adds its share of the noise to its counts, and nobody has the rest.

    `fit` deals the rows to parties. `predict` runs the steps that the parties run: what the data
    owner of `OwnerRadiusClassifier` does alone, with a secure sum in its place. All queries are one
    batch under `epsilon`, and another batch spends another `epsilon`. A batch has at most 4096
    queries, and as many as fit a message.

    Each party knows its own share of the noise, and a coalition all of its own. With `tolerated`
    at 0 the others' shares alone are less than `epsilon` needs, and `privacy_` says what is left.

    Args:
        parties: How many, at least 3.
        epsilon: What a batch may spend, above 0.
        r: The radius within which rows vote, among features in [0, 1].
        k: In place of `r`: about how many nearest rows vote. A part of `epsilon` pays for turning
            it into radii, and another for the number of rows.
        tolerated: How many parties may pool what they see, or add no noise, whoever looks among
            them; below `parties`.
        sum: How votes are added up: `shares`, or `ring` or `cycles`, where two neighbours of a
            party, or so many as all cycles give it, leave it alone with its own noise.
        cycles: How many cycles `cycles` uses, at least 2; 1 for the others.
        partition: How rows are dealt: `iid`, `dirichlet` or `by-label`.
        alpha: For `dirichlet`: the smaller, the fewer parties hold most of a class.
        ranges: The public range of each feature, or one for all. By default that of the rows, which
            reveals something of them: then `fit` warns, and no ε holds. What lies outside is moved
            to its ends.
        random_state: A seed for experiments, under which no ε holds. By default the parties'
            randomness is cryptographic.

    Attributes:
        classes_: The classes, sorted; which there are counts as public.
        parameters_: The protocol's public parameters.
        parts_: Which rows each party was dealt.
        ranges_origin_: Where the ranges came from.
    """

    parameters_: NoisyVotesParameters
    parts_: tuple[NDArray[np.int64], ...]

    def __init__(  # noqa: PLR0913  (scikit-learn takes each parameter as an argument)
        self,
        parties: int = 8,
        epsilon: float = 1.0,
        *,
        r: float = 0.2,
        k: int | None = None,
        tolerated: int = 1,
        sum: Literal["ring", "cycles", "shares"] = "shares",  # noqa: A002  (its name in scenarios)
        cycles: int = 1,
        partition: Dealing = "iid",
        alpha: float = 1.0,
        ranges: RangesLike | None = None,
        random_state: Seed = None,
    ) -> None:
        self.parties = parties
        self.epsilon = epsilon
        self.r = r
        self.k = k
        self.tolerated = tolerated
        self.sum = sum
        self.cycles = cycles
        self.partition = partition
        self.alpha = alpha
        self.ranges = ranges
        self.random_state = random_state

    @override
    def _hold(self, rows: Rows, rng: Generator) -> None:
        features, classes = rows.features.shape[1], len(self.classes_)
        epsilon = number("epsilon", self.epsilon)
        require(0 < epsilon < inf, "epsilon", epsilon, "a finite number above 0")
        neighbours: WithinRadius | NearestRows = WithinRadius(number("r", self.r))
        if self.k is not None:
            neighbours, epsilon = _about_k(whole("k", self.k), epsilon, features, classes)
        self.parameters_ = NoisyVotesParameters(
            features,
            classes,
            epsilon,
            neighbours,
            whole("tolerated", self.tolerated),
            sum=SumMethod(self.sum, whole("cycles", self.cycles)),
        )
        parties = whole("parties", self.parties)
        self.parameters_.exponent(parties)  # refuses what does not go with so many
        alpha = number("alpha", self.alpha)
        self.parts_, self._parts = deal(rows, parties, self.partition, alpha, rng)
        self._losses: list[float] = []

    @override
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        public, parties, count = self.parameters_, len(self._parts), len(queries)
        most = queries_max(public)
        require(count <= most, "queries", f"{count} queries", f"1 to {most} at once")
        answer = noisy_votes(queries, self._parts, public, rng)
        near, against = public.neighbours, max(1, public.tolerated)
        # Where radii are found for k, plans depend on rows: a promise may not.
        plans = worst_plans(public, near, count) if isinstance(near, NearestRows) else answer.spent
        loss = guarantee(plans, parties, against, public.sum, tolerated=public.tolerated)
        self._losses.append(loss)
        return Answered(answer.labels, votes_cost(parties, count, public, rows=answer.rows))

    @override
    def _spent(self) -> Privacy:
        together = max(1, self.parameters_.tolerated)
        pooling = "no two of them pool what they know, and all add"
        if together > 1:
            pooling = f"no more than {together} of them pool what they know, and the others add"
        return Privacy(
            protects="each party's rows",
            against="everybody who sees labels and totals, the other parties too",
            trusts=f"the parties follow the protocol: {pooling} their noise",
            epsilon=PureDP(0.0).compose(*map(PureDP, self._losses)).epsilon(),
            delta=0.0,
            unit="one row added or removed",
            measure="pure ε-DP",
        )


def _about_k(k: int, epsilon: float, features: int, classes: int) -> tuple[NearestRows, float]:
    """Return how k is turned into radii, and what is left for the vote: as a data owner divides."""
    conversion = ByGrid() if features <= GRID_FEATURES_MAX else ByAnnuli()
    divided = OwnerRules(features, classes).nearest(k, epsilon)
    nearest = NearestRows(
        k,
        divided.epsilon_conversion,
        epsilon_count=divided.epsilon_count,
        conversion=conversion,
    )
    return nearest, divided.epsilon_vote
