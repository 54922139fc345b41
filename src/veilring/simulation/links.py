"""Simulated links: distributions of their delays, temporary conditions, and times of arrival."""

import functools
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from statistics import NormalDist
from typing import Final, NamedTuple

from numpy.random import Generator
from simpy import Environment
from simpy.events import Event
from typing_extensions import override

from veilring.errors import InputError
from veilring.simulation.loop import Instant
from veilring.simulation.tcp import Connection, Tcp


class DelayDistribution(ABC):
    """A distribution of independent durations."""

    @property
    @abstractmethod
    def expected_seconds(self) -> float:
        """The expected duration."""

    @abstractmethod
    def sampler(self, generator: Callable[[], Generator]) -> Callable[[], float]:
        """Return a function that draws one duration in seconds; only a random one has a stream."""


@dataclass(frozen=True, slots=True)
class Constant(DelayDistribution):
    """A constant duration."""

    seconds: float

    def __post_init__(self) -> None:
        _check("seconds", self.seconds)

    @property
    @override
    def expected_seconds(self) -> float:
        return self.seconds

    @override
    def sampler(self, generator: Callable[[], Generator]) -> Callable[[], float]:
        return repeat(self.seconds).__next__  # smaller than a closure, and faster


@dataclass(frozen=True, slots=True)
class Uniform(DelayDistribution):
    """A uniform duration from `low_seconds` to `high_seconds`."""

    low_seconds: float
    high_seconds: float

    def __post_init__(self) -> None:
        _check("low_seconds", self.low_seconds)
        _check("high_seconds", self.high_seconds, at_least=self.low_seconds)

    @property
    @override
    def expected_seconds(self) -> float:
        return self.low_seconds + (self.high_seconds - self.low_seconds) / 2

    @override
    def sampler(self, generator: Callable[[], Generator]) -> Callable[[], float]:
        # As `Generator.uniform` does, without the checks of its arguments.
        draw, low, width = (
            generator().random,
            self.low_seconds,
            self.high_seconds - self.low_seconds,
        )
        return lambda: low + width * draw()


@dataclass(frozen=True, slots=True)
class Normal(DelayDistribution):
    """A normal duration, conditioned on at least `floor_seconds` (truncated, not clipped).

    Args:
        centre_seconds: The mean, and the mode, before truncation.
        deviation_seconds: The standard deviation before truncation.
        floor_seconds: The minimum duration, at most the centre.
    """

    centre_seconds: float
    deviation_seconds: float
    floor_seconds: float = 0.0

    def __post_init__(self) -> None:
        _check("floor_seconds", self.floor_seconds)
        _check("centre_seconds", self.centre_seconds, at_least=self.floor_seconds)
        _check("deviation_seconds", self.deviation_seconds)

    @property
    @override
    def expected_seconds(self) -> float:
        if self.deviation_seconds == 0:
            return self.centre_seconds
        unit = NormalDist()
        floor = (self.floor_seconds - self.centre_seconds) / self.deviation_seconds
        return self.centre_seconds + self.deviation_seconds * unit.pdf(floor) / unit.cdf(-floor)

    @override
    def sampler(self, generator: Callable[[], Generator]) -> Callable[[], float]:
        normal = functools.partial(generator().normal, self.centre_seconds, self.deviation_seconds)

        def draw() -> float:
            # the floor is at most the centre, so at least half of the draws are kept
            while (seconds := normal()) < self.floor_seconds:
                pass
            return seconds

        return draw


@dataclass(frozen=True, slots=True)
class LogNormal(DelayDistribution):
    """A log-normal duration, with a long tail as measured on the Internet.

    Args:
        median_seconds: The median duration, above 0.
        sigma: The standard deviation of the logarithm.
    """

    median_seconds: float
    sigma: float

    def __post_init__(self) -> None:
        _check("median_seconds", self.median_seconds)
        if self.median_seconds == 0:
            raise InputError("median_seconds", self.median_seconds, "above 0")
        _check("sigma", self.sigma)

    @property
    @override
    def expected_seconds(self) -> float:
        return self.median_seconds * math.exp(self.sigma**2 / 2)

    @override
    def sampler(self, generator: Callable[[], Generator]) -> Callable[[], float]:
        return functools.partial(generator().lognormal, math.log(self.median_seconds), self.sigma)


@dataclass(frozen=True, slots=True)
class Exponential(DelayDistribution):
    """A memoryless duration, like that of queueing behind other traffic."""

    mean_seconds: float

    def __post_init__(self) -> None:
        _check("mean_seconds", self.mean_seconds)

    @property
    @override
    def expected_seconds(self) -> float:
        return self.mean_seconds

    @override
    def sampler(self, generator: Callable[[], Generator]) -> Callable[[], float]:
        draw = generator().standard_exponential
        return lambda: self.mean_seconds * draw()


def _check(field: str, value: float, *, at_least: float = 0.0) -> None:
    if not (at_least <= value < math.inf):
        raise InputError(field, value, f"a finite number of at least {at_least:g}")


class Condition(NamedTuple):
    """A state of a link from `start` to `end`, in simulated seconds.

    A stalled link carries nothing until the end, like TCP when its packets are lost: departures and
    arrivals wait. Otherwise each message takes `extra_seconds` longer, and bytes depart `slowdown`
    times slower.
    """

    start: float
    end: float
    cause: int
    """The fault that causes this condition, recorded when a message meets it."""
    stalled: bool = False
    extra_seconds: float = 0.0
    slowdown: float = 1.0


@dataclass(slots=True)
class NetworkConditions:
    """All conditions of all links.

    Attributes:
        links: The conditions by (source, target), in any order; they may overlap.
    """

    links: Mapping[tuple[str, str], Iterable[Condition]] = field(default_factory=dict)
    met: set[int] = field(default_factory=set)

    def of(self, source: str, target: str) -> "LinkConditions | None":
        """Return the conditions of one link, if it has any."""
        conditions = tuple(self.links.get((source, target), ()))
        return LinkConditions(conditions, self.met) if conditions else None


class LinkConditions:
    """The conditions of one link."""

    def __init__(self, conditions: tuple[Condition, ...], met: set[int]) -> None:
        self._stalls = tuple(sorted(c for c in conditions if c.stalled))
        self._others = tuple(c for c in conditions if not c.stalled)
        self._met = met
        self.end = max((condition.end for condition in conditions), default=0.0)
        """The time from which the link has no condition."""

    def resume(self, instant: float) -> float:
        """Return the next time at which the link carries something, from a given time on."""
        for stall in self._stalls:  # by start: none ends after a later one moved the instant
            if stall.start <= instant < stall.end:
                instant = stall.end
                self._met.add(stall.cause)
        return instant

    def burden(self, instant: float) -> tuple[float, float]:
        """Return the factor by which bytes depart slower, and the extra seconds of a message."""
        slowdown, extra = 1.0, 0.0
        for each in self._others:
            if each.start <= instant < each.end:
                slowdown, extra = slowdown * each.slowdown, extra + each.extra_seconds
                if each.slowdown != 1.0 or each.extra_seconds:
                    self._met.add(each.cause)
        return slowdown, extra


_NO_TIME: Final = Constant(0.0)
_LEAVING_MAX: Final = 16  # more are not kept once they have left


@dataclass(frozen=True, slots=True)
class LinkModel:
    """The properties of a link.

    Attributes:
        latency: The time from the departure of a message's last byte to its arrival.
        jitter: A second delay added to the latency.
        bandwidth_bytes_per_second: The rate at which bytes depart; at infinity they take no time.
        tcp: The windows and lost segments of TCP; by default it takes no time.
    """

    latency: DelayDistribution = _NO_TIME
    jitter: DelayDistribution = _NO_TIME
    bandwidth_bytes_per_second: float = math.inf
    tcp: Tcp | None = None

    def __post_init__(self) -> None:
        bandwidth = self.bandwidth_bytes_per_second
        if not bandwidth > 0:
            raise InputError("bandwidth_bytes_per_second", bandwidth, "above 0, or infinity")

    @property
    def expected_seconds(self) -> float:
        """The expected time of an empty message on an idle link."""
        return self.latency.expected_seconds + self.jitter.expected_seconds


class Link:
    """One direction of a connection.

    Messages depart one after the other and arrive in that order::

        departure = max(now, previous departure) + size / bandwidth
        arrival   = max(previous arrival, departure + latency + jitter)

    With TCP, this holds for each of its transmissions, instead of for each message.

    Attributes:
        departure_seconds: The departure of the latest message.

    Args:
        generator: A function that returns the link's own stream of randomness, so that no other
            link's draws depend on it. Not called if the model is not random.
        back_seconds: The time that TCP's acknowledgements take; by default that of an empty message
            on this link.
    """

    __slots__ = (
        "_arrival_seconds",
        "_bandwidth",
        "_conditions",
        "_connection",
        "_environment",
        "_generator",
        "_jitter",
        "_latency",
        "_leaving",
        "_left_arrival",
        "_own",
        "departure_seconds",
        "model",
    )

    def __init__(
        self,
        environment: Environment,
        model: LinkModel,
        generator: Callable[[], Generator],
        conditions: LinkConditions | None = None,
        *,
        back_seconds: float | None = None,
    ) -> None:
        self.model = model
        self._conditions = conditions
        self._environment = environment
        self._bandwidth = model.bandwidth_bytes_per_second
        self._generator = generator
        self._own: Generator | None = None
        self._latency = model.latency.sampler(self._stream)
        self._jitter = model.jitter.sampler(self._stream)
        self.departure_seconds = self._arrival_seconds = -math.inf
        # When messages before the latest one depart and arrive; None if they have left: an empty
        # deque takes much room. Some that have left are still here.
        self._leaving: deque[tuple[float, float]] | None = None
        self._left_arrival = -math.inf  # of the latest message before these
        self._connection: Connection | None = None
        if model.tcp is not None:
            self._connection = Connection(
                model.tcp,
                self._transmit,
                there_seconds=model.expected_seconds,
                back_seconds=model.expected_seconds if back_seconds is None else back_seconds,
                generator=self._stream,
            )

    def _stream(self) -> Generator:
        if self._own is None:
            self._own = self._generator()
        return self._own

    def send(self, size_bytes: int, message: object = None) -> Event:
        """Send a message; the event that is its arrival carries it as its value."""
        if size_bytes < 0:
            raise InputError("size_bytes", size_bytes, "at least 0")
        environment, last = self._environment, self.departure_seconds
        now = environment._now  # noqa: SLF001  (`now` is a call)
        if last <= now:
            start, self._leaving, self._left_arrival = now, None, self._arrival_seconds
        else:
            start = last
            self._wait_behind(now)
        if self._conditions is not None and self._conditions.end <= now:
            self._conditions = None
        if self._connection is not None:
            departure, arrival = self._connection.send(now, size_bytes)
            departure = max(last, departure)
        elif self._conditions is None:
            departure = start + size_bytes / self._bandwidth
            arrival = departure + self._latency() + self._jitter()
        else:
            _, departure, arrival = self._transmit(start, size_bytes)
        arrival = max(arrival, self._arrival_seconds)
        self.departure_seconds, self._arrival_seconds = departure, arrival
        return Instant(environment, arrival, message)

    def _wait_behind(self, now: float) -> None:
        """Remember the latest message, which has not departed, before another one."""
        leaving = self._leaving = deque() if self._leaving is None else self._leaving
        leaving.append((self.departure_seconds, self._arrival_seconds))
        if len(leaving) > _LEAVING_MAX:
            self._let_depart(leaving, now)

    def _let_depart(self, leaving: deque[tuple[float, float]], now: float) -> None:
        while leaving and leaving[0][0] <= now:
            self._left_arrival = leaving.popleft()[1]

    def cut(self) -> None:
        """Forget the messages that have not departed; later ones need not wait for them."""
        now = self._environment.now
        if self.departure_seconds > now:
            self._let_depart(self._leaving or deque(), now)
            self._leaving, self.departure_seconds = None, now
            self._arrival_seconds = self._left_arrival
        self.reconnect()

    def reconnect(self) -> None:
        """Let TCP begin a new connection; messages still arrive after those of the previous one."""
        if self._connection is not None:
            self._connection.reset()

    def _transmit(self, start: float, size_bytes: float) -> tuple[float, float, float]:
        """Return the start, departure and arrival of bytes that wait for no others."""
        if self._conditions is None:
            departure = start + size_bytes / self._bandwidth
            return start, departure, departure + self._latency() + self._jitter()
        start = self._conditions.resume(start)
        slowdown, extra = self._conditions.burden(start)
        departure = start + slowdown * size_bytes / self._bandwidth
        arrival = departure + self._latency() + self._jitter() + extra
        return start, departure, self._conditions.resume(arrival)
