"""The noise of a release: its two distributions, the public choice of one, and a row's loss.

A release has a budget (epsilon, delta) and m noise shares that are certainly unknown to an
observer. A row that is in run i is in at most `omega(i)` runs: see `radius.algorithm.allocation`.

Pure noise
    Run i has discrete Laplace noise of scale `omega(i) / epsilon`, in Pólya shares.

Gaussian noise
    Each share of run i is discrete Gaussian with the least sigma at which m shares have
    `m sigma(i)**2 - R >= omega(i) / mu**2`, with R as in `privacy.shares` and the mu of the budget.
    A row changes one entry of each run of a clique S by 1. Entries that it does not change have the
    same distribution with and without it, so the row has the guarantee of `gaussian_shares` in
    which the squares of mu of the runs of S add up, and their slacks, too. Both fall as omega
    rises. Let i be the run of S with the least omega: since `|S| <= omega(i)`, all of S together
    have at most the square of mu and the slack of omega(i) runs like i, and so at most mu**2.

    Gaussian noise grows with the root of omega(i), and pure noise with omega(i).

Choice
    The noise with the smaller mean absolute value of an entry of m shares, over all runs: that of
    pure noise is `1 / sinh(epsilon / omega(i))`, and that of Gaussian noise `sqrt(2 m / pi)
    sigma(i)`. Where these are equal, labels of both have about the same accuracy (wine, breast
    cancer, iris and digits), although the standard deviation of pure noise is still greater. For
    (1, 1e-5) they are equal between omega = 9 and 10. The rule is public: omega depends on queries
    and radii alone, and radii found for k on earlier totals.

Releases of a batch compose by adding up their epsilons and deltas, so that each may choose for
itself, after the totals of the earlier ones.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.random import Generator

from veilring.arrays import Floats, Ints
from veilring.privacy.accounting import GaussianDP
from veilring.privacy.checks import require_that
from veilring.privacy.divisible import POLYA_SCALE_MAX, polya_difference
from veilring.privacy.noise import (
    discrete_gaussian,
    discrete_laplace_kurtosis,
    discrete_laplace_variance,
)
from veilring.privacy.shares import (
    EPSILON_MAX,
    GAUSSIAN_SIGMA_MIN,
    NearGaussian,
    count_loss,
    gaussian_share_sigma,
    gaussian_shares,
)
from veilring.protocols.radius.algorithm.allocation import Allocation
from veilring.protocols.radius.algorithm.balls import BATCH_MAX


@dataclass(frozen=True, slots=True, eq=False)
class GaussianPlan:
    """Gaussian noise for the runs of a release; an `Allocation` is the plan of pure noise.

    Attributes:
        crowds: omega of each run, or an upper bound on it, shape (Q,).
        sigmas: A share's sigma for each run, shape (Q,).
        epsilon: The price of the release at `delta`, if enough shares are there.
    """

    crowds: Ints
    sigmas: Floats
    epsilon: float
    delta: float


Plan = Allocation | GaussianPlan


def choose_noise(pure: Allocation, epsilon: float, delta: float, shares: int) -> Plan:
    """Return the plan with the smaller noise of a release with a budget.

    Args:
        pure: The division of epsilon among the runs.
        delta: The most that Gaussian noise may use; 0 for pure noise.
        shares: m, the number of shares that make up the noise.
    """
    gaussian = gaussian_plan(pure.crowds, epsilon, delta, shares)
    if gaussian is None:
        return pure
    q = np.exp(-pure.epsilons)
    of_pure = (2 * q / -np.expm1(-2 * pure.epsilons)).mean()
    of_gaussian = math.sqrt(2 * shares / math.pi) * gaussian.sigmas.mean()
    return gaussian if of_gaussian < of_pure else pure


def gaussian_plan(crowds: Ints, epsilon: float, delta: float, shares: int) -> GaussianPlan | None:
    """Return the least Gaussian noise of a release; None if its budget allows for pure noise only.

    An epsilon above `EPSILON_MAX` needs none.
    """
    if delta == 0 or epsilon > EPSILON_MAX:
        return None
    mu = _mu(epsilon, delta, shares)
    sigmas = _of_each(crowds, lambda crowd: float(gaussian_share_sigma(mu, shares, crowd**0.5)))
    return GaussianPlan(crowds, sigmas, epsilon, delta)


@lru_cache(maxsize=256)
def _mu(epsilon: float, delta: float, shares: int) -> float:
    """Return the greatest mu with which a release costs (epsilon, delta), with the most slack."""
    slack = gaussian_shares(GAUSSIAN_SIGMA_MIN, shares, 1.0, BATCH_MAX).slack
    return NearGaussian.calibrate(epsilon, delta, slack).gaussian.mu


def plan_bytes(plan: Plan) -> bytes:
    """Return the noise of a plan as bytes, which parties compare."""
    if isinstance(plan, GaussianPlan):
        return b"gaussian" + plan.sigmas.tobytes()
    return plan.epsilons.tobytes()


def plan_loss(plan: Plan, there: int, shares: int) -> Fraction:
    """Return the epsilon of a release, at the delta of its plan, rounded up.

    Args:
        there: The number of shares that protect a row, at least 1.
        shares: m, the number that makes up the noise.
    """
    if isinstance(plan, GaussianPlan):
        return Fraction(_gaussian_loss(plan, there))
    exponent = Fraction(there, shares)
    pairs = {*zip(map(int, plan.crowds), map(float, plan.epsilons), strict=True)}
    return max(crowd * Fraction(count_loss(epsilon, exponent)) for crowd, epsilon in pairs)


def _gaussian_loss(plan: GaussianPlan, there: int) -> float:
    pairs = {*zip(map(int, plan.crowds), map(float, plan.sigmas), strict=True)}
    cliques = [gaussian_shares(sigma, there, crowd**0.5, crowd) for crowd, sigma in pairs]
    worst = NearGaussian(
        GaussianDP(max(each.gaussian.mu for each in cliques)), max(each.slack for each in cliques)
    )
    enough = worst.delta(plan.epsilon) <= plan.delta
    return plan.epsilon if enough else worst.epsilon(plan.delta)


def deviations(plan: Plan, added: int, shares: int) -> Floats:
    """Return the standard deviation of each run's entries, shape (Q,).

    Args:
        added: The number of shares that were added.
        shares: m, the number that makes up the noise.
    """
    if isinstance(plan, GaussianPlan):
        return np.asarray(math.sqrt(added) * plan.sigmas)
    variances = _of_each(plan.epsilons, lambda epsilon: discrete_laplace_variance(1 / epsilon))
    return np.sqrt(added / shares * variances)


def kurtosis(plan: Plan) -> float:
    """Return the maximum kurtosis of an entry's noise, if enough shares were added."""
    if isinstance(plan, GaussianPlan):
        return 3.0  # up to a part of 1e-30, since all sigmas are at least `GAUSSIAN_SIGMA_MIN`
    return discrete_laplace_kurtosis(1 / float(plan.epsilons.max()))


def noise_share(plan: Plan, entries: int, exponent: Fraction, rng: Generator) -> Ints:
    """Draw a party's share of the noise of a plan, shape (Q, entries).

    Pure noise needs an epsilon of at least `1 / POLYA_SCALE_MAX` for each run.

    Args:
        exponent: 1 / m, the exponent of a Pólya share; above 0 and at most 1.
    """
    if isinstance(plan, GaussianPlan):
        return discrete_gaussian(plan.sigmas[:, None], (len(plan.sigmas), entries), rng)
    enough = bool((plan.epsilons * POLYA_SCALE_MAX >= 1).all())
    require_that(
        enough,
        "epsilons",
        f"each of the epsilons must be at least 1/{POLYA_SCALE_MAX}; ask fewer queries, or "
        "use a larger epsilon",
    )
    shares = np.empty((len(plan.epsilons), entries), dtype=np.int64)
    for epsilon in np.unique(plan.epsilons):
        those = plan.epsilons == epsilon
        scale, shape = 1 / Fraction(float(epsilon)), (int(those.sum()), entries)
        shares[those] = polya_difference(exponent, scale, shape, rng)
    return shares


def _of_each(values: Ints | Floats, function: Callable[[float], float]) -> Floats:
    """Apply a function to each value, once for equal ones."""
    different, places = np.unique(values, return_inverse=True)
    return np.array([function(float(each)) for each in different])[places]
