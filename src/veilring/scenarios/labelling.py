"""Having queries labelled by the parties of a system, batch by batch, on any runtime.

If parties are lost, a batch is asked again without them where the system can do that.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilring.nodes.adversary import Adversary
from veilring.nodes.cluster import Cluster, run_with_retries
from veilring.nodes.cost import Cost
from veilring.nodes.party import Parties
from veilring.nodes.ring import Ring, RingReveal, committee_for, ring_of
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Runtime
from veilring.nodes.trace import Journal, Mark
from veilring.nodes.transcript import View
from veilring.protocols.forecast import Forecast
from veilring.protocols.system import Play, Setup

Deal = Callable[[tuple[str, ...]], Ring | None]
"""Returns the ring of the parties that take part, or none if they draw it themselves."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much."""


def drawn_by_parties(parties: tuple[str, ...]) -> Ring | None:  # noqa: ARG001  (a `Deal`)
    """Leave it to the parties to draw their ring."""
    return None


def ignore_progress(doing: str, done: int, total: int) -> None:
    """Take the place of a progress that is not shown."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions under which batches are played.

    Attributes:
        retries: How often a batch is asked again without the parties that were lost.
        session_seconds: The limit on one attempt; the runtime's own unless given.
        watch: The parties whose views are kept: those that collude, in an experiment.
        adversaries: Who controls a party, by its name.
        deal: Deals the ring, if anybody does.
        journal: Where to record which messages pass when, if anywhere.
    """

    retries: int = 0
    session_seconds: float | None = None
    watch: tuple[str, ...] = ()
    adversaries: Mapping[str, Adversary] = field(default_factory=dict)
    deal: Deal = drawn_by_parties
    journal: Journal | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the watched parties saw of one attempt at a batch.

    Attributes:
        ring: The order of the parties; `None` if no watched party came to know it.
        views: What each of them saw, by its name; of one that was lost it may be missing.
    """

    ring: Ring | None
    views: Mapping[str, View]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that was labelled.

    Attributes:
        queries: Shape (Q, features).
        run: The attempt that succeeded.
        answer: The result of the first honest party that learns the labels.
        labels: The class numbers of the queries, from that result.
        forecast: The closed form of the cost of that attempt.
        seen: What the watched parties saw of that attempt.
        failed: What they saw of those that failed before.
        wasted: The cost of those.
        seconds: The time of all attempts, on the cluster's clock.
    """

    queries: NDArray[np.float64]
    run: Run[Any]
    answer: Any
    labels: NDArray[np.int64]
    forecast: Forecast
    seen: Attempt
    failed: tuple[Attempt, ...]
    wasted: tuple[Cost, ...]
    seconds: float

    @property
    def parties(self) -> tuple[str, ...]:
        """The parties that took part in the attempt that succeeded."""
        return tuple(self.run.results)


@dataclass(frozen=True, slots=True)
class Labelled:
    """All batches of a run.

    Attributes:
        batches: At least one.
        seconds: Wall time from the first batch's start to the last one's end.
        start_seconds: Wall time to start the parties and connect them.
    """

    batches: tuple[Batch, ...]
    seconds: float
    start_seconds: float

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of each query, as the first honest party learned it."""
        return np.concatenate([batch.labels for batch in self.batches])

    @property
    def attempts(self) -> int:
        """The number of attempts at all batches: one that failed may have released its answer."""
        return sum(1 + len(batch.wasted) for batch in self.batches)

    @property
    def transcript(self) -> str:
        """A hash over all messages of the attempts that succeeded."""
        lines = "".join(f"{batch.run.transcript}\n" for batch in self.batches)
        return hashlib.sha256(lines.encode()).hexdigest()


async def play_queries(
    setup: Setup,
    queries: NDArray[np.float64],
    runtime: Runtime | str,
    *,
    seed: int | None,
    conditions: Conditions,
    progress: Progress = ignore_progress,
    clock: Callable[[], float] = time.perf_counter,
) -> Labelled:
    """Start the parties of a system and have queries labelled, in as many batches as it takes.

    Args:
        setup: The parties with their rows.
        queries: Shape (Q, features), scaled into [0, 1].
        runtime: Where the parties live.
        seed: Of all their randomness; cryptographic without it.
        conditions: How batches are played.
        progress: Told how far it is.
        clock: Gives wall seconds.

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
    queries: NDArray[np.float64],
    cluster: Cluster,
    among: tuple[str, ...],
    setup: Setup,
    conditions: Conditions,
) -> Batch:
    """Label a batch; the first of the parties that take part asks.

    Args:
        queries: Shape (Q, features).
        cluster: Where the parties are.
        among: The parties that take part, as long as none is lost.
        setup: The parties with their rows.
        conditions: How it is played.

    Raises:
        RunFailed: If the last attempt failed.
    """
    clock, journal = asyncio.get_running_loop().time, conditions.journal
    # A ring that was drawn is told from the session's name, which is in the traces.
    trace: bool | Journal = bool(conditions.watch) if journal is None else journal
    played: list[Play] = []

    def options(alive: tuple[str, ...]) -> dict[str, Any]:
        if journal is not None:
            journal.note(_left_out(set(setup.parties).difference(alive), clock(), journal))
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
        failed.append(_attempt([done.party for done in outcomes], seen, named, conditions.deal))
    answer = run.results[_first_honest(play.learners, conditions.adversaries)]
    return Batch(
        queries=queries,
        run=run,
        answer=answer,
        labels=play.labels(answer),
        forecast=play.forecast(run),
        seen=_attempt(run.results, views, sessions, conditions.deal),
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


def _left_out(parties: Iterable[str], now: float, journal: Journal) -> Iterator[Mark]:
    for party in sorted(parties):
        yield Mark(now - (journal.origin or 0.0), party, "left out: the others ask again")


def _first_honest(learners: Sequence[str], liars: Mapping[str, object]) -> str:
    """Return whose answer counts: what a malicious party says it learned is only its word."""
    return next((party for party in learners if party not in liars), learners[0])


def _attempt(
    parties: Iterable[str], views: Mapping[str, View], sessions: Iterable[str], deal: Deal
) -> Attempt:
    parties = Parties(parties)
    session = next(iter(sessions), None)
    ring = deal(parties)
    if ring is None and session is not None:
        ring = _drawn_ring(parties, views, bytes.fromhex(session))
    return Attempt(ring, views)


def _drawn_ring(parties: Parties, views: Mapping[str, View], session: bytes) -> Ring | None:
    """Return the ring as the watched parties know it: from the nonces that all revealed."""
    nonces: dict[str, bytes] = {}
    for member, view in views.items():
        said = ((member, seen.message) for seen in view.sent)
        heard = ((seen.sender, seen.message) for seen in view.received)
        for sender, message in (*said, *heard):
            if isinstance(message, RingReveal):
                nonces[sender] = message.nonce
    complete = nonces.keys() >= set(committee_for(parties, session))
    return ring_of(parties, session, nonces) if complete else None
