"""Conversions to (epsilon, delta), compared with dp-accounting, closed forms and enumeration."""

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st
from papers.accounting import BoundedRange, least_noise, subsampled_gaussian
from scipy.stats import binom

from veilring.privacy.accounting import (
    ORDERS,
    ZCDP,
    Accountant,
    GaussianDP,
    Guarantee,
    PureDP,
    PureSteps,
    RenyiDP,
    individual_budget,
)
from veilring.privacy.checks import doubt_of_delta

DELTAS = (1e-3, 1e-5, 1e-10)
EPSILONS = (0.1, 0.5, 1.0, 4.0)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("sigma", [0.2, 1.0, 3.7, 100.0])
def test_gaussian_epsilon_is_that_of_dp_accounting(sigma: float, delta: float) -> None:
    """The exact epsilon of a Gaussian release agrees to 1e-5, and inverting it gives the noise.

    The minimum noise for (epsilon, delta) agrees to 1e-5 and never falls below the exact one.
    """
    found = GaussianDP.of_gaussian(sigma).epsilon(delta)
    assert found == pytest.approx(dp_accounting.get_epsilon_gaussian(sigma, delta), rel=1e-5)
    if found > 0:
        assert GaussianDP.calibrate(found, delta).sigma() == pytest.approx(sigma, rel=1e-5)
    for epsilon in EPSILONS:
        least = GaussianDP.calibrate(epsilon, delta)
        expected = dp_accounting.get_sigma_gaussian(epsilon, delta)
        assert least.sigma() == pytest.approx(expected, rel=1e-5)
        assert least.delta(epsilon) <= delta < GaussianDP(least.mu * (1 + 1e-9)).delta(epsilon)


@pytest.mark.parametrize("mu", [1e-10, 1e-8, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.999, 1.0, 3.0, 30.0])
def test_the_delta_of_gaussian_noise_is_exact_to_ten_digits(mu: float) -> None:
    """It agrees with sixty digits at any mu and epsilon, as long as it is a normal float."""
    with mpmath.workdps(60):
        for ratio in (0.0, 1e-9, 1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0):
            m, epsilon = mpmath.mpf(mu), ratio * mu
            a, b = epsilon / m - m / 2, epsilon / m + m / 2
            expected = mpmath.ncdf(-a) - mpmath.exp(epsilon) * mpmath.ncdf(-b)
            if expected > 1e-290:
                assert abs(GaussianDP(mu).delta(epsilon) / expected - 1) < 1e-10


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("sigma", [0.5, 2.0, 30.0])
def test_renyi_epsilon_and_delta_are_those_of_dp_accounting(sigma: float, delta: float) -> None:
    """At the same orders conversions agree to 1e-5; zCDP agrees with a very fine grid of orders."""
    ours = RenyiDP.of_gaussian(sigma)
    expected, _ = rdp.rdp_privacy_accountant.compute_epsilon(ORDERS, ours.divergences, delta)
    assert ours.epsilon(delta) == pytest.approx(expected, rel=1e-5)
    exact = ZCDP.of_gaussian(sigma)
    fine = 1 + np.geomspace(1e-2, 1e4, 20_000)
    expected, _ = rdp.rdp_privacy_accountant.compute_epsilon(fine, fine * exact.rho, delta)
    assert exact.epsilon(delta) == pytest.approx(expected, rel=1e-5)
    expected, _ = rdp.rdp_privacy_accountant.compute_delta(fine, fine * exact.rho, 1.0)
    assert exact.delta(1.0) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.7, 1.0])
@pytest.mark.parametrize("sigma", [0.8, 2.0, 10.0])
def test_a_subsampled_gaussian_is_that_of_dp_accounting(sigma: float, rate: float) -> None:
    """A thousand Poisson-subsampled steps agree to 1e-5."""
    step = subsampled_gaussian(sigma, rate)
    accountant = rdp.RdpAccountant(step.orders)
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    accountant.compose(event, 1000)
    assert step.repeat(1000).epsilon(1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-5)


def test_composed_pure_dp_is_no_less_than_its_privacy_loss_distribution() -> None:
    """Converted as zCDP, a hundred releases cost at least dp-accounting's exact composition."""
    heads = 1 / (1 + math.exp(-0.1))
    exact = pld.from_two_probability_mass_functions(
        {0: math.log(heads), 1: math.log(1 - heads)}, {0: math.log(1 - heads), 1: math.log(heads)}
    ).self_compose(100)
    found = PureDP(0.1).zcdp().repeat(100).epsilon(1e-5)
    assert exact.get_epsilon_for_delta(1e-5) <= found < PureDP(0.1).repeat(100).epsilon()


def test_individual_budgets_are_those_of_the_literature() -> None:
    """At delta = 1e-5 and epsilon = 0.5, 1, 1.5 and 2, budgets match every printed digit."""
    published: dict[Accountant, list[float]] = {
        "rdp": [0.008506, 0.030557, 0.064198, 0.108256],
        "gdp": [0.010112, 0.035926, 0.074967, 0.125777],
    }
    for accountant, budgets in published.items():
        found = [round(individual_budget(e, 1e-5, accountant), 6) for e in (0.5, 1.0, 1.5, 2.0)]
        assert found == budgets


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_zcdp_is_calibrated_from_the_safe_side(epsilon: float, delta: float) -> None:
    """The calibrated budget gives at most epsilon; a slightly larger budget exceeds it."""
    rho = ZCDP.calibrate(epsilon, delta).rho
    assert ZCDP(rho).epsilon(delta) <= epsilon < ZCDP(rho * (1 + 1e-9)).epsilon(delta)
    assert ZCDP(rho).delta(epsilon) == pytest.approx(delta, rel=1e-5)
    assert ZCDP(rho).epsilon(delta) < ZCDP(rho).epsilon_2016(delta)


def test_bounded_range_is_that_of_its_theorem() -> None:
    """For 17 steps of 1 at delta = 1e-6, Theorem 3 gives 12.93; converting zCDP gives less.

    A hundred steps at the calibrated epsilon cost exactly the target, to the last float.
    """
    steps = BoundedRange.step(1.0).repeat(17)
    assert steps.epsilon_2020(1e-6) == pytest.approx(12.93, abs=0.005)
    assert steps.epsilon(1e-6) == steps.zcdp().epsilon(1e-6) < steps.epsilon_2020(1e-6)
    each = BoundedRange.calibrate(2.0, 1e-6, 100)
    assert 2.0 * (1 - 1e-9) < BoundedRange.step(each).repeat(100).epsilon(1e-6) <= 2.0


@pytest.mark.parametrize("count", [1, 5, 40])
@pytest.mark.parametrize("epsilon", [1e-5, 0.1, 1.0, 5.0])
def test_bounded_range_is_not_exceeded(epsilon: float, count: int) -> None:
    """Every worst pair of two-valued bounded-range distributions, composed, keeps its delta."""
    steps = BoundedRange.step(epsilon).repeat(count)
    for total in (steps.epsilon(1e-4), steps.epsilon_2020(1e-4)):
        for share in np.linspace(0.01, 0.99, 25):
            assert _two_valued_delta(epsilon, share * epsilon, count, total) <= 1e-4


def _two_valued_delta(width: float, top: float, count: int, epsilon: float) -> float:
    """Return the exact delta of `count` steps whose loss is `top` or `top - width`."""
    seldom = -math.expm1(top - width) / (math.exp(top) - math.exp(top - width))
    often = seldom * math.exp(top)
    hits = np.arange(count + 1)
    loss = hits * top + (count - hits) * (top - width)
    return float(np.sum(binom.pmf(hits, count, often) * np.maximum(0, -np.expm1(epsilon - loss))))


def test_least_noise_meets_its_target() -> None:
    """Noise for a subsampled composition reaches epsilon, and slightly less noise does not."""

    def training(sigma: float) -> RenyiDP:
        return subsampled_gaussian(sigma, 0.01, orders=(2.0, 8.0, 16.0, 32.0)).repeat(500)

    sigma = least_noise(training, 1.0, 1e-5)
    assert training(sigma).epsilon(1e-5) <= 1.0 < training(sigma * (1 - 1e-9)).epsilon(1e-5)


def test_composition_adds_up() -> None:
    """Each kind of guarantee composes as its paper states, and its noise gives it again.

    Zero repetitions cost nothing at any price.
    """
    assert PureDP(0.1).compose(PureDP(0.2)).bound == pytest.approx(0.3)
    assert ZCDP(0.1).compose(ZCDP(0.2), ZCDP(0.3)).rho == pytest.approx(0.6)
    assert GaussianDP(3.0).compose(GaussianDP(4.0)).mu == pytest.approx(5.0)
    assert PureSteps(0.25, 8).epsilon() == 2.0
    assert ZCDP.of_gaussian(ZCDP(0.02).sigma(3.0), 3.0).rho == pytest.approx(0.02)
    assert GaussianDP.of_gaussian(GaussianDP(0.2).sigma(3.0), 3.0).mu == pytest.approx(0.2)
    assert GaussianDP.of_gaussian(2.0).zcdp() == ZCDP.of_gaussian(2.0)
    assert PureDP(0.5).scale(2.0) == 4.0
    for kind in (PureDP, ZCDP, GaussianDP):
        assert kind(math.inf).repeat(0) == kind(0.0)
        assert kind(math.inf).repeat(1) == kind(math.inf)


@pytest.mark.parametrize(
    "one",
    [PureDP(0.3), ZCDP(0.3), GaussianDP(0.3), RenyiDP.of_gaussian(3.0), BoundedRange.step(0.3)],
    ids=lambda one: type(one).__name__,
)
def test_repeating_is_composing_with_itself(one: Guarantee) -> None:
    """Repeating three times equals composing three; repeating zero times costs nothing."""
    assert one.repeat(3).epsilon(1e-5) == pytest.approx(one.compose(one, one).epsilon(1e-5))
    assert one.repeat(0).epsilon(1e-5) == 0


@pytest.mark.parametrize(
    ("guarantee", "epsilon", "delta"),
    [
        # The best order is beyond the range of floats.
        (ZCDP(1000.0), 1.0, 1.0),
        (ZCDP(1e308), 5.0, 1.0),
        (ZCDP(math.inf), 5.0, 1.0),
        (ZCDP(1e-310), 1.0, 0.0),
        (ZCDP(0.0), 0.0, 0.0),
        # There is no step where the search for orders ends.
        *((ZCDP(rho), 0.0, 1.0) for rho in (600.0, 699.9, 700.1, 800.0)),
        # Pure privacy has no delta at its bound or above.
        *((PureDP(1.0), epsilon, 0.0) for epsilon in (1.0, 711.0, 1e308)),
        *((PureDP(math.inf), epsilon, 1.0) for epsilon in (1.0, 711.0, 1e308)),
    ],
)
def test_a_delta_has_its_limits(guarantee: ZCDP | PureDP, epsilon: float, delta: float) -> None:
    """It is 0 or 1 to all digits, not a float's overflow."""
    assert guarantee.delta(epsilon) == delta


def test_a_delta_is_doubted_above_one_over_the_rows() -> None:
    """A delta passes up to one in a thousand, or one over the number of rows if that is less."""
    assert doubt_of_delta(1e-3) == doubt_of_delta(1e-5, 100_000) == ""
    assert doubt_of_delta(2e-3).startswith("delta is 0.002, ")
    assert "below 1e-05" in doubt_of_delta(1.1e-5, 100_000)


@given(st.floats(-6, 1.5), st.floats(-18, -0.1))
def test_pure_conversions_are_rounded_to_the_safe_side(epsilon_power: float, power: float) -> None:
    """At 60 digits, calibrated values meet their targets, and no epsilon or delta is too small.

    Delta is the hockey-stick divergence of the two answers of randomised response.
    """
    epsilon, delta = 10.0**epsilon_power, 10.0**power

    def exact(bound: float, at: float) -> Decimal:
        with localcontext(Context(60)):
            odds = Decimal(bound).exp()
            return max(Decimal(0), (odds - Decimal(at).exp()) / (1 + odds))

    found = PureDP.calibrate(epsilon, delta)
    assert exact(found.bound, epsilon) <= Decimal(delta)
    assert exact(found.bound + 3 * math.ulp(found.bound), epsilon) > Decimal(delta)
    assert PureDP.calibrate(epsilon, 0.0) == PureDP(epsilon)
    for part in (0.0, 0.5, 0.999):
        at = part * found.bound
        worst = exact(found.bound, at)
        assert worst <= Decimal(found.delta(at)) <= worst + Decimal("1e-12")
        asked = found.epsilon(part * delta)
        assert exact(found.bound, asked) <= Decimal(part * delta)
        few = math.ulp(found.bound)
        assert found.delta(asked) == pytest.approx(part * delta, rel=1e-9, abs=few)


@given(st.floats(1e-6, 8), st.integers(1, 150), st.floats(-40, -0.1))
def test_claims_hold_exactly(bound: float, count: int, power: float) -> None:
    """At 60 digits, delta and epsilon are at least the exact values, by at most 1e-9.

    The least epsilon for a delta has that delta, and a smaller one has a larger delta.
    """
    steps, delta = PureSteps(bound, count), 10.0**power
    epsilon = steps.epsilon(delta)
    assert exact_delta(bound, count, epsilon) <= Fraction(delta)
    assert steps.delta(epsilon) <= delta
    if 0 < epsilon < bound * count:
        assert steps.delta(epsilon * (1 - 1e-6)) >= delta * (1 - 1e-9)
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


@given(st.floats(0.05, 6), st.integers(1, 200))
def test_the_loss_is_never_above_bounded_range(epsilon: float, count: int) -> None:
    """Binary steps at epsilon / 2 each cost at most the bounded-range bound at epsilon."""
    known = BoundedRange.step(epsilon).repeat(count).epsilon(1e-6)
    assert PureSteps(epsilon / 2, count).epsilon(1e-6) <= known * (1 + 1e-9)
