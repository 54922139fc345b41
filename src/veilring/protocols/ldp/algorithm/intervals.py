"""Confidence intervals from the exact distributions of counts.

A count of reports is the sum of independent coins: of the clients with a value and of all others.
Where its standard deviation is small, no normal distribution describes it: a nominal 95 % interval
of direct encoding with a thousand values covered 82 %. There the exact distribution is inverted: an
interval contains each parameter whose likely counts contain the observed one.

Likely counts are those with the largest ratio of their probability to that under the best parameter
(Feldman and Cousins, "Unified approach to the classical statistical analysis of small signals",
Physical Review D 1998). No interval is then empty, also at the ends of the range of a parameter. As
counts are whole numbers, the probability to miss cannot always be `alpha`: it is from `0.6 alpha`
to `1.2 alpha` (a nominal 95 % covers 94 to 97 %) wherever some run of counts has such a probability
outside of it. Otherwise it is at most `alpha`, and smaller: one of five clients with one bit is an
example.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import floor, log2, sqrt
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Floats, Ints

# From this variance of a count on, the coverage of score intervals at 95 % is 94.4 to 95.6 %.
NORMAL_VARIANCE: Final = 100.0
_LEAST, _MOST = 0.6, 1.2  # the misses of an interval, as multiples of alpha
_FINE: Final = 8  # steps of the search per standard deviation
_BEYOND: Final = 2.5  # standard deviations beyond the normal ends of an interval
_TAIL: Final = 9.0  # standard deviations of a coin's count that are computed

Parts = tuple[tuple[int, float], ...]
"""Independent binomial counts that are added: the trials and the probability of each."""


class CountFamily(NamedTuple):
    """The distributions of a count, by a parameter from 0 to `steps`.

    Attributes:
        parts: The count's parts at a parameter; their mean is affine in it.
    """

    steps: int
    parts: Callable[[int], Parts]


def of_clients(clients: int, p: float, q: float) -> CountFamily:
    """Return the counts of supporting reports, by the number of clients that have the value."""
    return CountFamily(clients, lambda own: ((own, p), (clients - own, q)))


_SHARE_STEPS: Final = 1 << 20


def of_share(reports: int, p: float, q: float) -> CountFamily:
    """Return the counts of coins, by the share of the way from `q` to `p` in millionths or so."""
    return CountFamily(_SHARE_STEPS, lambda step: ((reports, q + (p - q) * (step / _SHARE_STEPS)),))


def normal_quantile(confidence: float) -> float:
    """Return the number of standard deviations to each side of a normal interval."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def exact_intervals(family: CountFamily, counts: Ints, confidence: float) -> tuple[Floats, Floats]:
    """Return the ends of the interval of each count, as shares of the steps, shape (counts,)."""
    inversion = _Inversion(family, confidence)
    different, places = np.unique(counts, return_inverse=True)
    ends = np.array([inversion.ends(count) for count in different.tolist()], dtype=np.float64)
    low, high = ends.reshape(-1, 2)[places.reshape(-1)].T / family.steps
    return low, high


class _Inversion:
    """The acceptance regions of a family, computed where they are needed."""

    def __init__(self, family: CountFamily, confidence: float) -> None:
        self._family, self._alpha = family, 1 - confidence
        self._reach = normal_quantile(confidence) + _BEYOND
        self._first, last = (_mean(family.parts(end)) for end in (0, family.steps))
        self._slope = (last - self._first) / family.steps
        self.distribution = cache(lambda step: _added(family.parts(step)))
        self.best = cache(self._best)
        self.accepted = cache(self._accepted)

    def ends(self, count: int) -> tuple[int, int]:
        """Return the least and the greatest parameter that accept a count."""
        around = self._around(count)
        good = [step for step in around if self._accepts(step, count)]
        low, high = min(good), max(good)
        below = max((step for step in around if step < low), default=low)
        above = min((step for step in around if step > high), default=high)
        return self._edge(count, low, below), self._edge(count, high, above)

    def _edge(self, count: int, inside: int, outside: int) -> int:
        """Return the last parameter that accepts a count, on the way to one that does not."""
        while abs(outside - inside) > 1:
            middle = (inside + outside) // 2
            if self._accepts(middle, count):
                inside = middle
            else:
                outside = middle
        return inside

    def _around(self, count: int) -> list[int]:
        """Return parameters around the most likely one, in a grid that other counts share."""
        best = self._most_likely(count)
        deviation = sqrt(_variance(self._family.parts(best)) + self._reach**2)
        step = 1 << max(0, floor(log2(deviation / self._slope / _FINE)))
        reach = self._reach * deviation / self._slope
        low = max(0, floor((best - reach) / step))
        high = min(self._family.steps // step, floor((best + reach) / step) + 1)
        grid = {number * step for number in range(low, high + 1)} | {best}
        return sorted(
            grid | ({self._family.steps} if best + reach >= self._family.steps else set())
        )

    def _most_likely(self, count: int) -> int:
        step = round((count - self._first) / self._slope)
        return min(max(step, 0), self._family.steps)

    def _best(self, count: int) -> float:
        """Return the probability of a count under the parameter that explains it best."""
        start, chances = self.distribution(self._most_likely(count))
        return float(chances[count - start]) if 0 <= count - start < len(chances) else 0.0

    def _accepts(self, step: int, count: int) -> bool:
        low, high = self.accepted(step)
        return low <= count <= high or step == self._most_likely(count)

    def _accepted(self, step: int) -> tuple[int, int]:
        """Return the first and the last count that a parameter accepts."""
        start, chances = self.distribution(step)
        best = np.array([self.best(start + place) for place in range(len(chances))])
        ratios = np.divide(chances, best, out=np.zeros_like(chances), where=best > 0)
        first, last = _likely(chances, ratios, self._alpha)
        return start + first, start + last


def _likely(chances: Floats, ratios: Floats, alpha: float) -> tuple[int, int]:
    """Return the ends of the run of outcomes with the largest ratios; see the module's rule."""
    order = np.argsort(-ratios, kind="stable")
    missed = 1 - np.cumsum(chances[order])
    fitting = np.flatnonzero(_fits(missed, alpha))
    if fitting.size:
        chosen = order[: fitting[np.abs(missed[fitting] - alpha).argmin()] + 1]
        return int(chosen.min()), int(chosen.max())
    below = np.concatenate(([0.0], np.cumsum(chances)))
    misses = below[:-1, None] + 1 - below[None, 1:]  # of the run from a row to a column
    # An interval must not be empty: each count is accepted by the parameter that explains it best.
    explained = np.flatnonzero(ratios >= 1)
    run = np.arange(len(chances))
    whole = (run[:, None] <= explained.min(initial=run[-1])) & (run >= explained.max(initial=0))
    runs = np.argwhere(_fits(misses, alpha) & whole & (run[:, None] <= run))
    if not runs.size:
        chosen = order[: int(np.argmax(missed <= alpha)) + 1]
        return int(chosen.min()), int(chosen.max())
    before = np.concatenate(([0.0], np.maximum.accumulate(ratios)))
    after = np.concatenate((np.maximum.accumulate(ratios[::-1])[::-1], [0.0]))
    outside = np.maximum(before[runs[:, 0]], after[runs[:, 1] + 1])
    first, last = runs[outside.argmin()].tolist()
    return int(first), int(last)


def _fits(missed: Floats, alpha: float) -> Bools:
    return np.asarray((missed >= _LEAST * alpha) & (missed <= _MOST * alpha))


def _mean(parts: Parts) -> float:
    return sum(trials * chance for trials, chance in parts)


def _variance(parts: Parts) -> float:
    return sum(trials * chance * (1 - chance) for trials, chance in parts)


def _added(parts: Parts) -> tuple[int, Floats]:
    """Return the least count that is computed, and the probabilities from it on."""
    start, chances = 0, np.ones(1)
    for trials, chance in parts:
        first, own = _binomial(trials, chance)
        start, chances = start + first, np.convolve(chances, own)
    return start, chances


def _binomial(trials: int, chance: float) -> tuple[int, Floats]:
    from scipy.special import gammaln, xlog1py, xlogy

    mean, deviation = trials * chance, sqrt(trials * chance * (1 - chance))
    first = max(0, floor(mean - _TAIL * deviation - _TAIL))
    counts = np.arange(first, min(trials, floor(mean + _TAIL * deviation + _TAIL)) + 1)
    ways = gammaln(trials + 1) - gammaln(counts + 1) - gammaln(trials - counts + 1)
    logs = ways + xlogy(counts, chance) + xlog1py(trials - counts, -chance)
    return first, np.asarray(np.exp(logs))


Outcomes = tuple[Floats, Floats, int]
"""Values of a report with their probabilities, and the number of such reports."""
Laws = Callable[[float], Sequence[Outcomes]]
"""The independent reports of clients whose numbers have a mean."""

Spectrum = NDArray[np.complex128]

_LATTICE: Final = 1 << 14
_RANGE: Final = 20.0  # standard deviations of a sum, or
_EXTREMES: Final = 4.0  # this multiple of the greatest value: sums beyond it are wrapped around
_HALVINGS: Final = 20  # of the range of a mean


def sum_interval(laws: Laws, mean: float, most: float, confidence: float) -> tuple[float, float]:
    """Return the interval of the mean of numbers, from the mean of reports about them.

    It contains each mean under which the reported one, or one farther away, is likely enough on
    either side. The distribution of the sum is that of the reports, convolved.

    Args:
        most: The greatest mean to consider, and the least with the other sign.
    """
    alpha = (1 - confidence) / 2
    low = _boundary(lambda true: _tails(laws(true), mean)[1] > alpha, -most, most)
    high = _boundary(lambda true: _tails(laws(true), mean)[0] > alpha, most, -most)
    return low, high


def _boundary(holds: Callable[[float], bool], outer: float, inner: float) -> float:
    """Return the number next to `outer` from which on, towards `inner`, a condition holds."""
    for _ in range(_HALVINGS):
        middle = (outer + inner) / 2
        outer, inner = (outer, middle) if holds(middle) else (middle, inner)
    return outer


def _tails(laws: Sequence[Outcomes], mean: float) -> tuple[float, float]:
    """Return the probabilities of a mean of reports that is at most, and at least, the given."""
    reports = sum(count for *_, count in laws)
    centres = [float(values @ chances) for values, chances, _ in laws]
    aways = [values - centre for (values, *_), centre in zip(laws, centres, strict=True)]
    variance = sum(
        count * float(away**2 @ chances)
        for away, (_, chances, count) in zip(aways, laws, strict=True)
    )
    largest = max(float(np.abs(away).max()) for away in aways)
    step = max(_RANGE * sqrt(variance), _EXTREMES * largest) / _LATTICE
    spectrum = np.ones(_LATTICE // 2 + 1, dtype=np.complex128)
    for away, (_, chances, count) in zip(aways, laws, strict=True):
        places = np.rint(away / step).astype(np.int64) % _LATTICE
        spectrum *= _power(np.fft.rfft(np.bincount(places, chances, _LATTICE)), count)
    likely = np.maximum(np.fft.fftshift(np.fft.irfft(spectrum, _LATTICE)), 0.0)
    centre = sum(each * count for each, (*_, count) in zip(centres, laws, strict=True))
    # half a step to each side, as sums are rounded to the lattice
    place = (mean * reports - centre) / step + _LATTICE / 2
    at_most, less = (float(likely[: max(floor(place + half), 0) + 1].sum()) for half in (0.5, -0.5))
    return at_most, 1 - less


def _power(base: Spectrum, exponent: int) -> Spectrum:
    """Return a power, at least 1, by squaring: NumPy takes up to 17 times as long."""
    if exponent == 1:
        return base
    power = _power(base * base, exponent // 2)
    return power * base if exponent % 2 else power
