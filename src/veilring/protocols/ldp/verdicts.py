"""What becomes of a report."""

from enum import IntEnum
from types import MappingProxyType
from typing import Final


class Verdict(IntEnum):
    """What became of one report, as a byte of a receipt."""

    COUNTED = 0
    KNOWN = 1
    MALFORMED = 2
    OVERSIZED = 3
    OUT_OF_DOMAIN = 4
    REUSED_ID = 5
    OTHER_TASK = 6
    CLOSED = 7
    OVER_QUOTA = 8

    @property
    def is_kept(self) -> bool:
        """Whether the report is durable and counts, once."""
        return self <= Verdict.KNOWN


REASONS: Final = MappingProxyType(
    {
        Verdict.COUNTED: "it is stored and counts",
        Verdict.KNOWN: "it was stored before and counts once",
        Verdict.MALFORMED: "it has no such question, or too few bytes for it",
        Verdict.OVERSIZED: "it is longer than a report, or too many came at once",
        Verdict.OUT_OF_DOMAIN: "no client could have made it",
        Verdict.REUSED_ID: "another report has its id",
        Verdict.OTHER_TASK: "it was made for another task",
        Verdict.CLOSED: "the collection is closed",
        Verdict.OVER_QUOTA: "the collector takes no more from this submitter (its reports_max)",
    }
)
"""What each verdict means, for a person."""
