"""PP-kNN: a party's own share of the classification, and the pooled classifier to compare with.

Source: Xiong, Chitti and Liu, SAC 2007, Section 4.3. The leading axis is always Q independent
queries.

The model itself leaks, however well PP-TopK and the secure sum are run: every party learns the k
smallest distances of each query, the vote total of every class, and the label.
"""

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm.checks import require
from veilring.protocols.ring.algorithm.topk import own_smallest

Weights = Literal["uniform", "distance"]
"""How a row's vote counts: 1, or in proportion to 1 / distance."""

# With an exact result no weight exceeds 1. A noisy result can be larger than a party's own
# distances, and the fixed point of the secure sum needs a public bound on a vote: a row this many
# times nearer than the public nearest outvotes any usual k by far.
MOST_WEIGHT: Final = 1024.0


def pairwise_distances(
    queries: NDArray[np.float64], rows: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the Euclidean distance of every query to every row, shape (Q, N).

    Each entry is computed from its own pair alone, so that a party's distances are bit for bit
    those of the pooled computation. The matrix-product form is faster, but its rounding depends on
    which other rows are there.

    Args:
        queries: Shape (Q, f).
        rows: Shape (N, f); N may be 0.

    Raises:
        InputError: If the two are not two-dimensional with the same number of features.
    """
    same = queries.ndim == rows.ndim == 2 and queries.shape[1] == rows.shape[1]  # noqa: PLR2004  (points by features)
    given = f"of shape {rows.shape} for queries of shape {queries.shape}"
    require(same, "rows", given, "shape (N, f) for queries of shape (Q, f)")
    from scipy.spatial.distance import cdist  # noqa: PLC0415  (0.6 s; who launches needs none)

    return np.asarray(cdist(queries, rows, metric="euclidean"), dtype=np.float64)


def smallest_distances(distances: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return what a party brings to PP-TopK: `own_smallest` of its distances, shape (Q, k)."""
    return own_smallest(distances, k)


def local_votes(
    distances: NDArray[np.float64],
    labels: NDArray[np.int64],
    result: NDArray[np.float64],
    classes: int,
    weights: Weights = "uniform",
) -> NDArray[np.float64]:
    """Return a party's local classification vectors `lcv`, shape (Q, classes) (Section 4.3, 4).

    A row votes for its class if its distance is at most the radius, the last entry of the public
    result. Rows that tie at the radius all vote, so more than k rows may: the paper's model has
    no way to choose among parties, and any choice would reveal more.

    With `"distance"` a row's weight is `nearest / distance`, where `nearest` is the first entry of
    the public result. This is the usual 1 / distance up to a public factor a query, and bounded by
    1 if the result is exact; it is cut at `MOST_WEIGHT` if not. If `nearest` is 0, an exact match
    decides alone: only rows at distance 0 vote, each with weight 1.

    Args:
        distances: The party's distances, shape (Q, N).
        labels: The class of each row, shape (N,), from 0 to classes - 1.
        result: The public result of PP-TopK, shape (Q, k), rows ascending.
        classes: The number of classes, at least 1.
        weights: `"uniform"` or `"distance"`.

    Raises:
        InputError: If a shape does not fit, a label is out of range or `weights` is unknown.
    """
    _require_rows(distances, labels, classes)
    same = result.ndim == 2 and len(result) == len(distances)  # noqa: PLR2004  (queries by k)
    require(same, "result", f"of shape {result.shape}", f"shape ({len(distances)}, k)")
    ballots = _ballots(distances, result[:, :1], result[:, -1:], weights)
    votes = np.zeros((len(distances), classes))
    for label in np.unique(labels):
        votes[:, label] = ballots[:, labels == label].sum(axis=1)
    return votes


def decide_labels(totals: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the class with the most votes for each query, shape (Q,); ties to the lowest class.

    Args:
        totals: Vote totals over all parties, shape (Q, classes).
    """
    return np.asarray(np.argmax(totals, axis=1), dtype=np.int64)


def pooled_knn(  # noqa: PLR0917  (a query, a data set and a classifier)
    queries: NDArray[np.float64],
    rows: NDArray[np.float64],
    labels: NDArray[np.int64],
    classes: int,
    k: int,
    weights: Weights = "uniform",
) -> NDArray[np.int64]:
    """Return the labels that the non-private classifier gives on the pooled rows, shape (Q,).

    The reference of relative accuracy: it is made of the very functions that the parties run, so
    that any difference is the protocol's. With fewer than k rows, all of them vote.

    Args:
        queries: Shape (Q, f).
        rows: The rows of all parties, shape (N, f).
        labels: Their classes, shape (N,).
        classes: The number of classes.
        k: The number of neighbours, at least 1.
        weights: `"uniform"` or `"distance"`.

    Raises:
        InputError: As `pairwise_distances`, `smallest_distances` and `local_votes` do.
    """
    pooled = pairwise_distances(queries, rows)
    return decide_labels(
        local_votes(pooled, labels, smallest_distances(pooled, k), classes, weights)
    )


def _ballots(
    distances: NDArray[np.float64],
    nearest: NDArray[np.float64],
    radius: NDArray[np.float64],
    weights: Weights,
) -> NDArray[np.float64]:
    """Return the weight of each row's vote, shape (Q, N); 0 if it does not vote."""
    voting = distances <= radius
    if weights == "uniform":
        return voting.astype(np.float64)
    require(weights == "distance", "weights", weights, '"uniform" or "distance"')
    ratio = np.full_like(distances, MOST_WEIGHT)
    np.divide(nearest, distances, out=ratio, where=distances * MOST_WEIGHT > nearest)
    exact = nearest == 0
    return np.where(exact, distances == 0, np.where(voting, ratio, 0.0))


def _require_rows(distances: NDArray[np.float64], labels: NDArray[np.int64], classes: int) -> None:
    require(classes >= 1, "classes", classes, "an integer of at least 1")
    fits = distances.ndim == 2 and labels.shape == distances.shape[1:]  # noqa: PLR2004  (queries by rows)
    given = f"of shape {labels.shape} for distances of shape {distances.shape}"
    require(fits, "labels", given, "shape (N,) for distances of shape (Q, N)")
    known = bool(((labels >= 0) & (labels < classes)).all())
    require(known, "labels", "out of range in some place", f"integers from 0 to {classes - 1}")
