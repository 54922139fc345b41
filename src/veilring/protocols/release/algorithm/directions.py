"""Sums of directions, for class means and a linear discriminant, and sums for their frame.

A row counts by its direction from the origin of a frame, so every row has norm 1 (Wahdany et al.,
"Beyond the mean: differentially private prototypes", AAAI 2025). A frame around the rows' own
centre separates directions better than the middle of the ranges. It must be released first, as a
separate noisy sum: the `Centre`, or the `Moments` with the spread of each feature.

The discriminant releases the parts of a pooled covariance: the sums of u by class, the numbers of
rows, and the sum of `u u^T`, weighted so that the last, which has the most numbers, gets most of
the bound. Off-diagonal entries are counted once, times sqrt(2): the vector then has the Frobenius
norm of the matrix, which is 1.

Decoders use the known amount of noise, in units of a row. Without noise, they are the nearest class
mean, and a linear discriminant with a ridge of one per cent of the mean eigenvalue.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Features
from veilring.privacy.checks import require, require_that
from veilring.protocols.release.algorithm.classifiers import DirectionClassifier, Frame
from veilring.protocols.release.algorithm.noise import Norm
from veilring.protocols.release.algorithm.statistic import (
    Entries,
    ScaledStatistic,
    apportion,
    cut_off,
    require_labels,
)

# The weights of counts and of the second moment relative to the sums by class, and their squares.
# From 0.2 to 0.4 and from 0.5 to 0.7, accuracies are equal within their errors; a second moment of
# weight 1 costs two points with many classes.
COUNT_WEIGHT: Final = 0.3
SECOND_WEIGHT: Final = 0.7
DISCRIMINANT_SQUARE: Final = 1 + Fraction(9, 100) + Fraction(49, 100)
# Added to each eigenvalue, relative to their mean: a covariance without noise needs it, too.
RIDGE: Final = 0.01
# The minimum spread of a feature, relative to the widest: constant features stay near 0.
SPREAD_MIN: Final = 0.02


@dataclass(frozen=True, slots=True)
class _FrameStatistic(ScaledStatistic[Frame]):
    """A first release, for a frame.

    Attributes:
        rows: The declared number of rows, at least 1.
    """

    rows: int

    def __post_init__(self) -> None:
        ScaledStatistic.__post_init__(self)
        require(self.rows >= 1, "rows", self.rows, "a whole number of at least 1")

    def _place(self, rows: Floats, labels: Ints) -> Floats:
        """Return rows around the middle of their ranges, with the target if it is a number."""
        joint = self.features.with_target(rows, labels)
        return Frame.middle(self.features).place(joint)


@dataclass(frozen=True, slots=True)
class Centre(_FrameStatistic):
    """The sum of rows around the middle of their ranges."""

    @property
    @override
    def length(self) -> int:
        return self.features.joint_width

    @property
    @override
    def largest(self) -> Fraction:
        return _greatest(self.features, self.norm, moments=False)

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        placed = self._place(rows, labels)
        return Entries.dense(cut_off(placed, self.scale, self.bound))

    @override
    def decode(self, noisy: Ints, deviation: float) -> Frame:
        """Return the frame around the released mean; more noise moves it nearer to the middle."""
        sums, noise = self.read(noisy, deviation)
        return Frame.middle(self.features).about(_released_mean(sums, self.rows, noise))


@dataclass(frozen=True, slots=True)
class Moments(_FrameStatistic):
    """The sums of rows around the middle and of twice their squares."""

    @property
    @override
    def length(self) -> int:
        return 2 * self.features.joint_width

    @property
    @override
    def largest(self) -> Fraction:
        return _greatest(self.features, self.norm, moments=True)

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        placed = self._place(rows, labels)
        both = np.hstack((placed, 2 * placed**2))
        return Entries.dense(cut_off(both, self.scale, self.bound))

    @override
    def decode(self, noisy: Ints, deviation: float) -> Frame:
        """Return the frame around the released mean, in units of the released deviations.

        A variance is at least the standard deviation of its own noise, which hides smaller values.
        """
        released, noise = self.read(noisy, deviation)
        sums = released.reshape(2, -1)
        mean = _released_mean(sums[0], self.rows, noise)
        blur = np.hypot(noise / 2, 2 * mean * noise) / self.rows
        variance = np.clip(sums[1] / (2 * self.rows) - mean**2, blur, 0.25)
        spread = np.sqrt(variance)
        spread = np.maximum(spread, SPREAD_MIN * max(spread.max(), SPREAD_MIN))
        return Frame.middle(self.features).about(mean, spread)


def _released_mean(sums: Floats, rows: int, noise: float) -> Floats:
    # The root keeps the mean's length without noise. Shrinking by the whole fraction would leave
    # all rows on one side of the origin, which costs more than some noise.
    kept = np.sqrt(keep_share(sums, noise))
    return np.asarray(np.clip(kept * sums / rows, -0.5, 0.5))


def _greatest(features: Features, norm: Norm, *, moments: bool) -> Fraction:
    """Return the maximum L1 norm, or squared L2 norm, of a row around the middle.

    A number is at most 1/2 from the middle. The block of a category of k values has one entry of
    `(1 - 1/k) / 2` and k - 1 entries of `-1 / (2 k)`, whatever its value is.
    """
    numbers = features.joint_width - sum(len(each.values) for each in features.categories)
    blocks: list[tuple[tuple[Fraction, int], ...]] = [((Fraction(1, 2), 1),)] * numbers
    for each in features.categories:
        share = Fraction(1, len(each.values))
        blocks.append((((1 - share) / 2, 1), (share / 2, len(each.values) - 1)))
    power = 1 if norm == "l1" else 2
    return sum(
        (
            times * (entry**power + ((2 * entry**2) ** power if moments else 0))
            for block in blocks
            for entry, times in block
        ),
        Fraction(0),
    )


@dataclass(frozen=True, slots=True)
class _DirectionStatistic(ScaledStatistic[DirectionClassifier]):
    """A sum of directions in a frame."""

    frame: Frame

    def __post_init__(self) -> None:
        ScaledStatistic.__post_init__(self)
        require_that(
            len(self.frame.origin) == len(self.features),
            "frame",
            f"the frame has {len(self.frame.origin)} features; the schema has {len(self.features)}",
        )


@dataclass(frozen=True, slots=True)
class ClassMeans(_DirectionStatistic):
    """The sum of directions of each class; each has length 1 in the norm of the bound."""

    largest: ClassVar[int] = 1

    @property
    @override
    def length(self) -> int:
        return len(self.features.classes) * len(self.features)

    @property
    @override
    def support(self) -> int:
        return len(self.features)

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        require_labels(labels, self.features)
        found = self.frame.directions(rows)
        whole = (
            apportion(found, self.scale)
            if self.norm == "l1"
            else cut_off(found, self.scale, self.bound)
        )
        width = len(self.features)
        return Entries(labels[:, None] * width + np.arange(width), whole)

    @override
    def decode(self, noisy: Ints, deviation: float) -> DirectionClassifier:
        """Return the classifier by nearest class mean in cosine; a class of sum 0 scores 0."""
        released, _ = self.read(noisy, deviation)
        classes, frame = self.features.classes, self.frame
        sums = released.reshape(len(classes), -1)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        weights = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
        biases = np.zeros(len(classes))
        return DirectionClassifier(
            classes, frame.origin, frame.units, weights, biases, calibrated=False
        )


@dataclass(frozen=True, slots=True)
class Discriminant(_DirectionStatistic):
    """Sums of directions u by class, the numbers of rows, and the sum of `u u^T`; L2 only.

    Attributes:
        kappa: The number of spectral norms of the noise to add to each eigenvalue of the
            covariance, at least 0.
    """

    largest: ClassVar[Fraction] = DISCRIMINANT_SQUARE
    kappa: float = 1.0

    def __post_init__(self) -> None:
        _DirectionStatistic.__post_init__(self)
        require(self.norm == "l2", "norm", self.norm, "l2")
        require(0 <= self.kappa < np.inf, "kappa", self.kappa, "a finite number of at least 0")

    @property
    @override
    def length(self) -> int:
        width = len(self.features)
        return len(self.features.classes) * (width + 1) + width * (width + 1) // 2

    @property
    @override
    def support(self) -> int:
        width = len(self.features)
        return width + 1 + width * (width + 1) // 2

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        require_labels(labels, self.features)
        classes, width = len(self.features.classes), len(self.features)
        found = self.frame.directions(rows)
        values = np.empty((len(rows), self.support))
        values[:, :width], values[:, width] = found, COUNT_WEIGHT
        values[:, width + 1 :] = symmetric_entries(found, SECOND_WEIGHT)
        start = classes * (width + 1)
        positions = np.empty(values.shape, dtype=np.int64)
        positions[:, :width] = labels[:, None] * width + np.arange(width)
        positions[:, width] = classes * width + labels
        positions[:, width + 1 :] = start + np.arange(self.length - start)
        return Entries(positions, cut_off(values, self.scale, self.bound))

    @override
    def decode(self, noisy: Ints, deviation: float) -> DirectionClassifier:
        """Return a linear discriminant: the nearest class mean after whitening, with priors."""
        released, noise = self.read(noisy, deviation)
        classes, width = len(self.features.classes), len(self.features)
        summed, counts, entries = np.split(released, (classes * width, classes * (width + 1)))
        matrix = read_symmetric(entries, width)
        sizes = shrink_counts(counts / COUNT_WEIGHT, noise / COUNT_WEIGHT)
        rows = float(sizes.sum())
        means = shrink_means(summed.reshape(classes, width), sizes, noise)
        within = matrix / SECOND_WEIGHT / rows - (means.T * (sizes / rows)) @ means
        # Off the diagonal, the noise of `u u^T` is sqrt(1/2) times that on it.
        edge = noise / SECOND_WEIGHT * sqrt(2 * width) / rows
        values, vectors = lift_eigenvalues(within, self.kappa * edge)
        weights = (means @ vectors / values) @ vectors.T
        biases = np.log(sizes / rows) - np.sum(weights * means, axis=1) / 2
        origin, units = self.frame.origin, self.frame.units
        names = self.features.classes
        return DirectionClassifier(names, origin, units, weights, biases, calibrated=True)


def symmetric_entries(vectors: Floats, weight: float = 1.0) -> Floats:
    """Return the weighted entries of each `u u^T` on and above the diagonal, shape (rows, entries).

    Those above it are multiplied by sqrt(2), for the Frobenius norm of the matrix.
    """
    first, second = np.triu_indices(vectors.shape[1])
    weights = weight * np.where(first == second, 1.0, sqrt(2))
    return np.asarray(weights * vectors[:, first] * vectors[:, second])


def read_symmetric(entries: Floats, width: int) -> Floats:
    """Return the symmetric matrix with the entries of `symmetric_entries`."""
    first, second = np.triu_indices(width)
    matrix = np.zeros((width, width))
    matrix[first, second] = entries / np.where(first == second, 1.0, sqrt(2))
    matrix[second, first] = matrix[first, second]
    return matrix


def keep_share(vectors: Floats, noise: float) -> Floats:
    """Return the fraction of each vector's square that is not noise, from 0 to 1, shape (..., 1).

    It is the factor for each vector with the smallest expected error (James and Stein, positive
    part). Vectors have the shape (..., entries).
    """
    squares = np.sum(vectors**2, axis=-1, keepdims=True)
    spent = vectors.shape[-1] * noise**2
    lost = np.divide(spent, squares, out=np.ones_like(squares), where=squares > 0)
    return np.asarray(np.maximum(0.0, 1 - lost))


def shrink_counts(counts: Floats, noise: float) -> Floats:
    """Return numbers of rows, each at least 1, shrunk towards their mean according to the noise.

    The weight of their mean is the fraction of noise in their variance (James and Stein).
    """
    mean = max(float(counts.mean()), 1.0)
    spread = float(np.mean((counts - mean) ** 2))
    weight = min(1.0, noise**2 / spread) if spread > 0 else 1.0
    return np.maximum(mean + (1 - weight) * (counts - mean), 1.0)


def shrink_means(sums: Floats, sizes: Floats, noise: float) -> Floats:
    """Return class means shrunk towards 0 according to the noise, each of norm at most 1.

    The sums of directions have the shape (classes, features), and each size is at least 1.
    """
    means = keep_share(sums, noise) * sums / sizes[:, None]
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    return np.asarray(means / np.maximum(lengths, 1.0))


def lift_eigenvalues(matrix: Floats, floor: float) -> tuple[Floats, Floats]:
    """Return positive eigenvalues and their vectors, of the same trace but with less noise.

    Negative eigenvalues become 0; each is increased by the floor and `RIDGE` of their mean; all are
    then scaled to the old trace, so that distances keep their size relative to the priors.
    """
    values, vectors = np.linalg.eigh(matrix)
    trace = max(float(values.sum()), np.finfo(float).eps)
    lifted = np.maximum(values, 0.0) + floor + RIDGE * trace / len(values)
    return lifted * (trace / lifted.sum()), vectors
