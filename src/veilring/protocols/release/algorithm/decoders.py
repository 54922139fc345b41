"""Decoders from released sums to classifiers, which use the known amount of noise.

All of this is post-processing: it costs no privacy. Sums are in units of a row, not in scaled whole
numbers, and `noise` is the standard deviation of each number in the same unit. With a noise of 0,
each decoder is the textbook method: the nearest class mean, a linear discriminant with a ridge of
one per cent of the mean eigenvalue, naive Bayes, the majority of a cell.
"""

from collections.abc import Iterator
from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.release.algorithm.classifiers import (
    CountsClassifier,
    DirectionClassifier,
    GridClassifier,
    TreesClassifier,
)
from veilring.protocols.release.algorithm.columns import Bins, Frame, Trees

# Added to each eigenvalue, relative to their mean: a covariance without noise needs it, too.
RIDGE: Final = 0.01
# Added to each count of naive Bayes, relative to the noise: values up to 0.3 are equally good, and
# 1 costs two points.
SMOOTHING: Final = 0.1
# Without noise, this keeps a count of 0 from excluding a class.
SMOOTHING_MIN: Final = 1e-3
# The minimum spread of a feature, relative to the widest: constant features stay near 0.
SPREAD_MIN: Final = 0.02
# The decay of counts with the distance from a cell of a grid, from the cell alone to all cells.
DECAYS: Final = tuple(tenths / 10 for tenths in range(11))
# The standard deviations by which a class must lead. Accuracy is flat between 1 and 2.
LEAD: Final = 1.5
# The minimum noise to assume, in rows: without any, an empty cell still has no leader.
QUIET: Final = 0.01
# Numbers that are spread over a grid at once: all decays of a small grid, and one of a large grid,
# so that memory grows with the counts only.
_SPREAD_MAX: Final = 2**16
# Added to each count of a leaf, relative to the noise: twice or half of it is no better.
LEAF_SMOOTHING: Final = 0.5


def decode_centre(sums: NDArray[np.float64], middle: Frame, rows: int, noise: float) -> Frame:
    """Return the frame around the released mean; more noise moves it nearer to the middle.

    Args:
        sums: The sums of rows around the middle, shape (features,).
    """
    return middle.about(_released_mean(sums, rows, noise))


def _released_mean(sums: NDArray[np.float64], rows: int, noise: float) -> NDArray[np.float64]:
    # The root keeps the mean's length without noise. Shrinking by the whole fraction would leave
    # all rows on one side of the origin, which costs more than some noise.
    kept = np.sqrt(keep_share(sums, noise))
    return np.asarray(np.clip(kept * sums / rows, -0.5, 0.5))


def keep_share(vectors: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Return the fraction of each vector's square that is not noise, from 0 to 1, shape (..., 1).

    It is the factor for each vector with the smallest expected error (James and Stein, positive
    part).

    Args:
        vectors: Shape (..., entries).
    """
    squares = np.sum(vectors**2, axis=-1, keepdims=True)
    spent = vectors.shape[-1] * noise**2
    lost = np.divide(spent, squares, out=np.ones_like(squares), where=squares > 0)
    return np.asarray(np.maximum(0.0, 1 - lost))


def decode_moments(sums: NDArray[np.float64], middle: Frame, rows: int, noise: float) -> Frame:
    """Return the frame around the released mean, in units of the released standard deviations.

    A variance is at least the standard deviation of its own noise, which hides smaller values.

    Args:
        sums: The sums of rows around the middle and of twice their squares, shape (2, features).
    """
    mean = _released_mean(sums[0], rows, noise)
    blur = np.hypot(noise / 2, 2 * mean * noise) / rows
    variance = np.clip(sums[1] / (2 * rows) - mean**2, blur, 0.25)
    spread = np.sqrt(variance)
    return middle.about(mean, np.maximum(spread, SPREAD_MIN * max(spread.max(), SPREAD_MIN)))


def decode_means(
    sums: NDArray[np.float64], frame: Frame, classes: tuple[str, ...]
) -> DirectionClassifier:
    """Return the classifier by nearest class mean in cosine; a class with a sum of 0 scores 0.

    Args:
        sums: Shape (classes, features), of directions.
    """
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    weights = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
    biases = np.zeros(len(classes))
    return DirectionClassifier(
        classes, frame.origin, frame.units, weights, biases, calibrated=False
    )


class DiscriminantNoise(NamedTuple):
    """The standard deviation of each number of a discriminant's sums.

    Attributes:
        second: The noise of the sum of `u u^T`: of its diagonal entries, and sqrt(2) times that of
            other entries.
    """

    sums: float
    counts: float
    second: float


def decode_discriminant(
    sums: NDArray[np.float64],
    counts: NDArray[np.float64],
    second: NDArray[np.float64],
    frame: Frame,
    classes: tuple[str, ...],
    *,
    kappa: float,
    noise: DiscriminantNoise,
) -> DirectionClassifier:
    """Return a linear discriminant: the nearest class mean after whitening, with priors.

    Args:
        sums: Shape (classes, features), of directions u.
        counts: The numbers of rows, shape (classes,).
        second: The sum of `u u^T`, shape (features, features).
    """
    sizes = shrink_counts(counts, noise.counts)
    rows = float(sizes.sum())
    means = shrink_means(sums, sizes, noise.sums)
    within = second / rows - (means.T * (sizes / rows)) @ means
    edge = noise.second * sqrt(2 * sums.shape[1]) / rows
    values, vectors = lift_eigenvalues(within, kappa * edge)
    weights = (means @ vectors / values) @ vectors.T
    biases = np.log(sizes / rows) - np.sum(weights * means, axis=1) / 2
    return DirectionClassifier(classes, frame.origin, frame.units, weights, biases, calibrated=True)


def shrink_counts(counts: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Return numbers of rows, each at least 1, shrunk towards their mean according to the noise.

    The weight of their mean is the fraction of noise in their variance (James and Stein).

    Args:
        counts: Shape (classes,).
    """
    mean = max(float(counts.mean()), 1.0)
    spread = float(np.mean((counts - mean) ** 2))
    weight = min(1.0, noise**2 / spread) if spread > 0 else 1.0
    return np.maximum(mean + (1 - weight) * (counts - mean), 1.0)


def shrink_means(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], noise: float
) -> NDArray[np.float64]:
    """Return class means shrunk towards 0 according to the noise, each of norm at most 1.

    Args:
        sums: Shape (classes, features), of directions.
        sizes: The numbers of rows, shape (classes,), at least 1.
    """
    means = keep_share(sums, noise) * sums / sizes[:, None]
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    return np.asarray(means / np.maximum(lengths, 1.0))


def lift_eigenvalues(
    matrix: NDArray[np.float64], floor: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return positive eigenvalues and their vectors, of the same trace but with less noise.

    Negative eigenvalues become 0; each is increased by the floor and `RIDGE` of their mean; all are
    then scaled to the old trace, so that distances keep their size relative to the priors.

    Args:
        matrix: Shape (features, features), symmetric.
        floor: The number added to each eigenvalue, at least 0.
    """
    values, vectors = np.linalg.eigh(matrix)
    trace = max(float(values.sum()), np.finfo(float).eps)
    lifted = np.maximum(values, 0.0) + floor + RIDGE * trace / len(values)
    return lifted * (trace / lifted.sum()), vectors


def decode_counts(
    counts: NDArray[np.float64], bins: Bins, classes: tuple[str, ...], noise: float
) -> CountsClassifier:
    """Return naive Bayes: bin frequencies by class, smoothed towards those of all classes.

    Args:
        counts: Shape (classes, bins of all columns).
    """
    alpha = max(SMOOTHING * noise, SMOOTHING_MIN)
    blocks = np.split(counts, np.cumsum(bins.sizes)[:-1], axis=1)
    sizes = np.mean([block.sum(axis=1) for block in blocks], axis=0)
    sizes = np.maximum(sizes, max(noise, 1.0))
    shares = []
    for block in blocks:
        width = block.shape[1]
        pooled = np.maximum(block.sum(axis=0), 0.0) + alpha * sqrt(len(classes))
        kept = np.maximum(block, 0.0) + alpha * width * pooled / pooled.sum()
        shares.append(np.log(kept / kept.sum(axis=1, keepdims=True)))
    return CountsClassifier(
        classes,
        sum(values for _, values in bins.categories) + len(bins.numbers),
        np.array(bins.numbers, dtype=np.int64),
        bins.cuts,
        np.array([first for first, _ in bins.categories], dtype=np.int64),
        np.array([values for _, values in bins.categories], dtype=np.int64),
        np.log(sizes / sizes.sum()),
        np.hstack(shares),
    )


def decode_grid(
    counts: NDArray[np.float64], classes: tuple[str, ...], noise: float
) -> GridClassifier:
    """Return the class frequencies around each cell, as local as the noise allows.

    Counts around a cell are added with the weight `decay ** distance`, for increasing decays, until
    the largest class leads the second by `LEAD` standard deviations of the noise on their
    difference. If no decay reaches this, the one with the largest lead relative to its noise is
    used.

    Args:
        counts: Shape (classes, side, side, …).
    """
    side, columns = counts.shape[1], counts.ndim - 1
    shares = np.zeros((len(classes), side**columns))
    best = np.full(side**columns, -1.0)
    for sums, squares in _around_cells(counts):
        deviation = np.maximum(noise, QUIET) * np.sqrt(2 * squares)
        leads = _leads(sums) / deviation
        better = (best <= LEAD) & (leads > best)
        kept = np.maximum(sums[:, better], 0.0) + deviation[better] / 2
        shares[:, better] = kept / kept.sum(axis=0)
        best[better] = leads[better]
    return GridClassifier(classes, columns, side, np.log(shares.T))


def _around_cells(
    counts: NDArray[np.float64],
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield, for each decay, the weighted counts around each cell and the sum of squared weights.

    Their shapes are (classes, cells) and (cells,).
    """
    side = counts.shape[1]
    apart = np.abs(np.subtract.outer(np.arange(side), np.arange(side)))
    weights = np.stack([float(decay) ** apart for decay in DECAYS])
    at_once = max(1, _SPREAD_MAX // counts.size)
    for start in range(0, len(DECAYS), at_once):
        some = weights[start : start + at_once]
        sums = _spread(counts, some, 1).reshape(len(some), len(counts), -1)
        squares = _spread(np.ones(counts.shape[1:]), some**2, 0).reshape(len(some), -1)
        yield from zip(sums, squares, strict=True)


def _spread(
    values: NDArray[np.float64], weights: NDArray[np.float64], first: int
) -> NDArray[np.float64]:
    """Return the weighted sums around each cell; weights multiply along the grid's axes.

    Args:
        values: Of any shape.
        weights: Shape (decays, side, side).
        first: The first of the grid's axes; all further ones belong to it.

    Returns:
        The shape of the values after an axis of decays.
    """
    sums = np.broadcast_to(values, (len(weights), *values.shape))
    for axis in range(first + 1, sums.ndim):
        moved = np.moveaxis(sums, axis, 1)
        flat = moved.reshape(*moved.shape[:2], -1)
        sums = np.moveaxis((weights @ flat).reshape(moved.shape), 1, axis)
    return sums


def _leads(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lead of the largest class over the second; with one class, its whole count."""
    if len(sums) == 1:
        return np.asarray(sums[0])
    second, first = np.partition(sums, -2, axis=0)[-2:]
    return np.asarray(first - second)


def decode_trees(
    counts: NDArray[np.float64],
    trees: Trees,
    features: int,
    classes: tuple[str, ...],
    noise: float,
) -> TreesClassifier:
    """Return the class frequencies in each leaf, smoothed according to the noise.

    Args:
        counts: Shape (trees, leaves, classes).
    """
    kept = np.maximum(counts, 0.0) + max(LEAF_SMOOTHING * noise, SMOOTHING_MIN)
    shares = kept / kept.sum(axis=2, keepdims=True)
    return TreesClassifier(classes, features, trees.tested, trees.cuts, np.log(shares))
