"""PP-kNN without a network: a party's votes, the pooled classifier, and all parties at once.

Source: Xiong, Chitti and Liu, SAC 2007, Section 4.3. The leading axis is always Q independent
queries.

The model itself leaks, however well PP-TopK and the secure sum are run: every party learns the k
smallest distances of each query, the vote total of every class, and the label.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.data.table import is_table, pairwise_distances
from veilring.privacy.checks import require, require_that
from veilring.protocols.ring.algorithm.sums import FixedPoint
from veilring.protocols.ring.algorithm.topk import TopKParameters, cut_rows, own_smallest, run_ring

Weights = Literal["uniform", "distance"]
"""The weight of a row's vote: 1, or in proportion to 1 / distance."""

# With an exact result no weight exceeds 1. A noisy result can be larger than a party's own
# distances, and the fixed point of the secure sum needs a public bound on a vote: a row this many
# times nearer than the public nearest outvotes any usual k by far.
MOST_WEIGHT: Final = 1024.0

# Distances take 32 MiB at this size; more queries are run one after another.
INPUT_ENTRIES: Final = 2**22


def local_votes(
    distances: Floats, labels: Ints, result: Floats, classes: int, weights: Weights = "uniform"
) -> Floats:
    """Return a party's local classification vectors `lcv`, shape (Q, classes) (Section 4.3, 4).

    A row votes for its class if its distance is at most the radius, the last entry of the public
    result. Rows that tie at the radius all vote, so more than k rows may: the paper's model has
    no way to choose among parties, and any choice would reveal more.

    With `"distance"` a row's weight is `nearest / distance`, where `nearest` is the first entry of
    the public result. This is the usual 1 / distance up to a public factor per query, and at most 1
    if the result is exact; otherwise it is capped at `MOST_WEIGHT`. If `nearest` is 0, an exact
    match decides alone: only rows at distance 0 vote, each with weight 1.

    The party's distances have the shape (Q, N), and the public result of PP-TopK (Q, k).
    """
    _require_rows(distances, labels, classes)
    same = is_table(result) and len(result) == len(distances)
    require_that(
        same, "result", f"result has the shape {result.shape}; it must be ({len(distances)}, k)"
    )
    ballots = _ballots(distances, result[:, :1], result[:, -1:], weights)
    votes = np.zeros((len(distances), classes))
    for label in np.flatnonzero(np.bincount(labels)):
        votes[:, label] = ballots[:, labels == label].sum(axis=1)
    return votes


def _ballots(distances: Floats, nearest: Floats, radius: Floats, weights: Weights) -> Floats:
    """Return the weight of each row's vote, shape (Q, N); 0 for rows that do not vote."""
    voting = distances <= radius
    if weights == "uniform":
        return voting.astype(np.float64)
    require(weights == "distance", "weights", weights, '"uniform" or "distance"')
    ratio = np.full_like(distances, MOST_WEIGHT)
    np.divide(nearest, distances, out=ratio, where=distances * MOST_WEIGHT > nearest)
    exact = nearest == 0
    return np.where(exact, distances == 0, np.where(voting, ratio, 0.0))


def _require_rows(distances: Floats, labels: Ints, classes: int) -> None:
    require(classes >= 1, "classes", classes, "an integer of at least 1")
    fits = is_table(distances) and labels.shape == distances.shape[1:]
    require_that(
        fits,
        "labels",
        f"labels has the shape {labels.shape} and distances {distances.shape}; they must be (N,) "
        "and (Q, N)",
    )
    known = bool(((labels >= 0) & (labels < classes)).all())
    require_that(known, "labels", f"labels must be integers from 0 to {classes - 1}")


def decide_labels(totals: Floats) -> Ints:
    """Return the class with the most of (Q, classes) votes, shape (Q,); ties to the lowest."""
    return np.asarray(np.argmax(totals, axis=1), dtype=np.int64)


def pooled_knn(  # noqa: PLR0917  (a query, a data set and a classifier)
    queries: Floats, rows: Floats, labels: Ints, classes: int, k: int, weights: Weights = "uniform"
) -> Ints:
    """Return the labels of the non-private classifier on the pooled rows, shape (Q,).

    The reference for relative accuracy. It uses the same functions as the parties, so any
    difference is due to the protocol. With fewer than k rows, all of them vote.
    """
    found = np.empty(len(queries), dtype=np.int64)
    for chunk in cut_rows(len(queries), max(1, len(rows)), INPUT_ENTRIES):
        pooled = pairwise_distances(queries[chunk], rows)
        votes = local_votes(pooled, labels, own_smallest(pooled, k), classes, weights)
        found[chunk] = decide_labels(votes)
    return found


def pooled_mean(queries: Floats, rows: Floats, labels: Ints, k: int) -> Ints:
    """Return the mean label of the k nearest of the pooled rows, shape (Q,): see `mean_labels`.

    All rows that tie at the k-th place count. With fewer than k rows, all of them do.
    """
    found, kept = np.zeros(len(queries), dtype=np.int64), min(k, len(rows))
    if not kept:
        return found
    for chunk in cut_rows(len(queries), len(rows), INPUT_ENTRIES):
        pooled = pairwise_distances(queries[chunk], rows)
        near = pooled <= np.partition(pooled, kept - 1, axis=1)[:, [kept - 1]]
        found[chunk] = mean_labels(near @ labels, near.sum(axis=1))
    return found


def mean_labels(sums: NDArray[Any], rows: NDArray[Any]) -> Ints:
    """Return sums of labels divided by numbers of rows, rounded half up; 0 without any row."""
    two = rows.dtype.type(2)
    mean = (two * sums + rows) // np.maximum(two * rows, rows.dtype.type(1))
    return np.asarray(mean, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Classified:
    """The answers to Q queries, as every party would learn them.

    Attributes:
        labels: Shape (Q,), the class with the most votes; ties go to the lowest class.
        votes: Shape (Q, classes), the total of all parties' votes.
        nearest: Shape (Q, k), the public result of PP-TopK, ascending.
    """

    labels: Ints
    votes: Floats
    nearest: Floats


def ring_knn(
    to_rows: Sequence[Floats],
    labels: Sequence[Ints],
    parameters: TopKParameters,
    rng: np.random.Generator,
    *,
    fixed: FixedPoint,
    classes: int,
    weights: Weights = "uniform",
) -> Classified:
    """Label queries as a ring of parties would, each query in a random order of the ring.

    Each step is a function that the roles call: `run_ring` loops over `topk_step`, votes are
    `local_votes`, and they are added up in the fixed point of the secure sum, so that even ties are
    broken as in a deployment. The sum's masks cancel in the total and are left out.

    A networked batch has one order for all its queries. Here each query has its own order, so
    averages over queries are averages over orders too. A single query has the same distribution.

    Each of at least 3 parties has its distances, shape (Q, rows), and labels; it may have no rows.
    """
    nearest = np.empty((len(to_rows[0]), parameters.k))
    for chunk in cut_rows(len(nearest), len(to_rows) * parameters.k, INPUT_ENTRIES):
        own = [own_smallest(party[chunk], parameters.k) for party in to_rows]
        nearest[chunk] = run_ring(_in_random_order(np.stack(own, axis=1), rng), parameters, rng)
    total = np.zeros((len(nearest), classes), dtype=np.uint64)
    for party, own_labels in zip(to_rows, labels, strict=True):
        total += fixed.encode(local_votes(party, own_labels, nearest, classes, weights))
    votes = fixed.decode(total)
    return Classified(decide_labels(votes), votes, nearest)


def _in_random_order(values: Floats, rng: np.random.Generator) -> Floats:
    """Return the parties (axis 1) in a separate random order for each run (axis 0)."""
    runs, parties = values.shape[:2]
    orders = rng.permuted(np.tile(np.arange(parties), (runs, 1)), axis=1)
    return np.take_along_axis(values, orders[:, :, None], axis=1)
