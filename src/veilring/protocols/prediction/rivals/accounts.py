"""The account of many Gaussian releases, each on a Poisson sample of its own."""

from functools import lru_cache
from typing import Final

from veilring.privacy.accounting import RenyiDP, least_noise

ORDERS: Final = (
    *map(float, range(2, 33)),
    *map(float, range(36, 65, 4)),
    *map(float, range(80, 257, 16)),
)
"""Few, since calibrating tries each order a hundred times; they give away a thousandth."""


def sampled_gaussians(sigma: float, rate: float, count: int, sensitivity: float = 1.0) -> RenyiDP:
    """Return what so many releases guarantee together.

    Args:
        sigma: Standard deviation of each noise.
        rate: The probability that a row is in a sample.
        count: How many there are.
        sensitivity: L2, of what is released of a sample.
    """
    return RenyiDP.subsampled_gaussian(sigma, rate, sensitivity, ORDERS).repeat(count)


@lru_cache(maxsize=1024)  # of numbers only; the same targets are asked for each split of a figure
def least_sigma(
    epsilon: float, delta: float, *, rate: float, count: int, sensitivity: float = 1.0
) -> float:
    """Return the least noise with which they are (epsilon, delta)-DP together.

    Raises:
        InputError: If a target is out of range.
    """
    return least_noise(
        lambda sigma: sampled_gaussians(sigma, rate, count, sensitivity), epsilon, delta
    )
