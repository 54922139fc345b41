"""Simulated links: each one direction of a connection, reliable and in order like TCP."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from numpy.random import Generator
from simpy import Environment
from simpy.events import Timeout

from veilring.errors import InputError
from veilring.simulation.conditions import LinkConditions
from veilring.simulation.instants import timeout_at
from veilring.simulation.laws import Constant, Law

_NO_TIME: Final = Constant(0.0)


@dataclass(frozen=True, slots=True)
class LinkModel:
    """What a link is like.

    Attributes:
        latency: The time from the departure of a message's last byte to its arrival.
        jitter: A second delay added to the latency.
        bandwidth_bytes_per_second: How fast bytes depart; infinity if that takes no time.

    Raises:
        InputError: If the bandwidth is not above 0.
    """

    latency: Law = _NO_TIME
    jitter: Law = _NO_TIME
    bandwidth_bytes_per_second: float = math.inf

    def __post_init__(self) -> None:
        bandwidth = self.bandwidth_bytes_per_second
        if not bandwidth > 0:
            raise InputError("bandwidth_bytes_per_second", bandwidth, "above 0, or infinity")

    @property
    def expected_seconds(self) -> float:
        """The expected time that an empty message takes on an idle link."""
        return self.latency.expected_seconds + self.jitter.expected_seconds


class Link:
    """One direction of a connection.

    Messages depart one after the other and arrive in that order::

        departure = max(now, previous departure) + size / bandwidth
        arrival   = max(previous arrival, departure + latency + jitter)

    Args:
        environment: Where messages travel.
        model: What the link is like.
        generator: Gives the link's own stream of randomness, so that no other link's draws depend
            on it. Not called if the model is not random.
        conditions: What happens to the link for a while, if anything.
    """

    def __init__(
        self,
        environment: Environment,
        model: LinkModel,
        generator: Callable[[], Generator],
        conditions: LinkConditions | None = None,
    ) -> None:
        self.model = model
        self._conditions = conditions
        self._environment = environment
        self._bandwidth = model.bandwidth_bytes_per_second
        self._generator = generator
        self._own: Generator | None = None
        self._latency = model.latency.sampler(self._stream)
        self._jitter = model.jitter.sampler(self._stream)
        self._departure_seconds = self._arrival_seconds = -math.inf

    def _stream(self) -> Generator:
        if self._own is None:
            self._own = self._generator()
        return self._own

    def send(self, size_bytes: int, message: object = None) -> Timeout:
        """Send a message; the event that is its arrival carries it as its value.

        Raises:
            InputError: If the size is negative. Nothing was sent.
        """
        if size_bytes < 0:
            raise InputError("size_bytes", size_bytes, "at least 0")
        start = max(self._environment.now, self._departure_seconds)
        if self._conditions is None:
            self._departure_seconds = start + size_bytes / self._bandwidth
            arrival = self._departure_seconds + self._latency() + self._jitter()
        else:
            arrival = self._arrival_under(self._conditions, start, size_bytes)
        self._arrival_seconds = max(self._arrival_seconds, arrival)
        return timeout_at(self._environment, self._arrival_seconds, message)

    def _arrival_under(self, conditions: LinkConditions, start: float, size_bytes: int) -> float:
        start = conditions.resume(start)
        seconds = conditions.slowdown(start) * size_bytes / self._bandwidth
        self._departure_seconds = start + seconds
        extra = conditions.extra_seconds(start)
        arrival = self._departure_seconds + self._latency() + self._jitter() + extra
        return conditions.resume(arrival)
