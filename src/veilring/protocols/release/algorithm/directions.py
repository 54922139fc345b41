"""Sums of directions, for class means and a linear discriminant, and sums for their frame.

A row counts by its direction from the origin of a frame, so every row has norm 1 (Wahdany et al.,
"Beyond the mean: differentially private prototypes", AAAI 2025). A frame around the rows' own
centre separates directions better than the middle of the ranges. It must be released first, as a
separate noisy sum: the `Centre`, or the `Moments` with the spread of each feature.

Both release the sums of u by class and the numbers of rows, which give the priors: a model that is
buried in noise then answers the largest class. The discriminant adds the sum of `u u^T` for a
pooled covariance; class means take the same variance in each direction. Off-diagonal entries are
counted once, times sqrt(2): the vector then has the Frobenius norm of the matrix, which is 1.

Decoders use the known amount of noise, in units of a row. A class mean is shrunk towards the mean
of all rows by as much as noise hides the distance between them, estimated for all classes together:
if all keep the same part, nothing but the weight of the priors changes.
"""

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from math import pi, sqrt
from typing import Final, NamedTuple, Self

import numpy as np
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Features
from veilring.privacy.checks import require, require_that
from veilring.protocols.release.algorithm.classifiers import DirectionClassifier, Frame
from veilring.protocols.release.algorithm.noise import Norm
from veilring.protocols.release.algorithm.statistic import (
    Bound,
    Entries,
    ScaledStatistic,
    apportion,
    cut_off,
    require_labels,
)

COUNT_WEIGHT: Final = Fraction(3, 10)
"""The usual weight of the numbers of rows relative to the sums by class. From 0.2 to 0.4,
accuracies are equal within their errors."""
SECOND_WEIGHT: Final = Fraction(7, 10)
"""The weight of the second moment. From 0.5 to 0.7, accuracies are equal within their errors; a
weight of 1 costs two points with many classes."""
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
    times = Counter({Fraction(1, 2): numbers})
    for each in features.categories:
        share = Fraction(1, len(each.values))
        times.update({(1 - share) / 2: 1})
        times.update({share / 2: len(each.values) - 1})
    power = 1 if norm == "l1" else 2
    return sum(
        (
            count * (entry**power + ((2 * entry**2) ** power if moments else 0))
            for entry, count in times.items()
        ),
        Fraction(0),
    )


@dataclass(frozen=True, slots=True)
class _DirectionStatistic(ScaledStatistic[DirectionClassifier]):
    """The sum of directions of each class, and the numbers of rows.

    Attributes:
        count_weight: The weight of the numbers of rows relative to a direction, at least a step.
    """

    frame: Frame
    count_weight: Fraction = field(default=COUNT_WEIGHT, kw_only=True)

    def __post_init__(self) -> None:
        ScaledStatistic.__post_init__(self)
        allowed = f"a fraction of at least 1/{self.scale}, a step of the scale"
        require(self._count_steps > 0, "count_weight", self.count_weight, allowed)
        require_that(
            len(self.frame.origin) == len(self.features),
            "frame",
            f"the frame has {len(self.frame.origin)} features; the schema has {len(self.features)}",
        )

    @property
    @override
    def largest(self) -> Fraction:
        return 1 + (self.count_weight if self.norm == "l1" else self.count_weight**2)

    @property
    @override
    def length(self) -> int:
        return len(self.features.classes) * (len(self.features) + 1)

    @property
    @override
    def support(self) -> int:
        return len(self.features) + 1

    @abstractmethod
    def classifier(self, classes: "ClassDirections", others: Floats) -> DirectionClassifier:
        """Return the classifier, given the other numbers of the sum, shape (entries,)."""

    @override
    def decode(self, noisy: Ints, deviation: float) -> DirectionClassifier:
        """Return a linear classifier of the directions, with priors."""
        released, noise = self.read(noisy, deviation)
        classes, width = len(self.features.classes), len(self.features)
        summed, counts, others = np.split(released, (classes * width, classes * (width + 1)))
        # Directions of L1 norm 1 are shorter than 1, by this factor if their entries are Gaussian.
        shorter = min(1.0, sqrt(pi / (2 * width))) if self.norm == "l1" else 1.0
        weight = self._count_steps / self.scale
        found = ClassDirections.of(
            summed.reshape(classes, width) / shorter,
            shrink_counts(counts / weight, noise / weight),
            noise / shorter,
        )
        return self.classifier(found, others)

    @property
    def _count_steps(self) -> int:
        """The whole number that a row adds to the number of rows of its class."""
        return int(self.count_weight * self.scale)

    def _positions(self, labels: Ints) -> Ints:
        """Return where the direction and the number of each row are added."""
        classes, width = len(self.features.classes), len(self.features)
        positions = np.empty((len(labels), self.support), dtype=np.int64)
        positions[:, :width] = labels[:, None] * width + np.arange(width)
        positions[:, width] = classes * width + labels
        return positions

    def _linear(self, classes: "ClassDirections", weights: Floats) -> DirectionClassifier:
        """Return the discriminant with weights of the shape (classes, features)."""
        biases = np.log(classes.shares) - np.sum(weights * classes.means, axis=1) / 2
        names, frame = self.features.classes, self.frame
        return DirectionClassifier(
            names, frame.origin, frame.units, weights, biases, calibrated=True
        )


class ClassDirections(NamedTuple):
    """The released classes.

    Attributes:
        means: The mean direction of each class, shape (classes, features), of norm 1 at most.
        sizes: The number of rows of each class, shape (classes,), at least 1.
        noise: The standard deviation of the noise on each number of a sum, in rows.
    """

    means: Floats
    sizes: Floats
    noise: float

    @classmethod
    def of(cls, sums: Floats, sizes: Floats, noise: float) -> Self:
        """Return the classes of noisy sums of directions, shape (classes, features)."""
        return cls(shrink_means(sums, sizes, noise), sizes, noise)

    @property
    def shares(self) -> Floats:
        """The share of each class among all rows, shape (classes,)."""
        return np.asarray(self.sizes / self.sizes.sum())


@dataclass(frozen=True, slots=True)
class ClassMeans(_DirectionStatistic):
    """The sum of directions of each class, of length 1 in the norm of the bound, and the counts."""

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        require_labels(labels, self.features)
        found, width = self.frame.directions(rows), len(self.features)
        values = np.empty((len(rows), self.support), dtype=np.int64)
        values[:, width] = self._count_steps
        values[:, :width] = (
            apportion(found, self.scale)
            if self.norm == "l1"
            else cut_off(found, self.scale, Bound.scaled(self.norm, self.scale, 1))
        )
        return Entries(self._positions(labels), values)

    @override
    def classifier(self, classes: ClassDirections, others: Floats) -> DirectionClassifier:
        """Return the discriminant whose variance is the same in each direction."""
        means, shares = classes.means, classes.shares
        width = means.shape[1]
        within = max(1 - float(shares @ np.sum(means**2, axis=1)), RIDGE) / width
        blur = float(shares @ (classes.noise / classes.sizes) ** 2)
        return self._linear(classes, means / (within + blur))


@dataclass(frozen=True, slots=True)
class Discriminant(_DirectionStatistic):
    """Sums of directions u by class, the numbers of rows, and the sum of `u u^T`; L2 only.

    Attributes:
        kappa: The number of spectral norms of the noise to add to each eigenvalue of the
            covariance, at least 0.
    """

    kappa: float = 1.0

    def __post_init__(self) -> None:
        _DirectionStatistic.__post_init__(self)
        require(self.norm == "l2", "norm", self.norm, "l2")
        require(0 <= self.kappa < np.inf, "kappa", self.kappa, "a finite number of at least 0")

    @property
    @override
    def largest(self) -> Fraction:
        return 1 + self.count_weight**2 + SECOND_WEIGHT**2

    @property
    def _second(self) -> int:
        """The number of entries of `u u^T`, each pair once."""
        return len(self.features) * (len(self.features) + 1) // 2

    @property
    @override
    def length(self) -> int:
        return len(self.features.classes) * (len(self.features) + 1) + self._second

    @property
    @override
    def support(self) -> int:
        return len(self.features) + 1 + self._second

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        require_labels(labels, self.features)
        found, width = self.frame.directions(rows), len(self.features)
        values = np.empty((len(rows), self.support))
        values[:, :width], values[:, width] = found, float(self.count_weight)
        values[:, width + 1 :] = symmetric_entries(found, float(SECOND_WEIGHT))
        positions = self._positions(labels)
        positions[:, width + 1 :] = np.arange(self.length - self._second, self.length)
        return Entries(positions, cut_off(values, self.scale, self.bound))

    @override
    def classifier(self, classes: ClassDirections, others: Floats) -> DirectionClassifier:
        """Return the discriminant with the pooled covariance."""
        means, rows = classes.means, float(classes.sizes.sum())
        width, weight = means.shape[1], float(SECOND_WEIGHT)
        within = read_symmetric(others, width) / weight / rows - (means.T * classes.shares) @ means
        # Off the diagonal, the noise of `u u^T` is sqrt(1/2) times that on it.
        edge = classes.noise / weight * sqrt(2 * width) / rows
        values, vectors = lift_eigenvalues(within, self.kappa * edge)
        return self._linear(classes, (means @ vectors / values) @ vectors.T)


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
    """Return class means shrunk towards the mean of all rows, each of norm at most 1.

    A sum is first compared with its share of the total. The variance of what remains is estimated
    for all classes together, in proportion to the rows of the class and of the others. It is at
    least the standard error of its estimate. Each class keeps the part of it that is not noise (an
    empirical Bayes estimate).

    Args:
        sums: The sums of directions, shape (classes, features).
        sizes: The number of rows of each class, shape (classes,), at least 1.
        noise: The standard deviation of the noise on each number of a sum, in rows.
    """
    classes, width = sums.shape
    shares, total = sizes / sizes.sum(), sums.sum(axis=0)
    pooled = keep_share(total, noise * sqrt(classes)) * total / sizes.sum()
    apart = sums - shares[:, None] * total
    hidden = noise**2 * ((1 - shares) ** 2 + (classes - 1) * shares**2)
    reach = (sizes * (1 - shares)) ** 2
    seen = float(np.sum(apart**2)) - width * float(hidden.sum())
    error = sqrt(2 * width * float(np.sum(hidden**2)))
    variance = max(seen, error) / (width * max(float(reach.sum()), 1.0)) * reach
    both = variance + hidden
    kept = np.divide(variance, both, out=np.zeros_like(both), where=both > 0)
    means = pooled + (kept / sizes)[:, None] * apart
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
