"""What a client does to its row before it answers: public, and the same for all clients.

A step's numbers are part of the task. They may be known beforehand or come from public rows, but
never from the clients' own, or they would tell of them without any noise.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.privacy.checks import floats


class Step(ABC):
    """A public function of a row; frozen."""

    @property
    @abstractmethod
    def public(self) -> Mapping[str, Any]:
        """All that defines it, as plain data."""

    @abstractmethod
    def __call__(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return what becomes of rows, shape (rows, features) before and after."""


def apply_steps(steps: Sequence[Step], rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows after all steps, in order."""
    for step in steps:
        rows = step(rows)
    return rows


@dataclass(frozen=True)
class Ranges(Step):
    """Scale each feature from a public range to [-1, 1]; what is outside is cut to its ends.

    Attributes:
        lows: The least value of each feature.
        highs: The greatest; a feature whose two are equal becomes 0.

    Raises:
        InputError: If they are not as many, or a range is not finite or upside down.
    """

    lows: tuple[float, ...]
    highs: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse ranges that are none."""
        if len(self.lows) != len(self.highs):
            raise InputError("highs", f"{len(self.highs)} of them", f"{len(self.lows)}, as lows")
        widths = np.subtract(self.highs, self.lows)
        if not (np.isfinite(widths) & (widths >= 0)).all():
            raise InputError("ranges", "not one in some place", "finite, each low <= high")

    @classmethod
    def of(cls, public_rows: NDArray[np.float64]) -> Self:
        """Return the ranges of public rows; clients' rows would give their extremes away."""
        return cls(tuple(public_rows.min(axis=0).tolist()), tuple(public_rows.max(axis=0).tolist()))

    @property
    @override
    def public(self) -> Mapping[str, Any]:
        return {"step": "ranges", "lows": list(self.lows), "highs": list(self.highs)}

    def to_unit(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return rows scaled into [0, 1].

        Raises:
            InputError: If there are not as many features, or a value is not a number.
        """
        if rows.ndim != 2 or rows.shape[1] != len(self.lows):  # noqa: PLR2004  (rows by features)
            allowed = f"of shape (rows, {len(self.lows)})"
            raise InputError("rows", f"of shape {rows.shape}", allowed)
        values = floats("rows", rows)
        if np.isnan(values).any():
            raise InputError("rows", "not a number in some place", "numbers")
        lows, highs = np.array(self.lows), np.array(self.highs)
        widths = highs - lows
        is_wide = widths > 0
        scaled = (np.clip(values, lows, highs) - lows) / np.where(is_wide, widths, 1.0)
        return np.where(is_wide, scaled, 0.5)

    @override
    def __call__(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        return 2.0 * self.to_unit(rows) - 1.0


@dataclass(frozen=True)
class Bins(Step):
    """Equal-width bins over public ranges (the paper's EWD, Section 3.2), numbered from 0.

    Attributes:
        ranges: Of each feature; what is outside goes to the outermost bins.
        counts: How many bins each feature has, at least 1.

    Raises:
        InputError: If there are not as many counts as ranges, or one is below 1.
    """

    ranges: Ranges
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse counts that do not fit."""
        if len(self.counts) != len(self.ranges.lows):
            given, features = len(self.counts), len(self.ranges.lows)
            raise InputError("counts", f"{given} of them", f"{features}, one a feature")
        if min(self.counts, default=1) < 1:
            raise InputError("counts", min(self.counts), "integers of at least 1")

    @property
    @override
    def public(self) -> Mapping[str, Any]:
        return {**self.ranges.public, "step": "bins", "counts": list(self.counts)}

    @override
    def __call__(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        counts = np.array(self.counts, dtype=np.int64)
        numbers = np.floor(self.ranges.to_unit(rows) * counts).astype(np.int64)
        return np.minimum(numbers, counts - 1)
