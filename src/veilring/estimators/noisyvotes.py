"""Noisy votes in a ring of peers, as a scikit-learn estimator."""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.data.table import Rows
from veilring.estimators.base import (
    Answered,
    BatchClassifier,
    Dealing,
    RangesLike,
    Seed,
    deal,
    number,
    whole,
)
from veilring.privacy.accounting import PureDP
from veilring.privacy.checks import require
from veilring.protocols.noisyvotes.algorithm.parameters import NoisyVotesParameters
from veilring.protocols.noisyvotes.messages import votes_cost
from veilring.protocols.noisyvotes.roles import queries_max
from veilring.protocols.noisyvotes.system import NoisyVotes
from veilring.protocols.radius.algorithm.balls import BATCH_MAX
from veilring.protocols.system import Facts, Promise


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
        parties, alpha = whole("parties", self.parties), number("alpha", self.alpha)
        if self.k is not None:
            require(whole("k", self.k) >= 1, "k", self.k, "a whole number of at least 1, or none")
        system = NoisyVotes(
            epsilon=number("epsilon", self.epsilon),
            radius=number("r", self.r),
            k=0 if self.k is None else whole("k", self.k),
            tolerated=whole("tolerated", self.tolerated),
            sum=self.sum,
            cycles=whole("cycles", self.cycles),
            batch=BATCH_MAX,
        )
        facts = Facts(parties, rows.features.shape[1], len(self.classes_), len(rows))
        self.parts_, parts = deal(rows, parties, self.partition, alpha, rng)
        self._setup = system.setup({f"party-{n}": own for n, own in enumerate(parts)}, facts)
        self.parameters_ = self._setup.parameters
        self._promise = system.promise(parties=parties)
        self._losses: list[float] = []

    @override
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        count, most = len(queries), queries_max(self.parameters_)
        require(count <= most, "queries", f"{count} queries", f"1 to {most} at once")
        answer = self._setup.answer(queries, rng)
        self._losses.append(self._setup.loss_of(answer))
        parties = len(self._setup.parties)
        cost = votes_cost(parties, count, self.parameters_, rows=answer.rows)
        return Answered(answer.labels, cost)

    @override
    def _spent(self) -> Promise:
        lost = PureDP(0.0).compose(*map(PureDP, self._losses)).epsilon()
        return replace(self._promise, epsilon=lost)
