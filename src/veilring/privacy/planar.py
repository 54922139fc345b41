"""Planar Laplace noise on the points of a square grid: geo-indistinguishability, exactly.

`P[v]` is proportional to `e**(-|v| / scale)` with the Euclidean length of v. Two inputs on the grid
at a distance of s steps are told apart by at most a factor `e**(s / scale)`, since all inputs have
the same normaliser. With steps that are small beside the scale it is the planar Laplace law of
Andrés et al. (CCS 2013) without the leak that float noise has, and without its special cases.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.laplace import discrete_laplace
from veilring.privacy.lazy import bernoulli_exp
from veilring.privacy.scales import require_scale

# A length to this many digits decides all but one draw in 10**30, and that one as well as any.
_DIGITS: Final = 60
# Proposals have to be wider than what they are thinned to.
ROOT_OF_TWO: Final = Fraction(math.isqrt(2 << 128) + 1, 1 << 64)
"""The square root of 2, rounded up by less than 2**-64."""


def planar_laplace(
    scale: float | Fraction, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw planar Laplace noise by thinning two discrete Laplace coordinates.

    Of the proposals about 3 in 4 or more are kept, whatever the scale (π / 4 for many steps).

    Args:
        scale: 1 / epsilon in steps of the grid, from 2**-20 to 2**39.
        size: How many draws.
        rng: Source of the noise.

    Returns:
        Shape (size, 2), in steps.

    Raises:
        InputError: If `scale` is outside its range.
    """
    exact = require_scale("scale", scale)
    kept = np.zeros((0, 2), dtype=np.int64)
    while len(kept) < size:
        missing = size - len(kept)
        proposals = discrete_laplace(exact * ROOT_OF_TWO, (missing, 2), rng)
        kept = np.vstack([kept, proposals[_keep(proposals, exact, rng)]])
    return kept


def _keep(
    proposals: NDArray[np.int64], scale: Fraction, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Keep each proposal with the probability that its length has beyond its coordinates."""
    along = np.abs(proposals).sum(axis=1) / float(ROOT_OF_TWO)
    # Equal coordinates make the difference zero, which floats may miss on either side.
    surplus = np.maximum(np.hypot(*proposals.T.astype(np.float64)) - along, 0.0)

    def exact(index: int) -> Fraction:
        x, y = (int(part) for part in proposals[index])
        with localcontext(prec=_DIGITS):
            length = Fraction(Decimal(x * x + y * y).sqrt())
        return max(length - (abs(x) + abs(y)) / ROOT_OF_TWO, Fraction(0)) / scale

    return bernoulli_exp(surplus / float(scale), exact, rng)
