"""Rate limits: budgets that refill, repeated log lines, frames per turn, and dial attempts.

A member of the roster is known, not trusted. The work that it can cause is counted in frames, turns
and the loop's own clock, so a simulated run is paced by simulated time and replays exactly.
"""

import asyncio
import logging
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from numpy.random import Generator

# Frames of all peers together that are processed in one turn of the event loop. Eight of the most
# expensive small ones, requests for a session, take under half a millisecond; a message of an
# honest peer waits no longer than that for its turn.
FRAMES_PER_TURN_MAX: Final = 8
# A peer that exceeds its budget is paused for this long. Its frames wait in its own memory, and the
# pause is too short for a person to notice.
REST_SECONDS: Final = 0.05
# a line repeated within this time is counted instead of written
REPEAT_SECONDS: Final = 60.0
# Different lines about one peer within that time; all others share one. A minute of the worst
# behaviour of a peer takes less than half a screen.
LINES_KEPT: Final = 8
# A process that starts at the same time is up within milliseconds; one that takes long is dialled
# at most once every one or two seconds.
DIAL_PAUSE_FIRST_SECONDS: Final = 0.05
DIAL_PAUSE_MAX_SECONDS: Final = 2.0
# The minimum share of a pause. The rest is drawn, so that the clients of a restarting server do not
# all return at the same moment.
_DIAL_PAUSE_SHARE_MIN: Final = 0.5

_OTHERS: Final = "others"


def loop_time() -> float:
    """Return the running loop's time in seconds: real, or simulated."""
    return asyncio.get_running_loop().time()


def dial_pauses(rng: Generator) -> Iterator[float]:
    """Yield the pause after each failed attempt to connect, in seconds.

    The pauses double from `DIAL_PAUSE_FIRST_SECONDS` to `DIAL_PAUSE_MAX_SECONDS`, and each is
    shortened by up to a half at random.
    """
    longest = DIAL_PAUSE_FIRST_SECONDS
    while True:
        yield longest * float(rng.uniform(_DIAL_PAUSE_SHARE_MIN, 1.0))
        longest = min(2 * longest, DIAL_PAUSE_MAX_SECONDS)


class TokenBuckets:
    """One budget for each key, which refills steadily: a token bucket."""

    def __init__(
        self, burst: int, per_second: float, clock: Callable[[], float] = loop_time
    ) -> None:
        self._burst, self._per_second, self._clock = burst, per_second, clock
        self._spent: dict[str, tuple[float, float]] = {}

    def left(self, key: str) -> float:
        """Return the remaining budget of a key."""
        return self._left(key, self._clock())

    def _left(self, key: str, now: float) -> float:
        spent, at = self._spent.get(key, (0.0, 0.0))
        return self._burst - max(0.0, spent - (now - at) * self._per_second)

    def spend(self, key: str) -> bool:
        """Take 1 from a key's budget; if there is less, take nothing and return `False`."""
        now = self._clock()
        left = self._left(key, now)
        if left < 1:
            return False
        self._put(key, left - 1, now)
        return True

    def refund(self, key: str) -> None:
        """Give 1 back."""
        now = self._clock()
        self._put(key, min(self._burst, self._left(key, now) + 1), now)

    def _put(self, key: str, left: float, now: float) -> None:
        self._spent.pop(key, None)
        if left < self._burst:
            self._spent[key] = (self._burst - left, now)
        # The least recently used key is first; keys with a full budget are forgotten.
        oldest = next(iter(self._spent), key)
        if oldest != key and self._left(oldest, now) >= self._burst:
            del self._spent[oldest]


class SparingLog:
    """Writes a line about each subject once in `REPEAT_SECONDS`, and counts repetitions."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = loop_time) -> None:
        self._log, self._clock = log, clock
        self._said: defaultdict[str, dict[str, tuple[float, int]]] = defaultdict(dict)

    def say(
        self, level: int, who: str, what: str, line: str, *values: object, trace: bool = False
    ) -> None:
        """Write a line, with the number of suppressed repetitions, or suppress it.

        Args:
            who: The subject of the line. Each subject has its own limit.
        """
        said, now = self._said[who], self._clock()
        if what not in said and len(said) >= LINES_KEPT:
            said = self._said[who] = {k: v for k, v in said.items() if now - v[0] < REPEAT_SECONDS}
            what = what if len(said) < LINES_KEPT else _OTHERS
        since, kept = said.get(what, (-math.inf, 0))
        if now - since < REPEAT_SECONDS:
            said[what] = (since, kept + 1)
            return
        said[what] = (now, 0)
        more = f" (and {kept:,} more like this in {now - since:.0f} s)" if kept else ""
        self._log.log(level, f"{line}%s", *values, more, exc_info=trace)


class Paced(Protocol):
    """An object that processes frames in turn."""

    def process(self) -> None:
        """Process frames as long as `Turns.admit` returns `True` before each of them."""


class Turns:
    """Admits frames of all connections, at most `FRAMES_PER_TURN_MAX` in a turn of the loop.

    The number is renewed in the turn after it is used up. Until then nobody waits, and each frame
    is processed where it arrives. Then the connections that wait are called for one frame each.
    """

    def __init__(self) -> None:
        self._waiting: deque[Paced] = deque()
        self._blocked: list[Paced] = []
        self._called: Paced | None = None
        self._left = FRAMES_PER_TURN_MAX

    def admit(self, paced: Paced) -> bool:
        """Return whether a connection may process a frame now; otherwise call it in its turn."""
        if self._left and (not self._waiting or self._called is paced):
            self._called = None
            self._left -= 1
            if not self._left:
                asyncio.get_running_loop().call_soon(self._renew)
            return True
        if paced not in self._waiting:
            self._waiting.append(paced)
        return False

    def block(self, paced: Paced) -> None:
        """Call a connection after `unblock`."""
        self._blocked.append(paced)

    def unblock(self) -> None:
        """Call the blocked connections."""
        blocked, self._blocked = self._blocked, []
        for paced in blocked:
            paced.process()

    def _renew(self) -> None:
        self._left = FRAMES_PER_TURN_MAX
        try:
            while self._waiting and self._left:
                self._called = paced = self._waiting.popleft()
                paced.process()
        finally:
            self._called = None
            if self._waiting and self._left:  # an error of one connection must not stop the others
                asyncio.get_running_loop().call_soon(self._renew)
