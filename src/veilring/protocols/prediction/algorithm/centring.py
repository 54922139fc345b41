"""An origin for features: a public one, or the mean of private rows, released with noise.

Embeddings often lie in one cone, and their cosines all near one another; from their mean they look
in all directions. That mean belongs to the private rows. So it is released once, and each record
pays for it from the budget that its answers come out of.
"""

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.ledger import to_units
from veilring.privacy.ledger.units import from_units
from veilring.protocols.prediction.algorithm.features import (
    LENGTH,
    LENGTH_MAX,
    quantise,
)

SENSITIVITY: Final = math.sqrt(2)
"""L2, of the sum of unit vectors and their number together."""


class Origin(NamedTuple):
    """A mean that may be known to all, and its price.

    Attributes:
        mean: To give to `quantise`, shape (features,), of directions.
        units: What each record that was there has to pay, before the mean is used, in units of the
            ledger.
    """

    mean: NDArray[np.float64]
    units: int

    @property
    def price(self) -> float:
        """The same in the unit of zCDP: `paid` of `Rules`, `origin_price` of a server's terms."""
        return float(from_units(self.units))


def private_mean(rows: NDArray[np.floating], sigma: float, rng: Generator) -> Origin:
    """Release the mean direction of rows: a Gaussian mechanism on their sum and their number.

    Args:
        rows: Shape (rows, features), finite, none of them zero.
        sigma: Standard deviation of the noise of each sum; the noise of the mean is smaller by the
            number of rows. The price is `1 / sigma**2` in the unit of zCDP.
        rng: Secret.

    Raises:
        InputError: If sigma is not above 0, or a row is no direction.
    """
    if not 0 < sigma < math.inf:
        raise InputError("sigma", sigma, "a finite number above 0")
    whole = quantise(rows)
    sums = np.append(whole.sum(axis=0, dtype=np.float64), LENGTH * len(rows))
    # A quantised row may be a little longer than `LENGTH`; the noise is scaled to the longest.
    # The noise is Gaussian, as the account of Gaussian DP requires, and so from floats. Sums are
    # whole numbers before it and after it: nothing is left of the low bits, which give sums away.
    steps = np.rint(sums + sigma * LENGTH_MAX * rng.standard_normal(len(sums)))
    mean = steps[:-1] / max(LENGTH, float(steps[-1]))
    return Origin(mean, int(to_units(SENSITIVITY**2 / (2 * sigma**2))))
