"""Released classifiers, and the decoders that make them from released sums.

A classifier is plain arrays and names, and labels any number of rows at no cost. Rows are encoded
and scaled into [0, 1] by the public schema of the release. Each classifier returns a score for each
class, and the label with the highest score. `as_document` converts a classifier to values that JSON
can express, and `from_document` reads them back and rejects invalid ones.

Decoders use the known amount of noise. That is post-processing: it costs no privacy. Sums are in
units of a row, not in scaled whole numbers, and `noise` is the standard deviation of each number in
the same unit. With a noise of 0, each decoder is the textbook method: the nearest class mean, a
linear discriminant with a ridge of one per cent of the mean eigenvalue, naive Bayes, the majority
of a cell.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from math import sqrt
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.errors import InputError
from veilring.privacy.checks import require_that
from veilring.protocols.release.algorithm.columns import Bins, Frame, Trees, cell_of

# The numbers in the rows scored at once: half a MiB, which stays in the cache of a core.
_BLOCK: Final = 2**16
# A grid of more features has more cells than a machine has bytes, even at two cells per side.
_GRID_FEATURES_MAX: Final = 63


@dataclass(frozen=True, slots=True, eq=False)
class Classifier(ABC):
    """A classifier made from a released sum. Public.

    Attributes:
        classes: The names of the classes; labels are positions among them.
    """

    KIND: ClassVar[str]

    classes: tuple[str, ...]

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of features of a row; rows may have more if only some are used."""

    @property
    def has_probabilities(self) -> bool:
        """Whether scores are estimates of log-probabilities, up to a constant for each row."""
        return True

    @abstractmethod
    def _score(self, rows: Floats) -> Floats: ...

    def scores(self, rows: Floats) -> Floats:
        """Return a score for each row and class, shape (rows, classes); the highest score wins.

        Args:
            rows: Shape (rows, features), in [0, 1], encoded by the public schema.
        """
        require_that(
            rows.ndim == 2 and rows.shape[1] == self.width,  # noqa: PLR2004  (the axes of a table)
            "rows",
            f"rows has the shape {rows.shape}; it must be (rows, {self.width})",
        )
        step = max(1, _BLOCK // max(1, self.width, len(self.classes)))
        blocks = [self._score(rows[i : i + step]) for i in range(0, len(rows), step)]
        return np.vstack(blocks) if blocks else np.zeros((0, len(self.classes)))

    def predict(self, rows: Floats) -> Ints:
        """Return the label of each row, shape (rows,); ties go to the first class."""
        return np.asarray(self.scores(rows).argmax(axis=1))

    def predict_proba(self, rows: Floats) -> Floats:
        """Return estimated probabilities, shape (rows, classes), where each row adds up to 1."""
        require_that(
            self.has_probabilities,
            "predict_proba",
            "class means have no probabilities: their scores are cosines; use `scores`",
        )
        found = self.scores(rows)
        odds = np.exp(found - found.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))


@dataclass(frozen=True, slots=True, eq=False)
class DirectionClassifier(Classifier):
    """A linear classifier of the direction of a row from the origin of a frame.

    Attributes:
        origin: The origin of the frame, shape (features,).
        units: The units of the frame, shape (features,).
        weights: Shape (classes, features).
        biases: Shape (classes,).
        calibrated: Whether scores estimate log-probabilities, as those of a discriminant do.
    """

    KIND: ClassVar[str] = "directions"

    origin: Floats
    units: Floats
    weights: Floats
    biases: Floats
    calibrated: bool

    def __post_init__(self) -> None:
        Frame(self.origin, self.units)
        _require_shape("weights", self.weights, (len(self.classes), len(self.origin)))
        _require_shape("biases", self.biases, (len(self.classes),))

    @property
    @override
    def width(self) -> int:
        return len(self.origin)

    @property
    @override
    def has_probabilities(self) -> bool:
        return self.calibrated

    @override
    def _score(self, rows: Floats) -> Floats:
        directions = Frame(self.origin, self.units).directions(rows)
        return np.asarray(directions @ self.weights.T + self.biases)


@dataclass(frozen=True, slots=True, eq=False)
class CountsClassifier(Classifier):
    """Naive Bayes on the bins of columns.

    Attributes:
        log_priors: Shape (classes,).
        log_shares: Shape (classes, bins of all columns).
    """

    KIND: ClassVar[str] = "counts"

    features: int
    numbers: Ints
    cuts: int
    firsts: Ints
    values: Ints
    log_priors: Floats
    log_shares: Floats

    def __post_init__(self) -> None:
        for name in ("numbers", "firsts"):
            _require_shape(name, getattr(self, name), (getattr(self, name).size,))
        _require_shape("values", self.values, self.firsts.shape)
        starts, ends = (
            np.append(self.numbers, self.firsts),
            np.append(self.numbers + 1, self.firsts + self.values),
        )
        inside = bool(((starts >= 0) & (starts < ends) & (ends <= self.features)).all())
        require_that(inside, "features", "each column must lie within the features of a row")
        require_that(self.cuts >= 1, "cuts", f"cuts is {self.cuts}; it must be at least 1")
        _require_shape("log_priors", self.log_priors, (len(self.classes),))
        bins = (len(self.classes), sum(self._bins.sizes))
        _require_shape("log_shares", self.log_shares, bins)

    @property
    def _bins(self) -> Bins:
        categories = zip(self.firsts.tolist(), self.values.tolist(), strict=True)
        return Bins(tuple(self.numbers.tolist()), self.cuts, tuple(categories))

    @property
    @override
    def width(self) -> int:
        return self.features

    @override
    def _score(self, rows: Floats) -> Floats:
        bins = self._bins
        placed = bins.place(rows)
        starts = np.cumsum((0, *bins.sizes))
        # One matrix product replaces a look-up per column; the last bin means no bin.
        chosen = np.where(placed >= 0, placed + starts[:-1], starts[-1])
        one_hot = np.zeros((len(rows), starts[-1] + 1))
        one_hot[np.arange(len(rows))[:, None], chosen] = 1.0
        return np.asarray(one_hot[:, :-1] @ self.log_shares.T + self.log_priors)


@dataclass(frozen=True, slots=True, eq=False)
class GridClassifier(Classifier):
    """A classifier by the class frequencies in each cell of a grid.

    Attributes:
        log_shares: Shape (side ** features, classes).
    """

    KIND: ClassVar[str] = "grid"

    features: int
    side: int
    log_shares: Floats

    def __post_init__(self) -> None:
        sane = self.features >= 1 and self.side >= 1
        require_that(sane, "side", "a grid needs at least one feature and one cell per side")
        # A file may contain any numbers: powers too large for any array are not computed.
        small = self.side <= len(self.log_shares) and self.features <= _GRID_FEATURES_MAX
        require_that(small, "side", "a grid has fewer cells than its sides imply")
        shape = (self.side**self.features, len(self.classes))
        _require_shape("log_shares", self.log_shares, shape)

    @property
    @override
    def width(self) -> int:
        return self.features

    @override
    def _score(self, rows: Floats) -> Floats:
        place = cell_of(rows, self.side)
        cells = np.ravel_multi_index(tuple(place.T), (self.side,) * self.features)
        return np.asarray(self.log_shares[cells])


@dataclass(frozen=True, slots=True, eq=False)
class TreesClassifier(Classifier):
    """A classifier by the mean of the leaves' distributions over several trees.

    Attributes:
        tested: The feature that each inner node tests, shape (trees, inner nodes).
        cuts: The thresholds, same shape.
        log_shares: Shape (trees, leaves, classes).
    """

    KIND: ClassVar[str] = "trees"

    features: int
    tested: Ints
    cuts: Floats
    log_shares: Floats

    def __post_init__(self) -> None:
        trees = Trees(self.tested, self.cuts)
        inside = bool(((self.tested >= 0) & (self.tested < self.features)).all())
        require_that(inside, "tested", "each node must test a feature of a row")
        shape = (len(self.tested), trees.leaves, len(self.classes))
        _require_shape("log_shares", self.log_shares, shape)

    @property
    @override
    def width(self) -> int:
        return self.features

    @override
    def _score(self, rows: Floats) -> Floats:
        leaves = Trees(self.tested, self.cuts).place(rows)
        return np.asarray(self.log_shares[np.arange(leaves.shape[1]), leaves].mean(axis=1))


def _require_shape(field: str, values: NDArray[Any], shape: tuple[int, ...]) -> None:
    require_that(
        values.shape == shape, field, f"{field} has the shape {values.shape}; it must be {shape}"
    )
    require_that(bool(np.isfinite(values).all()), field, f"{field} must hold finite numbers")


_KINDS: Final[Mapping[str, type[Classifier]]] = MappingProxyType(
    {
        each.KIND: each
        for each in (DirectionClassifier, CountsClassifier, GridClassifier, TreesClassifier)
    }
)


def as_document(classifier: Classifier) -> dict[str, Any]:
    """Return a classifier as values that JSON can express: its kind and its fields by name."""
    require_that(
        _KINDS.get(getattr(classifier, "KIND", "")) is type(classifier),
        "classifier",
        f"{type(classifier).__name__} has no document; only {', '.join(sorted(_KINDS))} have one",
    )
    document: dict[str, Any] = {"kind": classifier.KIND}
    for field in fields(classifier):
        value = getattr(classifier, field.name)
        document[field.name] = value.tolist() if isinstance(value, np.ndarray) else value
    return document | {"classes": list(classifier.classes)}


def from_document(document: Mapping[str, Any]) -> Classifier:
    """Return the classifier in a document of `as_document`."""
    kind = document.get("kind")
    found = _KINDS.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise InputError("kind", kind, ", ".join(sorted(_KINDS)))
    names = {field.name for field in fields(found)}
    odd = sorted(names ^ (set(document) - {"kind"}))
    require_that(
        not odd,
        "document",
        f"a released classifier of kind {kind!r} has exactly the fields "
        f"{', '.join(sorted(names))}; {', '.join(odd)} is missing or unknown",
    )
    return found(
        **{each.name: _read(each.name, each.type, document[each.name]) for each in fields(found)}
    )


def _read(name: str, kind: object, value: object) -> Any:  # noqa: ANN401  (of any field)
    if kind in (int, bool) and type(value) is kind:
        return value
    if kind == tuple[str, ...] and isinstance(value, list) and value:
        if all(isinstance(each, str) for each in value):
            return tuple(value)
    elif isinstance(value, list):
        with suppress(ValueError):  # NumPy's error for a ragged list
            found = np.array(value)
            if kind == Ints and (found.dtype.kind == "i" or not value):
                return found.astype(np.int64)
            if kind == Floats and found.dtype.kind in "if":
                return found.astype(np.float64)
    raise InputError.because(
        f"the field {name!r} of the released classifier is missing or has the wrong type",
        field=name,
    )


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


def decode_centre(sums: Floats, middle: Frame, rows: int, noise: float) -> Frame:
    """Return the frame around the released mean; more noise moves it nearer to the middle.

    Args:
        sums: The sums of rows around the middle, shape (features,).
    """
    return middle.about(_released_mean(sums, rows, noise))


def _released_mean(sums: Floats, rows: int, noise: float) -> Floats:
    # The root keeps the mean's length without noise. Shrinking by the whole fraction would leave
    # all rows on one side of the origin, which costs more than some noise.
    kept = np.sqrt(keep_share(sums, noise))
    return np.asarray(np.clip(kept * sums / rows, -0.5, 0.5))


def keep_share(vectors: Floats, noise: float) -> Floats:
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


def decode_moments(sums: Floats, middle: Frame, rows: int, noise: float) -> Frame:
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


def decode_means(sums: Floats, frame: Frame, classes: tuple[str, ...]) -> DirectionClassifier:
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
    sums: Floats,
    counts: Floats,
    second: Floats,
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


def shrink_counts(counts: Floats, noise: float) -> Floats:
    """Return numbers of rows, each at least 1, shrunk towards their mean according to the noise.

    The weight of their mean is the fraction of noise in their variance (James and Stein).

    Args:
        counts: Shape (classes,).
    """
    mean = max(float(counts.mean()), 1.0)
    spread = float(np.mean((counts - mean) ** 2))
    weight = min(1.0, noise**2 / spread) if spread > 0 else 1.0
    return np.maximum(mean + (1 - weight) * (counts - mean), 1.0)


def shrink_means(sums: Floats, sizes: Floats, noise: float) -> Floats:
    """Return class means shrunk towards 0 according to the noise, each of norm at most 1.

    Args:
        sums: Shape (classes, features), of directions.
        sizes: The numbers of rows, shape (classes,), at least 1.
    """
    means = keep_share(sums, noise) * sums / sizes[:, None]
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    return np.asarray(means / np.maximum(lengths, 1.0))


def lift_eigenvalues(matrix: Floats, floor: float) -> tuple[Floats, Floats]:
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
    counts: Floats, bins: Bins, classes: tuple[str, ...], noise: float
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


def decode_grid(counts: Floats, classes: tuple[str, ...], noise: float) -> GridClassifier:
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


def _around_cells(counts: Floats) -> Iterator[tuple[Floats, Floats]]:
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


def _spread(values: Floats, weights: Floats, first: int) -> Floats:
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


def _leads(sums: Floats) -> Floats:
    """Return the lead of the largest class over the second; with one class, its whole count."""
    if len(sums) == 1:
        return np.asarray(sums[0])
    second, first = np.partition(sums, -2, axis=0)[-2:]
    return np.asarray(first - second)


def decode_trees(
    counts: Floats, trees: Trees, features: int, classes: tuple[str, ...], noise: float
) -> TreesClassifier:
    """Return the class frequencies in each leaf, smoothed according to the noise.

    Args:
        counts: Shape (trees, leaves, classes).
    """
    kept = np.maximum(counts, 0.0) + max(LEAF_SMOOTHING * noise, SMOOTHING_MIN)
    shares = kept / kept.sum(axis=2, keepdims=True)
    return TreesClassifier(classes, features, trees.tested, trees.cuts, np.log(shares))
