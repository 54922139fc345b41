"""The steps of a run: after each event, the messages in flight and the state of each party.

An event is a sending, a receipt, a loss, a fault that strikes or is over, or a mark of a party. All
states are computed here; the page only looks up the states at a step.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, get_args

from veilring.nodes.journal import SETUP_ROUND, Mark, TracedMessage
from veilring.nodes.run import Failure
from veilring.scenarios.reporting.charts import CORRUPT, STYLES, lane_order
from veilring.simulation.faults import FAULT_KINDS, State

# Some 150 bytes of the page each; nobody steps through more by hand.
MESSAGES_MAX: Final = 2000
# More lanes do not fit on a screen, and a page of that many rows shows nothing at a glance.
PARTIES_MAX: Final = 64

_FAULT: Final = "fault"
_STATES: Final[tuple[State, ...]] = get_args(State)
# The state of a party whose role ended with an error, by the kind of its mark.
_ENDED: Final = {"lost": "lost", "failed": "failed", "stopped": "stopped", "left out": "left out"}


class Step(NamedTuple):
    """An event and its time."""

    seconds: float
    what: str
    """`start`, `sent`, `received`, `lost`, `fault`, `over`, `mark` or `end`."""
    text: str
    parties: tuple[int, ...] = ()
    """The positions of the parties concerned; for a message, its sender and its receiver."""
    message: int | None = None
    """The position of the message in `Story.flights`."""


class Flight(NamedTuple):
    """A message, in flight from one step until another: at step s if `first` <= s < `last`."""

    sender: int
    receiver: int
    kind: int
    round: int
    bytes: int
    sent_seconds: float | None
    """`None` if nobody recorded its sending."""
    first: int
    last: int
    received: bool
    """Whether the message was received; otherwise it was lost at its last step."""


class Spell(NamedTuple):
    """A fault that had an effect: it holds at step s if `first` <= s < `last`."""

    text: str
    parties: tuple[int, ...]
    first: int
    last: int | None
    """`None` if it lasts until the end."""


class Moment(NamedTuple):
    """The state of a party from a step on."""

    step: int
    state: str
    """`running`, `done`, or the name of its problem."""
    round: int
    """The latest round of the messages that it has sent or received, in its session."""
    received: int | None = None
    """The message that it received last."""
    awaited: int | None = None
    """The message that it is waiting for, if that is its next event."""
    waits: tuple[str, ...] = ()
    """Messages that it waited for when its role ended, if it receives none of them."""


class Story(NamedTuple):
    """The data that a page needs to step through a run; positions count from 0.

    The tuples are kept short, because the page contains all of them.
    """

    parties: tuple[str, ...]
    """In the order of their lanes."""
    corrupt: tuple[int, ...]
    """The parties in an adversary's hands."""
    kinds: tuple[str, ...]
    styles: int
    """The number of styles that kinds of messages have in the style sheet, in turn."""
    steps: tuple[Step, ...]
    flights: tuple[Flight, ...]
    spells: tuple[Spell, ...]
    moments: tuple[tuple[Moment, ...], ...]
    """For each party, in order of steps; the first is of step 0."""
    opening: int
    """The step to begin with: that of the first trouble, if there is any."""
    omitted: int
    """The number of messages that were over before the first step."""


def build_story(
    messages: Sequence[TracedMessage],
    marks: Sequence[Mark],
    parties: Sequence[str],
    failure: Failure | None = None,
    *,
    most: int = MESSAGES_MAX,
) -> Story | None:
    """Return the steps of a run; `None` if it has none, or more than `PARTIES_MAX` parties.

    The record lacks the end of a message that was never received. It counts as lost when the
    connection breaks, or when its receiver is down or its receiver's role has ended; otherwise when
    the last message of its session passes.

    Args:
        most: The limit on messages. Of more, the last are kept.
    """
    if not (messages or marks) or len(parties) > PARTIES_MAX:
        return None
    return _shortened(_StoryBuilder(messages, marks, parties, failure).story(), most)


class _Spell(NamedTuple):
    """A fault before steps are numbered."""

    kind: str
    names: tuple[str, ...]
    start: float
    end: float | None

    @property
    def text(self) -> str:
        known = FAULT_KINDS.get(self.kind)  # a file may contain any word
        if known is None or len(self.names) < len(known.keys):
            return f"{self.kind} of {', '.join(self.names)}"
        return known.sentence(self.names)

    @property
    def state(self) -> State | None:
        known = FAULT_KINDS.get(self.kind)
        return None if known is None else known.state

    def loses(self, message: TracedMessage) -> bool:
        """Return whether it would lose a message that is in flight."""
        known = FAULT_KINDS.get(self.kind)
        if known is not None and known.breaks_connection:
            return {message.sender, message.receiver} <= {*self.names}
        return self.state == "crashed" and message.receiver in self.names


class _Event(NamedTuple):
    """An event before steps are numbered; sorted by time, and by causes within an instant."""

    seconds: float
    phase: int
    round: int
    order: int
    what: str
    place: int
    """The position of the message, fault or mark concerned."""


# Within an instant: what is over; what strikes; what comes from before; what is sent, and arrives
# without taking time; what is lost; what is marked.
_OVER, _STRIKES, _ARRIVES, _PASSES, _LOST, _MARKED = range(6)


class _StoryBuilder:
    """A builder of the steps from the events of a run."""

    def __init__(
        self,
        messages: Sequence[TracedMessage],
        marks: Sequence[Mark],
        parties: Sequence[str],
        failure: Failure | None,
    ) -> None:
        self.messages, self.failure = messages, failure
        self.names = tuple(lane_order(messages, parties))
        self.place = {name: place for place, name in enumerate(self.names)}
        known = [mark for mark in marks if mark.party in self.place]
        self.spells = _spells(mark for mark in known if mark.kind == _FAULT)
        self.marks = [mark for mark in known if mark.kind not in {_FAULT, *CORRUPT}]
        self.corrupt = tuple(
            sorted({self.place[mark.party] for mark in known if mark.kind in CORRUPT})
        )
        self.kinds = tuple(dict.fromkeys(message.kind for message in messages))
        self.losses = _losses(messages, self.spells, self.marks)

    def story(self) -> Story:
        """Return the steps of all messages."""
        events = sorted(self._events())
        at = {(e.what, e.place): step for step, e in enumerate(events, start=1)}
        steps = [Step(0.0, "start", "Nothing has happened yet."), *map(self._step, events)]
        if self.failure is not None:
            steps.append(self._end(self.failure, steps[-1].seconds))
        spells = tuple(
            Spell(
                spell.text,
                tuple(self.place[name] for name in spell.names),
                at["fault", place],
                at.get(("over", place)),
            )
            for place, spell in enumerate(self.spells)
        )
        trouble = (step for step, e in enumerate(steps) if e.what in {"fault", "lost", "mark"})
        return Story(
            parties=self.names,
            corrupt=self.corrupt,
            kinds=self.kinds,
            styles=STYLES,
            steps=tuple(steps),
            flights=tuple(self._flight(place, at) for place in range(len(self.messages))),
            spells=spells,
            moments=self._moments(events),
            opening=next(trouble, 0 if self.failure is None else len(steps) - 1),
            omitted=0,
        )

    def _events(self) -> Iterator[_Event]:
        for place, m in enumerate(self.messages):
            sent, received = m.sent_seconds, m.received_seconds
            if sent is not None:
                yield _Event(sent, _PASSES, m.round, 0, "sent", place)
            if received is not None:
                at_once = sent is not None and received <= sent
                phase, now = (_PASSES, sent) if at_once else (_ARRIVES, received)
                yield _Event(now or 0.0, phase, m.round, 1, "received", place)
            else:
                yield _Event(self.losses[place], _LOST, m.round, 0, "lost", place)
        for place, spell in enumerate(self.spells):
            yield _Event(spell.start, _STRIKES, 0, 0, "fault", place)
            if spell.end is not None:
                yield _Event(spell.end, _OVER, 0, 0, "over", place)
        for place, mark in enumerate(self.marks):
            yield _Event(mark.seconds, _MARKED, 0, 0, "mark", place)

    def _step(self, event: _Event) -> Step:
        seconds, what, place = event.seconds, event.what, event.place
        if what == "mark":
            mark = self.marks[place]
            return Step(seconds, what, f"{mark.party}: {mark.what}", (self.place[mark.party],))
        if what in {"fault", "over"}:
            spell = self.spells[place]
            struck = tuple(self.place[name] for name in spell.names)
            text = f"Fault: {spell.text} ({spell.kind})"
            if what == "over":
                text = f"The fault {spell.kind} of {', '.join(spell.names)} is over"
            return Step(seconds, what, text, struck)
        message = self.messages[place]
        one, other = message.sender, message.receiver
        text = {
            "sent": f"{one} sends {message.kind} to {other}",
            "received": f"{other} receives {message.kind} from {one}",
            "lost": f"{other} never receives {message.kind} from {one}",
        }[what]
        return Step(seconds, what, text, (self.place[one], self.place[other]), place)

    def _end(self, failure: Failure, seconds: float) -> Step:
        blamed = (self.place[failure.culprit],) if failure.culprit in self.place else ()
        return Step(seconds, "end", f"The run fails: {failure.message}", blamed)

    def _flight(self, place: int, at: Mapping[tuple[str, int], int]) -> Flight:
        m = self.messages[place]
        received = m.received_seconds is not None
        last = at["received" if received else "lost", place]
        return Flight(
            sender=self.place[m.sender],
            receiver=self.place[m.receiver],
            kind=self.kinds.index(m.kind),
            round=m.round,
            bytes=m.bytes,
            sent_seconds=m.sent_seconds,
            first=at.get(("sent", place), last),
            last=last,
            received=received,
        )

    def _moments(self, events: Sequence[_Event]) -> tuple[tuple[Moment, ...], ...]:
        """Return each party's states, from its own events and the starts of its sessions."""
        turns: list[list[_Turn]] = [[] for _ in self.names]
        begun: dict[str, int] = {}
        joined = set[tuple[int, str]]()
        for step, event in enumerate(events, start=1):
            session = self._session(event)
            start = begun.setdefault(session, step)
            for party in self._stands_of(event):
                if session and (party, session) not in joined:
                    joined.add((party, session))
                    turns[party].append(_Turn(start, 0, session, None))
                turns[party].append(_Turn(step, 1, session, event))
        return tuple(tuple(self._stand(sorted(own, key=_Turn.when))) for own in turns)

    def _session(self, event: _Event) -> str:
        is_message = event.what in {"sent", "received"}
        return self.messages[event.place].session if is_message else ""

    def _stands_of(self, event: _Event) -> tuple[int, ...]:
        """Return the parties whose state an event changes."""
        match event.what:
            case "sent":
                return (self.place[self.messages[event.place].sender],)
            case "received":
                return (self.place[self.messages[event.place].receiver],)
            case "mark":
                return (self.place[self.marks[event.place].party],)
            case "fault" | "over":
                return tuple(self.place[name] for name in self.spells[event.place].names)
        return ()

    def _stand(self, turns: Sequence["_Turn"]) -> Iterator[Moment]:
        """Yield the state of a party after each change."""
        standing = _Standing()
        last = Moment(0, "running", SETUP_ROUND)
        yield last
        for turn, ahead in zip(turns, self._ahead(turns), strict=True):
            self._take(turn, standing)
            moment = self._moment(turn.step, standing, ahead)
            if moment._replace(step=last.step) != last:
                yield moment
                last = moment

    def _ahead(self, turns: Sequence["_Turn"]) -> list["_Turn | None"]:
        """Return, for each turn, the next one that determines what the party is waiting for."""
        ahead: list[_Turn | None] = []
        following: _Turn | None = None
        for turn in reversed(turns):
            ahead.append(following)
            event = turn.event
            ends = event is not None and event.what == "mark" and self._end_of(event) is not None
            following = turn if turn.session or ends else following
        return ahead[::-1]

    def _end_of(self, event: _Event) -> str | None:
        return _ENDED.get(self.marks[event.place].kind)

    def _take(self, turn: "_Turn", standing: "_Standing") -> None:
        """Update a party's state after an event."""
        if turn.session and turn.session != standing.session:
            standing.session, standing.ended, standing.round = turn.session, "", SETUP_ROUND
        if (event := turn.event) is None:
            return
        match event.what:
            case "fault":
                standing.faults[event.place] = self.spells[event.place].state
            case "over":
                if standing.faults.pop(event.place) == "crashed":
                    standing.ended = "back"
            case "mark":
                standing.ended = self._end_of(event) or standing.ended
            case "sent" | "received":
                standing.round = max(standing.round, event.round)
                if event.what == "received":
                    standing.received = event.place

    def _moment(self, step: int, standing: "_Standing", ahead: "_Turn | None") -> Moment:
        moment = Moment(step, standing.trouble or "running", standing.round, standing.received)
        if standing.is_out:
            return moment
        if ahead is None or ahead.event is None:
            is_done = standing.session and not standing.trouble
            return moment._replace(state="done") if is_done else moment
        if ahead.event.what == "mark":
            return moment._replace(waits=self.marks[ahead.event.place].waits)
        return moment._replace(
            awaited=ahead.event.place if ahead.event.what == "received" else None
        )


class _Turn(NamedTuple):
    """An event of a party, or the start of a session that it takes part in."""

    step: int
    order: int
    session: str
    event: _Event | None

    def when(self) -> tuple[int, int]:
        return self.step, self.order


@dataclass(slots=True)
class _Standing:
    """The state of a party while its events are processed."""

    session: str = ""
    ended: str = ""
    round: int = SETUP_ROUND
    received: int | None = None
    faults: dict[int, State | None] = field(default_factory=dict)
    """Its states under the faults that strike it now."""

    @property
    def is_out(self) -> bool:
        """Whether the party can do nothing, because it is down or its role has ended."""
        return bool(self.ended) or "crashed" in self.faults.values()

    @property
    def trouble(self) -> str:
        """The most severe trouble of the party; empty without any."""
        worst = next((state for state in _STATES if state in self.faults.values()), "")
        return worst if worst == "crashed" else self.ended or worst


def _spells(marks: Iterable[Mark]) -> list[_Spell]:
    """Return the faults in the marks: each fault has one mark for each party that it strikes."""
    struck: dict[tuple[str, float, float | None], dict[str, None]] = {}  # names in order
    for mark in marks:
        struck.setdefault((mark.what, mark.seconds, mark.until), {})[mark.party] = None
    return [
        _Spell(what.removeprefix(f"{_FAULT}:").strip(), tuple(names), start, end)
        for (what, start, end), names in struck.items()
    ]


def _losses(
    messages: Sequence[TracedMessage], spells: Sequence[_Spell], marks: Sequence[Mark]
) -> dict[int, float]:
    """Return the time of loss of each message that was never received: see `build_story`."""
    begun: dict[str, float] = {}
    over: dict[str, float] = {}
    for message in messages:
        ends = [s for s in (message.sent_seconds, message.received_seconds) if s is not None]
        begun.setdefault(message.session, min(ends))
        over[message.session] = max(over.get(message.session, 0.0), *ends)
    starts = sorted(begun.values())
    ended = [mark for mark in marks if mark.kind in _ENDED]
    losses = {}
    for place, message in enumerate(messages):
        if message.received_seconds is None:
            sent = message.seconds
            following = bisect_right(starts, sent)
            before = starts[following] if following < len(starts) else math.inf
            own = (m.seconds for m in ended if m.party == message.receiver)
            stops = (seconds for seconds in own if sent <= seconds <= before)
            instants = [*_breaks(message, spells), *stops]
            losses[place] = min(instants, default=over[message.session])
    return losses


def _breaks(message: TracedMessage, spells: Iterable[_Spell]) -> Iterator[float]:
    """Yield the times at which faults would have lost a message in flight since it was sent."""
    for spell in spells:
        if spell.loses(message) and (spell.end is None or message.seconds < spell.end):
            yield max(message.seconds, spell.start)


def _shortened(story: Story, most: int) -> Story:
    """Return the last part of a story; its first step combines all earlier ones."""
    lasts = sorted(flight.last for flight in story.flights)
    omitted = max(0, len(lasts) - most)
    if not omitted:
        return story
    cut = lasts[omitted - 1]
    firsts = [
        bisect_right(moments, cut, key=lambda moment: moment.step) - 1 for moments in story.moments
    ]
    known = {moments[first].received for moments, first in zip(story.moments, firsts, strict=True)}
    kept = [p for p, flight in enumerate(story.flights) if flight.last > cut or p in known]
    position = {place: new for new, place in enumerate(kept)}

    def moved(step: int) -> int:
        return max(0, step - cut)

    def still(place: int | None) -> int | None:
        return None if place is None else position.get(place)

    def later(moments: Sequence[Moment]) -> tuple[Moment, ...]:
        return tuple(
            moment._replace(
                step=moved(moment.step),
                received=still(moment.received),
                awaited=still(moment.awaited),
            )
            for moment in moments
        )

    start = Step(story.steps[cut].seconds, "start", f"{omitted:,} earlier messages are left out.")
    after = (step._replace(message=still(step.message)) for step in story.steps[cut + 1 :])
    return story._replace(
        steps=(start, *after),
        flights=tuple(
            story.flights[place]._replace(
                first=moved(story.flights[place].first), last=moved(story.flights[place].last)
            )
            for place in kept
        ),
        spells=tuple(
            spell._replace(first=moved(spell.first), last=spell.last and moved(spell.last))
            for spell in story.spells
            if spell.last is None or spell.last > cut
        ),
        moments=tuple(
            later(moments[first:]) for moments, first in zip(story.moments, firsts, strict=True)
        ),
        opening=moved(story.opening),
        omitted=omitted,
    )
