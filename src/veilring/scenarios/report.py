"""The report of a run: accuracy, guarantee, cost and leakage, without any party's rows."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter

from veilring.arrays import Bools, Ints
from veilring.nodes.journal import Cost
from veilring.protocols.promise import Estimate, Forecast, Leakage, Promise, Spent, describe_cost
from veilring.scenarios.batches import Labelled
from veilring.scenarios.prepare import Prepared
from veilring.scenarios.schema import Scenario
from veilring.simulation.faults import Fault, FaultClass


@dataclass(frozen=True, slots=True)
class Attack:
    """The accuracy of claims that an entry of PP-TopK's vector is the victim's own.

    Attributes:
        located: The number of the victim's distances that were claimed correctly, each counted
            once.
    """

    claims: int = 0
    right: int = 0
    located: int = 0

    def plus(self, other: "Attack") -> "Attack":
        """Return the sum of both."""
        return Attack(
            self.claims + other.claims, self.right + other.right, self.located + other.located
        )


@dataclass(frozen=True, slots=True)
class Victim:
    """A coalition's findings about a neighbour of one of its members, over all batches.

    Attributes:
        between: The number of those queries for which it was between two members.
        distances: The number of distances that it contributed to PP-TopK for them: at most k each.
        optimal: The attack that claims values more likely the victim's own than not; `None` if it
            was not tried.
    """

    party: str
    queries: int
    between: int
    votes: int
    distances: int
    simple: Attack
    optimal: Attack | None
    pinned: int
    pinned_expected: Estimate


@dataclass(frozen=True, slots=True)
class Named:
    """The number of nearest distances, which are public, traced to their owners.

    Attributes:
        recurred: The number of distances seen in a failed attempt and again, and thus known to be
            real.
    """

    values: int
    guessed: float
    named: float
    with_retries: float
    recurred: int
    recurred_hidden: int


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a semi-honest coalition, compared with the truth.

    Attributes:
        victims: The neighbours of members, in the order of the parties.
        exposure: The closed-form probability that all neighbours of an honest party are members,
            for the ring of the first batch.
    """

    members: tuple[str, ...]
    victims: tuple[Victim, ...]
    exposure: float
    honest: int
    exposed: int
    exposed_expected: float
    groups: int
    groups_recovered: int
    named: Named


@dataclass(frozen=True, slots=True)
class TotalsFindings:
    """The findings of a semi-honest coalition in the totals of a search, compared with the truth.

    Attributes:
        totals: The number of totals of the parties outside that the coalition knows, over all
            batches.
        guessed: The expected number of owners named correctly by guessing; no view helps more.
    """

    members: tuple[str, ...]
    outside: int
    totals: int
    right: int
    alone: int
    nearest: int
    guessed: float


@dataclass(frozen=True, slots=True)
class StruckFault:
    """A fault of the schedule, and whether it had an effect.

    Attributes:
        start_seconds: The start, in simulated seconds from the start of the parties.
        end_seconds: The end; `None` for never.
        strength: The extra seconds or the slowdown factor; 0 for other kinds.
    """

    kind: FaultClass
    parties: tuple[str, ...]
    start_seconds: float
    end_seconds: float | None
    strength: float
    struck: bool


@dataclass(frozen=True, slots=True)
class Recovery:
    """The losses until the remaining parties had a result.

    Attributes:
        without: The parties left out, in the order of the parties.
        bytes: The bytes of those messages.
    """

    without: tuple[str, ...]
    attempts: int
    rows_lost: int
    messages: int
    bytes: int


RingOrigin = Literal["drawn by all parties", "drawn by a committee", "dealt from the seed"]


@dataclass(frozen=True, slots=True)
class CostSummary:
    """The cost of all batches together."""

    batches: int
    rounds: int
    messages: int
    bytes: int
    setup_messages: int
    setup_bytes: int

    def __str__(self) -> str:
        messages, size = self.messages + self.setup_messages, self.bytes + self.setup_bytes
        return describe_cost((self.rounds, messages, size))

    @classmethod
    def measured(cls, costs: Iterable[Cost]) -> "CostSummary":
        """Add up the measured cost of batches."""
        return cls._sum((c.rounds, c.messages, c.bytes, *c.setup) for c in costs)

    @classmethod
    def forecast(cls, forecasts: Iterable[Forecast]) -> "CostSummary":
        """Add up the forecast cost of batches."""
        return cls._sum((f.rounds, *f.traffic, *f.setup) for f in forecasts)

    @classmethod
    def _sum(cls, costs: Iterable[tuple[int, ...]]) -> "CostSummary":
        each = list(costs)
        return cls(len(each), *(sum(column) for column in zip(*each, strict=True)))


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one run of a scenario.

    Attributes:
        rounds: The number of rounds of the vector for each batch, in systems with a circulating
            vector.
        reference_accuracy: The accuracy of the non-private classifier on the pooled rows of the
            parties that took part.
        ring: The origin of the order of the parties, if they form a ring.
        spent: The part of the guarantee spent by all attempts at all batches: a failed attempt may
            have released its answer, and the next one draws new noise.
        seconds: Wall-clock time from the start of the first batch to the end of the last.
        simulated_seconds: The simulated counterpart of `seconds`, in the simulation.
        leakage: The estimated leakage, if requested.
        seed: The seed of the split and the partition; pass it to a run to repeat them.
        coalition: The findings of colluding parties, if there are any.
        faults: The faults of the simulation, in order of time.
        recovery: The losses until there was a result, if any party was lost.
    """

    scenario: Scenario
    runtime: str
    parties: int
    rows: int
    queries: int
    rounds: int | None
    accuracy: float
    reference_accuracy: float
    majority_accuracy: float
    agreement: float
    labels: tuple[str, ...]
    cost: CostSummary
    forecast: CostSummary
    ring: RingOrigin | None
    promise: Promise
    spent: Spent
    seconds: float
    start_seconds: float
    simulated_seconds: float | None
    leakage: Leakage | None
    transcript: str
    seed: int
    secrets: Literal["seeded", "cryptographic"]
    coalition: Findings | TotalsFindings | None = None
    faults: tuple[StruckFault, ...] = ()
    recovery: Recovery | None = None

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values; `scenario` is the name, `settings` the rest."""
        tables = self.scenario.model_dump(mode="json", exclude_none=True)
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain = {name: _plain(value) for name, value in fields.items() if name != "scenario"}
        if self.leakage is not None:
            plain["leakage"] = leakage_as_json(self.leakage)
        return {**plain, "scenario": self.scenario.name, "settings": tables}

    @classmethod
    def from_json(cls, plain: object) -> "Report":
        """Return the report from the output of `as_json`."""
        tables = TypeAdapter(dict[str, Any]).validate_python(plain)
        fields = {name: tables[name] for name in cls.__dataclass_fields__ if name in tables}
        fields["leakage"] = leakage_from_json(tables.get("leakage"))
        return TypeAdapter(cls).validate_python({**fields, "scenario": tables.get("settings")})


def leakage_as_json(leakage: Leakage) -> dict[str, Any]:
    """Return the number of trials and each estimate as values that JSON can express."""
    plain = {name: asdict(each) for name, each in leakage.estimates.items()}
    if leakage.published:
        plain["published"] = {name: asdict(each) for name, each in leakage.published.items()}
    return {"trials": leakage.trials, **plain}


def leakage_from_json(plain: object) -> Leakage | None:
    """Return the leakage from the output of `leakage_as_json`."""
    if plain is None:
        return None
    tables = TypeAdapter(dict[str, Any]).validate_python(plain)
    trials = TypeAdapter(int).validate_python(tables.pop("trials", None))
    read = TypeAdapter(dict[str, Estimate]).validate_python
    published = read(tables.pop("published", {}))
    return Leakage(trials, read(tables), published)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(_plain(each) for each in value)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def assemble(
    *,
    scenario: Scenario,
    prepared: Prepared,
    labelled: Labelled,
    struck: tuple[Fault, ...],
    leakage: Leakage | None,
    findings: Findings | TotalsFindings | None,
    origin: RingOrigin | None,
    seed: int,
) -> Report:
    """Return the report of a run.

    Args:
        leakage: The estimated leakage, if requested.
        findings: The findings of a coalition, if there was one.
    """
    pooled, truth = prepared.pooled, prepared.held_out.y
    system, setup = scenario.protocol, prepared.setup
    batches, labels = labelled.batches, labelled.labels
    reference = _reference(prepared, labelled)
    on_simulated_clock = scenario.network.runtime == "simulated"
    return Report(
        scenario=scenario,
        runtime=scenario.network.runtime,
        parties=len(setup.parts),
        rows=len(pooled),
        queries=len(truth),
        rounds=setup.rounds,
        accuracy=_share(labels == truth),
        reference_accuracy=_share(reference == truth),
        majority_accuracy=_share(truth == np.bincount(pooled.y).argmax()),
        agreement=_share(labels == reference),
        labels=tuple(pooled.features.classes[label] for label in labels),
        cost=CostSummary.measured(batch.run.cost for batch in batches),
        forecast=CostSummary.forecast(batch.forecast for batch in batches),
        ring=origin,
        promise=system.promise(parties=len(setup.parts)).among(len(pooled)),
        spent=setup.spent(labelled.attempts),
        seconds=labelled.seconds,
        start_seconds=labelled.start_seconds,
        simulated_seconds=sum(b.seconds for b in batches) if on_simulated_clock else None,
        leakage=leakage,
        transcript=labelled.transcript,
        seed=seed,
        secrets="cryptographic" if scenario.run.seed is None else "seeded",
        coalition=findings,
        faults=_faults(prepared.faults, struck),
        recovery=_recovery(prepared, labelled),
    )


def _reference(prepared: Prepared, labelled: Labelled) -> Ints:
    """Return the pooled classifier's labels, for each batch with the rows of its parties."""
    if all(batch.parties == prepared.parties for batch in labelled.batches):
        return prepared.reference
    return np.concatenate(
        [prepared.setup.reference(batch.queries, batch.parties) for batch in labelled.batches]
    )


def _faults(faults: Iterable[Fault], struck: tuple[Fault, ...]) -> tuple[StruckFault, ...]:
    return tuple(
        StruckFault(
            kind=fault.kind,
            parties=fault.parties,
            start_seconds=fault.start,
            end_seconds=fault.end if math.isfinite(fault.end) else None,
            strength=fault.strength,
            struck=fault in struck,
        )
        for fault in sorted(faults, key=lambda fault: (fault.start, fault.kind, fault.parties))
    )


def _recovery(prepared: Prepared, labelled: Labelled) -> Recovery | None:
    """Return the losses until there was a result; `None` if the first attempts succeeded."""
    wasted = [cost for batch in labelled.batches for cost in batch.wasted]
    if not wasted:
        return None
    left = labelled.batches[-1].parties
    lost = {p: len(r) for p, r in prepared.setup.parts.items() if p not in left}
    return Recovery(
        without=tuple(lost),
        attempts=len(wasted),
        rows_lost=sum(lost.values()),
        messages=sum(cost.messages + cost.setup.messages for cost in wasted),
        bytes=sum(cost.bytes + cost.setup.bytes for cost in wasted),
    )


def _share(hits: Bools) -> float:
    return float(hits.mean())
