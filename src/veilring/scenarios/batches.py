"""Batches of queries: the conditions under which they are played, and what a played one leaves."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from veilring.nodes.adversary import Adversary
from veilring.nodes.cost import Cost
from veilring.nodes.party import Parties
from veilring.nodes.ring import Ring, RingReveal, committee_for, ring_of
from veilring.nodes.run import Run
from veilring.nodes.trace import Journal
from veilring.nodes.transcript import View
from veilring.protocols.forecast import Forecast
from veilring.protocols.system import PublicModel, Setup

Deal = Callable[[tuple[str, ...]], Ring | None]
"""Returns the ring of the parties that take part, or none if they draw it themselves."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much."""


def drawn_by_parties(_parties: tuple[str, ...]) -> Ring | None:
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

    @classmethod
    def of(
        cls,
        parties: Iterable[str],
        views: Mapping[str, View],
        sessions: Iterable[str],
        deal: Deal,
    ) -> Self:
        """Return what was seen of an attempt, with the ring as far as the views show it.

        Args:
            parties: Those that took part.
            views: What the watched ones saw, by name.
            sessions: The names of the attempt's session, one of each party; none if not traced.
            deal: Deals the ring, if anybody did.
        """
        parties = Parties(parties)
        session = next(iter(sessions), None)
        ring = deal(parties)
        if ring is None and session is not None:
            ring = _drawn_ring(parties, views, bytes.fromhex(session))
        return cls(ring, views)


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

    def model_of(self, setup: Setup, *, seeded: bool) -> PublicModel | None:
        """Return the public model that the last batch left, if the system makes one.

        Args:
            setup: What was played.
            seeded: Whether a seed made all noise.
        """
        last = self.batches[-1]
        return setup.model(last.answer, last.parties, seeded=seeded)

    @property
    def transcript(self) -> str:
        """A hash over all messages of the attempts that succeeded."""
        lines = "".join(f"{batch.run.transcript}\n" for batch in self.batches)
        return hashlib.sha256(lines.encode()).hexdigest()


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
