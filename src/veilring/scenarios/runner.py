"""Running a scenario: the same from data to report on every runtime."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from veilring import simulation
from veilring.errors import InputError, VeilringError
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import COMMITTEE_SIZE, Ring, deal_ring
from veilring.nodes.runtimes import RUNTIMES, Runtime, Simulated
from veilring.nodes.trace import Journal, Mark
from veilring.protocols.system import Leakage
from veilring.randomness import Streams
from veilring.scenarios.assemble import assemble
from veilring.scenarios.batches import Batch, Deal, Labelled, label_batch
from veilring.scenarios.coalition import find
from veilring.scenarios.load import make_scenario
from veilring.scenarios.network import make_topology
from veilring.scenarios.prepare import Prepared, prepare
from veilring.scenarios.report import Report, RingOrigin
from veilring.scenarios.schema import Scenario

# Drawing a ring takes 128 messages a party, and each is simulated one by one: above this many
# parties that would take longer than all that the simulation is about.
DRAWN_MAX: Final = 300
_SEED_BITS: Final = 32
_DRAWN: Final = "split, partition and drawn faults"

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much."""


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
    tell = progress or _tell_nobody
    tell("Loading the data", 0, 1)
    own_seed = scenario.run.seed
    known_seed = secrets.randbits(_SEED_BITS) if own_seed is None else own_seed
    streams = Streams(known_seed)
    prepared = prepare(scenario, streams)
    try:
        labelled = _label(scenario, prepared, streams, _Watch(tell, clock, journal))
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
    return assemble(scenario, prepared, labelled, leakage, found, _origin(scenario), known_seed)


def _with(scenario: Scenario, runtime: str | None, seed: int | None) -> Scenario:
    tables = scenario.model_dump()
    if runtime is not None:
        tables["network"]["runtime"] = runtime
    if seed is not None:
        tables["run"]["seed"] = seed
    return make_scenario(tables)


def _tell_nobody(doing: str, done: int, total: int) -> None:
    """Take the place of a progress that nobody asked for."""


def _label(scenario: Scenario, prepared: Prepared, streams: Streams, watch: _Watch) -> Labelled:
    topology = make_topology(scenario.network, prepared.parties)  # refused on any runtime
    if scenario.network.runtime != "simulated":
        runtime = RUNTIMES[scenario.network.runtime]()
        return asyncio.run(_label_on(runtime, scenario, prepared, _dealt_by_nobody, watch))
    deal: Deal = _dealt_by_nobody
    if _origin(scenario) == "dealt from the seed":
        deal = _dealer(streams)
    simulated = Simulated(topology, prepared.faults)
    return simulation.run(_label_on(simulated, scenario, prepared, deal, watch))


def _dealt_by_nobody(parties: tuple[str, ...]) -> Ring | None:  # noqa: ARG001  (a `Deal`)
    """Leave it to the parties to draw their ring."""
    return None


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


async def _label_on(
    runtime: Runtime, scenario: Scenario, prepared: Prepared, deal: Deal, watch: _Watch
) -> Labelled:
    tell, clock, journal = watch.tell, watch.clock, watch.journal
    queries, done = len(prepared.held_out), 0
    parties, batches = prepared.parties, list[Batch]()
    tell("Starting the parties", 0, 1)
    began = clock()
    async with Cluster(
        prepared.parties, runtime=runtime, own=prepared.setup.resident, seed=scenario.run.seed
    ) as cluster:
        started = clock()
        if journal is not None:
            journal.note(_colluding(prepared.coalition))
        for batch in prepared.batches():
            tell("Labelling", done, queries)
            labelled = await label_batch(
                batch, cluster, parties, prepared, scenario.run, deal, journal
            )
            batches.append(labelled)
            parties, done = labelled.parties, done + len(batch)
        ended = clock()
    struck = runtime.struck if isinstance(runtime, Simulated) else ()
    return Labelled(tuple(batches), struck, ended - started, started - began)


def _colluding(coalition: Sequence[str]) -> list[Mark]:
    others = {member: [name for name in coalition if name != member] for member in coalition}
    return [
        Mark(0.0, member, f"coalition: with {', '.join(names) or 'nobody else'}")
        for member, names in others.items()
    ]


def _leakage(
    scenario: Scenario, prepared: Prepared, streams: Streams, tell: Progress
) -> Leakage | None:
    if not scenario.run.leakage_trials:
        return None
    tell("Estimating what a run leaks", 0, 1)
    queries, trials = prepared.held_out.X, scenario.run.leakage_trials
    return prepared.setup.leakage(queries, trials, streams.generator("leakage"))
