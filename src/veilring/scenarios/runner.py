"""Running a scenario, from data to report, for every system on every runtime."""

import asyncio
import hashlib
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np

from veilring import simulation
from veilring.arrays import Bools, Floats, Ints
from veilring.config import require_key_that
from veilring.data.table import Features
from veilring.errors import InputError, VeilringError
from veilring.measures import Measures, NumberMeasures, measure, measure_numbers
from veilring.nodes.adversary import Adversary
from veilring.nodes.cluster import Cluster, RuntimeName, run_with_retries
from veilring.nodes.journal import Journal, Mark
from veilring.nodes.ring import COMMITTEE_SIZE, Ring, deal_ring
from veilring.nodes.runtimes import Runtime, Simulated
from veilring.protocols.claims import Attempt, Batch, Coalition, Deal, Findings, drawn_by_parties
from veilring.protocols.membership import PublicModel
from veilring.protocols.promise import Leakage
from veilring.protocols.system import Play, Scored, Setup
from veilring.randomness import Streams, draw_seed
from veilring.scenarios.network import make_topology
from veilring.scenarios.parts import answer_columns
from veilring.scenarios.prepare import Prepared, prepare
from veilring.scenarios.report import CostSummary, Recovery, Report, RingOrigin, StruckFault
from veilring.scenarios.schema import Experiment, NetworkSection, Scenario
from veilring.simulation import Topology
from veilring.simulation.faults import Fault

_R = TypeVar("_R")
_S = TypeVar("_S", bound=Experiment)

# Drawing a ring takes 128 messages per party, each simulated one by one: with more parties than
# this, that would take longer than the rest of the simulation.
DRAWN_MAX: Final = 300
_DRAWN: Final = "split, partition and drawn faults"

Progress = Callable[[str, int, int], None]
"""A callback with the current step, the amount done, and the total amount."""


def ignore_progress(doing: str, done: int, total: int) -> None:
    """Ignore all progress."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions under which batches are played.

    Attributes:
        retries: The number of retries of a batch without lost parties.
        session_seconds: The time limit of one attempt; by default the runtime's.
    """

    retries: int = 0
    session_seconds: float | None = None
    watch: tuple[str, ...] = ()
    adversaries: Mapping[str, Adversary] = field(default_factory=dict)
    deal: Deal = drawn_by_parties
    journal: Journal | None = None


@dataclass(frozen=True, slots=True)
class Labelled:
    """All batches of a run.

    Attributes:
        batches: The batches, at least one.
        seconds: Wall-clock time from the start of the first batch to the end of the last.
    """

    batches: tuple[Batch, ...]
    seconds: float
    start_seconds: float

    @property
    def labels(self) -> Ints:
        """The label of each query, as learned by the first honest party."""
        return np.concatenate([batch.labels for batch in self.batches])

    @property
    def scores(self) -> Floats | None:
        """The score of each class for each query; none if only labels are revealed."""
        return Scored.together([Scored(each.labels, each.scores) for each in self.batches]).scores

    @property
    def attempts(self) -> int:
        """The number of attempts at all batches; a failed one may have released its answer."""
        return sum(1 + len(batch.wasted) for batch in self.batches)

    def model_of(self, setup: Setup, *, seeded: bool) -> PublicModel | None:
        """Return the public model released by the last batch, if the system makes one."""
        last = self.batches[-1]
        return setup.model(last.answer, last.parties, seeded=seeded)

    @property
    def transcript(self) -> str:
        """A hash over all messages of the attempts that succeeded."""
        lines = "".join(f"{batch.run.transcript}\n" for batch in self.batches)
        return hashlib.sha256(lines.encode()).hexdigest()


def run_scenario(
    scenario: Scenario,
    *,
    runtime: RuntimeName | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.perf_counter,
    journal: Journal | None = None,
    keep: Callable[[PublicModel], object] | None = None,
    answered: Callable[[Mapping[str, Sequence[str]]], object] | None = None,
) -> Report:
    """Run a scenario from data to report. No event loop may be running in this thread.

    The first party asks the queries. Everything is checked before any party starts. With a seed the
    report is the same on every runtime, except for times and faults; without one the parties'
    randomness is cryptographic, and the report contains the fresh seed of the split and the
    partition.

    If parties may be lost (`run.retries`), a batch is repeated without the lost ones, which are
    also left out of all later batches. Labels are those learned by the first honest party. The
    coalition's views are attacked after the run, outside of its cost.

    Args:
        runtime: The runtime, instead of `network.runtime`.
        seed: The seed, instead of `run.seed`.
        journal: The journal of messages and of events at parties, also written if the run fails.
        keep: A callback for the public model of the run, if its system makes one.
        answered: A callback for the answers: the identifiers of each query, its number in the
            table, its true class and its label.

    Raises:
        ScenarioError: If the data or the protocol do not fit the scenario.
        RunFailed: If the run failed at any party. There is no partial result. Without a seed, a
            note of the error contains the seed of the split.
    """
    require_key_that(
        scenario.world is None,
        "world",
        "this scenario is an explored world; replay it with `veilring run`, or with"
        " veilring.testing.exploring.subjects.replay",
    )
    scenario = changed(scenario, runtime, seed)
    tell = progress or ignore_progress
    tell("Loading the data", 0, 1)
    own_seed = scenario.run.seed
    known_seed = draw_seed() if own_seed is None else own_seed
    streams = Streams(known_seed)
    prepared = prepare(scenario, streams, tell)
    try:
        labelled, struck = _label(scenario, prepared, streams, journal, progress=tell, clock=clock)
    except InputError:
        raise  # nothing was run
    except VeilringError as error:
        if own_seed is None:  # there will be no report to contain it
            drawn = "split and partition" if scenario.run.fault_seconds is None else _DRAWN
            error.add_note(f"To repeat the {drawn}: --seed {known_seed}.")
        raise
    model = labelled.model_of(prepared.setup, seeded=own_seed is not None)
    if keep is not None and model is not None:
        keep(model)
    leakage = _leakage(scenario, prepared, streams, tell)
    found = None
    if prepared.coalition:
        tell("Attacking the views of the coalition", 0, 1)
        found = _attack(prepared, labelled, scenario.run.leakage_trials, streams)
    pooled, truth, setup = prepared.pooled, prepared.held_out.y, prepared.setup
    labels, reference = labelled.labels, _reference(prepared, labelled)
    if answered is not None:
        answered(answer_columns(prepared.held_out, labels))
    measures = measures_of(pooled.features, truth, labels, labelled.scores)
    is_class = isinstance(measures, Measures)
    simulated_seconds = sum(batch.seconds for batch in labelled.batches)
    return Report(
        scenario=scenario,
        runtime=scenario.network.runtime,
        parties=len(setup.parts),
        rows=len(pooled),
        queries=len(truth),
        rounds=setup.rounds,
        accuracy=measures.accuracy.value if isinstance(measures, Measures) else None,
        reference_accuracy=_share(reference == truth) if is_class else None,
        majority_accuracy=_share(truth == np.bincount(pooled.y).argmax()) if is_class else None,
        reference_measures=None if is_class else measures_of(pooled.features, truth, reference),
        agreement=_share(labels == reference),
        labels=pooled.features.named(labels),
        cost=CostSummary.measured(batch.run.cost for batch in labelled.batches),
        forecast=CostSummary.forecast(batch.forecast for batch in labelled.batches),
        ring=_origin(scenario),
        promise=setup.system.promise_about(setup.facts),
        spent=setup.spent(labelled.attempts),
        seconds=labelled.seconds,
        start_seconds=labelled.start_seconds,
        simulated_seconds=simulated_seconds if scenario.network.runtime == "simulated" else None,
        leakage=leakage,
        transcript=labelled.transcript,
        seed=known_seed,
        secrets="cryptographic" if own_seed is None else "seeded",
        measures=measures,
        coalition=found,
        faults=struck_faults(prepared.faults, struck),
        recovery=_recovery(prepared, labelled),
    )


def measures_of(
    features: Features, truth: Ints, labels: Ints, scores: Floats | None = None
) -> Measures | NumberMeasures:
    """Return the measures of labels: of classes with their scores, or of numbers."""
    if features.target is None:
        return measure(truth, labels, features.classes, scores)
    return measure_numbers(features.target.values_of(truth), features.target.values_of(labels))


def changed(scenario: _S, runtime: RuntimeName | None, seed: int | None) -> _S:
    """Return a scenario with another runtime or seed, if they are given."""
    network = {} if runtime is None else {"runtime": runtime}
    run = {} if seed is None else {"seed": seed}
    return scenario.with_tables(network=network, run=run)


def _label(
    scenario: Scenario, prepared: Prepared, streams: Streams, journal: Journal | None, **told: Any
) -> tuple[Labelled, tuple[Fault, ...]]:
    """Return the labelled batches, and the faults that had an effect."""
    topology = make_topology(scenario.network, prepared.parties)  # refused on any other runtime
    dealt = _origin(scenario) == "dealt from the seed"
    conditions = Conditions(
        retries=scenario.run.retries,
        session_seconds=scenario.run.session_seconds,
        watch=prepared.coalition,
        adversaries=prepared.adversaries,
        deal=_dealer(streams) if dealt else drawn_by_parties,
        journal=journal,
    )

    async def label(runtime: Runtime | RuntimeName) -> Labelled:
        seed, queries = scenario.run.seed, prepared.held_out.X
        return await play_queries(
            prepared.setup, queries, runtime, seed=seed, conditions=conditions, **told
        )

    return run_on(scenario.network, topology, prepared.faults, label)


def run_on(
    network: NetworkSection,
    topology: Topology,
    faults: Sequence[Fault],
    play: Callable[[Runtime | RuntimeName], Coroutine[Any, Any, _R]],
) -> tuple[_R, tuple[Fault, ...]]:
    """Return the result of a coroutine on a scenario's runtime, and the faults that had an effect.

    Args:
        play: Starts the parties on the given runtime, and returns the result.
    """
    if network.runtime != "simulated":
        return asyncio.run(play(network.runtime)), ()
    runtime = Simulated(topology, faults, compute=network.compute)
    return simulation.simulate(play(runtime)), tuple(runtime.struck)


def _dealer(streams: Streams) -> Deal:
    """Return a function that deals a ring, always the same one to the same parties."""
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
    return "drawn by all parties" if parties <= COMMITTEE_SIZE else "drawn by a committee"


def _attack(
    prepared: Prepared, labelled: Labelled, trials: int, streams: Streams
) -> Findings | None:
    """Return the findings of the coalition; `None` if no batch has both members and others."""
    watched = {
        number: batch
        for number, batch in enumerate(labelled.batches)
        if batch.seen.views and batch.others
    }
    coalition = Coalition(prepared.coalition, prepared.adversaries, trials, streams)
    return prepared.setup.attack(watched, coalition) if watched else None


def _leakage(
    scenario: Scenario, prepared: Prepared, streams: Streams, tell: Progress
) -> Leakage | None:
    if not scenario.run.leakage_trials:
        return None
    tell("Estimating the leakage", 0, 1)
    queries, trials = prepared.held_out.X, scenario.run.leakage_trials
    return prepared.setup.leakage(queries, trials, streams.generator("leakage"))


async def play_queries(
    setup: Setup,
    queries: Floats,
    runtime: Runtime | RuntimeName,
    *,
    seed: int | None,
    conditions: Conditions,
    progress: Progress = ignore_progress,
    clock: Callable[[], float] = time.perf_counter,
) -> Labelled:
    """Start the parties of a system and label queries, in as many batches as necessary.

    Args:
        queries: The queries, shape (Q, features), scaled into [0, 1].
        seed: The seed of all their randomness, which is cryptographic without one.

    Raises:
        RunFailed: If the last attempt at a batch failed.
    """
    parties, batches, done = setup.parties, list[Batch](), 0
    journal = conditions.journal
    progress("Starting the parties", 0, 1)
    began = clock()
    async with Cluster(parties, runtime=runtime, own=setup.resident, seed=seed) as cluster:
        started = clock()
        if journal is not None:
            journal.note(_colluding(conditions.watch))
        for batch in setup.batches(queries):
            progress("Labelling", done, len(queries))
            labelled = await label_batch(batch, cluster, parties, setup, conditions)
            batches.append(labelled)
            parties, done = labelled.parties, done + len(batch)
        ended = clock()
    return Labelled(tuple(batches), ended - started, started - began)


async def label_batch(
    queries: Floats, cluster: Cluster, among: tuple[str, ...], setup: Setup, conditions: Conditions
) -> Batch:
    """Label a batch, queried by the first party that takes part."""
    clock, journal = asyncio.get_running_loop().time, conditions.journal
    # The ring follows from the name of the session, which is in the traces.
    trace: bool | Journal = bool(conditions.watch) if journal is None else journal
    played: list[Play] = []

    def options(alive: tuple[str, ...]) -> dict[str, Any]:
        if journal is not None:
            now, left = clock() - (journal.origin or 0.0), set(setup.parties).difference(alive)
            said = "left out: the others ask again"
            journal.note(Mark(now, party, said) for party in sorted(left))
        play = setup.play(queries, among=alive, ring=conditions.deal(alive))
        played.append(play)
        return {
            "only": play.only,
            **play.public,
            "watch": [p for p in {*conditions.watch, *play.watch} if p in alive],
            "adversaries": {p: who for p, who in conditions.adversaries.items() if p in alive},
        }

    started = clock()
    retried = await run_with_retries(
        cluster,
        setup.role,
        attempts=conditions.retries + 1,
        among=among,
        for_those=options,
        seconds=conditions.session_seconds,
        trace=trace,
    )
    ended, run, play = clock(), retried.run, played[-1]
    watched, sessions = set(conditions.watch), {trace.session for trace in run.traces}
    views = {party: view for party, view in run.views.items() if party in watched}
    failed = []
    for outcomes in retried.failed:
        seen = {done.party: done.view for done in outcomes if done.view is not None}
        named = {done.trace.session for done in outcomes if done.trace is not None}
        failed.append(Attempt.of([done.party for done in outcomes], seen, named, conditions.deal))
    # A malicious party may misreport its answer.
    honest = (party for party in play.learners if party not in conditions.adversaries)
    answer = run.results[next(honest, play.learners[0])]
    return Batch(
        queries=queries,
        run=run,
        answer=answer,
        labels=play.labels(answer),
        scores=None if play.scores is None else play.scores(answer),
        forecast=play.forecast(run),
        seen=Attempt.of(run.results, views, sessions, conditions.deal),
        failed=tuple(failed),
        wasted=retried.wasted,
        seconds=ended - started,
    )


def _colluding(coalition: Sequence[str]) -> list[Mark]:
    others = {member: [name for name in coalition if name != member] for member in coalition}
    return [
        Mark(0.0, member, f"coalition: with {', '.join(names) or 'nobody else'}")
        for member, names in others.items()
    ]


def _reference(prepared: Prepared, labelled: Labelled) -> Ints:
    """Return the pooled classifier's labels, for each batch with the rows of its parties."""
    if all(batch.parties == prepared.parties for batch in labelled.batches):
        return prepared.reference
    return np.concatenate(
        [prepared.setup.reference(batch.queries, batch.parties) for batch in labelled.batches]
    )


def struck_faults(faults: Iterable[Fault], struck: tuple[Fault, ...]) -> tuple[StruckFault, ...]:
    """Return all faults in order of time, with whether each had an effect."""
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
