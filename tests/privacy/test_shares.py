"""The privacy loss of sums of noise shares: accounts compared with exact convolutions."""

import math
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import ive, logsumexp

from veilring.arrays import Floats
from veilring.privacy.accounting import ZCDP, GaussianDP
from veilring.privacy.divisible import polya_difference_pmf
from veilring.privacy.noise import discrete_gaussian_pmf
from veilring.privacy.shares import (
    NearGaussian,
    count_loss,
    gaussian_shares,
    skellam_noise,
    vector_loss,
)

DELTA = 1e-5
# Sums of probabilities that have 12 correct digits are off by less where delta is tiny.
ROUNDING = 1e-15


@lru_cache
def gaussian_sum(sigma: float, shares: int) -> Floats:
    """Return the distribution of a sum of discrete Gaussian shares, with 0 in the middle.

    All terms are positive, so even the smallest probability has 12 correct digits.
    """
    reach = math.ceil(26 * sigma * math.sqrt(shares)) + 20
    one = discrete_gaussian_pmf(np.arange(-reach, reach + 1), sigma)
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    return np.asarray(total)


def hockey_stick(distribution: Floats, shift: tuple[int, ...], epsilon: float) -> float:
    """Return the true delta of independent coordinates of a distribution and their shift."""
    one, other = np.ones(()), np.ones(())
    for step in shift:
        padded = np.pad(distribution, step)
        one = np.multiply.outer(one, padded)
        other = np.multiply.outer(other, np.roll(padded, step))
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


@pytest.mark.parametrize("shift", [(1,), (3,), (5,), (1, 1), (2, 1), (3, 4)], ids=str)
@pytest.mark.parametrize("shares", [1, 2, 5])
@pytest.mark.parametrize("sigma", [2.0, 2.6, 10.0])
def test_the_true_delta_keeps_the_claim(sigma: float, shares: int, shift: tuple[int, ...]) -> None:
    """The exact delta of a sum of shares is at most the claim, and near it for wide sums."""
    length, variance = math.hypot(*shift), shares * sigma**2
    claim = gaussian_shares(sigma, shares, length, len(shift))
    distribution = gaussian_sum(sigma, shares)
    reach = len(distribution) if len(shift) == 1 else math.ceil(9 * math.sqrt(variance)) + 10
    centre = len(distribution) // 2
    middle = slice(max(0, centre - reach), centre + reach + 1)
    for epsilon in (0.0, 0.3, 1.0, claim.epsilon(DELTA)):
        found = hockey_stick(distribution[middle], shift, epsilon)
        assert found <= claim.delta(epsilon) + ROUNDING
        if variance >= 100 and claim.delta(epsilon) >= DELTA / 2:
            assert found > 0.8 * claim.delta(epsilon)


@pytest.mark.parametrize(("sigma", "sensitivity"), [(2.0, 1), (3.0, 4), (40.0, 10), (400.0, 100)])
def test_one_share_costs_at_least_what_dp_accounting_finds(sigma: float, sensitivity: int) -> None:
    """The epsilon is not below the exact one of discrete Gaussian noise, and near it if wide."""
    known = pld.from_discrete_gaussian_mechanism(
        sigma, sensitivity=sensitivity, value_discretization_interval=1e-5
    )
    exact = known.get_epsilon_for_delta(DELTA)  # too high by a step of 1e-5 at most
    found = gaussian_shares(sigma, 1, sensitivity, 1).epsilon(DELTA)
    assert found >= exact - 1e-5
    assert found <= exact * (1 + 2 / sigma**2) + 1e-2 / sigma


def test_an_account_without_rounding_is_caught() -> None:
    """Some discrete Gaussian has a larger delta than the continuous one of its variance."""
    distribution, ideal = gaussian_sum(2.0, 1), GaussianDP.of_gaussian(2.0, 1)
    epsilons = np.linspace(0, 2, 41)
    worst = [hockey_stick(distribution, (1,), each) / ideal.delta(each) for each in epsilons]
    assert max(worst) > 1.01


@pytest.mark.parametrize("slack", [1e-3, 0.05, 0.4])
def test_the_slack_covers_any_change_of_probabilities_by_its_factor(slack: float) -> None:
    """The delta of a pair whose probabilities are moved apart is at most the claim."""
    one = gaussian_sum(10.0, 1)
    other = np.roll(one, 5)
    ideal = gaussian_shares(10.0, 1, 5.0, 1)
    claim = NearGaussian(ideal.gaussian, slack + ideal.slack)
    for epsilon in (0.0, slack, 0.3, 1.0, 3.0):
        above = one > math.exp(epsilon - 2 * slack) * other
        found = one[above].sum() * math.exp(slack)
        found -= math.exp(epsilon - slack) * other[above].sum()
        assert hockey_stick(one, (5,), epsilon) < found <= claim.delta(epsilon)
    assert claim.delta(claim.epsilon(DELTA)) == pytest.approx(DELTA, rel=1e-9)
    assert claim.repeat(3) == claim.compose(claim, claim)
    assert claim.repeat(10_000).delta(1.0) == 1.0


@pytest.mark.parametrize("dimensions", [1, 400])
def test_wide_shares_cost_what_gaussian_noise_does(dimensions: int) -> None:
    """From a deviation of 1,000 the epsilon is that of continuous noise to six digits."""
    claim = gaussian_shares(500.0, 4, 300.0, dimensions)
    exact = GaussianDP.of_gaussian(1000.0, 300.0).epsilon(DELTA)
    assert exact < claim.epsilon(DELTA) < exact * (1 + 2e-6)
    assert claim.slack == pytest.approx(dimensions * 5 * math.exp(-3 * math.pi**2), rel=1e-9)


def log_skellam(variance: float, reach: int) -> Floats:
    """Return Skellam's log-probabilities from 0 to `reach`, by the ratios of neighbours.

    `I_{k + 1} / I_k` is a continued fraction, all terms of which are above 0.
    """
    ratios, far = np.zeros(reach), 0.0
    for k in range(2 * reach, -1, -1):
        far = 1 / (2 * (k + 1) / variance + far)
        if k < reach:
            ratios[k] = far
    return np.concatenate([[0.0], np.cumsum(np.log(ratios))]) + math.log(ive(0, variance))


@pytest.mark.parametrize("variance", [9.0, 40.0, 1000.0])
@pytest.mark.parametrize("shift", [1, 2, 6])
def test_the_account_of_skellam_noise_is_just_above_the_truth(variance: float, shift: int) -> None:
    """At all tested orders the claim exceeds the exact divergence, slightly for wide noise."""
    orders = tuple(order for order in (2.0, 3.0, 8.0, 32.0, 128.0, 1024.0) if order * shift < 3000)
    claim = skellam_noise(variance, shift, shift, orders)
    reach = 9000
    half = log_skellam(variance, reach)
    logs = np.concatenate([half[:0:-1], half])
    for order, bound in zip(orders, claim.divergences, strict=True):
        found = logsumexp(order * logs[shift:] + (1 - order) * logs[:-shift]) / (order - 1)
        assert found <= bound
        assert found > bound * (1 - 8 / variance - 5 * (order * shift / variance) ** 2)


def test_wide_skellam_noise_costs_the_orders_of_gaussian_noise() -> None:
    """At deviations of several thousand, the epsilon is that of Gaussian noise by Rényi orders."""
    found = skellam_noise(4045.0**2, 1000, 1000).epsilon(DELTA)
    assert found == pytest.approx(1, abs=2e-3)
    assert found >= ZCDP.of_gaussian(4045.0, 1000.0).epsilon(DELTA)


@pytest.mark.parametrize("exponent", [Fraction(1, 5), Fraction(3, 4), Fraction(1), Fraction(3, 2)])
@pytest.mark.parametrize(("norm", "dimensions"), [(1, 1), (5, 1), (5, 2), (4, 3), (2, 4)])
def test_the_loss_of_a_vector_is_the_worst(exponent: Fraction, norm: int, dimensions: int) -> None:
    """No vector of the norm has a greater ratio, and some vector attains it (or in the limit)."""
    epsilon = Fraction(1, 4)
    reach = 160
    logs = np.log(polya_difference_pmf(np.arange(-reach, reach + 1), exponent, 1 / epsilon))
    losses = [0.0, *(float((logs[u:] - logs[:-u]).max()) for u in range(1, norm + 1))]
    vectors = (u for u in product(range(norm + 1), repeat=dimensions) if sum(u) <= norm)
    worst = max(sum(losses[u] for u in vector) for vector in vectors)
    claim = vector_loss(epsilon, exponent, norm, dimensions)
    assert worst <= claim + 1e-9
    assert worst > claim * (1 - 1e-6 if exponent <= 1 else 0.9)


def test_losses_of_more_units_are_bounded_by_those_of_one() -> None:
    """Counts that change by more have a larger loss, but less than in proportion."""
    third = Fraction(1, 3)
    losses = [count_loss(0.2, third, units) for units in range(6)]
    assert losses[0] == 0
    assert (np.diff(losses) > 0.2).all()
    assert (np.diff(losses, 2) < 0).all()
    assert vector_loss(0.2, third, 5, 5) == pytest.approx(5 * losses[1], rel=1e-12)
    assert vector_loss(0.2, Fraction(), 5, 2) == math.inf
