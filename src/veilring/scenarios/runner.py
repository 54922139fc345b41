"""Running a scenario: the same from data to report on every runtime."""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from veilring import simulation
from veilring.errors import InputError, VeilringError
from veilring.nodes.ring import COMMITTEE_SIZE, Ring, deal_ring
from veilring.nodes.runtimes import Simulated
from veilring.nodes.trace import Journal
from veilring.protocols.system import Leakage
from veilring.randomness import Streams
from veilring.scenarios.assemble import assemble
from veilring.scenarios.coalition import find
from veilring.scenarios.labelling import (
    Conditions,
    Deal,
    Labelled,
    Progress,
    drawn_by_parties,
    ignore_progress,
    label_queries,
)
from veilring.scenarios.load import make_scenario
from veilring.scenarios.network import make_topology
from veilring.scenarios.prepare import Prepared, prepare
from veilring.scenarios.report import Report, RingOrigin
from veilring.scenarios.schema import Scenario
from veilring.simulation.faults import Fault

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
        label_queries,
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
    return simulation.run(label(runtime)), tuple(runtime.struck)


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
