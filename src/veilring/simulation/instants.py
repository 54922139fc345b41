"""Exact instants on a SimPy clock, which itself only knows delays."""

import math

from simpy import Environment
from simpy.events import Timeout
from typing_extensions import override

from veilring.errors import InputError


class _Until(float):
    """A delay that SimPy adds to the present to get one exact instant, whatever the rounding."""

    __slots__ = ("instant",)
    instant: float

    @override
    def __radd__(self, now: float, /) -> float:
        return self.instant


def timeout_at(environment: Environment, instant: float, value: object = None) -> Timeout:
    """Return an event that happens exactly at `instant`, after all that was scheduled for it.

    SimPy computes `now + (instant - now)`, which floating point may round away from `instant`. Two
    events for one instant would then happen at two, and the later one perhaps first.

    Args:
        environment: Whose clock is meant.
        instant: Seconds on that clock. The past means now; infinity means never.
        value: What the event carries.

    Raises:
        InputError: If the instant is not a number.
    """
    now = environment.now
    delay = instant - now
    if delay <= 0:
        return Timeout(environment, 0, value)
    if now + delay != instant:
        if math.isnan(instant):
            raise InputError("instant", instant, "seconds on the simulated clock")
        delay = _Until(delay)
        delay.instant = instant
    return Timeout(environment, delay, value)
