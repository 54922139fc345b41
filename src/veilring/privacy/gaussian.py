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

from veilring.privacy.checks import require
from veilring.privacy.laplace import discrete_laplace
from veilring.privacy.lazy import bernoulli_exp
from veilring.privacy.scales import Scale, Scales, require_scale

# One less for the scale of the proposal, a whole number above sigma.
_GREATEST_SIGMA: Final = 2**40 - 1
# From here on the sums over the whole numbers are the integrals, to all digits of a float: by
# Poisson's formula they differ by a factor of 1 + 2 e**(-2 pi**2 sigma**2), about 1e-34.
_SMOOTH: Final = 2.0
# Beyond so many whole numbers nothing is left at sigma below 2.
_REACH: Final = 80


def discrete_gaussian(
    sigma: Scale, shape: int | tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw exact discrete Gaussian noise, by rejection (their Algorithm 3).

    Args:
        sigma: In whole numbers (or steps of a grid), from 2**-20 to 2**40 - 1, for all draws or an
            array of it that fits `shape`. A float is taken as the fraction that it is.
        shape: The shape of the result.
        rng: Source of the noise.

    Raises:
        InputError: If `sigma` is outside its range.
    """
    sigmas = Scales.of("sigma", sigma, shape)
    inside = bool((sigmas.floats <= _GREATEST_SIGMA).all())
    require(inside, "sigma", "out of range", f"at most {_GREATEST_SIGMA}")
    noise = np.empty(sigmas.floats.size, dtype=np.int64)
    missing = np.arange(noise.size)
    while missing.size:
        proposed, accepted = _propose(sigmas.take(missing), rng)
        noise[missing[accepted]] = proposed[accepted]
        missing = missing[~accepted]
    return noise.reshape(shape)


def _propose(
    sigmas: Scales, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw discrete Laplace noise, and whether each is accepted: `e**-gamma` is its chance."""
    scales = np.floor(sigmas.floats) + 1
    proposed = discrete_laplace(scales, scales.size, rng)

    def exact(index: int) -> Fraction:
        square = sigmas.exact(index) ** 2
        return (abs(int(proposed[index])) - square / int(scales[index])) ** 2 / (2 * square)

    squares = sigmas.floats**2
    gamma = (np.abs(proposed) - squares / scales) ** 2 / (2 * squares)
    return proposed, bernoulli_exp(gamma, exact, rng)


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
