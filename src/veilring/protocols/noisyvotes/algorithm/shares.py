"""A party's step: what it counts, with its own share of the noise added.

All parties' shares together are the discrete Laplace noise of one trusted owner, exactly: shares
are differences of Pólya draws, whose exponents add up (see `privacy.polya`).
"""

from fractions import Fraction

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.privacy.checks import require
from veilring.privacy.polya import POLYA_SCALE_MAX, polya


def noisy_counts(
    counts: NDArray[np.int64],
    epsilons: NDArray[np.float64],
    exponent: Fraction,
    rng: Generator,
) -> NDArray[np.int64]:
    """Return a party's counts with its share of the noise, same shape: what it adds to the sum.

    Args:
        counts: Shape (runs, entries). Secret. A row is in one entry of each run at most.
        epsilons: Shape (runs,): what each run spends if all of the noise is there.
        exponent: The party's part of the noise, as `NoisyVotesParameters.exponent` gives it.
        rng: The party's own. Secret.

    Raises:
        InputError: As `noise_share` does.
    """
    return counts + noise_share(epsilons, counts.shape[1], exponent, rng)


def noise_share(
    epsilons: NDArray[np.float64], entries: int, exponent: Fraction, rng: Generator
) -> NDArray[np.int64]:
    """Draw a share of discrete Laplace noise of scale `1 / epsilons[i]`, shape (runs, entries).

    Args:
        epsilons: Shape (runs,), at least `1 / POLYA_SCALE_MAX` each.
        entries: How many counts a run has.
        exponent: Above 0 and at most 1.
        rng: Secret.

    Raises:
        InputError: If an argument is out of its range.
    """
    enough = bool((epsilons * POLYA_SCALE_MAX >= 1).all())
    allowed = f"at least 1/{POLYA_SCALE_MAX} for each query: ask fewer, or for more"
    require(enough, "epsilons", "less in some place", allowed)
    shares = np.empty((len(epsilons), entries), dtype=np.int64)
    for epsilon in np.unique(epsilons):
        those = epsilons == epsilon
        scale, shape = 1 / Fraction(float(epsilon)), (int(those.sum()), entries)
        shares[those] = polya(exponent, scale, shape, rng) - polya(exponent, scale, shape, rng)
    return shares
