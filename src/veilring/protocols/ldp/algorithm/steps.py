"""What a client does to its row before it answers: public, and the same for all clients.

A step's numbers are part of the task. They may be known beforehand or come from public rows, but
never from the clients' own, or they would tell of them without any noise.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.data.table import Ranges
from veilring.errors import InputError


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
class Scaling(Step):
    """Scale each feature from a public range to [-1, 1]; what is outside is cut to its ends.

    Attributes:
        ranges: Of each feature; one whose two ends are equal becomes 0.
    """

    ranges: Ranges

    @property
    @override
    def public(self) -> Mapping[str, Any]:
        return {"step": "ranges", **_plain(self.ranges)}

    @override
    def __call__(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        return 2.0 * self.ranges.to_unit(rows) - 1.0


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
        return {"step": "bins", **_plain(self.ranges), "counts": list(self.counts)}

    @override
    def __call__(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        counts = np.array(self.counts, dtype=np.int64)
        numbers = np.floor(self.ranges.to_unit(rows) * counts).astype(np.int64)
        return np.minimum(numbers, counts - 1)


def _plain(ranges: Ranges) -> Mapping[str, Any]:
    return {"lows": list(ranges.lows), "highs": list(ranges.highs)}
