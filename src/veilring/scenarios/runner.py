"""Running a scenario: the same from data to report for every system, on every runtime."""

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring import simulation
from veilring.errors import InputError, VeilringError
from veilring.nodes.ring import COMMITTEE_SIZE, Ring, deal_ring
from veilring.nodes.runtimes import Simulated
from veilring.nodes.trace import Journal
from veilring.protocols.system import Leakage
from veilring.randomness import Streams
from veilring.scenarios.coalition import find
from veilring.scenarios.labelling import (
    Conditions,
    Deal,
    Labelled,
    Progress,
    drawn_by_parties,
    ignore_progress,
    play_queries,
)
from veilring.scenarios.network import make_topology
from veilring.scenarios.prepare import Prepared, prepare
from veilring.scenarios.report import (
    CostSummary,
    Findings,
    Recovery,
    Report,
    RingOrigin,
    StruckFault,
)
from veilring.scenarios.schema import Scenario, make_scenario
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


# Drawing a ring takes 128 messages a party, and each is simulated one by one: above this many
# parties that would take longer than all that the simulation is about.
DRAWN_MAX: Final = 300
_SEED_BITS: Final = 32
_DRAWN: Final = "split, partition and drawn faults"


@dataclass(frozen=True, slots=True)
class _Watch:
    """Who is told how far the run is, by which clock it is timed, and where it is recorded."""

    tell: Progress
    clock: Callable[[], float]
    journal: Journal | None


def run_scenario(
    scenario: Scenario,
    *,
    runtime: str | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.perf_counter,
    journal: Journal | None = None,
) -> Report:
    """Run a scenario from data to report. No event loop may run in this thread.

    The first party asks. All is checked before any party starts. With a seed the report is the same
    on every runtime, but for what it says of time and of faults; without one the parties'
    randomness is cryptographic, and the split and the partition come from a fresh seed that the
    report names.

    Where parties may be lost (`run.retries`), a batch is asked again without them, and they are
    left out of all that follows. Labels are those that the first honest party learned. What a
    coalition saw is attacked after the run, when it costs nobody anything.

    Args:
        scenario: What to run.
        runtime: In place of `network.runtime`.
        seed: In place of `run.seed`.
        progress: Told how far the run is.
        clock: Gives wall seconds.
        journal: Where to record which messages pass when, and what happens to parties; also if the
            run fails.

    Raises:
        ScenarioError: If the data or the protocol cannot be as the scenario says.
        RunFailed: If the run failed at any party. There is no partial result. If there was no seed,
            a note of the error names that of the split.
    """
    scenario = _with(scenario, runtime, seed)
    tell = progress or ignore_progress
    tell("Loading the data", 0, 1)
    own_seed = scenario.run.seed
    known_seed = secrets.randbits(_SEED_BITS) if own_seed is None else own_seed
    streams = Streams(known_seed)
    prepared = prepare(scenario, streams)
    try:
        labelled, struck = _label(scenario, prepared, streams, _Watch(tell, clock, journal))
    except InputError:
        raise  # nothing was run
    except VeilringError as error:
        if own_seed is None:  # no report will name it
            drawn = "split and partition" if scenario.run.fault_seconds is None else _DRAWN
            error.add_note(f"The same {drawn}: --seed {known_seed}.")
        raise
    leakage = _leakage(scenario, prepared, streams, tell)
    found = None
    if prepared.coalition:
        tell("Attacking what the coalition saw", 0, 1)
        found = find(prepared, labelled.batches, scenario.run.leakage_trials, streams)
    return assemble(
        scenario, prepared, labelled, struck, leakage, found, _origin(scenario), known_seed
    )


def _with(scenario: Scenario, runtime: str | None, seed: int | None) -> Scenario:
    tables = scenario.model_dump()
    if runtime is not None:
        tables["network"]["runtime"] = runtime
    if seed is not None:
        tables["run"]["seed"] = seed
    return make_scenario(tables)


def _label(
    scenario: Scenario, prepared: Prepared, streams: Streams, watch: _Watch
) -> tuple[Labelled, tuple[Fault, ...]]:
    """Return the labelled batches, and the faults that had an effect."""
    topology = make_topology(scenario.network, prepared.parties)  # refused on any runtime
    dealt = _origin(scenario) == "dealt from the seed"
    conditions = Conditions(
        retries=scenario.run.retries,
        session_seconds=scenario.run.session_seconds,
        watch=prepared.coalition,
        adversaries=prepared.adversaries,
        deal=_dealer(streams) if dealt else drawn_by_parties,
        journal=watch.journal,
    )
    label = partial(
        play_queries,
        prepared.setup,
        prepared.held_out.X,
        seed=scenario.run.seed,
        conditions=conditions,
        progress=watch.tell,
        clock=watch.clock,
    )
    if scenario.network.runtime != "simulated":
        return asyncio.run(label(scenario.network.runtime)), ()
    runtime = Simulated(topology, prepared.faults)
    return simulation.simulate(label(runtime)), tuple(runtime.struck)


def _dealer(streams: Streams) -> Deal:
    """Return what deals the parties a ring, each time the same one to the same parties."""
    rng, dealt = streams.generator("ring"), dict[tuple[str, ...], Ring]()

    def deal(parties: tuple[str, ...]) -> Ring:
        if parties not in dealt:
            dealt[parties] = deal_ring(parties, rng)
        return dealt[parties]

    return deal


def _origin(scenario: Scenario) -> RingOrigin | None:
    parties = len(scenario.parties.all)
    if not scenario.protocol.draws_ring:
        return None
    if scenario.network.runtime == "simulated" and parties > DRAWN_MAX:
        return "dealt from the seed"
    return "drawn by all" if parties <= COMMITTEE_SIZE else "drawn by a committee"


def _leakage(
    scenario: Scenario, prepared: Prepared, streams: Streams, tell: Progress
) -> Leakage | None:
    if not scenario.run.leakage_trials:
        return None
    tell("Estimating what a run leaks", 0, 1)
    queries, trials = prepared.held_out.X, scenario.run.leakage_trials
    return prepared.setup.leakage(queries, trials, streams.generator("leakage"))
