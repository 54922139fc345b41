"""PP-kNN as a system: its parameters, its guarantee, and the play of a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from operator import attrgetter
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from numpy.random import Generator
from pydantic import Field
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.errors import InputError
from veilring.measures import vote_shares
from veilring.nodes.adversary import Adversary
from veilring.nodes.ring import Ring
from veilring.protocols.claims import Batch, Coalition, Comparison, Example, Findings, exchange_rows
from veilring.protocols.membership import Membership
from veilring.protocols.promise import (
    Estimate,
    Facts,
    Forecast,
    Leakage,
    Measure,
    Promise,
    Spent,
    in_batches,
)
from veilring.protocols.ring.algorithm.classify import Classified, Weights, pooled_knn, ring_knn
from veilring.protocols.ring.algorithm.sums import FixedPoint
from veilring.protocols.ring.algorithm.topk import own_smallest
from veilring.protocols.ring.cost import knn_cost
from veilring.protocols.ring.leakage import leakage_over_orders
from veilring.protocols.ring.roles import SCALE_BITS, KNNParameters, private_knn
from veilring.protocols.system import PARTIES, PeerSetup, Play, Scored, System, Tunable, together

# Distances in the unit cube are at most the square root of its dimension; noise wider than this is
# pointless, and k times wider it is still far from a float's limit.
DELTA_MAX: Final = 1e6
TRIALS_MIN: Final = 2  # one trial gives no standard error
# Entries of all vectors of all trials: a second or two on one core. A ring of 1,000 parties with k
# = 5 and 8 rounds is left with 104 trials.
ENTRIES_MAX: Final = 2**22

_Whole = Annotated[int, Field(ge=1)]

HOP_MEASURES: Final[Mapping[str, Measure]] = {
    "exposure": Measure(
        "exposure", "of the messages contain a distance from the sender's own rows"
    ),
    "claim": Measure("claim", "of the values that are new to a receiver are the sender's own"),
    "lop": Measure(
        "loss of privacy", "how much better a guess is than one from the published result"
    ),
    "lop_peak": Measure("loss of privacy at its peak", "at the worst position in the ring"),
}
"""The leakage about a party through the messages between parties."""


class PrivateKNN(System):
    """kNN over the rows of several parties, as if they were in one place.

    PP-TopK finds the k smallest distances of all parties, then a secure sum adds their votes.

    Attributes:
        name: `private-knn`.
        k: The number of nearest rows that vote.
        P0: PP-TopK's probability of noise in its first round.
        d: The factor by which this probability falls each round.
        rounds: The number of rounds of PP-TopK's vector; `auto` is the number that `error` needs.
        error: For `auto`: the probability that a query's nearest distances are not exact.
        delta: The minimum range of the noise, as a distance between rows in the unit cube.
        weights: The weight of a row's vote.
        sum: The method of the secure sum.
        cycles: For `sum = "cycles"`: the number of edge-disjoint cycles.
        batch: The maximum number of queries asked at once.
    """

    draws_ring: ClassVar[bool] = True
    messages_format: ClassVar[int] = 2
    title: ClassVar[str] = "PP-kNN"
    summary: ClassVar[str] = (
        "Parties in a ring find the nearest of all their rows and add up the votes."
    )
    measures: ClassVar[Mapping[str, Measure]] = HOP_MEASURES

    name: Literal["private-knn"] = "private-knn"
    k: Annotated[int, Tunable.of(1, 3, 5, 9, 15)] = Field(5, ge=1)
    P0: float = Field(1.0, ge=0, le=1)
    d: float = Field(0.5, gt=0, le=1)
    rounds: _Whole | Literal["auto"] = "auto"
    error: float = Field(1e-06, gt=0, lt=1)
    delta: float = Field(0.1, gt=0, le=DELTA_MAX)
    weights: Weights = "uniform"
    sum: Literal["ring", "cycles", "shares", "masks"] = "ring"
    cycles: int = Field(1, ge=1)
    batch: int = Field(1024, ge=1)

    @override
    def promise(self, *, parties: int = PARTIES) -> Promise:
        return Promise(
            protects="each party's rows",
            against=f"the other {parties - 1} parties of the ring",
            threat_model="semi-honest parties that do not collude",
            adjacency="",
            epsilon=None,
            delta=0.0,
            unit="query",
            measure="measured leakage, no ε",
            learned="all parties: the queries, the k smallest distances, the votes and the label",
            note="The transcript of PP-TopK is not differentially private for any choice of"
            " noise: its leakage is measured, not bounded.",
        )

    @override
    def forecast_for(self, facts: Facts, queries: int) -> Forecast:
        public = self.bind(facts)
        size = min(self.batch, public.queries_max)
        return in_batches(lambda count: knn_cost(facts.parties, count, public), queries, size)

    def bind(self, facts: Facts) -> KNNParameters:
        """Return what the roles of parties need; raise `InputError` for incompatible parameters."""
        return KNNParameters(self, facts)

    @override
    def membership(self, facts: Facts) -> Membership:
        parameters = self.bind(facts)
        parameters.sum.check(facts.parties)
        return Membership(
            private_knn,
            batch_max=min(self.batch, parameters.queries_max),
            labels=attrgetter("labels"),  # of a `KNNAnswer`; a classifier is pickled with it
            public={"parameters": parameters},
            all_learn=True,
            scores=_shares,
            announced=True,
        )

    @override
    def comparisons(self, example: Example) -> tuple[Comparison, ...]:
        return (exchange_rows(example, epsilon=inf),)

    @override
    def setup(self, parts: Mapping[str, Rows], facts: Facts) -> "RingSetup":
        return RingSetup(self, parts, facts)

    @property
    @override
    def reveals_scores(self) -> bool:
        return True

    @property
    @override
    def findings(self) -> type[Findings]:
        from veilring.protocols.ring.attacks.findings import RingFindings  # noqa: PLC0415  (for experiments)

        return RingFindings

    @override
    def adversaries(self) -> Mapping[str, type[Adversary]]:
        from veilring.protocols.ring.adversaries import ADVERSARIES  # noqa: PLC0415  (for experiments)

        return ADVERSARIES


def _shares(answer: Classified) -> Floats:
    return vote_shares(answer.votes)


class RingSetup(PeerSetup):
    """Parties that are ready to draw a ring and label."""

    is_exact: ClassVar[bool] = True

    def __init__(self, system: PrivateKNN, parts: Mapping[str, Rows], facts: Facts) -> None:
        super().__init__(system, parts, facts)
        rows = sum(map(len, parts.values()))
        if system.k > rows:
            raise InputError("k", system.k, f"at most {rows}, the rows of all parties together")
        self.parameters = system.bind(facts)

    @property
    @override
    def rounds(self) -> int:
        return self.parameters.topk.rounds

    @override
    def play(
        self, queries: Floats, *, among: Sequence[str] | None = None, ring: Ring | None = None
    ) -> Play:
        play = super().play(queries, among=among, ring=ring)
        parties, count = len(play.learners), len(queries)
        return replace(
            play,
            forecast=lambda _run: knn_cost(parties, count, self.parameters, drawn=ring is None),
            public={**play.public, "ring": ring},
        )

    @override
    def label(self, queries: Floats, rng: Generator) -> Ints:
        return self.score(queries, rng).labels

    @override
    def score(self, queries: Floats, rng: Generator) -> Scored:
        parts = list(self.parts.values())
        found = ring_knn(
            [pairwise_distances(queries, own.features) for own in parts],
            [own.labels for own in parts],
            self.parameters.topk,
            rng,
            fixed=FixedPoint(SCALE_BITS, len(parts)),
            classes=self.facts.classes,
            weights=self.parameters.system.weights,
        )
        return Scored(found.labels, _shares(found))

    @override
    def spent(self, batches: int) -> Spent:
        return Spent(None, 0.0, batches, "batch")

    @override
    def reference(self, queries: Floats, among: Sequence[str] | None = None) -> Ints:
        system, rows = self.parameters.system, together(self.parts, among)
        return pooled_knn(
            queries, rows.features, rows.labels, self.facts.classes, system.k, system.weights
        )

    @override
    def leakage(self, queries: Floats, trials: int, rng: Generator) -> Leakage:
        """Estimate the leakage per hop, over the queries and over all orders of the ring.

        Each trial uses one of the queries, drawn uniformly, with the k smallest distances of each
        party, and the parties in a random order. Only an experiment, which has all rows, can do
        this.
        """
        topk = self.parameters.topk
        entries = len(self.parts) * topk.rounds * topk.k
        trials = min(trials, max(TRIALS_MIN, ENTRIES_MAX // entries))
        smallest = [
            own_smallest(pairwise_distances(queries, rows.features), topk.k)
            for rows in self.parts.values()
        ]
        found = leakage_over_orders(np.stack(smallest, axis=1), topk, trials, rng)
        estimates = ((name, getattr(found, name)) for name in self.system.measures)
        return Leakage(trials, {n: Estimate(e.value, e.standard_error) for n, e in estimates})

    @override
    def attack(self, batches: Mapping[int, Batch], coalition: Coalition) -> Findings:
        from veilring.protocols.ring.attacks.findings import find  # noqa: PLC0415  (for experiments)

        return find(self, batches, coalition)
