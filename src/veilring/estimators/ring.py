"""PP-kNN among peers in a ring, as a scikit-learn estimator."""

from typing import Final, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.data.table import Rows, pairwise_distances
from veilring.estimators.base import BatchClassifier, RangesLike, Seed, number, whole
from veilring.estimators.dealing import Dealing, deal
from veilring.estimators.privacy import Privacy
from veilring.estimators.session import Answered, blocks, in_all
from veilring.privacy.checks import require
from veilring.protocols.ring.algorithm.classify import Weights, ring_knn
from veilring.protocols.ring.algorithm.sums import FixedPoint, SumMethod
from veilring.protocols.ring.algorithm.topk import rounds_for
from veilring.protocols.ring.cost import knn_cost
from veilring.protocols.ring.roles import SCALE_BITS, KNNParameters

_PRIVACY: Final = Privacy(
    protects="each party's rows",
    against="the other parties of the ring",
    trusts="all parties follow the protocol, and do not pool what they see",
    epsilon=None,
    delta=0.0,
    unit="one query",
    measure="measured leakage, no ε",
    note="Each party learns the k smallest distances, the votes and the label of each query. What "
    "passes round the ring is not differentially private: what it leaks is measured by "
    "veilring.protocols.ring.leakage, and nothing bounds it.",
)


class PrivateKNNClassifier(BatchClassifier):
    """kNN over the rows of several parties, as if they were in one place.

    `fit` deals the rows to parties. `predict` runs the steps that the parties of a ring run:
    PP-TopK for the k smallest distances of all, then a secure sum of votes. A batch that does not
    fit a message is asked in several.

    There is no ε here. The transcript of PP-TopK is not differentially private, however its noise
    is chosen, and the distances and votes that all parties learn are exact.

    Args:
        parties: How many, at least 3.
        k: How many nearest neighbours vote; rows that tie with the k-th vote too. No more
            than rows.
        P0: PP-TopK's probability of noise in round 1, in [0, 1].
        d: The factor by which it falls each round, in (0, 1].
        rounds: How often PP-TopK's vector goes round; `auto` for the fewest that keep to `error`.
        error: The accepted probability that a query's distances are not exact, for `auto`.
        delta: The least range of PP-TopK's noise, as a distance among features in [0, 1].
        weights: `uniform`, or `distance` for votes of 1 / distance.
        sum: How votes are added up: `ring`, `cycles` or `shares`.
        cycles: How many cycles `cycles` uses, at least 2; 1 for the others.
        partition: How rows are dealt: `iid`, `dirichlet` or `by-label`.
        alpha: For `dirichlet`: the smaller, the fewer parties hold most of a class.
        ranges: The public range of each feature, or one for all. By default that of the rows, which
            reveals something of them: then `fit` warns, and no ε holds. What lies outside is moved
            to its ends.
        random_state: A seed for experiments. By default the parties' randomness is cryptographic.

    Attributes:
        classes_: The classes, sorted; which there are counts as public.
        parameters_: The protocol's public parameters.
        parts_: Which rows each party was dealt.
        ranges_origin_: Where the ranges came from.
    """

    parameters_: KNNParameters
    parts_: tuple[NDArray[np.int64], ...]

    def __init__(  # noqa: PLR0913  (scikit-learn takes each parameter as an argument)
        self,
        parties: int = 8,
        k: int = 5,
        *,
        P0: float = 1.0,
        d: float = 0.5,
        rounds: int | Literal["auto"] = "auto",
        error: float = 1e-6,
        delta: float = 0.1,
        weights: Weights = "uniform",
        sum: Literal["ring", "cycles", "shares"] = "ring",  # noqa: A002  (its name in scenarios)
        cycles: int = 1,
        partition: Dealing = "iid",
        alpha: float = 1.0,
        ranges: RangesLike | None = None,
        random_state: Seed = None,
    ) -> None:
        self.parties = parties
        self.k = k
        self.P0 = P0
        self.d = d
        self.rounds = rounds
        self.error = error
        self.delta = delta
        self.weights = weights
        self.sum = sum
        self.cycles = cycles
        self.partition = partition
        self.alpha = alpha
        self.ranges = ranges
        self.random_state = random_state

    @override
    def _hold(self, rows: Rows, rng: Generator) -> None:
        k, rounds = whole("k", self.k), self.rounds
        allowed = f"at most the rows of all parties (n_samples = {len(rows)})"
        require(k <= len(rows), "k", k, allowed)
        first, falling = number("P0", self.P0), number("d", self.d)
        if rounds == "auto":
            rounds = rounds_for(number("error", self.error), k, first, falling)
        self.parameters_ = KNNParameters(
            features=rows.features.shape[1],
            classes=len(self.classes_),
            k=k,
            P0=first,
            d=falling,
            rounds=whole("rounds", rounds),
            delta=number("delta", self.delta),
            weights=self.weights,
            sum=SumMethod(self.sum, whole("cycles", self.cycles)),
        )
        parties = whole("parties", self.parties)
        self.parameters_.sum.check(parties)
        alpha = number("alpha", self.alpha)
        self.parts_, self._parts = deal(rows, parties, self.partition, alpha, rng)

    @override
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        public, parts = self.parameters_, list(blocks(queries, self.parameters_.queries_max))
        labels = np.concatenate([self._label(part, rng) for part in parts])
        costs = (knn_cost(len(self._parts), len(part), public) for part in parts)
        return Answered(labels, in_all(*costs))

    def _label(self, queries: NDArray[np.float64], rng: Generator) -> NDArray[np.int64]:
        public = self.parameters_
        return ring_knn(
            [pairwise_distances(queries, own.features) for own in self._parts],
            [own.labels for own in self._parts],
            public.topk,
            rng,
            fixed=FixedPoint(SCALE_BITS, len(self._parts)),
            classes=public.classes,
            weights=public.weights,
        ).labels

    @override
    def _spent(self) -> Privacy:
        return _PRIVACY

    @override
    def _is_noisy(self) -> bool:
        # With `auto` a label is the pooled one but for `error`, far below what a test would see.
        return self.rounds != "auto"
