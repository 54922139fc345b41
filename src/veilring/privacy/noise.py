"""Noise on whole numbers.

Mironov (CCS 2012): the low bits of a float reveal the value to which float noise was added. On a
grid there are no low bits: a statistic is rounded to whole steps, and the noise is a whole number
of steps.

**Discrete Laplace**, or two-sided geometric: `P[k]` is proportional to `e**(-|k| / scale)`. A shift
of the input by s changes every probability by a factor of at most `e**(s / scale)`: a count of
sensitivity s with noise of scale `s / epsilon` is exactly epsilon-differentially private (Ghosh,
Roughgarden and Sundararajan, STOC 2009). Divide as fractions, or round the scale up: a float
quotient may be slightly too small.

**Discrete Gaussian** (Canonne, Kamath and Steinke, NeurIPS 2020): `P[k]` is proportional to
`e**(-k**2 / (2 sigma**2))`. A shift of the input by a vector v of whole numbers has a Rényi
divergence of at most `alpha * |v|**2 / (2 sigma**2)` at every order, like the continuous
distribution (their Proposition 5). It is *not* a Gaussian mechanism in the sense of Gaussian
differential privacy: account for it by `shares.gaussian_shares`, or by Rényi orders.
"""

import math
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from veilring.arrays import Bools, Floats, Ints
from veilring.privacy.checks import require_that
from veilring.privacy.draws import Scale, Scales, bernoulli_exp, geometric, propose, require_scale


def discrete_laplace(scale: Scale, shape: int | tuple[int, ...], rng: np.random.Generator) -> Ints:
    """Draw exact discrete Laplace noise: the difference of two geometric numbers."""
    return geometric(scale, shape, rng) - geometric(scale, shape, rng)


def discrete_laplace_pmf(k: ArrayLike, scale: float | Fraction) -> Floats:
    """Return the probabilities of whole numbers, of the same shape."""
    inverse = float(1 / require_scale("scale", scale))
    return np.asarray(math.tanh(inverse / 2) * np.exp(-np.abs(k) * inverse))


def discrete_laplace_variance(scale: float | Fraction) -> float:
    """Return the variance, slightly below that of Laplace noise, which is `2 * scale**2`."""
    q = math.exp(-float(1 / require_scale("scale", scale)))
    # 1 - q would lose digits for large scales
    return 2 * q / math.expm1(-float(1 / Fraction(scale))) ** 2


# The mass beyond this number of scales from a sum's bulk, and terms of a characteristic function
# below this value, are lost in a float.
_REACH: Final = 40
_NEGLIGIBLE: Final = 1e-18


def discrete_laplace_tail(
    k: int, scale: float | Fraction, draws: float = 1.0, variance: float = 0.0
) -> float:
    """Return the probability that the size of a sum exceeds k, within 1e-12.

    It is one minus the integral of the characteristic function with Dirichlet's kernel. The
    trapezoidal rule is exact for it but for the mass that a period does not hold. One draw alone
    gives `2 q**(k + 1) / (1 + q)` with `q = e**(-1 / scale)`.

    Args:
        k: At least 0.
        draws: The number of draws in the sum, which need not be whole.
        variance: The variance of a further number in the sum, which is normal but whole.
    """
    spread = float(require_scale("scale", scale))
    steep = 4 * math.exp(-1 / spread) / math.expm1(-1 / spread) ** 2
    room = (_REACH + 4 * draws) * spread + _REACH * math.sqrt(variance)
    period = 2 * math.ceil(k + room) + 2
    flat = min(steep, math.expm1(-math.log(_NEGLIGIBLE) / draws)) / steep if steep else 1.0
    last = min(period // 2 - 1, math.ceil(math.asin(math.sqrt(flat)) * period / math.pi))
    half = np.arange(1, last + 1) * (math.pi / period)
    decay = draws * np.log1p(steep * np.sin(half) ** 2) + 2 * variance * half**2
    kernel = np.sin((2 * k + 1) * half) / np.sin(half)
    within = 2 * k + 1 + 2 * float(np.exp(-decay) @ kernel)
    # the last point of a period, at which the kernel is 1 or -1
    edge = math.exp(-draws * math.log1p(steep) - variance * math.pi**2 / 2)
    within += -edge if k % 2 else edge
    return min(1.0, max(0.0, 1 - within / period))


def discrete_laplace_kurtosis(scale: float | Fraction) -> float:
    """Return the kurtosis, above 6, that of Laplace noise."""
    return 5 + math.cosh(float(1 / require_scale("scale", scale)))


# One less for the scale of the proposal, a whole number above sigma.
_SIGMA_MAX: Final = 2**40 - 1
# From here on the sums over the whole numbers equal the integrals in all digits of a float: by
# Poisson's formula they differ by a factor of 1 + 2 e**(-2 pi**2 sigma**2), about 1e-34.
_GAUSSIAN_SMOOTH: Final = 2.0
# beyond this whole number no mass is left at sigma below 2
_GAUSSIAN_REACH: Final = 80


def discrete_gaussian(sigma: Scale, shape: int | tuple[int, ...], rng: np.random.Generator) -> Ints:
    """Draw exact discrete Gaussian noise, by rejection (their Algorithm 3)."""
    sigmas = Scales.of("sigma", sigma, shape)
    inside = bool((sigmas.floats <= _SIGMA_MAX).all())
    require_that(inside, "sigma", f"each sigma must be at most {_SIGMA_MAX}")
    noise = propose(
        sigmas.floats.size, lambda missing: _propose_gaussian(sigmas.take(missing), rng)
    )
    return noise.reshape(shape)


def _propose_gaussian(sigmas: Scales, rng: np.random.Generator) -> tuple[Ints, Bools]:
    """Draw discrete Laplace noise, and accept each draw with probability `e**-gamma`."""
    scales = np.floor(sigmas.floats) + 1
    proposed = discrete_laplace(scales, scales.size, rng)

    def exact(index: int) -> Fraction:
        square = sigmas.exact(index) ** 2
        return (abs(int(proposed[index])) - square / int(scales[index])) ** 2 / (2 * square)

    squares = sigmas.floats**2
    gamma = (np.abs(proposed) - squares / scales) ** 2 / (2 * squares)
    return proposed, bernoulli_exp(gamma, exact, rng)


def discrete_gaussian_pmf(k: ArrayLike, sigma: float | Fraction) -> Floats:
    """Return the probabilities of whole numbers, of the same shape."""
    spread = 2 * float(require_scale("sigma", sigma)) ** 2
    return np.asarray(
        np.exp(-np.square(k, dtype=np.float64) / spread) / _gaussian_mass(float(sigma))
    )


def _gaussian_mass(sigma: float) -> float:
    """Return the sum of `e**(-k**2 / (2 sigma**2))` over all whole numbers."""
    if sigma >= _GAUSSIAN_SMOOTH:
        return math.sqrt(2 * math.pi) * sigma
    k = np.arange(-_GAUSSIAN_REACH, _GAUSSIAN_REACH + 1)
    return float(np.sum(np.exp(-(k**2) / (2 * sigma**2))))
