"""Laws of random durations, for latency and jitter. All durations are in seconds and at least 0."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

from numpy.random import Generator
from typing_extensions import override

from veilring.errors import InputError


class Law(ABC):
    """A law that durations follow, independently of each other."""

    @property
    @abstractmethod
    def expected_seconds(self) -> float:
        """The expected duration."""

    @abstractmethod
    def sampler(self, generator: Callable[[], Generator]) -> Callable[[], float]:
        """Return a function that draws one duration in seconds.

        Args:
            generator: Gives the stream to draw from; called once if the law is random, else never.
        """


@dataclass(frozen=True, slots=True)
class Constant(Law):
    """Always the same duration.

    Raises:
        InputError: If it is negative or not finite.
    """

    seconds: float

    def __post_init__(self) -> None:
        _check("seconds", self.seconds)

    @property
    @override
    def expected_seconds(self) -> float:
        return self.seconds

    @override
    def sampler(self, generator: Callable[[], Generator]) -> Callable[[], float]:
        return lambda: self.seconds


@dataclass(frozen=True, slots=True)
class Uniform(Law):
    """Any duration from `low_seconds` to `high_seconds`, all equally likely.

    Raises:
        InputError: If a bound is negative or not finite, or the high one is below the low one.
    """

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
        return functools.partial(generator().uniform, self.low_seconds, self.high_seconds)


@dataclass(frozen=True, slots=True)
class Normal(Law):
    """A normal law, given that it is not below `floor_seconds` (truncated, not clipped).

    Args:
        centre_seconds: The mean, and the mode, before truncation.
        deviation_seconds: The standard deviation before truncation.
        floor_seconds: The least duration, at most the centre.

    Raises:
        InputError: If a number is negative or not finite, or the floor is above the centre.
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
            # The floor is at most the centre, so half of the draws or more are kept.
            while (seconds := normal()) < self.floor_seconds:
                pass
            return seconds

        return draw


@dataclass(frozen=True, slots=True)
class LogNormal(Law):
    """A duration whose logarithm is normal: a long tail, as measured on the Internet.

    Args:
        median_seconds: Half of the durations are below it; above 0.
        sigma: The standard deviation of the logarithm.

    Raises:
        InputError: If the median is not above 0, or a number is negative or not finite.
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
class Exponential(Law):
    """A memoryless duration, as of queueing behind other traffic.

    Raises:
        InputError: If the mean is negative or not finite.
    """

    mean_seconds: float

    def __post_init__(self) -> None:
        _check("mean_seconds", self.mean_seconds)

    @property
    @override
    def expected_seconds(self) -> float:
        return self.mean_seconds

    @override
    def sampler(self, generator: Callable[[], Generator]) -> Callable[[], float]:
        return functools.partial(generator().exponential, self.mean_seconds)


def _check(field: str, value: float, *, at_least: float = 0.0) -> None:
    if not (at_least <= value < math.inf):
        raise InputError(field, value, f"a finite number of at least {at_least:g}")
