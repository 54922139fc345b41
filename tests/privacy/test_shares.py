"""The privacy loss of sums of noise shares: accounts compared with exact convolutions."""

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import product

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution as pld
from numpy.typing import NDArray
from scipy.special import ive, logsumexp

from veilring.errors import InputError
from veilring.privacy.accounting import GaussianDP
from veilring.privacy.noise import discrete_gaussian_pmf
from veilring.privacy.polya import polya_difference_pmf
from veilring.privacy.shares import (
    SKELLAM_ORDERS,
    count_loss,
    gaussian_shares,
    skellam_noise,
    vector_loss,
)

ORDERS = (1.5, 2.0, 5.0, 12.0, 24.0)
DELTA = 1e-5


@lru_cache
def gaussian_sum(sigma: float, shares: int) -> NDArray[np.float64]:
    """Return the distribution of a sum of discrete Gaussian shares, with 0 in the middle.

    All terms are positive, so even the smallest probability has 12 correct digits.
    """
    reach = math.ceil(26 * sigma * math.sqrt(shares)) + 20
    one = discrete_gaussian_pmf(np.arange(-reach, reach + 1), sigma)
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    return np.asarray(total)


def near(distribution: NDArray[np.float64], reach: int) -> NDArray[np.float64]:
    """Return the middle of a distribution."""
    middle = len(distribution) // 2
    return distribution[max(0, middle - reach) : middle + reach + 1]


def divergence(distribution: NDArray[np.float64], shift: tuple[int, ...], order: float) -> float:
    """Return the Rényi divergence of independent coordinates of a distribution from their shift."""
    logs = np.log(np.maximum(distribution, 1e-300))
    exponents = np.zeros(())
    for step in shift:
        one, other = logs[step:], logs[: len(logs) - step]
        exponents = np.add.outer(exponents, order * one + (1 - order) * other)
    return float(logsumexp(exponents) / (order - 1))


def hockey_stick(
    distribution: NDArray[np.float64], shift: tuple[int, ...], epsilon: float
) -> float:
    """Return the true delta of independent coordinates of a distribution and their shift."""
    one, other = np.ones(()), np.ones(())
    for step in shift:
        padded = np.pad(distribution, step)
        one = np.multiply.outer(one, padded)
        other = np.multiply.outer(other, np.roll(padded, step))
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


@pytest.mark.parametrize("shares", [1, 2, 5])
@pytest.mark.parametrize("sigma", [3.0, 4.7])
@pytest.mark.parametrize("shift", [(1,), (3,), (1, 1), (2, 1)], ids=str)
def test_the_account_of_gaussian_shares_is_exact_to_a_millionth(
    shares: int, sigma: float, shift: tuple[int, ...]
) -> None:
    """At each order the claim is at least the divergence of the convolution, and close to it."""
    claim = gaussian_shares(sigma, shares, math.hypot(*shift), len(shift))
    distribution, plane = gaussian_sum(sigma, shares), len(shift) > 1
    for order in ORDERS[: 3 if plane else None]:
        found = divergence(near(distribution, 140) if plane else distribution, shift, order)
        assert found == pytest.approx(order * claim.rho, rel=1e-6)
        # Logarithms of a distribution that is right to 12 digits.
        assert found <= order * claim.rho * (1 + 1e-9)


@pytest.mark.parametrize("shift", [(5,), (3, 4)], ids=str)
@pytest.mark.parametrize("shares", [2, 4])
def test_the_true_delta_is_below_the_one_that_is_claimed(
    shift: tuple[int, ...], shares: int
) -> None:
    """The hockey-stick divergence of the sum is at most that of the account."""
    sigma, length = 10.0, math.hypot(*shift)
    claim = gaussian_shares(sigma, shares, length, len(shift))
    distribution = gaussian_sum(sigma, shares)
    for epsilon in (0.3, claim.epsilon(DELTA)):
        found = hockey_stick(near(distribution, 160), shift, epsilon)
        ideal = GaussianDP.of_gaussian(sigma * math.sqrt(shares), length).delta(epsilon)
        assert found <= claim.delta(epsilon)
        assert found == pytest.approx(ideal, rel=0.2)


@pytest.mark.parametrize("shares", [2, 3, 6])
@pytest.mark.parametrize("sigma", [0.5, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("shift", [1, 2])
def test_small_shares_are_accounted_for_too(shares: int, sigma: float, shift: int) -> None:
    """Even for a sum far from a discrete Gaussian, the divergence stays below the claim."""
    claim = gaussian_shares(sigma, shares, shift, 1)
    distribution = gaussian_sum(sigma, shares)
    for order in (1.5, 2.0, 3.0):
        assert divergence(distribution, (shift,), order) <= order * claim.rho


def test_an_account_without_tau_is_caught() -> None:
    """A sum of small shares has a larger loss than discrete Gaussian noise of equal variance."""
    distribution, ideal = gaussian_sum(0.5, 2), 1 / (2 * 2 * 0.5**2)
    assert divergence(distribution, (1,), 1.5) > 1.5 * ideal * 1.0001
    assert gaussian_shares(0.5, 2, 1, 1).rho > ideal * 1.1


@pytest.mark.parametrize("dimensions", [1, 400])
def test_the_account_is_that_of_dp_accounting_for_one_gaussian(dimensions: int) -> None:
    """From sigma 3, m shares equal Gaussian noise of m times the variance, at its orders."""
    claim = gaussian_shares(3.5, 6, 2.0, dimensions)
    orders = np.linspace(1.05, 64, 2000).tolist()
    known = rdp.RdpAccountant(orders)
    known.compose(dp_accounting.GaussianDpEvent(3.5 * math.sqrt(6) / 2.0))
    assert claim.epsilon(DELTA) == pytest.approx(known.get_epsilon(DELTA), rel=1e-5)
    assert claim.epsilon(DELTA) <= known.get_epsilon(DELTA) * (1 + 1e-9)


def log_skellam(variance: float, reach: int) -> NDArray[np.float64]:
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
def test_the_account_of_skellam_noise_is_above_the_truth_and_near(
    variance: float, shift: int
) -> None:
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


def test_wide_skellam_noise_is_as_good_as_gaussian_noise() -> None:
    """At standard deviations of several thousand, the epsilons agree to three digits."""
    found = skellam_noise(4045.0**2, 1000, 1000).epsilon(DELTA)
    assert found == pytest.approx(1, abs=2e-3)
    assert found >= gaussian_shares(4045.0, 1, 1000, 1).epsilon(DELTA)
    assert len(set(SKELLAM_ORDERS)) == len(SKELLAM_ORDERS)


def steps(norm: int, dimensions: int) -> Iterator[tuple[int, ...]]:
    """Yield all vectors of whole numbers of at least 0 with at most this L1 norm."""
    for vector in product(range(norm + 1), repeat=dimensions):
        if sum(vector) <= norm:
            yield vector


@pytest.mark.parametrize("exponent", [Fraction(1, 5), Fraction(3, 4), Fraction(1), Fraction(3, 2)])
@pytest.mark.parametrize(("norm", "dimensions"), [(1, 1), (5, 1), (5, 2), (4, 3), (2, 4)])
def test_the_loss_of_a_vector_is_the_worst_of_all_vectors(
    exponent: Fraction, norm: int, dimensions: int
) -> None:
    """No vector of the norm has a greater ratio, and some vector attains it (or in the limit)."""
    epsilon = Fraction(1, 4)
    reach = 160
    logs = np.log(polya_difference_pmf(np.arange(-reach, reach + 1), exponent, 1 / epsilon))
    losses = [0.0, *(float((logs[u:] - logs[:-u]).max()) for u in range(1, norm + 1))]
    worst = max(sum(losses[u] for u in vector) for vector in steps(norm, dimensions))
    claim = vector_loss(epsilon, exponent, norm, dimensions)
    assert worst <= claim + 1e-9
    assert worst > claim * (1 - 1e-6 if exponent <= 1 else 0.9)


def test_the_loss_of_a_full_share_is_that_of_dp_accounting() -> None:
    """With all the noise, the loss of a count equals dp-accounting's for discrete Laplace noise."""
    known = pld.from_discrete_laplace_mechanism(0.25, sensitivity=3)
    claim = vector_loss(0.25, Fraction(1), 3, 1)
    assert claim == 0.75
    assert known.get_delta_for_epsilon(claim) == pytest.approx(0, abs=1e-12)
    assert known.get_delta_for_epsilon(claim - 0.01) > 1e-4


def test_losses_of_more_units_are_bounded_by_those_of_one() -> None:
    """Counts that change by more have a larger loss, but less than in proportion."""
    third = Fraction(1, 3)
    losses = [count_loss(0.2, third, units) for units in range(6)]
    assert losses[0] == 0
    assert (np.diff(losses) > 0.2).all()
    assert (np.diff(losses, 2) < 0).all()
    assert vector_loss(0.2, third, 5, 5) == pytest.approx(5 * losses[1], rel=1e-12)
    assert vector_loss(0.2, Fraction(), 5, 2) == math.inf


def test_invalid_arguments_are_refused() -> None:
    """Arguments out of range are refused by name."""
    for arguments, field in (
        ((0.4, 2, 1.0, 1), "sigma"),
        ((3.0, 0, 1.0, 1), "shares"),
        ((3.0, 2, 0.0, 1), "sensitivity"),
        ((3.0, 2, 1.0, 0), "dimensions"),
    ):
        with pytest.raises(InputError, match=f"{field} is"):
            gaussian_shares(*arguments)
    with pytest.raises(InputError, match="orders is"):
        skellam_noise(9.0, 1.0, 1.0, (2.5,))
    with pytest.raises(InputError, match="sensitivity is 0"):
        vector_loss(1.0, Fraction(1), 0, 1)
    with pytest.raises(InputError, match="dimensions is 0"):
        vector_loss(1.0, Fraction(1), 1, 0)
    with pytest.raises(InputError, match="units is -1"):
        count_loss(1.0, Fraction(1, 2), -1)
