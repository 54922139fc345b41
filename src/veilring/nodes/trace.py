"""Traces: the messages and events of a run with their times, never content."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from veilring.nodes.transcript import Event, Observer
from veilring.transport.frames import frame_size


class Passed(NamedTuple):
    """A message at one end of its channel."""

    seconds: float
    """The time at which the party's role sent it, or took it out of the channel."""
    sent: bool
    peer: str
    round: int
    """The round of the party."""
    kind: str
    bytes: int
    """The size of its frame, prefix included."""
    number: int
    """Its number among all messages of the channel in this direction, from 0."""


class TracedMessage(NamedTuple):
    """A message from end to end. Seconds count from the start of the journal."""

    sender: str
    receiver: str
    sent_seconds: float | None
    """`None` if the sender's record is lost: its process died."""
    received_seconds: float | None
    """`None` if the receiver's role never took it out of the channel, or its record is lost."""
    round: int
    """The round of its sender, or of the receiver if the sender's record is lost."""
    kind: str
    bytes: int
    """The size of its frame, prefix included."""
    number: int
    """Its number among all messages from the sender to the receiver in this session, from 0."""
    session: str
    """The public name of the session, in hexadecimal digits."""

    @property
    def seconds(self) -> float:
        """The time when it was first seen at either end."""
        return min(s for s in (self.sent_seconds, self.received_seconds) if s is not None)


class Mark(NamedTuple):
    """An event at a party.

    Text before a colon is the kind of event, as in `lost: it crashed`. Marks of the kinds
    `adversary` and `coalition` mean that the party is corrupted.
    """

    seconds: float
    party: str
    what: str
    until: float | None = None
    """The end of a fault; `None` if it never ended, and for marks without a duration."""
    waits: tuple[str, ...] = ()
    """The messages that the party awaited when its role ended, such as `ring.commit from bob`."""

    @property
    def kind(self) -> str:
        """The text before the first colon, or the whole text."""
        return self.what.partition(":")[0]


@dataclass(slots=True)
class Trace:
    """The messages that passed one party's channels in one session; picklable.

    Args:
        party: The name of the party.
        session: The public name of the session, in hexadecimal digits.
        since: The origin of times, in seconds on the party's clock.

    Attributes:
        passed: All messages, in order.
    """

    party: str
    session: str
    since: float
    passed: list[Passed] = field(default_factory=list)

    def observer(self, clock: Callable[[], float]) -> Observer:
        """Return an observer that records messages, with a clock in seconds."""
        numbers: Counter[tuple[bool, str]] = Counter()
        record, since = self.passed.append, self.since

        def observe(event: Event) -> None:
            sent, peer, kind = event.sent, event.peer, event.message.kind
            number, size = numbers[sent, peer], frame_size(event.frame)
            numbers[sent, peer] = number + 1
            record(Passed(clock() - since, sent, peer, event.round, kind, size, number))

        return observe


@dataclass(slots=True)
class Journal:
    """The events of one run or of several, sequential or concurrent.

    It is filled even if a run fails.

    Attributes:
        messages: All messages, those of a run in order of time.
        marks: The events at parties. Callers may add their own.
        origin: The origin of times, in seconds on the clock of the runs; by default the start of
            the first run.
    """

    messages: list[TracedMessage] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    origin: float | None = None

    def start(self, now: float) -> float:
        """Return the origin of times: now, if nothing was run before."""
        if self.origin is None:
            self.origin = now
        return self.origin

    def note(self, states: Iterable[Mark]) -> None:
        """Add marks of lasting states, each once per party."""
        known = {(mark.party, mark.what) for mark in self.marks}
        self.marks += [mark for mark in states if (mark.party, mark.what) not in known]

    def add(self, traces: Iterable[Trace], faults: Iterable[Mark] = ()) -> None:
        """Add the events of one run.

        Args:
            faults: The faults so far, in seconds on the clock of the runs. Those added before are
                skipped.
        """
        self.messages += join_traces(traces)
        for fault in faults:
            origin = self.origin or 0.0
            until = None if fault.until is None else fault.until - origin
            mark = fault._replace(seconds=fault.seconds - origin, until=until)
            if mark not in self.marks:
                self.marks.append(mark)


class _Place(NamedTuple):
    """The facts that both ends of a channel know about a message that passed unchanged."""

    session: str
    sender: str
    receiver: str
    number: int
    kind: str
    bytes: int


def join_traces(traces: Iterable[Trace]) -> list[TracedMessage]:
    """Join the traces of all parties into one table of messages, in order of time.

    Records of the two ends belong together if number, kind and size agree. A message that was
    changed or dropped on the way may have two rows: one that was never received, and one without a
    known sending.
    """
    sendings: dict[_Place, Passed] = {}
    arrivals: dict[_Place, Passed] = {}
    for trace in traces:
        for passed in trace.passed:
            ends = (trace.party, passed.peer) if passed.sent else (passed.peer, trace.party)
            place = _Place(trace.session, *ends, passed.number, passed.kind, passed.bytes)
            (sendings if passed.sent else arrivals)[place] = passed
    places = sendings | arrivals
    joined = (_joined(place, sendings.get(place), arrivals.get(place)) for place in places)
    return sorted(joined, key=lambda m: (m.seconds, m.session, m.sender, m.receiver, m.number))


def _joined(place: _Place, sending: Passed | None, arrival: Passed | None) -> TracedMessage:
    first, *_ = (end for end in (sending, arrival) if end is not None)
    return TracedMessage(
        sender=place.sender,
        receiver=place.receiver,
        sent_seconds=None if sending is None else sending.seconds,
        received_seconds=None if arrival is None else arrival.seconds,
        round=first.round,
        kind=place.kind,
        bytes=place.bytes,
        number=place.number,
        session=place.session,
    )
