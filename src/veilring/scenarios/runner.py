"""Running a scenario: the same from data to report on every runtime."""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring import simulation
from veilring.measure import Journal
from veilring.nodes.cluster import Cluster, Run
from veilring.nodes.ring import COMMITTEE_SIZE, Ring, deal_ring
from veilring.nodes.runtimes import Runtime, Simulated
from veilring.protocols.ring import KNNAnswer, knn_cost, private_knn
from veilring.randomness import Streams
from veilring.scenarios.leakage import estimate_leakage, trials_for
from veilring.scenarios.load import make_scenario
from veilring.scenarios.network import make_topology
from veilring.scenarios.prepare import Prepared, prepare
from veilring.scenarios.report import CostSummary, Estimate, Leakage, Report, RingOrigin
from veilring.scenarios.schema import Scenario

__all__ = ("DRAWN_MAX", "Progress", "run_scenario")

# Drawing a ring takes 128 messages a party, and each is simulated one by one: above this many
# parties that would take longer than all that the simulation is about.
DRAWN_MAX: Final = 300
_SEED_BITS: Final = 32

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much."""


@dataclass(frozen=True, slots=True)
class _Watch:
    """Who is told how far the run is, by which clock it is timed, and where it is recorded."""

    tell: Progress
    clock: Callable[[], float]
    journal: Journal | None


@dataclass(frozen=True, slots=True)
class _Labelled:
    runs: list[Run[KNNAnswer]]
    seconds: float
    start_seconds: float

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.concatenate([run.result.labels for run in self.runs])

    @property
    def transcript(self) -> str:
        lines = "".join(f"{run.transcript}\n" for run in self.runs)
        return hashlib.sha256(lines.encode()).hexdigest()


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
    on every runtime, but for what it says of time; without one the parties' randomness is
    cryptographic, and the split and the partition come from a fresh seed that the report names.

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
        RunFailed: If the run failed at any party. There is no partial result.
    """
    scenario = _with(scenario, runtime, seed)
    tell = progress or _tell_nobody
    tell("Loading the data", 0, 1)
    own_seed = scenario.run.seed
    known_seed = secrets.randbits(_SEED_BITS) if own_seed is None else own_seed
    streams = Streams(known_seed)
    prepared = prepare(scenario, streams)
    labelled = _label(scenario, prepared, streams, _Watch(tell, clock, journal))
    leakage = _leakage(scenario, prepared, streams, tell)
    return _report(scenario, prepared, labelled, leakage, known_seed)


def _with(scenario: Scenario, runtime: str | None, seed: int | None) -> Scenario:
    tables = scenario.model_dump()
    if runtime is not None:
        tables["network"]["runtime"] = runtime
    if seed is not None:
        tables["run"]["seed"] = seed
    return make_scenario(tables)


def _tell_nobody(doing: str, done: int, total: int) -> None:
    """Take the place of a progress that nobody asked for."""


def _label(scenario: Scenario, prepared: Prepared, streams: Streams, watch: _Watch) -> _Labelled:
    topology = make_topology(scenario.network, prepared.parties)  # refused on any runtime
    if scenario.network.runtime != "simulated":
        runtime: str | Runtime = scenario.network.runtime
        return asyncio.run(_label_on(runtime, scenario, prepared, None, watch))
    ring = None
    if _origin(scenario) == "dealt from the seed":
        ring = deal_ring(prepared.parties, streams.generator("ring"))
    runtime = Simulated(topology)
    return simulation.run(_label_on(runtime, scenario, prepared, ring, watch))


def _origin(scenario: Scenario) -> RingOrigin:
    parties = len(scenario.parties.all)
    if scenario.network.runtime == "simulated" and parties > DRAWN_MAX:
        return "dealt from the seed"
    return "drawn by all" if parties <= COMMITTEE_SIZE else "drawn by a committee"


async def _label_on(
    runtime: str | Runtime,
    scenario: Scenario,
    prepared: Prepared,
    ring: Ring | None,
    watch: _Watch,
) -> _Labelled:
    tell, clock = watch.tell, watch.clock
    asker, queries, done = prepared.parties[0], len(prepared.held_out), 0
    runs = []
    tell("Starting the parties", 0, 1)
    began = clock()
    async with Cluster(
        prepared.parties, runtime=runtime, own=prepared.rows, seed=scenario.run.seed
    ) as cluster:
        started = clock()
        for batch in prepared.batches(scenario.protocol.batch):
            tell("Labelling", done, queries)
            run = await cluster.run(
                private_knn,
                only={asker: {"queries": batch}},
                asker=asker,
                parameters=prepared.parameters,
                ring=ring,
                adversaries=prepared.adversaries,
                trace=watch.journal or False,
            )
            runs.append(run)
            done += len(batch)
        ended = clock()
    return _Labelled(runs, ended - started, started - began)


def _leakage(
    scenario: Scenario, prepared: Prepared, streams: Streams, tell: Progress
) -> Leakage | None:
    if not scenario.run.leakage_trials:
        return None
    tell("Estimating what a hop leaks", 0, 1)
    trials = trials_for(prepared, scenario.run.leakage_trials)
    found = estimate_leakage(prepared, trials, streams.generator("leakage"))
    names = ("exposure", "claim", "lop", "lop_peak")
    estimates = (getattr(found, name) for name in names)
    return Leakage(trials, *(Estimate(e.value, e.standard_error) for e in estimates))


def _report(
    scenario: Scenario,
    prepared: Prepared,
    labelled: _Labelled,
    leakage: Leakage | None,
    seed: int,
) -> Report:
    parameters, pooled, truth = prepared.parameters, prepared.pooled, prepared.held_out.labels
    majority = np.bincount(pooled.labels).argmax()
    origin = _origin(scenario)
    forecasts = (
        knn_cost(
            len(prepared.parties), len(batch), parameters, drawn=origin != "dealt from the seed"
        )
        for batch in prepared.batches(scenario.protocol.batch)
    )
    on_simulated_clock = scenario.network.runtime == "simulated"
    return Report(
        scenario=scenario,
        runtime=scenario.network.runtime,
        parties=len(prepared.parties),
        rows=len(pooled),
        queries=len(truth),
        rounds=parameters.rounds,
        accuracy=_share(labelled.labels == truth),
        reference_accuracy=_share(prepared.reference == truth),
        majority_accuracy=_share(truth == majority),
        agreement=_share(labelled.labels == prepared.reference),
        labels=tuple(pooled.class_names[label] for label in labelled.labels),
        cost=CostSummary.measured(run.cost for run in labelled.runs),
        forecast=CostSummary.forecast(forecasts),
        ring=origin,
        seconds=labelled.seconds,
        start_seconds=labelled.start_seconds,
        simulated_seconds=sum(r.seconds for r in labelled.runs) if on_simulated_clock else None,
        leakage=leakage,
        transcript=labelled.transcript,
        seed=seed,
        secrets="cryptographic" if scenario.run.seed is None else "seeded",
    )


def _share(hits: NDArray[np.bool_]) -> float:
    return float(hits.mean())
