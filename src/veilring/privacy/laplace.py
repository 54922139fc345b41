"""Discrete Laplace noise: the Laplace law on the whole numbers, also called two-sided geometric.

`P[k]` is proportional to `e**(-|k| / scale)`. A shift of the input by s changes no probability by
more than a factor `e**(s / scale)`: a count of sensitivity s with noise of scale `s / epsilon` is
epsilon-differentially private, exactly (Ghosh, Roughgarden and Sundararajan, STOC 2009). Divide as
fractions, or round the scale up: a float quotient may be a bit too small.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilring.privacy.lazy import geometric
from veilring.privacy.scales import Scale, require_scale


def discrete_laplace(
    scale: Scale, shape: int | tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw exact discrete Laplace noise: the difference of two geometric numbers.

    Args:
        scale: In whole numbers (or steps of a grid), from 2**-20 to 2**40, for all draws or an
            array of it that fits `shape`. A float is taken as the fraction that it is.
        shape: The shape of the result.
        rng: Source of the noise.

    Raises:
        InputError: If `scale` is outside its range.
    """
    return geometric(scale, shape, rng) - geometric(scale, shape, rng)


def discrete_laplace_pmf(k: ArrayLike, scale: float | Fraction) -> NDArray[np.float64]:
    """Return the probabilities of whole numbers, of the same shape.

    Raises:
        InputError: If `scale` is outside its range.
    """
    inverse = float(1 / require_scale("scale", scale))
    return np.asarray(math.tanh(inverse / 2) * np.exp(-np.abs(k) * inverse))


def discrete_laplace_variance(scale: float | Fraction) -> float:
    """Return the variance, a little below that of the Laplace law, which is `2 * scale**2`.

    Raises:
        InputError: If `scale` is outside its range.
    """
    q = math.exp(-float(1 / require_scale("scale", scale)))
    # 1 - q would lose its digits for large scales.
    return 2 * q / math.expm1(-float(1 / Fraction(scale))) ** 2
