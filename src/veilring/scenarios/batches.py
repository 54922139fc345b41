"""Labelling a scenario's queries batch by batch, if need be without parties that were lost."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilring.nodes.cluster import Cluster, run_with_retries
from veilring.nodes.cost import Cost
from veilring.nodes.party import Parties
from veilring.nodes.ring import Ring, RingReveal, committee_for, ring_of
from veilring.nodes.run import Run
from veilring.nodes.trace import Journal, Mark
from veilring.nodes.transcript import View
from veilring.protocols.forecast import Forecast
from veilring.protocols.system import Play
from veilring.scenarios.prepare import Prepared
from veilring.scenarios.schema import RunSection
from veilring.simulation.faults import Fault

Deal = Callable[[tuple[str, ...]], Ring | None]
"""Gives the ring of those that take part, or none if they draw it themselves."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a coalition saw of one attempt at a batch.

    Attributes:
        ring: The order of the parties; `None` if no member came to know it.
        views: What each member saw, by its name; of one that was lost it may be missing.
    """

    ring: Ring | None
    views: Mapping[str, View]


@dataclass(frozen=True, slots=True)
class Batch:
    """What came of a batch.

    Attributes:
        queries: What was asked, shape (Q, features).
        run: The attempt that succeeded.
        answer: The result of the first honest party that learns the labels.
        labels: The class numbers of the queries, from that result.
        forecast: The closed form of the cost of that attempt.
        seen: What the coalition saw of that attempt.
        failed: What it saw of those that failed before.
        wasted: What those cost.
        seconds: How long all attempts took, on the cluster's clock.
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
        """Who took part in the attempt that succeeded."""
        return tuple(self.run.results)


@dataclass(frozen=True, slots=True)
class Labelled:
    """What came of all batches.

    Attributes:
        batches: At least one.
        struck: The faults that had an effect.
        seconds: Wall time from the first batch's start to the last one's end.
        start_seconds: Wall time to bring the parties up and connect them.
    """

    batches: tuple[Batch, ...]
    struck: tuple[Fault, ...]
    seconds: float
    start_seconds: float

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of each query, as the first honest party learned it."""
        return np.concatenate([batch.labels for batch in self.batches])

    @property
    def transcript(self) -> str:
        """A hash over all messages of the attempts that succeeded."""
        lines = "".join(f"{batch.run.transcript}\n" for batch in self.batches)
        return hashlib.sha256(lines.encode()).hexdigest()


async def label_batch(  # noqa: PLR0917  (a batch, where to run it, and how)
    queries: NDArray[np.float64],
    cluster: Cluster,
    among: tuple[str, ...],
    prepared: Prepared,
    section: RunSection,
    deal: Deal,
    journal: Journal | None,
) -> Batch:
    """Label a batch; the first of those that take part asks.

    Args:
        queries: Shape (Q, features).
        cluster: Where the parties are.
        among: Who takes part, as long as nobody is lost.
        prepared: The parameters, the coalition, and who is malicious.
        section: How often and how long to try.
        deal: Who deals the ring, if anybody does.
        journal: Where to record which messages pass when.

    Raises:
        RunFailed: If the last attempt failed.
    """
    clock = asyncio.get_running_loop().time
    # A ring that was drawn is told from the session's name, which is in the traces.
    trace: bool | Journal = bool(prepared.coalition) if journal is None else journal
    played: list[Play] = []

    def options(alive: tuple[str, ...]) -> dict[str, Any]:
        if journal is not None:
            journal.note(_left_out(set(prepared.parties).difference(alive), clock(), journal))
        played.append(prepared.setup.play(queries, among=alive, ring=deal(alive)))
        play = played[-1]
        return {
            "only": play.only,
            **play.public,
            "watch": [p for p in {*prepared.coalition, *play.watch} if p in alive],
            "adversaries": {p: who for p, who in prepared.adversaries.items() if p in alive},
        }

    started = clock()
    retried = await run_with_retries(
        cluster,
        prepared.setup.role,
        attempts=section.retries + 1,
        among=among,
        for_those=options,
        seconds=section.session_seconds,
        trace=trace,
    )
    ended, run = clock(), retried.run
    sessions = {trace.session for trace in run.traces}
    failed = []
    for outcomes in retried.failed:
        views = {done.party: done.view for done in outcomes if done.view is not None}
        named = {done.trace.session for done in outcomes if done.trace is not None}
        failed.append(_attempt([done.party for done in outcomes], views, named, deal))
    play, colluding = played[-1], set(prepared.coalition)
    views = {party: view for party, view in run.views.items() if party in colluding}
    answer = run.results[_first_honest(play.learners, prepared)]
    return Batch(
        queries=queries,
        run=run,
        answer=answer,
        labels=play.labels(answer),
        forecast=play.forecast(run),
        seen=_attempt(run.results, views, sessions, deal),
        failed=tuple(failed),
        wasted=retried.wasted,
        seconds=ended - started,
    )


def _left_out(parties: Iterable[str], now: float, journal: Journal) -> Iterator[Mark]:
    for party in sorted(parties):
        yield Mark(now - (journal.origin or 0.0), party, "left out: the others ask again")


def _first_honest(learners: Sequence[str], prepared: Prepared) -> str:
    """Return whose answer counts: what a malicious party says it learned is only its word."""
    honest = (party for party in learners if party not in prepared.adversaries)
    return next(honest, learners[0])


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
    """Return the ring as the members know it: from the nonces that all revealed."""
    nonces: dict[str, bytes] = {}
    for member, view in views.items():
        said = ((member, seen.message) for seen in view.sent)
        heard = ((seen.sender, seen.message) for seen in view.received)
        for sender, message in (*said, *heard):
            if isinstance(message, RingReveal):
                nonces[sender] = message.nonce
    complete = nonces.keys() >= set(committee_for(parties, session))
    return ring_of(parties, session, nonces) if complete else None
