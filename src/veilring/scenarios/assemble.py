"""From what came of a scenario to its report."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.system import Leakage
from veilring.scenarios.findings import Findings, Recovery, StruckFault
from veilring.scenarios.labelling import Labelled
from veilring.scenarios.prepare import Prepared
from veilring.scenarios.report import CostSummary, Report, RingOrigin
from veilring.scenarios.schema import Scenario
from veilring.simulation.faults import Fault


def assemble(  # noqa: PLR0917  (what was run, what came of it, and what is known of it)
    scenario: Scenario,
    prepared: Prepared,
    labelled: Labelled,
    struck: tuple[Fault, ...],
    leakage: Leakage | None,
    findings: Findings | None,
    origin: RingOrigin | None,
    seed: int,
) -> Report:
    """Return the report on a run.

    Args:
        scenario: What was run.
        prepared: What the parties were given.
        labelled: What came of it.
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
        spent=setup.spent(len(batches)),
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
