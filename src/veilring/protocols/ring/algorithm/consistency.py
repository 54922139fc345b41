"""Checks for changes that honest hops never make, and for totals that honest votes never have.

PP-TopK is designed for semi-honest parties. A malicious party can insert any values, undetected.
But a party that removes others' entries can be detected, because honest hops displace only the last
entries of the vector.

One honest hop (Algorithm 2), for sorted `G` and an `x` of which a copy is displaced
    The displaced entries are the last m, so `x >= G[k-m+1]`. If the party inserts, the new last
    entry is `G'[k] <= G[k-m+1] <= x`. If it answers with noise, each drawn value is at most
    `max(G'[k] + delta, G[k-m+1]) <= x + delta`. And a hop that displaces other entries, or none,
    lifts the last entry by at most `delta`, for the same reason.

A run of h honest hops
    If the vector holds fewer copies of `x` after them than before, some hop displaced one. Right
    after it the last entry was at most `x + delta`, and at most h hops lifted it, so it is now at
    most `x + h * delta`. **An entry that is more than `h * delta` below the last one must still be
    there**, regardless of the party that inserted it. Without noise (`P0 = 0`) nothing is lifted,
    and each entry below the last one must be there.

    This implies that no entry rises by more than `h * delta`: if entry j did, the j entries up to
    its old value would all still have to be there, and the new entry j could not exceed that value.

    A party's own values, once inserted, are a special case. They need *not* all be there even if
    they are below the last entry: noise that displaced one may lie above it.

No entry that honest parties send is below the k-th smallest value of the union (padded with
`upper`), since all noise is at or above `G'[k]`. So at least k rows are within an honest result
that is below `upper`, exact or not, and at least k rows vote.

Vectors are multisets: sorted rows of finite numbers, padded with `+inf`, one multiset per run.
Differences and intersections, which `leakage` and `attacks` use as well, respect multiplicity.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Floats, Ints
from veilring.privacy.checks import require
from veilring.protocols.ring.algorithm.classify import Weights
from veilring.protocols.ring.algorithm.topk import TopKParameters

# For rows up to about this width, comparing all pairs is faster than searching: no branches.
COMPARED_WIDTH_MAX: Final = 48


def multiset_size(A: Floats) -> Ints:
    """Return the number of elements of each multiset, shape (T,)."""
    return np.asarray(np.isfinite(A).sum(axis=1), dtype=np.int64)


def copy_numbers(A: Floats) -> NDArray[np.int32]:
    """Return the number of equal entries that precede each entry in its row, shape (T, a)."""
    columns = np.ascontiguousarray(A.T)
    again = columns[1:] == columns[:-1]
    copies = np.zeros(columns.shape, dtype=np.int32)
    if len(A) < len(columns):  # a loop over columns would do little per step
        places = np.arange(len(columns), dtype=np.int32)[:, None]
        np.multiply(places[1:], ~again, out=copies[1:])
        return (places - np.maximum.accumulate(copies, axis=0)).T
    for place in np.flatnonzero(again.any(axis=1)):
        np.multiply(copies[place] + 1, again[place], out=copies[place + 1])
    return copies.T


def multiplicities(A: Floats, B: Floats) -> NDArray[np.int32]:
    """Return the number of times that each entry of `A` is in the same row of `B`, shape (T, a).

    Wide rows are searched by bisection over all rows at once, so the cost grows as `T k log(T k)`
    rather than `T k^2`.
    """
    if B.shape[1] <= COMPARED_WIDTH_MAX:
        # With the runs side by side in memory a comparison takes a fraction of a nanosecond.
        columns = np.ascontiguousarray(A.T)
        counts = np.zeros(columns.shape, dtype=np.int32)
        for column in np.ascontiguousarray(B.T):
            counts += columns == column
        return counts.T
    a, b = _keys(A), _keys(B)
    first = np.minimum(np.searchsorted(b, a, side="left"), b.size - 1)
    # From its first occurrence on, as many copies follow as precede it when read backwards.
    copies = 1 + copy_numbers(B[:, ::-1])[:, ::-1].ravel()
    return np.where(b[first] == a, copies[first], 0).reshape(A.shape)


def difference(A: Floats, B: Floats) -> Floats:
    """Return the multiset difference `A - B` of each run, shape (T, a), filled up with `+inf`.

    The j-th copy of a number in a row of `A` stays exactly if that row of `B` holds fewer than j
    copies.
    """
    rest = np.where(copy_numbers(A) >= multiplicities(A, B), A, np.inf)
    rest.sort(axis=1)
    return rest


def overlap(A: Floats, B: Floats) -> Ints:
    """Return the size of the multiset intersection of each run, shape (T,)."""
    return multiset_size(A) - multiset_size(difference(A, B))


def _keys(A: Floats) -> NDArray[np.complex128]:
    """Return (run, number) pairs as complex numbers, which NumPy orders lexicographically."""
    keys = np.empty(A.shape, dtype=np.complex128)
    keys.real = np.arange(len(A))[:, None]
    keys.imag = A
    return keys.ravel()


# Twice the relative error of one rounded addition.
_EPSILON: Final = float(np.finfo(np.float64).eps)
# The hops' own additions err by at most h * _EPSILON / 2 of the largest number in them, and the
# five operations that compute the bound by less than 5 * _EPSILON / 2.
_OPERATIONS: Final = 5


def could_become(before: Floats, after: Floats, hops: int, parameters: TopKParameters) -> Bools:
    """Return whether honest hops could have turned one vector into another, by run, shape (T,).

    The result is never false for honest hops, regardless of values, noise and rounding. A true
    result proves little: any input that an honest party might have had passes. Both vectors have
    the shape (T, k); their rows are ascending and finite.
    """
    require(hops >= 0, "hops", hops, "an integer of at least 0")
    if hops == 0:
        return np.asarray((before == after).all(axis=1))
    # If even the smallest entry may be gone there is nothing to check, which is the usual case.
    possible = after[:, -1] <= _reach(before[:, 0], hops, parameters)
    (doubtful,) = (~possible).nonzero()
    if doubtful.size:
        gone = difference(before[doubtful], after[doubtful])[:, 0]
        possible[doubtful] = after[doubtful, -1] <= _reach(gone, hops, parameters)
    return possible


@np.errstate(over="ignore")  # no entry exceeds an infinite bound
def _reach(displaced: Floats, hops: int, parameters: TopKParameters) -> Floats:
    """Return the largest last entry that a vector can have some hops after it lost an entry.

    Each hop adds `delta` and rounds. The result includes the maximum rounding error of these
    additions and of its own single product.
    """
    if parameters.P0 == 0:
        return displaced
    drift = hops * parameters.delta
    error = (hops + _OPERATIONS) * _EPSILON * (np.abs(displaced) + drift)
    return np.asarray(displaced + drift + error)


def could_be_totals(
    totals: Floats, own: Floats, result: Floats, weights: Weights, upper: float
) -> Bools:
    """Return whether honest parties could have these vote totals, by query, shape (Q,).

    Votes are never negative, so no total is below the party's own votes. Uniform votes are whole
    numbers, and at least k rows vote if the result, shape (Q, k), is below `upper`. The party's own
    votes are those that the secure sum has rounded.
    """
    possible = (totals >= own).all(axis=1)
    if weights == "uniform":
        enough = totals.sum(axis=1) >= np.where(result[:, -1] < upper, result.shape[1], 0)
        possible &= (totals == np.rint(totals)).all(axis=1) & enough
    return np.asarray(possible)
