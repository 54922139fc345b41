"""Exact composition of pure steps."""

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import product

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st

from veilring.errors import InputError
from veilring.privacy.accounting import STEPS_MAX, BoundedRange, PureSteps


@pytest.mark.parametrize("bound", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("count", [1, 2, 17, pytest.param(100, marks=pytest.mark.slow)])
def test_the_loss_lies_between_a_librarys_bounds(bound: float, count: int) -> None:
    """Delta is between the optimistic and the pessimistic bounds of dp-accounting."""
    noise = 2 / (1 + math.exp(bound))  # its responses answer at random with this probability
    high, low = (
        pld.from_randomized_response(
            noise, 2, pessimistic_estimate=pessimistic, value_discretization_interval=1e-4
        ).self_compose(count)
        for pessimistic in (True, False)
    )
    steps = PureSteps(bound, count)
    for epsilon in (0.0, bound / 2, bound, bound * math.sqrt(count), 0.9 * bound * count):
        assert low.get_delta_for_epsilon(epsilon) <= steps.delta(epsilon) + 1e-12
        assert steps.delta(epsilon) <= high.get_delta_for_epsilon(epsilon) + 1e-12


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_the_loss_agrees_with_enumeration(count: int) -> None:
    """Delta is the sum over all response rows of P's excess over e^epsilon times Q."""
    bound, epsilon = 0.7, 0.9
    truth = math.exp(bound) / (1 + math.exp(bound))
    total = 0.0
    for answers in product((True, False), repeat=count):
        p = math.prod(truth if right else 1 - truth for right in answers)
        q = math.prod(1 - truth if right else truth for right in answers)
        total += max(0.0, p - math.exp(epsilon) * q)
    assert PureSteps(bound, count).delta(epsilon) == pytest.approx(total, rel=1e-12)


@given(st.floats(0.01, 3), st.integers(1, 60), st.floats(1e-12, 0.5))
def test_epsilon_and_delta_are_each_others_inverse(bound: float, count: int, delta: float) -> None:
    """The least epsilon for a delta has that delta, and a smaller epsilon has a larger one."""
    steps = PureSteps(bound, count)
    epsilon = steps.epsilon(delta)
    assert steps.delta(epsilon) <= delta
    if 0 < epsilon < bound * count:
        assert steps.delta(epsilon * (1 - 1e-6)) >= delta * (1 - 1e-9)


@given(st.floats(1e-6, 8), st.integers(1, 150), st.floats(-40, -0.1))
def test_claims_hold_exactly(bound: float, count: int, power: float) -> None:
    """At 60 digits, delta and epsilon are at least the exact values, by at most 1e-9."""
    steps, delta = PureSteps(bound, count), 10.0**power
    epsilon = steps.epsilon(delta)
    assert exact_delta(bound, count, epsilon) <= Fraction(delta)
    for part in (0.0, 0.3, 0.999):
        asked = part * bound * count
        exact, found = exact_delta(bound, count, asked), Fraction(steps.delta(asked))
        assert exact <= found <= max(exact * (1 + Fraction(1, 10**9)), Fraction(1, 10**300))


def exact_delta(bound: float, count: int, epsilon: float) -> Fraction:
    """Return delta from the distribution of lies, with exponentials at 60 digits."""
    with localcontext(Context(60)):
        odds, beyond = Decimal(bound).exp(), Decimal(epsilon).exp()
        total, reached = (1 + odds) ** count, Decimal(0)
        for lies in range(count + 1):
            truth, other = odds ** (count - lies), odds**lies
            reached += math.comb(count, lies) * max(Decimal(0), truth - beyond * other) / total
        return min(Fraction(reached), Fraction(1))  # the last of 60 digits may round above 1


@pytest.mark.parametrize(("bound", "count"), [(1e-3, 100_000), (1e-3, 10_000_000), (2.0, 10**6)])
def test_many_steps_cost_what_gaussian_noise_does(bound: float, count: int) -> None:
    """For millions of steps the loss is nearly normal, with half its variance as mean."""
    tilt = math.tanh(bound / 2)
    mean, variance = count * bound * tilt, count * bound**2 * (1 - tilt**2)
    found = PureSteps(bound, count).epsilon(1e-6)
    # P[loss > epsilon] is at least delta, and a normal loss is beyond 4.75 deviations 1e-6 times.
    assert mean + 3.5 * math.sqrt(variance) < found < mean + 4.76 * math.sqrt(variance)


def test_more_steps_than_can_be_counted_are_refused() -> None:
    """The error names the field, for given and for composed steps."""
    with pytest.raises(InputError, match="count"):
        PureSteps(0.1, STEPS_MAX + 1)
    with pytest.raises(InputError, match="count"):
        PureSteps(0.1, STEPS_MAX).repeat(2)


def test_without_delta_losses_add_up() -> None:
    """For delta = 0 the epsilon is the sum."""
    assert PureSteps(0.25, 8).epsilon() == 2.0


@given(st.floats(0.05, 6), st.integers(1, 200))
def test_the_loss_is_never_above_bounded_range(epsilon: float, count: int) -> None:
    """Binary steps at epsilon / 2 each cost at most the bounded-range bound at epsilon."""
    known = BoundedRange.step(epsilon).repeat(count).epsilon(1e-6)
    assert PureSteps(epsilon / 2, count).epsilon(1e-6) <= known * (1 + 1e-9)


def test_steps_of_different_bounds_are_refused() -> None:
    """Only equal steps compose into one distribution."""
    with pytest.raises(InputError, match="bound"):
        PureSteps(0.1).compose(PureSteps(0.2))


@pytest.mark.parametrize("bound", [math.inf, math.nan, -0.1])
def test_an_invalid_bound_is_refused_by_name(bound: float) -> None:
    """A bound is finite and at least 0; the error names the field."""
    with pytest.raises(InputError) as caught:
        PureSteps(bound)
    assert caught.value.field == "bound"
