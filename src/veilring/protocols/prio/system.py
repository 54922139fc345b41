"""Verified sums as a system: each row is a client, and two aggregators learn only noisy totals."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Final, Literal, Self, get_args

import numpy as np
from numpy.random import Generator
from pydantic import Field
from typing_extensions import override

from veilring.arrays import Floats
from veilring.data.table import Features, Rows
from veilring.errors import InputError
from veilring.extras import require_extra
from veilring.nodes.ring import Ring
from veilring.privacy.shares import DELTA_MAX, EPSILON_MAX
from veilring.protocols.claims import Argument
from veilring.protocols.prio.algorithm.parameters import (
    AGGREGATORS,
    BITS_MAX,
    BITS_MIN,
    PrioMethod,
    PrioParameters,
    bind_parameters,
)
from veilring.protocols.prio.roles import (
    Clients,
    require_ready,
    sum_reports,
    summing_cost,
    summing_cost_bounds,
)
from veilring.protocols.promise import SEED_TELLS, Facts, Forecast, Promise, measure_of
from veilring.protocols.release.algorithm.rule import Plan, Rule
from veilring.protocols.release.algorithm.steps import Released
from veilring.protocols.release.model import ReleasedModel
from veilring.protocols.release.system import ReleasedSetup
from veilring.protocols.system import PARTIES, Play, System, Tunable, together

LEADER: Final = "leader"
"""The aggregator that draws the key of verification."""
HELPER: Final = "helper"
"""The other aggregator."""


class Prio(System):
    """A classifier from one verified report per client, summed by two aggregators with noise.

    Each row of a party is a client. It splits its report into a share for the leader and one for
    the helper, with a proof that both together are valid. The aggregators verify the proofs, add up
    their shares, and add noise before they open a total, from which the model is made.

    Attributes:
        name: `prio`.
        epsilon: The ε of a client's one report.
        delta: The δ; 0 for a pure guarantee.
        statistic: The statistic to add up; `auto` chooses it by public numbers.
        bits: The bits of each number in a report, unless the statistic counts rows.
    """

    is_lasting: ClassVar[bool] = True
    counts_publicly: ClassVar[bool] = True
    trust: ClassVar[str] = "1 of 2 aggregators"
    title: ClassVar[str] = "verified sums"
    summary: ClassVar[str] = (
        "Each row is a client that splits its report between two aggregators, with a proof that it"
        " is valid."
    )
    arguments: ClassVar[Mapping[str, Argument]] = {
        "budget": Argument(
            "A client answers a task once.",
            "In an experiment, each attempt at a batch is counted as another report, because its"
            " noise is drawn again.",
        )
    }

    name: Literal["prio"] = "prio"
    epsilon: float = Field(1.0, gt=0, le=EPSILON_MAX)
    delta: float = Field(1e-5, ge=0, le=DELTA_MAX)
    statistic: Annotated[Literal["auto", PrioMethod], Tunable.of(*get_args(PrioMethod))] = "auto"
    bits: int = Field(8, ge=BITS_MIN, le=BITS_MAX)

    @property
    @override
    def reveals_scores(self) -> bool:
        return True

    @override
    def promise(self, *, parties: int = PARTIES) -> Promise:
        return Promise(
            protects="each client's row with its class",
            against="either aggregator, all other clients, and anyone who sees the totals",
            threat_model="one honest aggregator of two: the other one and all other clients may be"
            " malicious; only a correct total needs both to be honest",
            adjacency="one row added or removed",
            epsilon=self.epsilon,
            delta=self.delta,
            unit="report",
            measure=measure_of(self.delta),
            learned="the aggregators: the number of reports, which of them are valid, and the noisy"
            " totals; everyone: the model",
            note="The number of reports is public. ε holds for clients that report as agreed; a"
            " malicious client can move the totals by one report with a valid proof."
            " A second report about the same row, for any task, costs the same ε again.",
        )

    @override
    def promise_about(self, facts: Facts) -> Promise:
        """Return the guarantee for public facts, with the effect of a forged report."""
        if facts.rows is None:
            return super().promise_about(facts)
        parameters = self.bind(facts)
        promise = self.promise_of(parameters.plan)
        return replace(promise, note=f"{promise.note} {_forged(parameters)}")

    def promise_of(self, plan: Plan) -> Promise:
        """Return the guarantee of a plan, which may be pure even if a δ was allowed."""
        return self.replaced(delta=plan.delta).promise().among(plan.rows)

    def bind(self, facts: Facts) -> PrioParameters:
        """Return the public parameters; refuse those that do not fit the public facts."""
        if facts.rows is None:
            raise InputError.because(
                "the statistic and the noise depend on the number of reports, which must be"
                " declared; give `rows`",
                field="rows",
            )
        features = facts.schema or Features.of_numbers(facts.features, facts.classes)
        rule = Rule(features, facts.rows, self.epsilon, self.delta, AGGREGATORS)
        return bind_parameters(rule, self.statistic, self.bits)

    @override
    def forecast_for(self, facts: Facts, queries: int) -> Forecast:
        """Return the cost of one collection, for any number of queries."""
        return self.cost(self.bind(facts), facts.parties)

    def cost(self, parameters: PrioParameters, parties: int) -> Forecast:
        """Return the cost among some pools of clients: the minimum, with the maximum as `most`."""
        return summing_cost_bounds(parameters, parties, parameters.plan.rows)

    @classmethod
    @override
    def forms(cls, *, epsilon: float | None, k: int, tolerated: int) -> Mapping[str, Self]:
        """Return verified sums with and without a δ."""
        usual = cls.suited(epsilon=epsilon, k=k, tolerated=tolerated)
        return {"": usual, "pure": usual.replaced(delta=0.0)}

    @override
    def setup(self, parts: Mapping[str, Rows], facts: Facts) -> "PrioSetup":
        return PrioSetup(self, parts, facts)


class PrioSetup(ReleasedSetup):
    """The leader, the helper, and the clients of each party as one pool.

    If the parties have fewer rows than the declared number of reports, clients of the last party
    send empty reports for the rest.
    """

    unit: ClassVar[str] = "report"
    role = staticmethod(sum_reports)

    def __init__(self, system: Prio, parts: Mapping[str, Rows], facts: Facts) -> None:
        require_extra("Crypto")
        super().__init__(system, parts, facts)
        self._prio = system
        self.parameters: PrioParameters = system.bind(facts)
        absent = max(0, self.parameters.plan.rows - sum(map(len, parts.values())))
        last = list(parts)[-1]
        self._pools = {
            name: Clients(rows, absent if name == last else 0) for name, rows in parts.items()
        }
        for clients in self._pools.values():
            require_ready(clients, self.parameters)

    @property
    @override
    def parties(self) -> tuple[str, ...]:
        return LEADER, HELPER, *self.parts

    @property
    @override
    def resident(self) -> tuple[object, ...]:
        return None, None, *self._pools.values()

    @property
    @override
    def observers(self) -> tuple[str, ...]:
        """One aggregator, and all clients but those of the last party."""
        return LEADER, *list(self.parts)[:-1]

    @override
    def can_do_with(self, parties: Sequence[str]) -> bool:
        return {LEADER, HELPER} < set(parties)

    @override
    def play(
        self, queries: Floats, *, among: Sequence[str] | None = None, ring: Ring | None = None
    ) -> Play:
        present = self.parties if among is None else among
        sizes = [len(clients) for name, clients in self._pools.items() if name in present]
        return Play(
            forecast=lambda _run: summing_cost(self.parameters, sizes),
            labels=lambda released: released.model.predict(queries),
            learners=(LEADER, HELPER),
            public={"leader": LEADER, "helper": HELPER, "parameters": self.parameters},
            scores=lambda released: released.model.best_scores(queries),
        )

    @override
    def observe(self, queries: Floats, runs: int, rng: Generator) -> Floats:
        """Draw noisy totals without what the observers can subtract: their rows and noise."""
        rows, (noise,) = list(self.parts.values())[-1], self.parameters.noises
        hidden = self.parameters.statistic.sum(rows.features, rows.labels)
        every = replace(noise.sensitivity, dimensions=runs * len(hidden))
        shares = replace(noise, sensitivity=every).share(rng)
        return (hidden + shares.reshape(runs, -1)).astype(np.float64)

    @override
    def _parts(self) -> list[Rows]:
        """Return all rows, and none: both aggregators add all of the noise."""
        rows = together(self.parts)
        return [rows, Rows(rows.features[:0], rows.labels[:0])]

    @override
    def model(self, answer: Released, among: Sequence[str], *, seeded: bool) -> ReleasedModel:
        causes = {"seeded noise": SEED_TELLS} if seeded else {}
        promise = self._prio.promise_of(self.parameters.plan).broken_by(causes)
        return ReleasedModel.of(answer, self.parameters, promise)


def _forged(parameters: PrioParameters) -> str:
    """Say how far a forged report can move the totals."""
    times = parameters.form.longest / parameters.statistic.bound.value
    if times <= 1:
        return "A forged report has no more weight than an honest one."
    return (
        f"A forged report may have the largest value in each of {parameters.statistic.length:,}"
        f" totals: {times:.3g} times the norm of an honest one."
    )
