"""The report on a run: accuracy, promise, cost, and what leaked; no row of any party."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from veilring.nodes.cost import Cost
from veilring.protocols.forecast import Forecast
from veilring.protocols.system import Estimate, Leakage, Promise, Spent
from veilring.scenarios.batches import Labelled
from veilring.scenarios.prepare import Prepared
from veilring.scenarios.schema import Scenario
from veilring.simulation.faults import Fault, FaultClass


@dataclass(frozen=True, slots=True)
class Attack:
    """How good claims are that an entry of PP-TopK's vector is the victim's own.

    Attributes:
        claims: How many were made.
        right: How many of them are right.
        located: How many of the victim's distances were claimed rightly, each counted once.
    """

    claims: int = 0
    right: int = 0
    located: int = 0

    def plus(self, other: "Attack") -> "Attack":
        """Return both together."""
        return Attack(
            self.claims + other.claims, self.right + other.right, self.located + other.located
        )


@dataclass(frozen=True, slots=True)
class Victim:
    """What a coalition found of a party beside one of its members, over all batches.

    Attributes:
        party: Whose secrets they are.
        queries: How many queries were asked while it sat beside a member.
        between: For how many of them it sat between two.
        votes: For how many of them its votes were recovered exactly.
        distances: How many distances it brought to PP-TopK for those queries: at most k for each.
        simple: The attack that claims whatever is new in what the victim passed on.
        optimal: The attack that claims what is more likely the victim's own than not; `None` where
            it was not tried.
        pinned: For how many of those queries a distance was seen to come from it and nobody else.
        pinned_expected: The same, as simulated runs on the same distances have it.
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
    """How many of the nearest distances, which are public, were traced to their owners.

    Attributes:
        values: How many distances of parties outside the coalition are in the results.
        guessed: How many owners a guess names right, on average.
        named: How many the coalition names right from the attempts that succeeded.
        with_retries: The same, with what it saw of the attempts that failed.
        recurred: How many distances it saw in a failed attempt and again, and so knows to be real.
        recurred_hidden: How many of those are in no result.
    """

    values: int
    guessed: float
    named: float
    with_retries: float
    recurred: int
    recurred_hidden: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What a semi-honest coalition found, held against the truth.

    Attributes:
        members: Who pooled their views.
        victims: Whom they sat beside; in the order of the parties.
        exposure: The probability that all neighbours of an honest party are members, in closed
            form, for the ring of the first batch.
        honest: How many honest parties there were, added up over batches.
        exposed: For how many of them the votes were recovered, exactly.
        exposed_expected: The same, as the closed form has it.
        groups: How many groups of honest parties the coalition could tell apart in the votes,
            added up over batches.
        groups_recovered: For how many of them it found the sum of the votes, exactly.
        named: Whose the nearest distances are.
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
    """What a semi-honest coalition read in the totals of a search, compared with the truth.

    Attributes:
        members: The parties that pooled their views.
        outside: The number of parties outside, in the first batch.
        totals: How many totals over the parties outside it knows, over all batches.
        right: How many of them are exact.
        alone: How many of them are counts of one party.
        nearest: How many queries have their nearest row outside.
        guessed: How many of its holders a guess names right, on average. No view tells more.
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
    """A fault of the schedule, and whether a message or a party met it.

    Attributes:
        kind: What.
        parties: Whom it strikes.
        start_seconds: When, in simulated seconds from the start of the parties.
        end_seconds: When it was over; `None` for never.
        strength: Extra seconds, or how many times slower; 0 where there is no such thing.
        struck: Whether it had an effect.
    """

    kind: FaultClass
    parties: tuple[str, ...]
    start_seconds: float
    end_seconds: float | None
    strength: float
    struck: bool


@dataclass(frozen=True, slots=True)
class Recovery:
    """What it took to get a result without the parties that were lost.

    Attributes:
        without: The parties that were left out, in the order of the parties.
        attempts: How many attempts failed.
        rows_lost: How many rows those parties held.
        messages: What the failed attempts sent in all, set-up included.
        bytes: Of those.
    """

    without: tuple[str, ...]
    attempts: int
    rows_lost: int
    messages: int
    bytes: int


RingOrigin = Literal["drawn by all", "drawn by a committee", "dealt from the seed"]


@dataclass(frozen=True, slots=True)
class CostSummary:
    """The cost of all batches together.

    Attributes:
        batches: How many there were.
        rounds: Communication rounds, one batch after the other.
        messages: Of the protocol.
        bytes: Of its frames, as any transport carries them.
        setup_messages: To draw the rings and hand out the queries.
        setup_bytes: Of those.
    """

    batches: int
    rounds: int
    messages: int
    bytes: int
    setup_messages: int
    setup_bytes: int

    def __str__(self) -> str:
        messages, size = self.messages + self.setup_messages, self.bytes + self.setup_bytes
        return f"{self.rounds:,} rounds, {messages:,} messages, {size:,} bytes"

    @classmethod
    def measured(cls, costs: Iterable[Cost]) -> "CostSummary":
        """Add up what batches cost."""
        return cls._sum((c.rounds, c.messages, c.bytes, *c.setup) for c in costs)

    @classmethod
    def forecast(cls, forecasts: Iterable[Forecast]) -> "CostSummary":
        """Add up what batches will cost."""
        return cls._sum((f.rounds, *f.traffic, *f.setup) for f in forecasts)

    @classmethod
    def _sum(cls, costs: Iterable[tuple[int, ...]]) -> "CostSummary":
        each = list(costs)
        return cls(len(each), *(sum(column) for column in zip(*each, strict=True)))


@dataclass(frozen=True, slots=True)
class Report:
    """All that is to be said of one run of a scenario.

    Attributes:
        scenario: What was run, with the runtime and the seed that were used.
        runtime: Where the parties lived.
        parties: How many.
        rows: How many rows they held together.
        queries: How many held-out rows were labelled.
        rounds: How often a vector went round for each batch, in systems that send one round.
        accuracy: The share of them that got their true class.
        reference_accuracy: The same for the non-private classifier on the rows of those who took
            part, pooled.
        majority_accuracy: The same for always answering the class that most rows have.
        agreement: The share of queries on which the private and the pooled classifier agree.
        labels: The class that each query got.
        cost: Measured, of the attempts that succeeded.
        forecast: From the closed forms.
        ring: How the order of the parties came about, if they are a ring.
        promise: What the system promises.
        spent: What all attempts at all batches have spent of it together: one that failed may have
            released its answer, and another draws its noise anew.
        seconds: Wall time from the first batch's start to the last one's end.
        start_seconds: Wall time to bring the parties up and connect them.
        simulated_seconds: The same as `seconds` on the simulated clock, if there was one.
        leakage: Estimated, unless it was not asked for.
        transcript: A hash over all messages of all batches, of the attempts that succeeded.
        seed: Of the split and the partition; give it to a run to repeat them.
        secrets: Whether the parties' own randomness came from the seed or from a cryptographic
            generator.
        coalition: What the parties that collude found, if there are some.
        faults: What went wrong on the simulated clock, in order of time.
        recovery: What it took to get a result without parties that were lost, if any was lost.
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
        """Return everything as what JSON can say; `scenario` is the name, `settings` the rest."""
        tables = self.scenario.model_dump(mode="json", exclude_none=True)
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain = {name: _plain(value) for name, value in fields.items() if name != "scenario"}
        if self.leakage is not None:
            plain["leakage"] = leakage_as_json(self.leakage)
        return {**plain, "scenario": self.scenario.name, "settings": tables}

    @classmethod
    def from_json(cls, plain: object) -> "Report":
        """Return the report that `as_json` made this of.

        Raises:
            ValueError: If it is not one; pydantic says where.
        """
        tables = TypeAdapter(dict[str, Any]).validate_python(plain)
        fields = {name: tables[name] for name in cls.__dataclass_fields__ if name in tables}
        fields["leakage"] = leakage_from_json(tables.get("leakage"))
        return TypeAdapter(cls).validate_python({**fields, "scenario": tables.get("settings")})


def leakage_as_json(leakage: Leakage) -> dict[str, Any]:
    """Return the trials and each estimate as what JSON can say."""
    plain = {name: asdict(each) for name, each in leakage.estimates.items()}
    if leakage.published:
        plain["published"] = {name: asdict(each) for name, each in leakage.published.items()}
    return {"trials": leakage.trials, **plain}


def leakage_from_json(plain: object) -> Leakage | None:
    """Return what `leakage_as_json` made this of.

    Raises:
        ValueError: If it is not that; pydantic says where.
    """
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
    """Return the report on a run.

    Args:
        scenario: What was run.
        prepared: What the parties were given.
        labelled: The batches that were labelled.
        struck: The faults that had an effect.
        leakage: What a hop leaks, if that was estimated.
        findings: What a coalition found, if there was one.
        origin: How the ring came about.
        seed: Of the split and the partition.
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
        promise=system.promise(parties=len(setup.parts)),
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


def _reference(prepared: Prepared, labelled: Labelled) -> NDArray[np.int64]:
    """Return the pooled classifier's labels, for each batch on the rows of those who took part."""
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
    """Return what it took to get a result; `None` if the first attempts did."""
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


def _share(hits: NDArray[np.bool_]) -> float:
    return float(hits.mean())
