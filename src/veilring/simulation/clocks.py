"""The clock of one simulated party, which may drift and jump."""

from collections.abc import Callable
from contextvars import ContextVar
from math import inf, nextafter
from typing import Final, Protocol

from simpy import Environment

_TIMERS: Final = 64
"""The number of timers that are kept before those that have rung are dropped."""


class ClockTimer(Protocol):
    """A timer that keeps a party's clock."""

    @property
    def is_pending(self) -> bool:
        """Whether it has neither rung nor been cancelled."""

    def when(self) -> float:
        """Return the reading of the clock at which it is due."""

    def move(self, instant: float) -> None:
        """Let it ring at another true time."""


class Clock:
    """A clock that reads `reading + rate · (now - since)`, from its latest change on.

    Timers that were set before a change move with it, as those of an operating system do.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._since = self._reading = 0.0
        self._rate = 1.0
        self._timers: list[ClockTimer] = []
        self._prune_at = _TIMERS
        self._unnoticed: list[Callable[[], None]] = []

    def read(self) -> float:
        """Return the time on this clock, in seconds."""
        self._notice()
        return self._read()

    def _notice(self) -> None:
        for each in self._unnoticed:
            each()
        self._unnoticed.clear()

    def _read(self) -> float:
        return self._at(self._environment.now)

    def _at(self, instant: float) -> float:
        return self._reading + self._rate * (instant - self._since)

    def instant(self, reading: float) -> float:
        """Return the true time at which the clock will show a reading, if nothing changes it."""
        instant = self._since + (reading - self._reading) / self._rate
        while self._at(instant) < reading:  # rounding must not let a timer ring too early
            instant = nextafter(instant, inf)
        return instant

    def keep(self, timer: ClockTimer) -> None:
        """Move a timer whenever the clock changes."""
        self._notice()
        self._timers.append(timer)
        if len(self._timers) > self._prune_at:
            self._timers = [each for each in self._timers if each.is_pending]
            self._prune_at = 2 * len(self._timers) + _TIMERS

    def change(
        self, noticed: Callable[[], None], *, rate: float | None = None, jump: float = 0.0
    ) -> None:
        """Let the clock run at another rate, or jump ahead by some seconds.

        Args:
            noticed: Called as soon as the clock is read, or keeps a timer.
        """
        self._reading, self._since = self._read() + jump, self._environment.now
        self._rate = self._rate if rate is None else rate
        self._unnoticed.append(noticed)
        for timer in self._timers:
            if timer.is_pending:
                self._notice()
                timer.move(self.instant(timer.when()))


OWN_CLOCK: Final[ContextVar[Clock | None]] = ContextVar("OWN_CLOCK", default=None)
"""The clock of the party whose task is running; none for a true one."""
