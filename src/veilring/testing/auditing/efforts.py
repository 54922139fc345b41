"""Efforts of audits: the size of each part."""

from dataclasses import dataclass, replace
from typing import Final

from veilring.privacy.audits import ALARM


@dataclass(frozen=True, slots=True)
class Effort:
    """The size of each part of an audit.

    Attributes:
        runs: The runs of each comparison of two worlds, both together; a multiple of 4.
        drawn: The views of each comparison that a system draws in one process, both worlds
            together; a multiple of 8.
        worlds: The number of worlds with faults that are always explored.
        worlds_max: The maximum number of worlds, explored until each class of fault has struck.
        every_message: Whether each class of fault also strikes each message of a run.
        other_views: Whether the views of parties in other places are also examined, if these may
            differ from the client's.
        long_views: Whether comparisons of long views are examined.
        alarm: The probability that a true claim is contradicted, for one statistical test.
    """

    runs: int
    drawn: int
    worlds: int
    worlds_max: int
    every_message: bool
    other_views: bool
    long_views: bool
    alarm: float = ALARM

    def shared_by(self, tests: int) -> "Effort":
        """Return the effort whose false alarms are divided among statistical tests."""
        return replace(self, alarm=self.alarm / max(1, tests))


QUICK: Final = Effort(
    runs=1_600,
    drawn=8_000,
    worlds=20,
    worlds_max=100,
    every_message=False,
    other_views=False,
    long_views=False,
)
"""About 20 s on two idle cores."""
FULL: Final = Effort(
    runs=8_000,
    drawn=60_000,
    worlds=200,
    worlds_max=400,
    every_message=True,
    other_views=True,
    long_views=True,
)
"""Between 16 s and about 6 minutes of CPU time, depending on the system."""
