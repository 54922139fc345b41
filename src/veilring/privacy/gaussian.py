"""Discrete Gaussian noise (Canonne, Kamath and Steinke, NeurIPS 2020).

`P[k]` is proportional to `e**(-k**2 / (2 sigma**2))` on the whole numbers. A shift of the input by
a vector v of whole numbers has a Rényi divergence of at most `alpha * |v|**2 / (2 sigma**2)` at
every order, as the continuous law has (their Proposition 5). It is *not* a Gaussian mechanism in
the sense of Gaussian differential privacy: account for it by Rényi orders.
"""

import math
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilring.privacy.checks import require, require_scale
from veilring.privacy.laplace import discrete_laplace
from veilring.privacy.lazy import bernoulli_exp

__all__ = ("discrete_gaussian", "discrete_gaussian_pmf", "discrete_gaussian_variance")

# One less for the scale of the proposal, a whole number above sigma.
_GREATEST_SIGMA: Final = 2**40 - 1
# From here on the sums over the whole numbers are the integrals, to all digits of a float: by
# Poisson's formula they differ by a factor of 1 + 2 e**(-2 pi**2 sigma**2), about 1e-34.
_SMOOTH: Final = 2.0
# Beyond so many whole numbers nothing is left at sigma below 2.
_REACH: Final = 80


def discrete_gaussian(
    sigma: float | Fraction, shape: int | tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw exact discrete Gaussian noise, by rejection (their Algorithm 3).

    Args:
        sigma: In whole numbers (or steps of a grid), from 2**-20 to 2**40 - 1. A float is taken as
            the fraction that it is.
        shape: The shape of the result.
        rng: Source of the noise.

    Raises:
        InputError: If `sigma` is outside its range.
    """
    exact = require_scale("sigma", sigma)
    require(exact <= _GREATEST_SIGMA, "sigma", sigma, f"at most {_GREATEST_SIGMA}")
    noise = np.empty(shape, dtype=np.int64)
    missing = np.arange(noise.size)
    while missing.size:
        proposed, accepted = _propose(exact, missing.size, rng)
        noise.flat[missing[accepted]] = proposed[accepted]
        missing = missing[~accepted]
    return noise


def _propose(
    sigma: Fraction, size: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw discrete Laplace noise, and whether each is accepted: `e**-gamma` is its chance."""
    scale = math.floor(sigma) + 1
    peak, spread = sigma**2 / scale, 2 * sigma**2
    proposed = discrete_laplace(scale, size, rng)
    gamma = (np.abs(proposed) - float(peak)) ** 2 / float(spread)
    return proposed, bernoulli_exp(
        gamma, lambda index: (abs(int(proposed[index])) - peak) ** 2 / spread, rng
    )


def discrete_gaussian_pmf(k: ArrayLike, sigma: float | Fraction) -> NDArray[np.float64]:
    """Return the probabilities of whole numbers, of the same shape.

    Raises:
        InputError: If `sigma` is outside its range.
    """
    spread = 2 * float(require_scale("sigma", sigma)) ** 2
    return np.asarray(np.exp(-np.square(k, dtype=np.float64) / spread) / _mass(float(sigma)))


def discrete_gaussian_variance(sigma: float | Fraction) -> float:
    """Return the variance, below `sigma**2` by less than a float can tell from 2 on.

    Raises:
        InputError: If `sigma` is outside its range.
    """
    if float(require_scale("sigma", sigma)) >= _SMOOTH:
        return float(sigma) ** 2
    k = np.arange(-_REACH, _REACH + 1)
    return float(np.sum(k**2 * discrete_gaussian_pmf(k, sigma)))


def _mass(sigma: float) -> float:
    """Return the sum of `e**(-k**2 / (2 sigma**2))` over all whole numbers."""
    if sigma >= _SMOOTH:
        return math.sqrt(2 * math.pi) * sigma
    k = np.arange(-_REACH, _REACH + 1)
    return float(np.sum(np.exp(-(k**2) / (2 * sigma**2))))
