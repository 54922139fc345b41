"""Rank search as a system: its parameters, its guarantee, and the play of a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Annotated, ClassVar, Final, Literal, cast

import numpy as np
from numpy.random import Generator
from pydantic import Field
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.measures import vote_shares
from veilring.nodes.adversary import Adversary
from veilring.nodes.ring import Ring
from veilring.nodes.run import Run
from veilring.protocols.claims import (
    COMPARED_TARGET,
    Batch,
    Coalition,
    Comparison,
    Example,
    Findings,
    exchange_rows,
)
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
from veilring.protocols.ranksearch import Reveal
from veilring.protocols.ranksearch.algorithm.search import ARITY_MAX, ARITY_MIN
from veilring.protocols.ranksearch.algorithm.votes import Ranked
from veilring.protocols.ranksearch.leakage import leakage_of_totals, open_totals
from veilring.protocols.ranksearch.memory import QUERIES, SearchedRows
from veilring.protocols.ranksearch.parameters import K_MAX, SearchParameters
from veilring.protocols.ranksearch.roles import SearchAnswer, rank_search
from veilring.protocols.ranksearch.shared import found_cost, search_cost
from veilring.protocols.ring.algorithm.classify import Weights, pooled_knn, pooled_mean
from veilring.protocols.ring.system import HOP_MEASURES
from veilring.protocols.system import PARTIES, PeerSetup, Play, Scored, System, Tunable, together

_LEARNED: Final[Mapping[Reveal, str]] = {
    "totals": "the number of rows within each distance searched, the radius, the votes and"
    " the label",
    "votes": "an interval for the distance of the k-th nearest row, whether several rows tie there,"
    " the votes and the label",
    "label": "an interval for the distance of the k-th nearest row, the number of rows tied there"
    " (if several), and the label",
}
_SHOWN: Final[Mapping[Reveal, str]] = {
    "totals": "Only totals are revealed.",
    "votes": "Counts stay secret-shared: only comparisons with k and vote totals are revealed.",
    "label": "Counts and votes stay secret-shared: only comparisons with k, and the class with the"
    " most votes, are revealed.",
}
_VOTES: Final = "the votes and the label"
_SUMS: Final = "the number of rows that vote, the sum of their targets, and the prediction"
_ONE_ROW: Final = " If a single row votes, as with k = 1, the sum is its target."
_OPENED: Final[Mapping[Reveal, str]] = {
    "totals": "sums",
    "votes": "comparisons and votes",
    "label": "comparisons",
}
_TIED: Final = (1, 4)
"""The tied rows of the last two parties: after the row at the query, they tie for k = 2 to 5."""
_TIED_AT: Final = 0.6  # all features of these rows, nearer to the query than other rows
_SIMULATED: Final = "messages reveal nothing beyond the published results"
_PUBLISHED: Final[Mapping[str, Measure]] = {
    "radius": Measure(
        "radius known to",
        "of the range of distances: the published interval around the k-th smallest distance",
    ),
    "tied": Measure("ties", "of the queries end at tied rows, which reveals their exact distance"),
    "above": Measure(
        "totals above k",
        "of the opened totals are above k, which reveals how rows are spread over parties",
    ),
}


class RankSearch(System):
    """kNN over the rows of several parties, exactly as if they were in one place.

    A search by counts under pairwise masks finds the radius of the k-th nearest row, and one more
    masked sum adds up the votes within it. If the label is a number, it adds up the number of rows
    within the radius and their targets, and the prediction is their mean.

    Attributes:
        name: `rank-search`.
        k: The number of nearest rows that vote; rows that tie at rank k all vote.
        arity: The number of parts into which a step of the search divides an interval.
        reveal: The most detailed results that all parties learn.
        sum: The way to add up totals: each party itself, or the client, which sends them to the
            others.
        weights: The weight of a row's vote.
        again: Whether queries may be repeated with other parties: the difference of two totals
            reveals one party's rows.
        batch: The maximum number of queries asked at once.
    """

    predicts_numbers: ClassVar[bool] = True
    trust: ClassVar[str] = "{outside} of {parties}"
    messages_format: ClassVar[int] = 5
    title: ClassVar[str] = "rank search"
    summary: ClassVar[str] = (
        "Parties add up masked counts until they know the radius of the k nearest rows."
    )

    measures: ClassVar[Mapping[str, Measure]] = {
        **{name: each._replace(argument=_SIMULATED) for name, each in HOP_MEASURES.items()},
        **_PUBLISHED,
    }

    name: Literal["rank-search"] = "rank-search"
    k: Annotated[int, Tunable.of(1, 3, 5, 9, 15)] = Field(5, ge=1, le=K_MAX)
    arity: int = Field(16, ge=ARITY_MIN, le=ARITY_MAX)
    reveal: Reveal = "totals"
    sum: Literal["all-to-all", "star"] = "all-to-all"
    weights: Weights = "uniform"
    again: bool = False
    batch: int = Field(1024, ge=1)

    @property
    @override
    def reveals_scores(self) -> bool:
        return self.reveal != "label"

    @property
    @override
    def findings(self) -> type[Findings] | None:
        from veilring.protocols.ranksearch.adversaries import TotalsFindings  # noqa: PLC0415  (for experiments)

        return TotalsFindings if self.reveal == "totals" else None

    @override
    def pooling(self, parties: int) -> int:
        return parties - 2 if self.reveal == "totals" else (parties - 1) // 2

    @override
    def promise(self, *, parties: int = PARTIES) -> Promise:
        coalition = self.pooling(parties)
        weighted = (
            " If a class has a single row within the radius, its weighted total reveals the row's"
            " distance."
            if self.weights == "distance" and self.reveal != "label"
            else ""
        )
        return Promise(
            protects="each party's rows",
            against=f"any coalition of up to {coalition} of the {parties} parties",
            threat_model=f"semi-honest parties, of which up to {coalition} collude",
            adjacency="",
            epsilon=None,
            delta=0.0,
            unit="query",
            measure=f"{_OPENED[self.reveal]} only, no ε",
            learned=f"all parties: the queries, {_LEARNED[self.reveal]}",
            note=f"{_SHOWN[self.reveal]} Their leakage adds up over queries: the radii of"
            " chosen queries can locate a row." + weighted,
        )

    @override
    def promise_about(self, facts: Facts) -> Promise:
        promised = super().promise_about(facts)
        if facts.target is None:
            return promised
        learned = promised.learned.replace(_VOTES, _SUMS)
        return replace(promised, learned=learned, note=promised.note + _ONE_ROW)

    @override
    def forecast_for(self, facts: Facts, queries: int) -> Forecast:
        """Return the range of costs of queries before they are asked; the steps depend on rows."""
        public = self.bind(facts)
        public.check_parties(facts.parties)
        size = min(self.batch, public.queries_max)
        return in_batches(lambda count: search_cost(facts.parties, count, public), queries, size)

    def bind(self, facts: Facts) -> SearchParameters:
        """Return what the roles of parties need; raise `InputError` for incompatible parameters."""
        return SearchParameters(self, facts)

    @override
    def membership(self, facts: Facts) -> Membership:
        parameters = self.bind(facts)
        parameters.check_parties(facts.parties)
        return Membership(
            rank_search,
            batch_max=min(self.batch, parameters.queries_max),
            labels=attrgetter("labels"),  # of a `SearchAnswer`; a classifier is pickled with it
            public={"parameters": parameters},
            all_learn=True,
            keep=SearchedRows,
            memory=QUERIES,
            scores=_shares if self.reveals_scores and not parameters.steps else None,
            announced=True,
        )

    @override
    def comparisons(self, example: Example) -> tuple[Comparison, ...]:
        """Return the default comparison, one in which rows tie at the k-th place, and one of sums.

        A tie takes further steps: the search ends at a single float, and tied votes are counted. If
        the label is a number, targets are added up.
        """
        worlds = {"tied rows": _with_ties(example)}
        if self.reveal != "label" and self.weights == "uniform":
            worlds["numbers as labels"] = example.predicting(COMPARED_TARGET)
        others = (replace(exchange_rows(world), long=what) for what, world in worlds.items())
        return (*super().comparisons(example), *others)

    @override
    def setup(self, parts: Mapping[str, Rows], facts: Facts) -> "SearchSetup":
        return SearchSetup(self, parts, facts)

    @override
    def adversaries(self) -> Mapping[str, type[Adversary]]:
        from veilring.protocols.ranksearch.adversaries import ADVERSARIES  # noqa: PLC0415  (for experiments)

        return ADVERSARIES


def _with_ties(example: Example) -> Example:
    """Return the world in which the last two parties also hold rows at equal distances."""
    for party, count in zip(list(example.parts)[-2:], _TIED, strict=True):
        tied = Rows(np.full((count, example.queries.shape[1]), _TIED_AT), np.arange(count) % 2)
        both = together({"own": example.parts[party], "tied": tied})
        example = example.holding(party, both)
    return example


def _shares(answer: SearchAnswer) -> Floats:
    return vote_shares(cast("Floats", answer.votes))


class SearchSetup(PeerSetup):
    """Parties that are ready to search and vote."""

    is_exact: ClassVar[bool] = True

    def __init__(self, system: RankSearch, parts: Mapping[str, Rows], facts: Facts) -> None:
        super().__init__(system, parts, facts)
        self.parameters = system.bind(facts)
        for rows in parts.values():
            self.parameters.check_rows(rows, len(parts))

    @override
    def play(
        self, queries: Floats, *, among: Sequence[str] | None = None, ring: Ring | None = None
    ) -> Play:
        play = super().play(queries, among=among, ring=ring)
        count, client = len(play.learners), play.learners[0]

        def cost(run: Run[SearchAnswer]) -> Forecast:
            answer = run.results[client]
            return found_cost(count, answer.found, self.parameters, answer.tied_rows)

        return replace(play, forecast=cost)

    @override
    def label(self, queries: Floats, rng: Generator) -> Ints:
        return self.score(queries, rng).labels

    @override
    def score(self, queries: Floats, rng: Generator) -> Scored:
        return self.scored(self.search(queries, list(self.parts.values())))

    def scored(self, ranked: Ranked) -> Scored:
        """Return the labels of a search, with scores if votes for classes are revealed."""
        has_scores = self.system.reveals_scores and not self.parameters.steps
        return Scored(ranked.votes.labels, vote_shares(ranked.votes.values) if has_scores else None)

    def search(self, queries: Floats, parts: Sequence[Rows]) -> Ranked:
        """Search the rows of parties in this process, with the parties' own steps."""
        return self.parameters.answer(queries, parts)

    @override
    def leakage(self, queries: Floats, trials: int, rng: Generator) -> Leakage:
        """Return the leakage of the published results of searches, one search for each query.

        Messages between parties reveal nothing more: the measures of a hop are 0 by proof.
        """
        system, upper, asked = self.parameters.system, self.parameters.upper, queries[:trials]
        parts, spacing = list(self.parts.values()), self.parameters.spacing
        opened = open_totals(asked, parts, spacing, k=system.k)
        leaked = leakage_of_totals(opened, system.k, upper)
        if system.reveal != "totals":
            leaked["above"] = np.zeros(len(asked))
        published = {
            name: Estimate(float(each.mean()), float(each.std() / np.sqrt(len(asked))))
            for name, each in leaked.items()
        }
        return Leakage(len(asked), dict.fromkeys(HOP_MEASURES, Estimate(0.0, 0.0)), published)

    @override
    def spent(self, batches: int) -> Spent:
        return Spent(None, 0.0, batches, "batch")

    @override
    def reference(self, queries: Floats, among: Sequence[str] | None = None) -> Ints:
        """Label queries by all rows in one place, rounding weighted votes as the parties do."""
        rows, system = together(self.parts, among), self.parameters.system
        if self.parameters.steps:
            return pooled_mean(queries, rows.features, rows.labels, system.k)
        if system.weights == "uniform":
            return pooled_knn(queries, rows.features, rows.labels, self.facts.classes, system.k)
        batches = self.batches(queries)
        return np.concatenate([self.search(batch, [rows]).votes.labels for batch in batches])

    @override
    def attack(self, batches: Mapping[int, Batch], coalition: Coalition) -> Findings:
        from veilring.protocols.ranksearch.adversaries import find_in_totals  # noqa: PLC0415  (for experiments)

        return find_in_totals(self, batches.values(), coalition.members)
