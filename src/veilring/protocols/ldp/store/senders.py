"""Who sent which reports, and how many each member may have counted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

NUMBER_BYTES: Final = 4  # of a member's number beside each report

_ENDLESS: Final = int(np.iinfo(np.int64).max)


class Senders(NamedTuple):
    """The members that some reports came from.

    Attributes:
        names: Their names, each once.
        of: For each report that came, the place of its member among the names.
    """

    names: tuple[str, ...]
    of: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Quotas:
    """How many reports of a member may count.

    Attributes:
        each: Of any one member; nothing if there is no limit.
        own: Of members that have a limit of their own.
    """

    each: int | None = None
    own: Mapping[str, int] = field(default_factory=dict)

    def of(self, member: str) -> int:
        """Return a member's limit."""
        return self.own.get(member, _ENDLESS if self.each is None else self.each)


class Room:
    """What may still be counted of some members, while a group is stored.

    Args:
        left: The number of reports that may be counted of each member; negative if a limit was
            lowered.
    """

    def __init__(self, left: NDArray[np.int64]) -> None:
        self._left = left
        self.taken: NDArray[np.int64] = np.zeros_like(left)
        """The number of reports that were counted of each member."""

    def has_for(self, who: NDArray[np.int64]) -> bool:
        """Return whether one report more may be counted for each mention of a member."""
        return bool((self._counted(who) <= np.maximum(self._left, 0)).all())

    def first_of(self, who: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for which mentions of a member there is room, the first ones first."""
        order = np.argsort(who, kind="stable")
        members = who[order]
        starts = np.searchsorted(members, members, side="left")
        fits = np.empty(len(who), dtype=np.bool_)
        fits[order] = np.arange(len(who)) - starts < self._left[members]
        return fits

    def take(self, who: NDArray[np.int64]) -> None:
        """Count a report for each mention of a member."""
        counted = self._counted(who)
        self._left = self._left - counted
        self.taken = self.taken + counted

    def _counted(self, who: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.bincount(who, minlength=len(self._left)).astype(np.int64)


def number_blob(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return members' numbers as bytes, shape (reports, `NUMBER_BYTES`)."""
    return numbers.astype("<u4").view(np.uint8).reshape(-1, NUMBER_BYTES)
