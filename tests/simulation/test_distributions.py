"""Distributions of durations."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator
from scipy import stats

from veilring.errors import InputError
from veilring.simulation import Constant, Exponential, LogNormal, Normal, Uniform
from veilring.simulation.links import DelayDistribution

# Each statistical check fails by chance with this probability, were its seed not fixed.
FALSE_ALARM = 1e-6
DRAWS = 20_000


def fixed() -> Generator:
    """Return the same stream each time."""
    return np.random.default_rng(20_070_311)


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
