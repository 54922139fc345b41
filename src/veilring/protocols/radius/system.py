"""The data owner as a system: labels by noisy votes (r-N or k-N) in one request and answer."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, cast

import numpy as np
from numpy.random import Generator
from pydantic import Field
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.nodes.party import Party
from veilring.nodes.ring import Ring
from veilring.nodes.service import run_inline
from veilring.privacy.accounting import PureDP
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.claims import Argument
from veilring.protocols.promise import Facts, Forecast, Promise, Spent, in_batches
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
from veilring.protocols.radius.neighbourhood import NearVotes, public_k, radius_among
from veilring.protocols.radius.owner import Owner, ask_nearest, ask_within, request_labels
from veilring.protocols.system import PARTIES, Play, ServerSetup, together


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
