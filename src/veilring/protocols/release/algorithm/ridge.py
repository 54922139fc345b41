"""The second moments of rows with their target, for a ridge regression.

A first release gives the mean and the spread of each feature and of the target: the `Moments` with
the target as one more column. In that frame a row z has squared norm w on average, for w columns
with the target. It is divided by `REACH` times the root of w and shortened to norm 1 if necessary,
and adds the entries of `z z^T` and z itself. Off-diagonal entries are counted once, times sqrt(2):
the vector then has the Frobenius norm of the matrix.

The decoder follows AdaSSP (Wang, "Revisiting differentially private linear regression", UAI 2018,
arXiv 1803.02596, Algorithm 2): the ridge is only as large as the smallest released eigenvalue is
below the spectral norm of the noise. Here one sum releases both moments, and the eigenvalue is that
of the released matrix, so that neither costs a part of the budget of its own.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.protocols.release.algorithm.classifiers import Frame, LinearRegressor
from veilring.protocols.release.algorithm.directions import read_symmetric, symmetric_entries
from veilring.protocols.release.algorithm.statistic import Entries, ScaledStatistic, cut_off

# The norm to which rows are shortened, relative to the root of their mean square. On abalone,
# diabetes, banknote and drawn rows, 0.6 to 0.8 are equally good; 1 costs up to five points of R²
# with few rows.
REACH: Final = 0.7
FIRST_WEIGHT: Final = Fraction(3, 5)
"""The weight of the sum of rows relative to that of their products."""
# The smallest eigenvalue relative to the spectral norm of the noise. From 0.4 to 0.8, R² is equal
# within its errors.
EIGENVALUE_MIN: Final = 0.5
# Without noise, this keeps equal or constant columns from dividing by 0.
_VARIANCE_MIN: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Ridge(ScaledStatistic[LinearRegressor]):
    """Sums of rows with their target, and of the products of their entries; L2 only.

    Attributes:
        frame: The frame of rows with their target as the last column.
        rows: The declared number of rows, at least 1.
    """

    largest: ClassVar[Fraction] = 1 + FIRST_WEIGHT**2

    frame: Frame
    rows: int

    @property
    @override
    def length(self) -> int:
        width = len(self.frame.origin)
        return width + width * (width + 1) // 2

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        placed = self._reduced.place(self.features.with_target(rows, labels))
        placed /= np.maximum(np.linalg.norm(placed, axis=1, keepdims=True), 1.0)
        values = np.hstack((float(FIRST_WEIGHT) * placed, symmetric_entries(placed)))
        return Entries.dense(cut_off(values, self.scale, self.bound))

    @override
    def decode(self, noisy: Ints, deviation: float) -> LinearRegressor:
        """Return the ridge regression of the target, in the coordinates of rows in [0, 1]."""
        released, noise = self.read(noisy, deviation)
        width, frame = len(self.frame.origin), self._reduced
        mean = released[:width] / float(FIRST_WEIGHT) / self.rows
        moments = read_symmetric(released[width:], width) / self.rows - np.outer(mean, mean)
        values, vectors = np.linalg.eigh(moments[:-1, :-1])
        # Off the diagonal, the noise of `z z^T` is sqrt(1/2) times that on it.
        edge = noise * sqrt(2 * (width - 1)) / self.rows
        least = max(EIGENVALUE_MIN * edge, _VARIANCE_MIN)
        values += max(0.0, least - float(values.min(initial=least)))
        slopes = vectors @ (vectors.T @ moments[:-1, -1] / values)
        # From the frame to [0, 1]: z = (x - origin) units, and likewise the target.
        weights = slopes * frame.units[:-1] / frame.units[-1]
        level = frame.origin + mean / frame.units
        return LinearRegressor(weights, float(level[-1] - level[:-1] @ weights), self._steps)

    @property
    def _reduced(self) -> Frame:
        """The frame in which rows beyond norm 1 are shortened."""
        frame = self.frame
        return Frame(frame.origin, frame.units / (REACH * sqrt(len(frame.origin))))

    @property
    def _steps(self) -> int:
        return 0 if self.features.target is None else self.features.target.steps
