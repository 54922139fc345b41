"""Integer votes of the rows within a radius, and the pooled classifier.

If the label is a number, a row votes by its target: the rows are counted as if they had one class,
and their targets, in whole steps, are added up beside the count. The answer is their mean, rounded
to a whole step.

A row within the radius has one vote, or a vote of radius/distance in fixed point. Rows at distance
0, if any, decide alone: they are counted separately, so that no party has to know the nearest
distance. A search that ended with at most k rows within the radius needs only the k + 1 nearest
rows of each party; for ties, all rows within the radius are looked up again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.protocols.ranksearch.algorithm.search import Asked, End, Found, clipped_counts
from veilring.protocols.ring.algorithm.classify import Weights, mean_labels
from veilring.protocols.ring.algorithm.topk import cut_rows

WEIGHT_BITS: Final = 24
"""The number of fractional bits of a weighted vote."""
# A row may be at a subnormal distance. For any k that fits a batch, k of these weights and 2^32
# tied rows of weight 1 add up to less than 2^64.
WEIGHT_MAX: Final = 2.0**20
TIED_ROWS: Final = 2**32 - 1
"""The maximum number of rows of all parties together: votes of tied rows are 32-bit words."""

# Distances of 512 KiB stay in a core's cache: 1,000 queries to 500 rows take half the time of 16
# MiB at once. Weights and the words of votes are as large again, each.
DISTANCES_AT_ONCE: Final = 2**16

_WORDS: Final = tuple((256**size, np.dtype(f"<u{size}")) for size in (1, 2, 4, 8))
_NO_LABEL: Final = -1  # pads the nearest rows of a party with fewer rows


def word_for(largest: int) -> np.dtype[Any]:
    """Return the smallest word type that holds the given whole number."""
    return next(word for bound, word in _WORDS if largest < bound)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Nearest:
    """A party's k + 1 nearest rows to each query, shape (Q, k + 1), ascending, padded with inf."""

    distances: Floats
    labels: Ints


def nearest_rows(queries: Floats, rows: Rows, k: int) -> Nearest:
    """Return a party's k + 1 nearest rows to each query, shape (Q, features), of k >= 1."""
    kept = min(k + 1, len(rows))
    distances = np.full((len(queries), k + 1), np.inf)
    labels = np.full((len(queries), k + 1), _NO_LABEL)
    if not kept:
        return Nearest(distances, labels)
    for chunk in cut_rows(len(queries), len(rows), DISTANCES_AT_ONCE):
        to_rows = pairwise_distances(queries[chunk], rows.features)
        at = np.arange(len(to_rows))[:, None]
        near = np.argpartition(to_rows, kept - 1, axis=1)[:, :kept]
        found = to_rows[at, near]
        order = np.argsort(found, axis=1, kind="stable")
        distances[chunk, :kept] = found[at, order] + 0.0
        labels[chunk, :kept] = rows.labels[near[at, order]]
    return Nearest(distances, labels)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Votes:
    """The votes of one party, or their totals, shape (Q, classes).

    `counts` has the rows within the radius; if votes are weighted, in fixed point, it has only the
    rows at distance 0, which decide alone if there are any. `sums` has the sum of the targets of
    the rows within the radius, shape (Q,), each at most `steps`, if the label is a number; `counts`
    then has one column.
    """

    counts: NDArray[np.uint64]
    weighted: NDArray[np.uint64] | None = None
    sums: NDArray[np.uint64] | None = None
    steps: int = 0

    def arrays(self, tied: Bools, k: int) -> tuple[NDArray[Any], ...]:
        """Return the arrays to add up, each in the smallest word type that holds its totals."""
        few, many = word_for(k), word_for(TIED_ROWS)
        words = self.counts[~tied].astype(few), self.counts[tied].astype(many)
        if self.sums is not None:
            few, many = word_for(k * self.steps), word_for(TIED_ROWS * self.steps)
            return (*words, self.sums[~tied].astype(few), self.sums[tied].astype(many))
        return words if self.weighted is None else (*words, self.weighted)

    @classmethod
    def of(cls, arrays: Sequence[NDArray[Any]], tied: Bools, steps: int = 0) -> Self:
        """Return the votes with the given arrays, or with totals of arrays; see `own_votes`."""
        few, many, *others = arrays
        counts = np.empty((len(tied), few.shape[1]), dtype=np.uint64)
        counts[~tied], counts[tied] = few, many
        if not steps:
            return cls(counts, others[0] if others else None)
        sums = np.empty(len(tied), dtype=np.uint64)
        sums[~tied], sums[tied] = others
        return cls(counts, sums=sums, steps=steps)

    @property
    def deciding(self) -> NDArray[np.uint64]:
        """The words that decide the label, shape (Q, classes)."""
        if self.weighted is None:
            return self.counts
        return np.where(self.counts.any(axis=1, keepdims=True), self.counts, self.weighted)

    @property
    def labels(self) -> Ints:
        """The class with the most votes for each query; ties go to the lowest class.

        If the label is a number, it is the mean target, rounded half up; 0 without any row.
        """
        if self.sums is not None:
            return np.minimum(mean_labels(self.sums, self.counts[:, 0]), self.steps)
        return np.asarray(np.argmax(self.deciding, axis=1), dtype=np.int64)

    @property
    def values(self) -> Floats:
        """The votes as numbers, shape (Q, classes); the rows and their sum, shape (Q, 2)."""
        if self.sums is not None:
            return np.column_stack([self.counts[:, 0], self.sums]).astype(np.float64)
        if self.weighted is None:
            return self.counts.astype(np.float64)
        return np.where(
            self.counts.any(axis=1, keepdims=True), self.counts, self.weighted / 2.0**WEIGHT_BITS
        )


def own_votes(
    queries: Floats,
    rows: Rows,
    nearest: Nearest,
    found: Found,
    *,
    classes: int,
    weights: Weights,
    steps: int = 0,
) -> Votes:
    """Return the votes of a party's rows; `steps` is the largest target, if labels are numbers."""
    votes = no_votes(len(queries), classes, weights, steps)
    (few,) = (~found.tied).nonzero()
    counts, weighted = _ballots(nearest.distances[few], found.radii[few], weights)
    labels = nearest.labels[few]
    if votes.sums is not None:
        votes.sums[few] = (counts * labels).sum(axis=1)
        labels = np.zeros_like(labels)
    # On flat arrays, numpy adds ten times faster. Padding has weight 0, in any position.
    at = (few[:, None] * classes + labels).ravel()
    np.add.at(votes.counts.reshape(-1), at, counts.ravel().astype(np.uint64))
    if votes.weighted is not None:
        np.add.at(votes.weighted.reshape(-1), at, weighted.ravel())
    if len(rows) and found.tied.any():
        _count_tied(votes, queries, rows, found, weights)
    return votes


def no_votes(queries: int, classes: int, weights: Weights, steps: int = 0) -> Votes:
    """Return the votes of a party without rows near any query; see `own_votes`."""
    if steps:
        return Votes(
            np.zeros((queries, 1), np.uint64), sums=np.zeros(queries, np.uint64), steps=steps
        )
    shape = queries, classes
    weighted = np.zeros(shape, np.uint64) if weights == "distance" else None
    return Votes(np.zeros(shape, np.uint64), weighted)


def _count_tied(votes: Votes, queries: Floats, rows: Rows, found: Found, weights: Weights) -> None:
    """Add the votes of all rows within the radius, for queries with ties."""
    labels = rows.labels if votes.sums is None else np.zeros_like(rows.labels)
    order = np.argsort(labels, kind="stable")
    features = rows.features[order]
    present, starts = np.unique(labels[order], return_index=True)
    (tied,) = found.tied.nonzero()
    for chunk in cut_rows(len(tied), len(rows), DISTANCES_AT_ONCE):
        asked = tied[chunk]
        to_rows = pairwise_distances(queries[asked], features)
        counts, weighted = _ballots(to_rows, found.radii[asked], weights)
        at = np.ix_(asked, present)
        votes.counts[at] = np.add.reduceat(counts, starts, axis=1, dtype=np.uint64)
        if votes.sums is not None:
            votes.sums[asked] = counts @ rows.labels
        if votes.weighted is not None:
            votes.weighted[at] = np.add.reduceat(weighted, starts, axis=1, dtype=np.uint64)


def _ballots(
    distances: Floats, radii: Floats, weights: Weights
) -> tuple[Bools, NDArray[np.uint64]]:
    """Return whether each row counts by number, and each row's weight, both of shape (Q, rows)."""
    if weights == "uniform":
        return distances <= radii[:, None], np.zeros(0, np.uint64)
    return distances == 0, fixed_weights(radii[:, None], distances)


def fixed_weights(radii: Floats, distances: Floats) -> NDArray[np.uint64]:
    """Return radius/distance in fixed point, at most `WEIGHT_MAX`.

    The weight is 0 for a distance of 0, and for a distance above the radius.
    """
    ratio = np.zeros_like(distances)
    with np.errstate(over="ignore"):  # by a subnormal; the limit holds it
        np.divide(radii, distances, out=ratio, where=(distances > 0) & (distances <= radii))
    np.minimum(ratio, WEIGHT_MAX, out=ratio)
    ratio *= 2.0**WEIGHT_BITS
    return np.rint(ratio, out=ratio).astype(np.uint64)


def could_be_votes(
    totals: Votes, own: Votes, found: Found, at_radius: Ints, at_least: Ints | None = None
) -> bool:
    """Return whether vote totals could be those of honest parties, given one party's view.

    They are at least the party's own, and add up to the number of rows that the search found within
    the radius, or to more for ties, since counts are clipped. Rows at distance 0, which decide
    weighted votes alone, are at most those within the lowest threshold. Targets of other parties'
    rows are from 0 to their maximum. Totals of clipped counts at
    the radius, and at the lowest threshold if totals were opened, have the shape (Q,).
    """
    if not (totals.counts >= own.counts).all():
        return False
    rows = totals.counts.sum(axis=1, dtype=np.uint64).astype(np.int64)
    if totals.sums is not None and own.sums is not None:
        most = (totals.counts - own.counts)[:, 0] * np.uint64(totals.steps)
        if not ((totals.sums >= own.sums) & (totals.sums - own.sums <= most)).all():
            return False
    if totals.weighted is None or own.weighted is None:
        return bool(np.where(found.tied, rows >= at_radius, rows == at_radius).all())
    weighing = at_radius - rows  # the exact number, or a lower bound for ties
    weight = totals.weighted.sum(axis=1, dtype=np.uint64) / 2.0**WEIGHT_BITS
    exact = (weighing >= 0) & (weight <= weighing * WEIGHT_MAX)
    bounded = (weighing <= weight) & (found.tied | exact)
    if at_least is not None:  # may be clipped for ties
        bounded &= found.tied | (rows <= at_least)
    return bool(bounded.all() and (totals.weighted >= own.weighted).all())


def most_rows(totals: Votes, found: Found, k: int) -> Ints:
    """Return a bound on the number of rows within each radius, shape (Q,), from public results.

    It is k if the search ended at k, and k + 1 if rows may tie. With fewer than k rows, the votes
    bound their number.
    """
    votes = totals.counts.sum(axis=1, dtype=np.uint64)
    if totals.weighted is not None:
        votes += totals.weighted.sum(axis=1, dtype=np.uint64) >> np.uint64(WEIGHT_BITS)
    few = np.minimum(votes, k - 1).astype(np.int64)
    return np.select([found.ends == End.FEW, found.ends == End.EXACT], [few, k], k + 1)


@dataclass(frozen=True, slots=True)
class Ranked:
    """The answer to a batch, computed in one process."""

    found: Found
    votes: Votes

    @property
    def tied_rows(self) -> Ints:
        """The number of voting rows, of weight 1 each, for each query with ties, shape (tied,)."""
        return np.asarray(self.votes.counts[self.found.tied].sum(axis=1), dtype=np.int64)


def count_rows(near: Sequence[Nearest], asked: Asked) -> Ints:
    """Return the total of all parties' clipped counts at each threshold, shape (thresholds,)."""
    totals: Ints = np.add.reduce([clipped_counts(own.distances, asked) for own in near])
    return totals
