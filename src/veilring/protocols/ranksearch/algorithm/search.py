"""The m-ary search for the k-th smallest distance of all parties, by counts, a batch at a time.

A step tests, for public thresholds of each query, whether fewer than k rows of all parties are
within each. Let T(θ) be the number of rows within θ. The search keeps an interval (lo, hi] with
T(lo) < k <= T(hi), initially from below 0 to a bound that no distance exceeds. A threshold with T =
k ends a query: any radius between the k-th and the (k+1)-th nearest row has the pooled votes. If
the interval becomes one float wide, all rows within it tie at rank k, and all vote, as in the
pooled classifier. With fewer than k rows in total, the radius is the bound.

Thresholds are equally spaced in the *bit patterns* of float64, which order floats from 0
exactly as the floats themselves; so the result equals the pooled classifier's to the bit, and
subnormal distances need no special case. "Below 0" is the pattern -1. Patterns are spaced like
logarithms, and nearly all of them belong to floats far below any distance between rows. So the
first step divides only the `OCTAVES` below the bound. If counts stay shared, a threshold takes six
times as many bytes, and the first step leaves out most of those in the lower half of the octaves,
where few distances are.

Source: Aggarwal, Mishra and Pinkas, "Secure computation of the median (and other elements of
specified ranks)", Journal of Cryptology 23, 2010: a binary search whose steps compare counts
securely. Here it is m-ary, handles many queries at once, and uses counts clipped at k + 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Floats, Ints
from veilring.privacy.checks import require
from veilring.reached import sometimes

ARITY_MIN: Final = 2  # a binary search
ARITY_MAX: Final = 256  # the first step then asks one count per value of a byte
# Down to 1/4,096 of the bound. Over ten tables and k = 1, 5 and 50 a batch took 9.3 rounds and 67
# thresholds per query with 12 octaves, 9.6 and 70 with 8, and 10.4 and 80 with linear cuts.
OCTAVES: Final = 12
# A sparse first step asks one in this number of the thresholds in the lower half of these octaves.
# Over 11 tables and k = 1, 5 and 50, batches took 12 % fewer bytes, one of them one more step, and
# the intervals found were 5 % wider on average.
SPARSE_BY: Final = 4
_BELOW_ZERO: Final = -1
_OCTAVE: Final = 2**52  # patterns from a float to its double

Count = Callable[["Asked"], Ints]
"""A function that returns T at each threshold asked, shape (thresholds,)."""


class End(IntEnum):
    """The way in which the search for a query's radius ended."""

    SEARCHING = 0
    EXACT = 1
    """At a threshold with T = k: exactly k rows of all parties are within the radius."""
    FEW = 2
    """All parties together have fewer than k rows."""
    TIED = 3
    """Several rows tie with the k-th nearest: more than k are within the radius."""


_SEARCHING, _EXACT, _FEW, _TIED = map(int, End)  # NumPy compares plain numbers five times faster


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """The thresholds of one step, query by query.

    Attributes:
        queries: The queries that are still open, ascending, shape (open,).
        owner: The position in `queries` of the query of each threshold.
        patterns: The bit patterns of the thresholds, ascending for each query.
    """

    queries: Ints
    owner: Ints
    patterns: Ints

    def __len__(self) -> int:
        return len(self.patterns)

    @property
    def factors_needed(self) -> int:
        """The number of factors that tests take: one of each threshold, and one of each query."""
        return len(self.patterns) + len(self.queries)

    @property
    def values(self) -> Floats:
        """The thresholds as distances, shape (thresholds,)."""
        return self.patterns.view(np.float64)

    @property
    def starts(self) -> Ints:
        """The position of each open query's first threshold, and the total number at the end."""
        return np.searchsorted(self.owner, np.arange(len(self.queries) + 1))

    def only(self, kept: Bools) -> "Asked":
        """Return the thresholds of some of the queries, of shape (open,)."""
        return Asked(
            self.queries[kept],
            (np.cumsum(kept) - 1)[self.owner[kept[self.owner]]],
            self.patterns[kept[self.owner]],
        )

    def reach(self, below: Bools) -> "Reach":
        """Return the thresholds at which each query reaches k rows, given whether T < k at each."""
        starts = self.starts
        first, end = starts[:-1], starts[1:]
        passed = np.add.reduceat(below, first, dtype=np.int64)
        return Reach(first, first + passed, passed > 0, first + passed < end)


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """The thresholds at which each open query reaches k rows; all of shape (open,).

    Attributes:
        first: The position of the first threshold.
        at: The position of the lowest threshold with T >= k, or one past the last threshold.
        has_below: Whether a threshold has T < k; its position is `at` - 1.
        is_reached: Whether a threshold has T >= k.
    """

    first: Ints
    at: Ints
    has_below: Bools
    is_reached: Bools

    @property
    def lowest(self) -> tuple[Ints, Ints]:
        """The positions of the queries that reach k rows, and those of their lowest thresholds."""
        (reached,) = self.is_reached.nonzero()
        return reached, self.at[reached]

    def above(self, at_thresholds: Ints, otherwise: Ints) -> Ints:
        """Return the values at the lowest thresholds with T >= k, or `otherwise` without such."""
        at = np.minimum(self.at, len(at_thresholds) - 1)
        return np.where(self.is_reached, at_thresholds[at], otherwise)

    def under(self, at_thresholds: Ints, otherwise: Ints) -> Ints:
        """Return the values at the largest thresholds with T < k, or `otherwise` without such."""
        return np.where(self.has_below, at_thresholds[np.maximum(self.at - 1, 0)], otherwise)


class StepSizes(NamedTuple):
    """The amount dealt and opened by a step with shared counts, for all queries together."""

    equalities: int
    """The number of queries of the previous step for which T = k is tested."""
    dealt: int
    """The number of thresholds with dealt counts, including queries that this test ends."""
    queries: int
    """The number of remaining queries."""
    tests: int
    """The number of their thresholds, at which T < k is tested."""
    ahead: int
    """The number of factors that are drawn for the next step, beside those that are left."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The radius of each query, and all public results of the search.

    Attributes:
        radii: Shape (Q,): the rows within it vote.
        lower: Shape (Q,): the greatest threshold asked with T < k; -1 without one.
        ends: Shape (Q,), of `End`.
        shared: The amounts dealt and opened by each step, if counts stay secret-shared.
    """

    radii: Floats
    lower: Floats
    ends: NDArray[np.uint8]
    steps: tuple[int, ...]
    shared: tuple[StepSizes, ...]

    @property
    def tied(self) -> Bools:
        """Whether more than k rows vote, shape (Q,)."""
        return np.asarray(self.ends == _TIED)


@dataclass(frozen=True, slots=True)
class Spacing:
    """The thresholds that the steps of a search ask.

    Attributes:
        upper: The bound on a distance.
        arity: The number of parts into which a step divides an interval.
        is_sparse: Whether the first step leaves out thresholds.
    """

    upper: float
    arity: int
    is_sparse: bool = False

    def __post_init__(self) -> None:
        require(0 < self.upper < np.inf, "upper", self.upper, "a positive, finite number")
        allowed = f"{ARITY_MIN} to {ARITY_MAX}"
        require(ARITY_MIN <= self.arity <= ARITY_MAX, "arity", self.arity, allowed)


class IntervalSearch:
    """The state of a batch's search, which is public and equal at all parties."""

    def __init__(self, queries: int, spacing: Spacing) -> None:
        self._arity = spacing.arity
        self._lo = np.full(queries, _BELOW_ZERO, dtype=np.int64)
        self._hi = np.full(queries, pattern_of(spacing.upper))
        self._ends = np.full(queries, _SEARCHING, dtype=np.uint8)
        self._steps: list[int] = []
        self._shared: list[StepSizes] = []
        self._first = first_cuts(spacing)
        self._next = StepSizes(0, queries * len(self._first), 0, 0, 0)
        self._ahead = 0  # factors that were drawn for the next step

    @property
    def is_first(self) -> bool:
        """Whether no step has been asked yet; the first one also asks the bound itself."""
        return not self._steps

    def ask(self) -> Asked | None:
        """Return the thresholds of the next step, or None when all queries have ended."""
        (queries,) = (self._ends == _SEARCHING).nonzero()
        if not len(queries):
            return None
        ends_early = len(queries) < len(self._ends)
        sometimes("a search ends for some queries before others", ends_early)
        if self.is_first:
            owner = np.repeat(np.arange(len(queries)), len(self._first))
            return Asked(queries, owner, np.tile(self._first, len(queries)))
        owner, patterns = cuts_between(self._lo[queries], self._hi[queries], self._arity)
        return Asked(queries, owner, patterns)

    def factors_to_draw(self, asked: Asked) -> int:
        """Return the number of factors to draw for the next step, given the present one's tests.

        With those that the present step leaves, they are enough for the next one, which tests each
        of its thresholds and whether T = k. At least one is drawn, so that each round has messages.
        """
        widest = -(-(self._hi[asked.queries] - self._lo[asked.queries]) // self._arity)
        most = int(np.minimum(widest[widest > 1], self._arity).sum())
        return max(1, most - self._factors_left(asked))

    def _factors_left(self, asked: Asked) -> int:
        return max(0, self._ahead - asked.factors_needed)

    def narrow(self, asked: Asked, below: Bools) -> Reach:
        """Process a step's tests of T < k, and return the thresholds at which k rows are reached.

        For queries with T = k there, call `end` before their radius is final.
        """
        reach, open_ = asked.reach(below), asked.queries
        ahead = self.factors_to_draw(asked)
        sizes = self._next._replace(queries=len(open_), tests=len(asked), ahead=ahead)
        self._ahead = self._factors_left(asked) + ahead
        lo = reach.under(asked.patterns, self._lo[open_])
        hi = reach.above(asked.patterns, self._hi[open_])
        width = hi - lo
        # The first step's last threshold is the bound itself; later ones are below a known end.
        few = ~reach.is_reached & self.is_first
        ends = np.where(few, _FEW, np.where(width == 1, _TIED, _SEARCHING))
        self._lo[open_], self._hi[open_], self._ends[open_] = lo, hi, ends
        self._steps.append(len(asked))
        self._shared.append(sizes)
        dealt = np.minimum(width[ends == _SEARCHING], self._arity) - 1
        reached = int(np.count_nonzero(reach.is_reached))
        self._next = StepSizes(reached, int(dealt.sum()), 0, 0, 0)
        return reach

    def end(self, queries: Ints) -> None:
        """End the queries with T = k at the lowest threshold with T >= k of their last step."""
        self._ends[queries] = _EXACT

    def found(self) -> Found:
        """Return the radii, once `ask` has returned None."""
        last = [self._next] if self._next.equalities else []
        return Found(
            self._hi.view(np.float64).copy(),
            _lower(self._lo),
            self._ends.copy(),
            tuple(self._steps),
            (*self._shared, *last),
        )


class TotalsSearch(IntervalSearch):
    """A search whose parties all learn the totals T themselves, of counts clipped at k + 1."""

    def __init__(self, queries: int, spacing: Spacing, *, k: int, parties: int) -> None:
        super().__init__(queries, spacing)
        require(k >= 1, "k", k, "at least 1")
        self._k, self._parties = k, parties
        self._floor = np.zeros(queries, dtype=np.int64)
        self._ceiling = np.full(queries, parties * (k + 1))
        self._least = self._ceiling.copy()

    @property
    def at_radius(self) -> Ints:
        """The total at each radius, shape (Q,): k if exact, less if there are fewer rows."""
        return np.where(self._ends == _FEW, self._floor, self._ceiling)

    @property
    def at_least(self) -> Ints:
        """The total at the lowest threshold asked of each query, shape (Q,)."""
        return self._least

    def take(self, asked: Asked, totals: Ints) -> None:
        """Process the totals of a step, shape (thresholds,)."""
        open_ = asked.queries
        reach = self.narrow(asked, totals < self._k)
        self._least[open_] = np.minimum(self._least[open_], totals[reach.first])
        self._floor[open_] = reach.under(totals, self._floor[open_])
        self._ceiling[open_] = reach.above(totals, self._ceiling[open_])
        self.end(open_[self._ceiling[open_] == self._k])

    def could_be(self, asked: Asked, totals: Ints, own: Ints, smallest: Floats) -> bool:
        """Return whether honest parties could have these totals, as far as one party can tell.

        Its `own` counts are those of its k + 1 smallest distances, (Q, k + 1); see
        `clipped_counts`.

        The counts of the other parties must be possible: from 0 to their maximum, non-decreasing
        from one threshold of a query to the next, and between the counts at the ends of the
        interval.
        """
        others = totals - own
        near, open_ = smallest[asked.queries], asked.queries
        ends = _lower(self._lo[open_]), self._hi[open_].view(np.float64)
        own_floor, own_ceiling = ((near <= end[:, None]).sum(axis=1) for end in ends)
        most = (self._parties - 1) * (self._k + 1)
        floor = self._floor[open_] - own_floor
        ceiling = np.minimum(self._ceiling[open_] - own_ceiling, most)
        rising = (others[1:] >= others[:-1]) | (asked.owner[1:] > asked.owner[:-1])
        bounded = (floor[asked.owner] <= others) & (others <= ceiling[asked.owner])
        return bool(rising.all() and bounded.all())


def run_search(search: TotalsSearch, count: Count) -> Found:
    """Search in one process, with the total of all parties at each threshold."""
    while (asked := search.ask()) is not None:
        search.take(asked, count(asked))
    return search.found()


def pattern_of(value: float) -> np.int64:
    """Return the bit pattern of a float that is at least 0."""
    return np.float64(value).view(np.int64)


def _lower(patterns: Ints) -> Floats:
    """Return lower ends as distances; -1 if no threshold is below."""
    return np.where(patterns == _BELOW_ZERO, -1.0, patterns.view(np.float64))


@cache
def first_cuts(spacing: Spacing) -> Ints:
    """Return the patterns of the first step: in the octaves below the bound, which is included.

    A sparse step asks some of the thresholds of the other one, so it reveals less.
    """
    hi = pattern_of(spacing.upper)
    lo = np.maximum(hi - OCTAVES * _OCTAVE, _BELOW_ZERO)
    _, inner = cuts_between(np.array([lo]), np.array([hi]), spacing.arity)
    cuts = np.append(inner, hi)
    if spacing.is_sparse:
        below = np.arange(len(cuts))[::-1] - spacing.arity // 2
        cuts = cuts[(below <= 0) | (below % SPARSE_BY == 0)]
    cuts.flags.writeable = False  # shared by all searches
    return cuts


def cuts_between(lo: Ints, hi: Ints, arity: int) -> tuple[Ints, Ints]:
    """Return thresholds that are equally spaced between the ends, excluding both.

    Of w patterns the cuts are `lo + (w // m) j + ((w mod m) j) // m`: no piece exceeds w/m rounded
    up, and no product overflows 64 bits. If w < m, there are w - 1 cuts. The result is the owner of
    each threshold, and its pattern.
    """
    width = hi - lo
    pieces = np.minimum(width, arity)
    each = pieces - 1
    whole, rest = np.divmod(width, pieces)
    owner = np.arange(len(lo)).repeat(each)
    j = np.arange(len(owner)) - (each.cumsum() - each)[owner] + 1
    return owner, lo[owner] + whole[owner] * j + rest[owner] * j // pieces[owner]


def clipped_counts(smallest: Floats, asked: Asked) -> Ints:
    """Return the number of a party's k + 1 smallest distances, (Q, k + 1), at each threshold."""
    values, (queries, width) = asked.values, smallest.shape
    step = size = 1 << width.bit_length()  # a binary search for all thresholds at once
    padded = np.full((queries, size), np.inf)
    padded[:, :width] = smallest
    flat = padded.ravel()
    before: Ints = (asked.queries * size - 1)[asked.owner]
    last = before.copy()
    while step := step // 2:
        last += (flat[last + step] <= values) * step
    return last - before


def steps_at_most(spacing: Spacing) -> tuple[int, ...]:
    """Return the number of thresholds in each step of the longest search for one query.

    The widest of the first intervals is divided until it is one float wide. That takes at most one
    more step than dividing 2^63 patterns into single ones.
    """
    first = first_cuts(spacing)
    width = int(np.diff(first, prepend=_BELOW_ZERO).max())
    steps = [len(first)]
    while width > 1:
        pieces = min(width, spacing.arity)
        steps.append(pieces - 1)
        width = -(-width // pieces)
    return tuple(steps)
