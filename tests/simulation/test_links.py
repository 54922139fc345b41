"""Single links, and the distributions of their delays."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator
from scipy import stats
from simpy import Environment
from simpy.events import Event

from veilring.errors import InputError
from veilring.simulation import Constant, Exponential, Link, LinkModel, LogNormal, Normal, Uniform
from veilring.simulation.links import Condition, DelayDistribution, LinkConditions

SENDS = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 10_000)), max_size=30)


def fixed() -> Generator:
    """Return the same stream each time."""
    return np.random.default_rng(1)


def arrivals(
    model: LinkModel, sends: list[tuple[float, int]], conditions: LinkConditions | None = None
) -> list[tuple[float, int]]:
    """Send messages at the given intervals; return `(instant, index)` of arrivals."""
    environment = Environment()
    link = Link(environment, model, fixed, conditions)
    arrived: list[tuple[float, int]] = []

    def note(event: Event) -> None:
        index: Any = event.value
        arrived.append((environment.now, index))

    for index, (pause, size) in enumerate(sends):
        environment.run(environment.timeout(pause))
        link.send(size, index).callbacks.append(note)
    environment.run()
    return arrived


@given(SENDS)
def test_constant_distribution_has_a_closed_form(sends: list[tuple[float, int]]) -> None:
    """With constant latency each arrival is the end of its departure plus latency, to the bit."""
    expected, clock, free = [], 0.0, -math.inf
    for index, (pause, size) in enumerate(sends):
        clock += pause
        free = max(clock, free) + size / 1e4
        expected.append((free + 0.05, index))
    model = LinkModel(latency=Constant(0.05), bandwidth_bytes_per_second=1e4)
    assert arrivals(model, sends) == expected


@given(SENDS, st.sampled_from([math.inf, 1e3, 1e6]), st.floats(0, 10))
def test_messages_stay_in_order(
    sends: list[tuple[float, int]], bandwidth: float, mean_seconds: float
) -> None:
    """At any jitter, each message arrives once, and after the messages sent before it."""
    model = LinkModel(Uniform(0, 1), Exponential(mean_seconds), bandwidth)
    arrived = arrivals(model, sends)
    assert [index for _, index in arrived] == list(range(len(sends)))
    assert arrived == sorted(arrived)


def test_jitter_is_added_to_latency() -> None:
    """A message takes both delays and the transmission time of its bytes."""
    model = LinkModel(Constant(0.5), Constant(0.25), 100)
    assert arrivals(model, [(0, 25)]) == [(1.0, 0)]
    assert model.expected_seconds == 0.75


# One slows bytes down, one delays messages, one stops the link; latency and jitter are 60 ms, and a
# message of 1,000 bytes takes 100 ms to depart.
SLOW = Condition(start=1.0, end=2.0, cause=0, slowdown=3.0)
LATE = Condition(start=1.0, end=2.0, cause=1, extra_seconds=0.2)
STALLED = Condition(start=3.0, end=4.0, cause=2, stalled=True)


@pytest.mark.parametrize(
    ("conditions", "sends", "expected"),
    [
        ((SLOW,), [(1.0, 1_000)], [1.36]),
        ((SLOW,), [(1.0, 1_000), (0.0, 1_000)], [1.36, 1.66]),
        ((SLOW,), [(1.9, 1_000), (0.0, 1_000)], [2.26, 2.36]),
        ((SLOW, SLOW), [(1.0, 1_000)], [1.96]),
        ((LATE,), [(1.0, 1_000)], [1.36]),
        ((LATE,), [(1.95, 1_000), (0.0, 1_000)], [2.31, 2.31]),
        ((LATE, SLOW), [(1.0, 1_000)], [1.56]),
        ((STALLED,), [(2.9, 1_000)], [4.0]),
        ((STALLED,), [(3.5, 1_000)], [4.16]),
        ((SLOW, LATE, STALLED), [(0.5, 1_000), (0.5, 1_000), (2.5, 1_000)], [0.66, 1.56, 4.16]),
    ],
)
def test_conditions_have_a_closed_form(
    conditions: tuple[Condition, ...], sends: list[tuple[float, int]], expected: list[float]
) -> None:
    """Slow departures, delays and waits for a link give the expected arrival times."""
    model = LinkModel(Constant(0.05), Constant(0.01), bandwidth_bytes_per_second=1e4)
    arrived = arrivals(model, sends, LinkConditions(conditions, set()))
    assert [instant for instant, _ in arrived] == pytest.approx(expected)


@pytest.mark.parametrize("bandwidth", [0, -1, math.nan])
def test_link_needs_a_bandwidth(bandwidth: float) -> None:
    """A bandwidth at or below 0 is refused."""
    with pytest.raises(InputError, match="bandwidth_bytes_per_second"):
        LinkModel(bandwidth_bytes_per_second=bandwidth)


def test_negative_size_is_refused() -> None:
    """A negative size is refused, and the link is unchanged."""
    environment = Environment()
    link = Link(environment, LinkModel(), fixed)
    with pytest.raises(InputError, match="size_bytes"):
        link.send(-1)
    assert environment.peek() == math.inf


# Each statistical check fails by chance with this probability, were its seed not fixed.
FALSE_ALARM = 1e-6
DRAWS = 20_000


@pytest.mark.parametrize(
    ("distribution", "reference"),
    [
        (Uniform(0.01, 0.05), stats.uniform(0.01, 0.04)),
        (Normal(0.05, 0.02), stats.truncnorm(-2.5, math.inf, 0.05, 0.02)),
        (Normal(0.05, 0.02, 0.05), stats.truncnorm(0, math.inf, 0.05, 0.02)),
        (LogNormal(0.03, 0.7), stats.lognorm(0.7, scale=0.03)),
        (Exponential(0.02), stats.expon(scale=0.02)),
    ],
    ids=lambda parameter: repr(parameter) if isinstance(parameter, DelayDistribution) else "",
)
def test_draws_follow_the_distribution(
    distribution: DelayDistribution, reference: stats.rv_continuous
) -> None:
    """Draws pass a Kolmogorov-Smirnov test against SciPy's distribution and have its mean."""
    draw = distribution.sampler(fixed)
    draws = [draw() for _ in range(DRAWS)]
    assert min(draws) >= 0
    assert stats.kstest(draws, reference.cdf).pvalue > FALSE_ALARM
    assert distribution.expected_seconds == pytest.approx(reference.mean(), rel=1e-9)


def test_constant_draws_nothing() -> None:
    """A constant distribution uses no random stream."""

    def refuse() -> Generator:
        raise AssertionError

    assert Constant(0.25).sampler(refuse)() == Constant(0.25).expected_seconds == 0.25


def test_normal_without_deviation_is_its_centre() -> None:
    """The degenerate normal distribution returns its mean."""
    distribution = Normal(0.1, 0.0, 0.1)
    assert distribution.sampler(fixed)() == distribution.expected_seconds == 0.1


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Constant(-1), "seconds"),
        (lambda: Constant(math.nan), "seconds"),
        (lambda: Constant(math.inf), "seconds"),
        (lambda: Uniform(-1, 1), "low_seconds"),
        (lambda: Uniform(2, 1), "high_seconds"),
        (lambda: Normal(1, -1), "deviation_seconds"),
        (lambda: Normal(1, 1, 2), "centre_seconds"),
        (lambda: Normal(1, 1, -1), "floor_seconds"),
        (lambda: LogNormal(0, 1), "median_seconds"),
        (lambda: LogNormal(1, -1), "sigma"),
        (lambda: Exponential(-1), "mean_seconds"),
    ],
)
def test_wrong_numbers_are_refused(make: Callable[[], DelayDistribution], field: str) -> None:
    """An invalid distribution cannot be created; the error names the field."""
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.field == field
