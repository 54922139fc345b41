"""Released classifiers: plain arrays and names that label any number of rows at no cost.

Rows are encoded and scaled into [0, 1] by the public schema of the release. Each classifier returns
a score for each class, and the label with the highest score. `as_document` converts a classifier to
values that JSON can express, and `from_document` reads them back and rejects invalid ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

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
    def _score(self, rows: NDArray[np.float64]) -> NDArray[np.float64]: ...

    def scores(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
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

    def predict(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the label of each row, shape (rows,); ties go to the first class."""
        return np.asarray(self.scores(rows).argmax(axis=1))

    def predict_proba(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
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

    origin: NDArray[np.float64]
    units: NDArray[np.float64]
    weights: NDArray[np.float64]
    biases: NDArray[np.float64]
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
    def _score(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
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
    numbers: NDArray[np.int64]
    cuts: int
    firsts: NDArray[np.int64]
    values: NDArray[np.int64]
    log_priors: NDArray[np.float64]
    log_shares: NDArray[np.float64]

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
    def _score(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
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
    log_shares: NDArray[np.float64]

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
    def _score(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
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
    tested: NDArray[np.int64]
    cuts: NDArray[np.float64]
    log_shares: NDArray[np.float64]

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
    def _score(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        leaves = Trees(self.tested, self.cuts).place(rows)
        return np.asarray(self.log_shares[np.arange(leaves.shape[1]), leaves].mean(axis=1))


def _require_shape(field: str, values: NDArray[Any], shape: tuple[int, ...]) -> None:
    require_that(
        values.shape == shape,
        field,
        f"{field} has the shape {values.shape}; it must be {shape}",
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
            if kind == NDArray[np.int64] and (found.dtype.kind == "i" or not value):
                return found.astype(np.int64)
            if kind == NDArray[np.float64] and found.dtype.kind in "if":
                return found.astype(np.float64)
    raise InputError.because(
        f"the field {name!r} of the released classifier is missing or has the wrong type",
        field=name,
    )
