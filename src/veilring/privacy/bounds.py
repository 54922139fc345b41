"""Bounds of honest counts, and of the probabilities behind counts.

An honest report leaves the range of `binomial_range` with probability below 2^-64 on either side,
by Chernoff's bound. Without it a collector would also accept reports that no honest client draws in
the lifetime of the universe, each of which outweighs many clients.
`proportion_bounds` is the opposite direction: exact bounds on a probability from the number of
occurrences.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from veilring.arrays import Floats, Ints

# A million clients that report each second for a thousand years send 2^55 reports.
NEVER_BITS: Final = 64

_SURE: Final = NEVER_BITS * math.log(2)


def binomial_range(trials: int, chance: float) -> tuple[int, int]:
    """Return the minimum and the maximum count that n coins of probability q ever give.

    `P[count >= k]` is at most `e**(-n D(k/n, q))` for `k` above the mean `n q`, with the relative
    entropy `D` of two coins (Hoeffding 1963, Theorem 1), and `P[count <= k]` below it.
    """
    mean = trials * chance

    def surprise(count: int) -> float:
        own = _part(count, trials * chance)
        return own + _part(trials - count, trials * (1 - chance))

    low = _last(lambda down: surprise(math.floor(mean) - down) < _SURE, math.floor(mean))
    high = _last(lambda up: surprise(math.ceil(mean) + up) < _SURE, trials - math.ceil(mean))
    return math.floor(mean) - low, math.ceil(mean) + high


def _part(count: int, expected: float) -> float:
    """Return a coin's side of `n D`, which is infinite for an impossible side."""
    if count == 0:
        return 0.0
    return count * math.log(count / expected) if expected > 0 else math.inf


def _last(holds: Callable[[int], bool], most: int) -> int:
    """Return the largest number from 0 to `most` up to which a condition holds."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


_STEPS: Final = 1024  # parts of the mean of a sum: rounding up costs a thousandth


def laplace_sum_max(scale: float | Fraction, count: int) -> int:
    """Return the maximum sum of absolute values of discrete Laplace noise that ever occurs.

    An absolute value is at most an exponential number of the same scale plus 1, in distribution,
    since `2 q**k / (1 + q)` is at most `q**(k - 1)` for `q = e**(-1 / scale)`. The sum of `n`
    exponential numbers of scale 1 is above `n x` with probability `e**(-n (x - 1 - ln(x)))` at
    most.

    Args:
        scale: The scale of the noise, above 0.
        count: The number of values, `n`, at least 1.
    """

    def is_unseen(above: int) -> bool:
        x = above / _STEPS  # above 1
        return x - math.log1p(x) >= _SURE / count

    above = 1 + bisect_left(range(1, math.ceil(2 * _SURE) * _STEPS + 1), x=True, key=is_unseen)
    return count + math.ceil(Fraction(scale) * count * (1 + Fraction(above, _STEPS)))


class ProportionBounds(NamedTuple):
    """Bounds of probabilities, one for each count."""

    low: Floats
    high: Floats


def proportion_bounds(counts: Ints, runs: int, alarm: float) -> ProportionBounds:
    """Return a lower and an upper bound on each event's probability (Clopper and Pearson 1934).

    `counts`, of any shape, are the occurrences of each event in independent runs.
    """
    from scipy.special import betainccinv, betaincinv

    low = betaincinv(np.maximum(counts, 1), runs - counts + 1, alarm)
    high = betainccinv(counts + 1, np.maximum(runs - counts, 1), alarm)
    return ProportionBounds(np.where(counts > 0, low, 0.0), np.where(counts < runs, high, 1.0))


ALARM: Final = 1e-6
"""The probability that an audit reports more than the true loss."""
