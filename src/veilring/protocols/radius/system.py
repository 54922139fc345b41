"""The data owner as a system: labels by noisy votes (r-N or k-N) in one request and answer."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Final, Literal, cast

import numpy as np
from numpy.random import Generator
from pydantic import Field
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.nodes.party import Party
from veilring.nodes.ring import Ring
from veilring.nodes.service import run_inline
from veilring.privacy.accounting import PureDP
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.claims import Argument
from veilring.protocols.nearness import NEAR_QUERIES_MIN, near_share, smallest_among
from veilring.protocols.promise import Facts, Forecast, Promise, Spent, in_batches, public_rows
from veilring.protocols.radius.algorithm.balls import BATCH_MAX
from veilring.protocols.radius.algorithm.conversion import ConversionName
from veilring.protocols.radius.algorithm.nearest import LabelledBatch, label_within
from veilring.protocols.radius.messages import (
    REQUEST_EPSILON_MAX,
    REQUEST_EPSILON_MIN,
    LabelRequest,
    OwnerRules,
    label_cost,
)
from veilring.protocols.radius.owner import Owner, ask_nearest, ask_within, request_labels
from veilring.protocols.system import PARTIES, Play, ServerSetup, System, Tunable, together

_RADIUS_SHARE: Final = 10.0
_RADIUS_ROWS: Final = 100.0
# Rows that differ in one category are sqrt(2) apart; rows that differ in two are 2 apart.
RADIUS_CATEGORIES: Final = 1.5
# The factor of the share of rows that vote, at ε = 1.
_NEAR_FACTOR: Final = 1.7
_NEAR_EXPONENT: Final = 0.15
# The same factor for k. It is smaller because the conversion of k adds its own error.
_K_FACTOR: Final = 0.8
# Queries that are similar, or in two clusters, are a poor sample of the rows.
_RADIUS_LEAST, _RADIUS_MOST = 0.25, 2.0
RADIUS_RULE: Final = "1.7 · n^(-4 / (min(f, 8) + 4)) · ε^(-0.15)"
"""The rule of `radius_share`, in symbols."""

# A smaller share is useless: at the least epsilon, this one is a hundred-thousandth.
BudgetShare = Annotated[float, Field(ge=0.01, le=0.99)]
COUNT_SHARE: Final = 0.1
"""The default share of a request with k that pays for counting the rows."""
CONVERSION_SHARE: Final = 0.1
"""The default share of the rest that pays for converting k into radii. Of 0.05 to 0.5, this share
gave the best accuracy on eleven tables at ε = 0.5 to 4, in batches of 100, for owners and peers."""
_RADIUS_FACTORS: Final = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4)
Neighbours = Annotated[
    Annotated[int, Field(ge=0)] | Literal["auto"], Tunable.of(0, "auto", 5, 10, 20, 50)
]


def public_radius(features: int, rows: int, *, categories: bool = False) -> float:
    """Return a radius for single queries: f^(3/4) / 10 * (100 / n)^(1 / (f + 4)).

    The radius suits features that vary independently, and is too large otherwise. For a batch of
    queries, `radius_among` is better.

    Two random points of the unit cube are about sqrt(f / 6) apart, and this distance varies less
    with more features, so a ball with a fixed share of the rows grows faster than the root. The
    second factor is the rate at which a kernel's best width falls with the number of rows. If all
    columns are categories, the radius is at least 1.5, so that rows that differ in one category
    vote.

    The rule does not look at rows. It was fitted on public tables: wine, breast-cancer, digits,
    iris, glass, banknote, car and mushroom at ε = 0.5, 1 and 2.

    Args:
        rows: n, the number of rows of all parties, at least 1.
    """
    falling = (_RADIUS_ROWS / rows) ** (1.0 / (features + 4))
    radius = float(features**0.75 / _RADIUS_SHARE * falling)
    return max(radius, RADIUS_CATEGORIES) if categories else radius


def _radii(facts: Facts) -> tuple[float, ...]:
    """Return radii to try around `public_radius`, which is too large for correlated features."""
    alone = public_radius(facts.features, facts.rows or 1, categories=facts.categorical)
    return tuple(round(factor * alone, 4) for factor in _RADIUS_FACTORS)


def radius_rule(
    radius: float | Literal["auto"], k: int | Literal["auto"], epsilon: float, facts: Facts
) -> str:
    """Describe which rows vote, and within which radius."""
    numbers = f"f = {facts.features} features and n = {facts.rows} rows"
    if k:
        return (
            f"about k = {public_k(k, facts.features, facts.rows)} nearest rows vote, for {numbers}"
        )
    if radius != "auto":
        return f"r = {radius:.3g}, as given"
    share = radius_share(facts.features, public_rows(facts.rows, "radius"), epsilon)
    return (
        "a radius within which this share of all pairs of a batch's queries is:"
        f" {RADIUS_RULE} = {share:.3g} at ε = {epsilon:g} for {numbers}"
    )


def public_k(k: int | Literal["auto"], features: int, rows: int | None) -> int:
    """Return the number of rows that vote: a given number, or by default that of a rule.

    The rule is 0.8 n^(1 - 4 / (min(f, 8) + 4)), up to 0.6 n. Its factor was fitted like those of
    `radius_share`, on wine, digits, glass, banana and australian.

    Args:
        k: The parameter of a system; 0 for a radius.
    """
    if k != "auto":
        return k
    known = public_rows(rows, "k")
    return max(1, round(known * near_share(known, features, _K_FACTOR)))


def radius_share(features: int, rows: int, epsilon: float) -> float:
    """Return the share of all rows that should vote: 1.7 n^(-4 / (min(f, 8) + 4)) ε^(-0.15).

    The numbers were fitted on wine, digits, glass, banana, australian and mushroom, at ε = 0.5 to 4
    and in batches of 20 and 100. `python -m benchmarks defaults` shows their accuracy on these
    tables and on others.
    """
    return near_share(rows, features, _NEAR_FACTOR * epsilon**-_NEAR_EXPONENT)


def radius_among(queries: Floats, facts: Facts, epsilon: float) -> float:
    """Return a radius for noisy votes, from public numbers and the queries alone.

    It is the distance within which `radius_share` of all pairs of queries lie, clipped to between a
    quarter of `public_radius` and twice that. Fewer than `NEAR_QUERIES_MIN` different queries are
    too small a sample of the rows; then the radius is `public_radius`.
    """
    rows = public_rows(facts.rows, "radius")
    alone = public_radius(facts.features, rows, categories=facts.categorical)
    different = np.unique(queries, axis=0)
    if len(different) < NEAR_QUERIES_MIN:
        return alone
    share = radius_share(facts.features, rows, epsilon)
    found = smallest_among(pairwise_distances(different, different), share)
    return float(np.clip(found, _RADIUS_LEAST * alone, _RADIUS_MOST * alone))


Radius = Annotated[Annotated[float, Field(ge=0)] | Literal["auto"], Tunable(_radii)]


class NearVotes(System):
    """A system in which the rows near a query vote with noise: within a radius, or about k of them.

    Attributes:
        epsilon: The maximum ε of a batch.
        radius: The radius within which rows vote, with features in [0, 1]. `auto` follows from the
            queries of a batch, ε and the public numbers of features and rows.
        k: The approximate number of nearest rows that vote, instead of a radius; 0 for a radius.
            `auto` follows from the public numbers of features and rows.
        public_rows: Whether the number of rows is public, so that counting the rows costs nothing.
        count_share: The share of a batch with k that pays for counting the rows if their number is
            not public.
        conversion_share: The share of the remaining ε that pays for converting k to radii.
        batch: The maximum number of queries in one batch.
    """

    epsilon: float
    radius: Radius = "auto"
    k: Neighbours = 0
    conversion: str = "auto"
    public_rows: bool = False
    count_share: BudgetShare = COUNT_SHARE
    conversion_share: BudgetShare = CONVERSION_SHARE

    @property
    @override
    def counts_publicly(self) -> bool:
        return self.public_rows or self.k == "auto" or (self.radius == "auto" and not self.k)

    @override
    def rule(self, facts: Facts) -> str:
        return radius_rule(self.radius, self.k, self.epsilon, facts)


class DataOwner(NearVotes):
    """A data owner that labels each query by a noisy vote of the rows near it.

    The queries of a batch share `epsilon` according to the overlap of the balls around them.

    Attributes:
        name: `data-owner`.
        conversion: The conversion of k to radii. `auto` is `grid` with up to six features and
            `candidates` with more.
    """

    has_owner: ClassVar[bool] = True
    trust: ClassVar[str] = "an owner"
    title: ClassVar[str] = "r-N, owner"
    summary: ClassVar[str] = "A data owner labels queries by noisy votes and charges each answer."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "budget": Argument(
            "Each batch is charged once, and refused if the budget is exhausted.",
            "The owner charges its ledger before it draws noise:"
            " tests/protocols/radius/test_owner.py. `veilring explore --stores` explores the"
            " ledger on failing disks.",
        ),
        "malicious clients": Argument(
            "The guarantee also holds against malicious clients.",
            "The owner checks each request against public rules and draws all the noise"
            " itself: tests/protocols/radius/test_leakage.py.",
        ),
    }

    deployment: ClassVar[str] = "veilring.deployment.owner"
    name: Literal["data-owner"] = "data-owner"
    epsilon: float = Field(1.0, ge=REQUEST_EPSILON_MIN, le=REQUEST_EPSILON_MAX)
    conversion: ConversionName = "auto"
    batch: int = Field(1000, ge=1, le=BATCH_MAX)

    @override
    def promise(self, *, parties: int = PARTIES) -> Promise:
        return Promise(
            protects="the data owner's rows",
            against="the clients, and anyone they share answers with",
            threat_model="an owner trusted with all rows; clients may be malicious",
            adjacency="one row added or removed",
            epsilon=self.epsilon,
            delta=0.0,
            unit="batch",
            measure="pure ε-DP",
            learned="the client: the label of each query" + (", and the radii" if self.k else ""),
            note="The number of rows is public." if self.counts_publicly else "",
        )

    @override
    def forecast_for(self, facts: Facts, queries: int) -> Forecast:
        width, size = facts.features, self.bind(facts).queries_max
        k = public_k(self.k, width, facts.rows)
        return in_batches(lambda count: label_cost(count, width, k), queries, size)

    def bind(self, facts: Facts) -> OwnerRules:
        """Return the rules of owner and clients; raise `InputError` if they do not fit the facts.

        Args:
            facts: The facts, with `rows` only if their number is public.
        """
        return OwnerRules(self, facts)

    def request(
        self, queries: Floats, facts: Facts, epsilon: float, *, name: str = ""
    ) -> LabelRequest:
        """Return an analyst's request for one batch."""
        if k := public_k(self.k, facts.features, facts.rows):
            return ask_nearest(queries, k, epsilon, name=name)
        radius = radius_among(queries, facts, epsilon) if self.radius == "auto" else self.radius
        return ask_within(queries, np.full(len(queries), radius), epsilon, name=name)

    @override
    def setup(self, parts: Mapping[str, Rows], facts: Facts) -> "OwnerSetup":
        return OwnerSetup(self, parts, facts)


class OwnerSetup(ServerSetup):
    """An owner of all rows and a client, which is the first of the parties that held them."""

    def __init__(self, system: DataOwner, parts: Mapping[str, Rows], facts: Facts) -> None:
        super().__init__(system, parts, facts)
        self._asked, self._rows = system, together(parts)
        is_public = system.public_rows or system.k == "auto"
        self.rules = system.bind(facts if is_public else replace(facts, rows=None))
        self.k = public_k(system.k, facts.features, facts.rows)
        self.rules.check(
            self._request(np.zeros((1, facts.features)))
        )  # refuses unfit rows now, not at the first batch

    @property
    @override
    def resident(self) -> tuple[object, ...]:
        return self._rows, None

    @property
    @override
    def role(self) -> Callable[..., Awaitable[LabelledBatch | None]]:
        return label_by_owner

    @property
    @override
    def batch_max(self) -> int:
        return self.rules.queries_max

    @override
    def play(
        self, queries: Floats, *, among: Sequence[str] | None = None, ring: Ring | None = None
    ) -> Play:
        count, features = queries.shape
        return Play(
            forecast=lambda _run: label_cost(count, features, self.k),
            labels=lambda result: cast("LabelledBatch", result).labels,
            learners=(self.client,),
            public={"rules": self.rules},
            only={self.client: {"request": self._request(queries)}},
        )

    @override
    def label(self, queries: Floats, rng: Generator) -> Ints:
        request = self._request(queries)
        self.rules.check(request)
        return self.rules.label(request, self._rows, rng).labels

    @override
    def observe(self, queries: Floats, runs: int, rng: Generator) -> Floats | None:
        """Draw the labels of batches; those within a radius share the count of votes."""
        request, rules = self._request(queries), self.rules
        if request.k:
            return super().observe(queries, runs, rng)
        labels = label_within(
            queries,
            request.radii,
            self._rows,
            rng,
            epsilon=request.epsilon,
            classes=rules.facts.classes,
            work=rules.work,
            batches=runs,
        )
        return labels.reshape(runs, -1).astype(np.float64)

    @override
    def spent(self, batches: int) -> Spent:
        return Spent(PureDP(self._asked.epsilon).repeat(batches).epsilon(), 0.0, batches, "batch")

    def _request(self, queries: Floats) -> LabelRequest:
        return self._asked.request(queries, self.facts, self._asked.epsilon)


async def label_by_owner(
    party: Party, rows: Rows | None, *, rules: OwnerRules, request: LabelRequest | None = None
) -> LabelledBatch | None:
    """Request one batch, or answer it with a ledger that exists only for this batch.

    Args:
        rows: The owner's rows; none at the client.
        request: The client's request; none at the owner.
    """
    (other,) = party.peers
    if request is not None:
        return await request_labels(party, request, rules=rules)
    if rows is None:
        raise AssertionError("a party has neither rows nor a request")
    with open_ledger(None, Budgets(total=rules.system.epsilon)) as ledger:
        await Owner(rows, rules, ledger, run_inline).answer(party, other)
    return None
