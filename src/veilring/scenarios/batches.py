"""Batches of queries: the conditions under which they are played, and their results."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from veilring.arrays import Floats, Ints
from veilring.nodes.adversary import Adversary
from veilring.nodes.journal import Cost, Journal, View
from veilring.nodes.party import Parties
from veilring.nodes.ring import Ring, RingReveal, committee_for, ring_of
from veilring.nodes.run import Run
from veilring.protocols.membership import PublicModel
from veilring.protocols.promise import Forecast
from veilring.protocols.system import Setup

Deal = Callable[[tuple[str, ...]], Ring | None]
"""Returns the ring of the parties that take part, or none if they draw it themselves."""

Progress = Callable[[str, int, int], None]
"""A callback with the current step, the amount done, and the total amount."""


def drawn_by_parties(_parties: tuple[str, ...]) -> Ring | None:
    """Let the parties draw the ring."""
    return None


def ignore_progress(doing: str, done: int, total: int) -> None:
    """Ignore all progress."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions under which batches are played.

    Attributes:
        retries: The number of retries of a batch without lost parties.
        session_seconds: The time limit of one attempt; by default the runtime's.
        deal: A function that deals the ring, if the parties do not draw it.
        journal: The journal of messages, if they are recorded.
    """

    retries: int = 0
    session_seconds: float | None = None
    watch: tuple[str, ...] = ()
    adversaries: Mapping[str, Adversary] = field(default_factory=dict)
    deal: Deal = drawn_by_parties
    journal: Journal | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """The views of the watched parties in one attempt at a batch.

    Attributes:
        ring: The order of the parties; `None` if no watched party learned it.
        views: The view of each watched party, by name; that of a lost party may be missing.
    """

    ring: Ring | None
    views: Mapping[str, View]

    @classmethod
    def of(
        cls, parties: Iterable[str], views: Mapping[str, View], sessions: Iterable[str], deal: Deal
    ) -> Self:
        """Return the views of an attempt, with the ring as far as the views reveal it.

        Args:
            sessions: The session names of the attempt, one for each party; none if not traced.
            deal: The function that dealt the ring, if there was one.
        """
        parties = Parties(parties)
        session = next(iter(sessions), None)
        ring = deal(parties)
        if ring is None and session is not None:
            ring = _drawn_ring(parties, views, bytes.fromhex(session))
        return cls(ring, views)


@dataclass(frozen=True, slots=True)
class Batch:
    """A labelled batch.

    Attributes:
        queries: The queries, shape (Q, features).
    """

    queries: Floats
    run: Run[Any]
    answer: Any
    labels: Ints
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
        batches: The batches, at least one.
        seconds: Wall-clock time from the start of the first batch to the end of the last.
    """

    batches: tuple[Batch, ...]
    seconds: float
    start_seconds: float

    @property
    def labels(self) -> Ints:
        """The class of each query, as learned by the first honest party."""
        return np.concatenate([batch.labels for batch in self.batches])

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


def _drawn_ring(parties: Parties, views: Mapping[str, View], session: bytes) -> Ring | None:
    """Return the ring known to the watched parties, from the nonces that all revealed."""
    nonces: dict[str, bytes] = {}
    for member, view in views.items():
        said = ((member, seen.message) for seen in view.sent)
        heard = ((seen.sender, seen.message) for seen in view.received)
        for sender, message in (*said, *heard):
            if isinstance(message, RingReveal):
                nonces[sender] = message.nonce
    complete = nonces.keys() >= set(committee_for(parties, session))
    return ring_of(parties, session, nonces) if complete else None
