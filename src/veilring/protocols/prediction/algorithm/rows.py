"""The rows of a predictor: they can grow, and what is forgotten is overwritten."""

from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.prediction.algorithm.features import LENGTH_MAX, lengths
from veilring.protocols.prediction.algorithm.hashing import Hashing

# Room for a few rows from the start, so that doubling it begins somewhere.
_ROOM_MIN: Final = 16


def require_quantised(field: str, rows: NDArray[np.float32], features: int) -> NDArray[np.float64]:
    """Return the length of each row.

    Raises:
        InputError: If they are not what `quantise` gives, with so many features.
    """
    if rows.ndim != 2 or rows.shape[1] != features or rows.dtype != np.float32:  # noqa: PLR2004 (a table has two axes)
        given = f"{rows.dtype} of shape {rows.shape}"
        raise InputError(field, given, f"float32 of shape (rows, {features}), from `quantise`")
    long = lengths(rows)
    if not (np.all((long > 0) & (long <= LENGTH_MAX)) and np.array_equal(rows, np.rint(rows))):
        raise InputError(field, "not quantised", "what `quantise` gives")
    return long


class _Buffers(NamedTuple):
    """Room for rows. The codes of one table lie together, so that they are compared in one go."""

    features: NDArray[np.float32]
    lengths: NDArray[np.float64]
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    remaining: NDArray[np.int64]
    codes: NDArray[np.uint8]

    @classmethod
    def of(cls, room: int, features: int, tables: int) -> Self:
        labels, ids, remaining = np.zeros((3, room), np.int64)
        codes = np.zeros((tables, room), np.uint8)
        rows = np.zeros((room, features), np.float32)
        return cls(rows, np.zeros(room), labels, ids, remaining, codes)

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All of them, rows along the first axis."""
        return (*self[:-1], self.codes.T)


class Rows:
    """Features, labels and budgets of live records, in no particular order.

    Positions go from 0 to the number of records; forgetting one moves others. Room grows by
    doubling. A buffer that is left behind is overwritten first, and so is a row that is forgotten.

    Args:
        features: Of a row.
        hashing: If rows have codes.
    """

    def __init__(self, features: int, hashing: Hashing | None = None) -> None:
        self._count, self._hashing = 0, hashing
        self._buffers = _Buffers.of(_ROOM_MIN, features, hashing.tables if hashing else 0)

    def __len__(self) -> int:
        return self._count

    @property
    def features(self) -> NDArray[np.float32]:
        """Quantised, shape (rows, features)."""
        return self._buffers.features[: self._count]

    @property
    def lengths(self) -> NDArray[np.float64]:
        """Shape (rows,)."""
        return self._buffers.lengths[: self._count]

    @property
    def labels(self) -> NDArray[np.int64]:
        """Shape (rows,)."""
        return self._buffers.labels[: self._count]

    @property
    def ids(self) -> NDArray[np.int64]:
        """Shape (rows,)."""
        return self._buffers.ids[: self._count]

    @property
    def remaining(self) -> NDArray[np.int64]:
        """What each has left, in units, shape (rows,): a view, which the filter charges."""
        return self._buffers.remaining[: self._count]

    @property
    def codes(self) -> NDArray[np.uint8]:
        """Shape (tables, rows)."""
        return self._buffers.codes[:, : self._count]

    def add(
        self,
        ids: NDArray[np.int64],
        features: NDArray[np.float32],
        labels: NDArray[np.int64],
        remaining: NDArray[np.int64],
    ) -> None:
        """Append rows, which `Predictor.add` has checked but for the features.

        Raises:
            InputError: If the features are not quantised.
        """
        buffers = self._buffers
        long = require_quantised("features", features, buffers.features.shape[1])
        codes = self._hashing.codes(features) if self._hashing else np.zeros((0, len(ids)))
        first, self._count = self._count, self._count + len(ids)
        self._make_room(first)
        given = (features, long, labels, ids, remaining, codes.T)
        for column, values in zip(self._buffers.columns, given, strict=True):
            column[first : self._count] = values

    def forget(self, positions: NDArray[np.intp]) -> None:
        """Overwrite rows: the last ones move into their places, and zeros into theirs.

        Args:
            positions: Each once.
        """
        left = self._count - len(positions)
        holes = positions[positions < left]
        moving = np.setdiff1d(np.arange(left, self._count), positions, assume_unique=True)
        for column in self._buffers.columns:
            column[holes] = column[moving]
            column[left : self._count] = 0
        self._count = left

    def _make_room(self, used: int) -> None:
        """Move into larger buffers if need be."""
        old = self._buffers
        room, features = old.features.shape
        if self._count <= room:
            return
        tables = len(old.codes)
        self._buffers = _Buffers.of(max(self._count, 2 * room), features, tables)
        for column, before in zip(self._buffers.columns, old.columns, strict=True):
            column[:used] = before[:used]
            before[:used] = 0
