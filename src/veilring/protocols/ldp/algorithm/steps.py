"""Public transformations that each client applies to its row before it answers.

A step's numbers are part of the task, and equal for all clients. They may be known beforehand or
come from public rows, but never from the clients' own rows, which they would reveal without noise.
`LinearProjection` records the public rows on which it was fitted: principal or discriminant
components (Section 2.3) reduce the number of features before noise is added.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Ranges
from veilring.errors import InputError
from veilring.extras import require_extra
from veilring.privacy.checks import require

# Relative to the mean eigenvalue of the within-class scatter: enough for inversion if features are
# dependent, like one-hot columns, and small compared with the data.
RIDGE: Final = 1e-3


class Step(ABC):
    """A public transformation of a row; frozen."""

    @property
    @abstractmethod
    def public(self) -> Mapping[str, Any]:
        """The definition of the step, as plain data."""

    @abstractmethod
    def __call__(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the transformed rows, shape (rows, features) before and after."""


def apply_steps(steps: Sequence[Step], rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows after all steps, in order."""
    for step in steps:
        rows = step(rows)
    return rows


@dataclass(frozen=True)
class Scaling(Step):
    """Scale each feature from a public range to [-1, 1]; values outside are clipped.

    A range of zero width becomes 0.
    """

    ranges: Ranges

    @property
    @override
    def public(self) -> Mapping[str, Any]:
        return {"step": "ranges", **_plain(self.ranges)}

    @override
    def __call__(self, rows: NDArray[Any]) -> Floats:
        return 2.0 * self.ranges.to_unit(rows) - 1.0


@dataclass(frozen=True)
class Bins(Step):
    """Equal-width bins over public ranges (the paper's EWD, Section 3.2), numbered from 0.

    Values outside of their ranges go to the outermost bins.
    """

    ranges: Ranges
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.ranges.lows):
            given, features = len(self.counts), len(self.ranges.lows)
            raise InputError.because(
                f"there are {given} counts for {features} features", field="counts"
            )
        if min(self.counts, default=1) < 1:
            raise InputError("counts", min(self.counts), "integers of at least 1")

    @property
    @override
    def public(self) -> Mapping[str, Any]:
        return {"step": "bins", **_plain(self.ranges), "counts": list(self.counts)}

    @override
    def __call__(self, rows: NDArray[Any]) -> Ints:
        counts = np.array(self.counts, dtype=np.int64)
        numbers = np.floor(self.ranges.to_unit(rows) * counts).astype(np.int64)
        return np.minimum(numbers, counts - 1)


def _plain(ranges: Ranges) -> Mapping[str, Any]:
    return {"lows": list(ranges.lows), "highs": list(ranges.highs)}


@dataclass(frozen=True)
class LinearProjection(Step):
    """A public linear map: `(row - centre) @ axes.T`, with an axis per new feature."""

    centre: tuple[float, ...]
    axes: tuple[tuple[float, ...], ...]
    origin: str

    def __post_init__(self) -> None:
        if not self.origin:
            raise InputError.because(
                "origin is empty; name the public rows or the private release from which the "
                "step comes",
                field="origin",
            )
        if not self.axes or any(len(axis) != len(self.centre) for axis in self.axes):
            lengths = [len(axis) for axis in self.axes]
            raise InputError.because(
                f"each axis must have {len(self.centre)} entries, and there must be at "
                f"least one; they have {lengths}",
                field="axes",
            )

    @classmethod
    def of(cls, centre: Floats, axes: Floats, origin: str) -> Self:
        """Return the map of arrays, of shapes (features,) and (new features, features)."""
        return cls(tuple(centre.tolist()), tuple(map(tuple, axes.tolist())), origin)

    @property
    @override
    def public(self) -> Mapping[str, Any]:
        return {
            "step": "projection",
            "centre": list(self.centre),
            "axes": [list(axis) for axis in self.axes],
            "origin": self.origin,
        }

    @override
    def __call__(self, rows: NDArray[Any]) -> Floats:
        require_columns(rows, len(self.centre))
        return np.asarray((rows - np.array(self.centre)) @ np.array(self.axes).T)


def principal_components(public_rows: Floats, components: int, *, origin: str) -> LinearProjection:
    """Return the directions of largest variance, by scikit-learn's `PCA`.

    Args:
        public_rows: Shape (rows, features); no client's.
    """
    require_extra("sklearn")
    from sklearn.decomposition import PCA

    most = min(public_rows.shape)
    require(1 <= components <= most, "components", components, f"an integer from 1 to {most}")
    found = PCA(components, svd_solver="full").fit(public_rows)
    return LinearProjection.of(found.mean_, found.components_, origin)


def discriminant_components(
    public_rows: Floats, labels: Ints, components: int, *, origin: str, ridge: float = RIDGE
) -> LinearProjection:
    """Return the directions that separate classes best (DCA).

    They are the eigenvectors with the largest eigenvalues of `S w = lambda (S_W + rho I) w`, where
    `S` is the scatter around the centre and `S_W` the scatter within classes (Kung, "Kernel Methods
    and Machine Learning", 2014, Section 8.4). The first `classes - 1` contain all of the signal.

    Args:
        public_rows: Shape (rows, features); no client's.
        ridge: `rho` as a multiple of the mean eigenvalue of `S_W`, above 0.
    """
    from scipy.linalg import eigh

    features = public_rows.shape[1]
    if not 1 <= components <= features:
        raise InputError("components", components, f"an integer from 1 to {features}")
    require(ridge > 0, "ridge", ridge, "a number above 0")
    classes = np.unique(labels)
    if len(classes) < 2:  # noqa: PLR2004  (one class cannot be separated)
        raise InputError.because(
            "all labels have the same class; at least two classes are needed", field="labels"
        )
    centre = public_rows.mean(axis=0)
    around = public_rows - centre
    means = np.array([public_rows[labels == each].mean(axis=0) for each in classes])
    inside = public_rows - means[np.searchsorted(classes, labels)]
    within = inside.T @ inside
    # If the rows of each class are equal, there is no scatter within, and any ridge will do.
    rho = ridge * (np.trace(within) / features or 1.0)
    _, vectors = eigh(around.T @ around, within + rho * np.eye(features))
    return LinearProjection.of(centre, _directed(vectors[:, ::-1][:, :components].T), origin)


def _directed(axes: Floats) -> Floats:
    """Scale axes to length 1 and a positive largest entry, so that equal rows give equal axes."""
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    return np.asarray(axes * np.sign(largest) / np.linalg.norm(axes, axis=1, keepdims=True))


def require_columns(rows: NDArray[Any], columns: int) -> None:
    """Reject rows whose shape is not (rows, columns)."""
    if rows.shape[1:] != (columns,):
        raise InputError.because(
            f"rows has the shape {rows.shape}; it must be (rows, {columns})", field="rows"
        )
