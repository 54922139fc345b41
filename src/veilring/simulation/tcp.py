"""TCP over a simulated link: when bytes depart and arrive, with windows, lost segments and timers.

A sender may have a window of segments in flight. Acknowledged segments raise it: in slow start by
their number, later by one in each round trip (Reno, RFC 5681). A loss halves it, at most once in a
round trip. A lost segment is sent again a round trip later if a later segment arrived (RACK),
otherwise when a timer ends (RFC 8985): a probe after two round trips, then timeouts that double
(RFC 6298) and reduce the window to one segment. All bytes arrive, in order.

The model moves flights, the segments that leave at one instant, instead of single segments, so a
message takes a few steps for each round trip. A later message changes nothing for an earlier one:
if the last segment of a message is lost, it waits for the timer, even if another message follows.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from numpy.random import Generator

from veilring.errors import InputError

INITIAL_SEGMENTS: Final = 10
"""The window of a new connection (RFC 6928)."""
TIMEOUT_MIN_SECONDS: Final = 0.2
"""The time that a timeout waits beyond a round trip, as in Linux; RFC 6298 has at least 1 s."""
TIMEOUT_MAX_SECONDS: Final = 120.0
"""The limit of doubled timeouts, as in Linux."""
LOSS_MAX: Final = 0.5
"""The highest probability of a loss: beyond it, timeouts of minutes are common, and connections
break, which this model does not do."""
_SEGMENTS_MIN: Final = 2  # the least window after a loss (RFC 5681)
_DUPLICATES: Final = 3
"""Later segments that arrived, after which a missing one counts as lost and not as late."""
_LATE: Final = 0.25  # round trips until it is lost, after fewer (RFC 8985)

Wire: TypeAlias = Callable[[float, float], tuple[float, float, float]]
"""Carry bytes from a time on: when the first departs, and when the last departs and arrives."""
_Effect: TypeAlias = Literal["grow", "keep", "halve", "collapse"]


@dataclass(frozen=True, slots=True)
class Tcp:
    """The properties of TCP on a link.

    Attributes:
        loss: The probability that a segment is lost, independently of all others; at most
            `LOSS_MAX`. Acknowledgements are not lost.
        mss_bytes: The maximum size of a segment; by default what fits into 1,500 bytes with the
            headers of Linux.
        window_bytes: The receiver's window, rounded down to segments; by default that of Linux.
    """

    loss: float = 0.0
    mss_bytes: int = 1448
    window_bytes: int = 3 * 2**20

    def __post_init__(self) -> None:
        if not 0 <= self.loss <= LOSS_MAX:
            raise InputError("loss", self.loss, f"a probability of at most {LOSS_MAX:g}")
        if not self.mss_bytes >= 1:
            raise InputError("mss_bytes", self.mss_bytes, "at least 1")
        if not self.window_bytes >= self.mss_bytes:
            raise InputError(
                "window_bytes", self.window_bytes, f"at least mss_bytes, {self.mss_bytes}"
            )


class _News(NamedTuple):
    """The news that a sender learns about segments, and its effect on the window."""

    heard: float
    sent: float
    segments: int
    effect: _Effect


class _Flight(NamedTuple):
    """Segments that left one after the other, and the positions of those that were lost."""

    sent: float
    departed: float
    first: float
    """The time at which the sender learns about the first segment, or that it is missing."""
    last: float
    """Likewise of the last segment."""
    segments: int
    segment_bytes: float
    lost: Sequence[int]

    @property
    def tail(self) -> int:
        """The number of lost segments after which none arrived."""
        ends = range(self.segments - len(self.lost), self.segments)
        return sum(lost == end for lost, end in zip(self.lost, ends, strict=True))


class Connection:
    """The sender's side of one direction of a connection.

    Args:
        wire: The link beneath.
        there_seconds: The expected time of a segment, for timers.
        back_seconds: The time that acknowledgements take.
        generator: A function that returns the stream of randomness; called only if segments may be
            lost.
    """

    def __init__(
        self,
        tcp: Tcp,
        wire: Wire,
        *,
        there_seconds: float,
        back_seconds: float,
        generator: Callable[[], Generator],
    ) -> None:
        self._tcp, self._wire, self._generator = tcp, wire, generator
        self._rtt, self._back = there_seconds + back_seconds, back_seconds
        self._timeout = self._rtt + TIMEOUT_MIN_SECONDS
        self._receiver = tcp.window_bytes // tcp.mss_bytes
        self.reset()

    def reset(self) -> None:
        """Begin a new connection, with nothing in flight."""
        self._window, self._threshold = float(INITIAL_SEGMENTS), math.inf
        self._news: list[_News] = []  # a heap
        self._in_flight = 0  # segments
        self._recovered = -math.inf  # segments sent before belong to a loss that was handled
        self._sent = self._free = -math.inf  # the latest transmission, and its departure
        self._spare = 0  # bytes that the latest segment has room for
        # The most segments in flight in a round trip: a window that is not used does not grow.
        self._used, self._used_until = 0, -math.inf

    def send(self, now: float, size_bytes: int) -> tuple[float, float]:
        """Send a message; return when all of its bytes have departed, and when all have arrived.

        Bytes that were lost depart when they are sent for the last time.
        """
        self._departure = self._arrival = -math.inf
        mss, start, left = self._tcp.mss_bytes, max(now, self._sent), size_bytes
        # Bytes that wait for the window fill the last segment that waits, as in a send buffer.
        spare = self._spare if self._sent > now else 0
        while True:
            segments = max(0, math.ceil((left - spare) / mss))
            if segments or not spare:
                start, room = self._wait(start)
                segments = min(max(1, segments), room)
            size = min(left, spare + segments * mss)
            left -= size
            self._spare = spare + segments * mss - size
            self._carry(start, size, segments, more=left > 0)
            if not left:
                return self._departure, self._arrival
            spare = 0

    def _wait(self, start: float) -> tuple[float, int]:
        """Return the first time at which the window is open, and its segments then."""
        while True:
            while self._news and self._news[0].heard <= start:
                self._hear(heapq.heappop(self._news))
            if not self._news:
                self._rest(start - self._free)
            room = min(int(self._window), self._receiver) - self._in_flight
            if room > 0:
                return start, room
            start = self._news[0].heard

    def _rest(self, idle_seconds: float) -> None:
        """Halve the window for each timeout without traffic, to that of a new connection."""
        while self._window > INITIAL_SEGMENTS and idle_seconds > self._timeout:
            self._threshold = max(self._threshold, 0.75 * self._window)
            self._window = max(self._window / 2, INITIAL_SEGMENTS)
            idle_seconds -= self._timeout

    def _hear(self, news: _News) -> None:
        self._in_flight -= news.segments
        if news.sent < self._recovered:
            return
        match news.effect:
            case "grow" if self._window < self._threshold:
                if 2 * self._used > self._window:
                    self._window = min(self._window + news.segments, self._threshold)
            case "grow":
                if self._used >= int(self._window):
                    self._window += news.segments / self._window
            case "halve" | "collapse":
                self._threshold = max(self._window / 2, _SEGMENTS_MIN)
                self._window = self._threshold if news.effect == "halve" else 1.0
                self._recovered = news.heard
            case "keep":
                pass

    def _carry(self, start: float, size_bytes: int, segments: int, *, more: bool) -> None:
        flight = self._transmit(start, size_bytes, segments)
        self._sent, self._free = start, flight.departed
        if self._in_flight > self._used or start >= self._used_until:
            self._used, self._used_until = self._in_flight, flight.first
        if flight.lost:
            self._recover(flight, more=more)
        else:
            self._note(flight, "grow")

    def _transmit(self, start: float, size_bytes: float, segments: int) -> _Flight:
        begin, departure, arrival = self._wire(max(start, self._free), size_bytes)
        self._departure = max(self._departure, departure)
        self._arrival = max(self._arrival, arrival)
        self._in_flight += segments
        share, last = 1 / max(1, segments), arrival + self._back
        first = last - (departure - begin) * (1 - share)
        lost = self._draw(segments)
        return _Flight(start, departure, first, last, segments, size_bytes * share, lost)

    def _recover(self, flight: _Flight, *, more: bool, is_repeated: bool = False) -> None:
        """Send lost segments again until all have arrived.

        Acknowledgements of later segments reveal losses. The last segments of a message have none:
        a timer has to end, unless the sender sends more.
        """
        tail = flight.tail
        inner = len(flight.lost) - tail
        if not inner and not (more and tail < self._in_flight):
            self._await_timer(flight, is_probe=not is_repeated)
            return
        self._note(flight, "keep" if is_repeated else "halve")
        known = flight.last
        if not more and flight.segments - flight.lost[0] - len(flight.lost) < _DUPLICATES:
            known += _LATE * self._rtt
        self._send_again(known, flight, inner, more=more)
        self._send_again(known + self._rtt, flight, tail, more=more)

    def _send_again(self, start: float, flight: _Flight, segments: int, *, more: bool) -> None:
        if not segments:
            return
        again = self._repeat(start, flight, segments)
        if again.lost:
            self._recover(again, more=more, is_repeated=True)
        else:
            self._note(again, "grow")

    def _await_timer(self, flight: _Flight, *, is_probe: bool) -> None:
        """Send a segment each time that a timer ends; its acknowledgement reveals the others."""
        wait, collapsed = self._timeout, not is_probe
        if is_probe and flight.tail > 1:
            wait = min(2 * self._rtt, wait)
        due = wait + (flight.departed if flight.tail == flight.segments else flight.last)
        sent = self._repeat(due, flight, 1)
        probed: _Effect = "keep" if sent.lost else "halve"
        self._note(flight._replace(first=due), "collapse" if collapsed else probed)
        wait = self._timeout * (2 if collapsed else 1)
        while sent.lost:
            due = sent.departed + wait
            self._note(sent._replace(first=due), "keep" if collapsed else "collapse")
            sent = self._repeat(due, flight, 1)
            wait, collapsed = min(2 * wait, TIMEOUT_MAX_SECONDS), True
        self._note(sent, "grow")
        self._send_again(sent.last, flight, flight.tail - 1, more=False)

    def _repeat(self, start: float, flight: _Flight, segments: int) -> _Flight:
        again = self._transmit(start, segments * flight.segment_bytes, segments)
        if start <= self._free:
            self._free = again.departed
        return again

    def _note(self, flight: _Flight, effect: _Effect) -> None:
        heapq.heappush(self._news, _News(flight.first, flight.sent, flight.segments, effect))

    def _draw(self, segments: int) -> list[int]:
        """Return the positions of the segments that are lost."""
        if not self._tcp.loss:
            return []
        draws = self._generator().random(segments) < self._tcp.loss
        return [int(position) for position in draws.nonzero()[0]]
