"""Sums of directions, for class means and a linear discriminant, and sums for their frame.

A row counts by its direction from the origin of a frame, so every row has norm 1 (Wahdany et al.,
"Beyond the mean: differentially private prototypes", AAAI 2025). A frame around the rows' own
centre separates directions better than the middle of the ranges. It must be released first, as a
separate noisy sum: the `Centre`, or the `Moments` with the spread of each feature.

The discriminant releases the parts of a pooled covariance: the sums of u by class, the numbers of
rows, and the sum of `u u^T`, weighted so that the last, which has the most numbers, gets most of
the bound. Off-diagonal entries are counted once, times sqrt(2): the vector then has the Frobenius
norm of the matrix, which is 1.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Final

import numpy as np
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Features
from veilring.privacy.checks import require, require_that
from veilring.protocols.release.algorithm.classifiers import (
    DirectionClassifier,
    DiscriminantNoise,
    decode_centre,
    decode_discriminant,
    decode_means,
    decode_moments,
)
from veilring.protocols.release.algorithm.columns import Frame
from veilring.protocols.release.algorithm.noise import Norm
from veilring.protocols.release.algorithm.statistic import (
    Bound,
    Entries,
    Statistic,
    apportion,
    cut_off,
    require_released,
    require_scale,
)

L2_SCALE: Final = 2**16
"""The number of steps in 1 with Gaussian noise: a step is about a thousandth of the smallest noise,
so truncation loses nothing that survives the noise."""
L1_SCALE: Final = 2**14
"""The steps in 1 under Laplace noise. It is less, since the table of an exact Pólya share grows
with `scale / epsilon`: at epsilon = 1 it is 2**14, and may be 2**15."""
# The weights of counts and of the second moment relative to the sums by class, and their squares.
# From 0.2 to 0.4 and from 0.5 to 0.7, accuracies are equal within their errors; a second moment of
# weight 1 costs two points with many classes.
COUNT_WEIGHT: Final = 0.3
SECOND_WEIGHT: Final = 0.7
DISCRIMINANT_SQUARE: Final = 1 + Fraction(9, 100) + Fraction(49, 100)


@dataclass(frozen=True, slots=True)
class Centre(Statistic[Frame]):
    """The sum of rows around the middle of their ranges: a first release, for a frame.

    Attributes:
        rows: The declared number of rows, at least 1.
        scale: The steps in 1.
        reach: The maximum L2 norm of a row around the middle, if a smaller norm than the schema's
            is publicly known, such as 1/2 for embeddings of norm 1 in the ranges [-1, 1]; longer
            rows are shortened. The default, 0, means the schema's. Only for `"l2"`.
    """

    features: Features
    rows: int
    norm: Norm = "l2"
    scale: int = L2_SCALE
    reach: float = 0.0

    def __post_init__(self) -> None:
        require_scale(self.scale)
        require(self.rows >= 1, "rows", self.rows, "a whole number of at least 1")
        greatest = _greatest(self.features, "l2", moments=False)
        most = sqrt(greatest) if self.norm == "l2" else 0.0
        require(0 <= self.reach <= most, "reach", self.reach, f"a number from 0 to {most:g}")

    @property
    @override
    def length(self) -> int:
        return len(self.features)

    @property
    @override
    def bound(self) -> Bound:
        if self.reach:
            return Bound.scaled(self.norm, self.scale, Fraction(self.reach) ** 2)
        greatest = _greatest(self.features, self.norm, moments=False)
        return Bound.scaled(self.norm, self.scale, greatest)

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        placed = Frame.middle(self.features).place(rows)
        return Entries.dense(cut_off(placed, self.scale, self.bound))

    @override
    def decode(self, noisy: Ints, deviation: float) -> Frame:
        require_released(noisy, deviation, self.length)
        middle, noise = Frame.middle(self.features), deviation / self.scale
        return decode_centre(noisy / self.scale, middle, self.rows, noise)


@dataclass(frozen=True, slots=True)
class Moments(Statistic[Frame]):
    """The sums of rows around the middle and of twice their squares: a first release, for a frame.

    Attributes:
        rows: The declared number of rows, at least 1.
        scale: The steps in 1.
    """

    features: Features
    rows: int
    norm: Norm = "l2"
    scale: int = L2_SCALE

    def __post_init__(self) -> None:
        require_scale(self.scale)
        require(self.rows >= 1, "rows", self.rows, "a whole number of at least 1")

    @property
    @override
    def length(self) -> int:
        return 2 * len(self.features)

    @property
    @override
    def bound(self) -> Bound:
        greatest = _greatest(self.features, self.norm, moments=True)
        return Bound.scaled(self.norm, self.scale, greatest)

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        placed = Frame.middle(self.features).place(rows)
        both = np.hstack((placed, 2 * placed**2))
        return Entries.dense(cut_off(both, self.scale, self.bound))

    @override
    def decode(self, noisy: Ints, deviation: float) -> Frame:
        require_released(noisy, deviation, self.length)
        sums = (noisy / self.scale).reshape(2, -1)
        middle = Frame.middle(self.features)
        return decode_moments(sums, middle, self.rows, deviation / self.scale)


def _greatest(features: Features, norm: Norm, *, moments: bool) -> Fraction:
    """Return the maximum L1 norm, or squared L2 norm, of a row around the middle.

    A number is at most 1/2 from the middle. The block of a category of k values has one entry of
    `(1 - 1/k) / 2` and k - 1 entries of `-1 / (2 k)`, whatever its value is.
    """
    numbers = len(features) - sum(len(each.values) for each in features.categories)
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
class ClassMeans(Statistic[DirectionClassifier]):
    """The sum of directions of each class.

    Attributes:
        norm: The norm in which each direction has length 1.
        scale: The steps in 1.
    """

    features: Features
    frame: Frame
    norm: Norm = "l2"
    scale: int = L2_SCALE

    def __post_init__(self) -> None:
        _require_frame(self.frame, self.features)
        require_scale(self.scale)

    @property
    @override
    def length(self) -> int:
        return len(self.features.classes) * len(self.features)

    @property
    @override
    def bound(self) -> Bound:
        return Bound.scaled(self.norm, self.scale, 1)

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
        require_released(noisy, deviation, self.length)
        sums = noisy.reshape(len(self.features.classes), -1) / self.scale
        return decode_means(sums, self.frame, self.features.classes)


@dataclass(frozen=True, slots=True)
class Discriminant(Statistic[DirectionClassifier]):
    """Sums of directions u by class, the numbers of rows, and the sum of `u u^T`; L2 only.

    Attributes:
        kappa: The number of spectral norms of the noise to add to each eigenvalue of the
            covariance, at least 0.
        scale: The steps in 1.
    """

    features: Features
    frame: Frame
    kappa: float = 1.0
    scale: int = L2_SCALE

    def __post_init__(self) -> None:
        _require_frame(self.frame, self.features)
        require_scale(self.scale)
        require(0 <= self.kappa < np.inf, "kappa", self.kappa, "a finite number of at least 0")

    @property
    @override
    def length(self) -> int:
        width = len(self.features)
        return len(self.features.classes) * (width + 1) + width * (width + 1) // 2

    @property
    @override
    def bound(self) -> Bound:
        return Bound.scaled("l2", self.scale, DISCRIMINANT_SQUARE)

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
        first, second = np.triu_indices(width)
        weights = SECOND_WEIGHT * np.where(first == second, 1.0, sqrt(2))
        values = np.empty((len(rows), self.support))
        values[:, :width], values[:, width] = found, COUNT_WEIGHT
        np.multiply(weights * found[:, first], found[:, second], out=values[:, width + 1 :])
        start = classes * (width + 1)
        positions = np.empty(values.shape, dtype=np.int64)
        positions[:, :width] = labels[:, None] * width + np.arange(width)
        positions[:, width] = classes * width + labels
        positions[:, width + 1 :] = start + np.arange(len(first))
        return Entries(positions, cut_off(values, self.scale, self.bound))

    @override
    def decode(self, noisy: Ints, deviation: float) -> DirectionClassifier:
        require_released(noisy, deviation, self.length)
        classes, width = len(self.features.classes), len(self.features)
        sums, counts, entries = np.split(
            noisy / self.scale, (classes * width, classes * (width + 1))
        )
        first, second = np.triu_indices(width)
        matrix = np.zeros((width, width))
        matrix[first, second] = entries / np.where(first == second, 1.0, sqrt(2))
        matrix[second, first] = matrix[first, second]
        noise = deviation / self.scale
        return decode_discriminant(
            sums.reshape(classes, width),
            counts / COUNT_WEIGHT,
            matrix / SECOND_WEIGHT,
            self.frame,
            self.features.classes,
            kappa=self.kappa,
            noise=DiscriminantNoise(noise, noise / COUNT_WEIGHT, noise / SECOND_WEIGHT),
        )


def require_labels(labels: Ints, features: Features) -> None:
    """Reject labels that are not positions of the public classes."""
    require_that(
        bool(((labels >= 0) & (labels < len(features.classes))).all()),
        "labels",
        f"every label must be the position of one of the {len(features.classes)} public classes",
    )


def _require_frame(frame: Frame, features: Features) -> None:
    require_that(
        len(frame.origin) == len(features),
        "frame",
        f"the frame has {len(frame.origin)} features; the schema has {len(features)}",
    )
