"""Tests of a promise: pairs of worlds, arguments for claims, and the views of a coalition.

A comparison states a system's promise for two inputs: that observers cannot distinguish them at
all, that no event is more than e^ε times as likely with one as with the other, or that nothing
bounds the difference. An audit plays both worlds many times and measures the difference.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final, NamedTuple, Self

import numpy as np

from veilring.arrays import Floats, Ints
from veilring.data.columns import Target
from veilring.data.table import Rows
from veilring.nodes.journal import Cost, View
from veilring.nodes.party import Parties
from veilring.nodes.ring import Ring, RingReveal, committee_for, ring_of
from veilring.nodes.run import Run
from veilring.protocols.promise import Forecast
from veilring.randomness import Streams

EXAMPLE_PARTIES: Final = 3
"""Parties of an example: some pool their views, and two others are left to be told apart."""
_ROWS_EACH: Final = 3
_FAR: Final = 0.3
"""Rows of an example lie below this in each feature, except one, at the query."""
_NEAR: Final = 0.9
COMPARED_TARGET: Final = Target(low=0.0, high=100.0, resolution=1.0)
"""The range of the labels of an example that are numbers."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Example:
    """Rows and queries that an audit runs a system on.

    Attributes:
        parts: The rows of each party, by its name.
        queries: The queries of one batch, shape (queries, features), in [0, 1].
        target: The range of the labels, if they are numbers.
    """

    parts: Mapping[str, Rows]
    queries: Floats
    target: Target | None = None

    @property
    def rows(self) -> int:
        """The number of rows of all parties together."""
        return sum(map(len, self.parts.values()))

    def holding(self, party: str, rows: Rows) -> "Example":
        """Return the world in which a party holds other rows."""
        return replace(self, parts={**self.parts, party: rows})

    def led_by(self, parties: tuple[str, ...]) -> "Example":
        """Return the world in which these parties hold the rows of the first ones.

        The other parties hold the other rows, in order.
        """
        order = (*parties, *(name for name in self.parts if name not in parties))
        rows = dict(zip(order, self.parts.values(), strict=True))
        return replace(self, parts={name: rows[name] for name in self.parts})

    def uneven(self) -> "Example":
        """Return the world with ties, a party with one row, and a party without any.

        The first party keeps its first row, and of three or more parties the second keeps none. The
        last party has as many more rows, and all of its rows have the features of its first one.
        """
        parts = dict(self.parts)
        first, *others, last = parts
        labels = [parts[last].labels]
        for party, size in ((first, 1), *((party, 0) for party in others[:1])):
            rows = parts[party]
            labels.append(rows.labels[size:])
            parts[party] = Rows(rows.features[:size], rows.labels[:size])
        all_labels = np.concatenate(labels)
        tied = np.repeat(parts[last].features[:1], len(all_labels), axis=0)
        parts[last] = Rows(tied, all_labels)
        return replace(self, parts=parts)

    def asking(self, queries: Floats) -> "Example":
        """Return the world in which other queries are asked."""
        return replace(self, queries=queries)

    def predicting(self, target: Target) -> "Example":
        """Return the world whose labels are numbers: those of class 1 are the highest, others 0."""
        parts = {
            name: Rows(rows.features, rows.labels * target.steps)
            for name, rows in self.parts.items()
        }
        return replace(self, parts=parts, target=target)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """Two worlds, and how far observers may tell them apart.

    Attributes:
        difference: The difference between the worlds, as a noun phrase.
        epsilon: The bound on the privacy loss between the views; 0 where their
            distributions are equal, and infinite where the promise bounds nothing.
        delta: The probability that comes with it.
        long: The name of the comparison, if its views are so long that only a full audit compares
            them, with a quarter of the runs; otherwise empty.
    """

    difference: str
    one: Example
    other: Example
    epsilon: float
    delta: float = 0.0
    long: str = ""

    @property
    def is_bounded(self) -> bool:
        """Whether the promise bounds what is learned."""
        return self.epsilon < inf


class Argument(NamedTuple):
    """The reason for a claim that no run can test."""

    promised: str
    """The claim, as a sentence."""
    reason: str
    """The proof or the test that carries it, as one or two sentences."""


def make_example(parties: int = EXAMPLE_PARTIES) -> Example:
    """Return a small example: rows with two features and two classes, and one query.

    The last party holds a row at the query, and all other rows are far from it, so that this row
    decides the label. All rows of the last party have class 1; those of the others have both.

    Args:
        parties: The number of parties that hold rows, at least 2.
    """
    rng = np.random.default_rng(0)
    parts = {
        f"party-{number}": Rows(
            rng.uniform(0.0, _FAR, (_ROWS_EACH, 2)), (np.arange(_ROWS_EACH) + number) % 2
        )
        for number in range(parties)
    }
    last = f"party-{parties - 1}"
    parts[last].features[0], parts[last].labels[:] = _NEAR, 1
    return Example(parts, np.full((1, 2), _NEAR))


def exchange_rows(example: Example, *, epsilon: float = 0.0) -> Comparison:
    """Compare an example with the one in which the last two parties have exchanged their rows.

    Every function of the rows of all parties together is equal in both.
    """
    *_, one, other = example.parts
    parts = {**example.parts, one: example.parts[other], other: example.parts[one]}
    other_world = replace(example, parts=parts)
    return Comparison("which of two parties holds which rows", example, other_world, epsilon)


def remove_row(example: Example, *, epsilon: float, delta: float) -> Comparison:
    """Compare an example with the one in which the last party lacks its first row."""
    party, rows = list(example.parts.items())[-1]
    fewer = example.holding(party, Rows(rows.features[1:], rows.labels[1:]))
    return Comparison("the presence of a row", example, fewer, epsilon, delta)


def replace_row(example: Example, *, epsilon: float) -> Comparison:
    """Compare two worlds in which the only row of the last party differs in all its values."""
    party, rows = list(example.parts.items())[-1]
    alone = Rows(rows.features[:1], rows.labels[:1])
    opposite = Rows(1 - alone.features, 1 - alone.labels)
    one, other = (example.holding(party, each) for each in (alone, opposite))
    return Comparison("the row of a client", one, other, epsilon)


def replace_query(example: Example, *, epsilon: float) -> Comparison:
    """Compare an example with the one in which the opposite query is asked."""
    return Comparison("the query", example, example.asking(1 - example.queries), epsilon)


Deal = Callable[[tuple[str, ...]], Ring | None]
"""Returns the ring of the parties that take part, or none if they draw it themselves."""


def drawn_by_parties(_parties: tuple[str, ...]) -> Ring | None:
    """Let the parties draw the ring."""
    return None


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
        scores: The score of each class, shape (Q, classes); none if only labels are revealed.
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
    scores: Floats | None = None

    @property
    def parties(self) -> tuple[str, ...]:
        """The parties that took part in the attempt that succeeded."""
        return tuple(self.run.results)

    @property
    def others(self) -> tuple[str, ...]:
        """The parties that took part and whose views were not watched."""
        return tuple(party for party in self.parties if party not in self.seen.views)


@dataclass(frozen=True, slots=True)
class Coalition:
    """The parties that pool their views after a run, and the effort of their attacks.

    Attributes:
        liars: The malicious parties outside of the coalition, whose inputs are unknown.
        trials: The maximum number of runs that the coalition simulates; 0 for none.
    """

    members: tuple[str, ...]
    liars: Collection[str]
    trials: int
    streams: Streams


class SummaryLine(NamedTuple):
    """A line of a summary."""

    label: str
    value: str
    meaning: str


class FoundTable(NamedTuple):
    """A table of findings; its first column is a name, and the others are numbers."""

    title: str
    note: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Findings(ABC):
    """The findings of a semi-honest coalition, compared with the truth.

    A report stores them as JSON, so that the fields of a subclass are plain values and dataclasses.
    """

    members: tuple[str, ...]

    @abstractmethod
    def lines(self, *, retried: bool) -> Iterator[SummaryLine]:
        """Yield the lines of a summary.

        Args:
            retried: Whether an attempt at a batch failed and was repeated.
        """

    def table(self) -> FoundTable | None:
        """Return the details, if there are any."""
        return None

    def line_of_members(self) -> SummaryLine:
        """Return the line that names the members."""
        count = len(self.members)
        what = "it records its view" if count == 1 else "they pool their views"
        parties = "1 party" if count == 1 else f"{count:,} parties"
        return SummaryLine("coalition", parties, f"{', '.join(self.members)}: {what}")


def share_of(part: int, whole: int) -> str:
    """Format a part of a number."""
    return f"{part:,} of {whole:,}"


def expected_of(part: float, whole: int) -> str:
    """Format an expected part of a number, without decimals if it is whole."""
    return f"{f'{part:,.1f}'.removesuffix('.0')} of {whole:,}"


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
