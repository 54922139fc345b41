"""Two-sample tests with exact or bounded p-values, which stay valid when they are very small.

Both samples have equally many runs, in random order. A test chooses a set of outcomes on runs other
than those on which it is evaluated. If the two distributions are equal, all assignments of the runs
to the two samples are equally likely: every p-value here is a probability over those assignments,
whatever the distribution is.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.audits import ALARM

POWER: Final = 0.95
"""The probability of finding an advantage that is reported as the least one found."""
# The number of quantiles of one half that cut a coordinate: enough for the shape of a density, and
# few enough that a bin of 500 runs is not dominated by noise.
CUTS: Final = 32

_Reals = NDArray[np.float64]


class Split(NamedTuple):
    """The advantage of a set of outcomes, and its p-value if the two distributions are equal."""

    p: float
    """A bound on the p-value."""
    advantage: float
    """The share of the second sample in the set, minus the share of the first."""


def split_p(inside: float, of_second: float, runs: int) -> float:
    """Bound the probability that at least this many outcomes in a set are of the second sample.

    Given the number of outcomes in the set, that count is hypergeometric (Fisher's exact test). The
    ratio of successive terms decreases, so the tail is at most that of the geometric series that
    begins with the first two terms.

    Args:
        inside: The number of outcomes in the set, of both samples.
        of_second: The number of these that belong to the second sample.
        runs: The number of runs of each sample.
    """
    outside = runs - (inside - of_second)
    first = _log_choose(runs, of_second) + _log_choose(runs, inside - of_second)
    first -= _log_choose(2 * runs, inside)
    falls = (runs - of_second) * (inside - of_second) / ((of_second + 1) * (outside + 1))
    return 1.0 if falls >= 1 else min(1.0, float(np.exp(first)) / (1 - falls))


def order_p(gap: int, runs: int) -> float:
    """Bound the probability that two empirical distribution functions differ by `gap / runs`.

    `2 C(2n, n - h) / C(2n, n)` is the first term of the exact distribution of the
    Kolmogorov-Smirnov statistic (Gnedenko and Korolyuk 1951); the other terms can only reduce the
    sum. It is the bound of Dvoretzky, Kiefer and Wolfowitz for two samples, without a condition on
    n. Ties can only reduce the gap.

    Args:
        gap: The greatest difference of the two counts, h.
        runs: The number of runs of each sample, n.
    """
    log = _log_choose(2 * runs, runs - gap) - _log_choose(2 * runs, runs)
    return min(1.0, 2 * float(np.exp(log)))


def _log_choose(n: float, k: float) -> float:
    from scipy.special import gammaln

    return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def judge_set(inside: NDArray[np.bool_], second: NDArray[np.bool_]) -> Split:
    """Test whether a set contains more outcomes of the second sample than of the first.

    Args:
        inside: Whether the set, which was chosen on other runs, contains each outcome.
        second: Whether each outcome belongs to the second sample; half of them do.
    """
    runs, total = int(second.sum()), int(inside.sum())
    of_second = int((inside & second).sum())
    return Split(split_p(total, of_second, runs), (2 * of_second - total) / runs)


def judge_order(values: NDArray[Any], second: NDArray[np.bool_]) -> Split:
    """Test whether values of one sample tend to be above those of the other.

    Args:
        values: One number for each run; NaN ranks above all others.
        second: Whether each belongs to the second sample; half of them do.
    """
    order = np.argsort(values, kind="stable")
    steps = np.cumsum(np.where(second[order], 1, -1))
    ordered = values[order]
    ends = np.append(ordered[1:] != ordered[:-1], True)
    ends[:-1] &= ~(np.isnan(ordered[1:]) & np.isnan(ordered[:-1]))
    runs, gap = int(second.sum()), int(np.abs(steps[ends]).max(initial=0))
    return Split(order_p(gap, runs), gap / runs)


class Bins(NamedTuple):
    """Intervals of a coordinate. A frequent value has a separate bin."""

    cuts: NDArray[Any]

    def place(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the number of each value's bin, from 0 to `2 * len(cuts)`."""
        left = np.searchsorted(self.cuts, values, "left")
        return np.asarray(left + np.searchsorted(self.cuts, values, "right"))

    @property
    def number(self) -> int:
        """The number of bins."""
        return 2 * len(self.cuts) + 1


def cut_bins(values: NDArray[Any]) -> Bins:
    """Return bins with about equally many of the values in each."""
    ordered = np.sort(values)
    places = np.linspace(0, len(ordered) - 1, CUTS + 1).round().astype(np.int64)
    return Bins(np.unique(ordered[places]))


def choose_bins(
    placed: NDArray[np.int64], second: NDArray[np.bool_], number: int
) -> NDArray[np.bool_]:
    """Return the set of bins that best distinguishes two samples on these runs.

    Bins are added in decreasing order of their own difference, as long as the difference of the set
    grows relative to its standard deviation. The second sample has the larger share in the set.

    Args:
        placed: The bin of each run.
        second: Whether each run belongs to the second sample.
    """
    ours = np.bincount(placed[second], minlength=number).astype(np.float64)
    theirs = np.bincount(placed[~second], minlength=number).astype(np.float64)
    more, more_score = _best_prefix(ours, theirs)
    fewer, fewer_score = _best_prefix(theirs, ours)
    return more if more_score >= fewer_score else ~fewer


def _best_prefix(ours: _Reals, theirs: _Reals) -> tuple[NDArray[np.bool_], float]:
    total, more = ours + theirs, ours - theirs
    order = np.argsort(-more / np.sqrt(np.maximum(total, 1)), kind="stable")
    scores = np.cumsum(more[order]) / np.sqrt(np.maximum(np.cumsum(total[order]), 1))
    last = int(np.argmax(scores))
    chosen = np.zeros(len(ours), np.bool_)
    chosen[order[: last + 1]] = True
    return chosen, float(scores[last])


def reject_holm(p: _Reals, alarm: float) -> NDArray[np.bool_]:
    """Return which hypotheses are rejected, with probability `alarm` at most of any false one.

    Source: Holm, "A simple sequentially rejective multiple test procedure", 1979.

    Args:
        p: The p-values of all tests that were planned before the data were seen.
        alarm: The maximum probability of any false rejection.
    """
    order = np.argsort(p, kind="stable")
    passes = p[order] <= alarm / np.arange(len(p), 0, -1)
    rejected = np.zeros(len(p), np.bool_)
    rejected[order[: len(p) if passes.all() else int(np.argmin(passes))]] = True
    return rejected


def least_advantage(held_out: int, alarm: float = ALARM / 2) -> float:
    """Return the least advantage that a test finds with probability `POWER`.

    Args:
        held_out: The number of held-out runs, of both samples.
        alarm: The probability of a false alarm of this test.
    """
    from scipy.special import ndtri

    return float((ndtri(1 - alarm) + ndtri(POWER)) / np.sqrt(held_out))
