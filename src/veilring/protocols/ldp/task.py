"""`Task`: the questions of an aggregator to its clients, as bytes with one hash.

The aggregator is not trusted. A client does not rely on the published survey: it rebuilds the
survey from the task's terms and compares every public number exactly.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from veilring.protocols.ldp.algorithm.survey import Survey
from veilring.transport.handshake import FORMAT

TASK_FORMAT: Final = 3
"""The version of the encoding."""
REPORTS_FORMAT: Final = 1
"""The version of the messages that carry tasks and reports."""
TASK_DIGEST_BYTES: Final = 32  # of SHA-256


def format_terms() -> dict[str, str]:
    """Return the terms in the greetings of a collector and its clients: their formats."""
    return {f"task {FORMAT}": str(TASK_FORMAT), f"ldp-bayes {FORMAT}": str(REPORTS_FORMAT)}


def other_format(encoded: bytes) -> str:
    """Compare the format of an encoded task with ours.

    Returns:
        The format and the version of veilring that wrote it, as in "format 1, from an older
        veilring"; or nothing if the format is ours or missing.
    """
    try:
        found = json.loads(encoded)["format"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    if type(found) is not int or found == TASK_FORMAT:
        return ""
    return f"format {found}, from {'an older' if found < TASK_FORMAT else 'a newer'} veilring"


@dataclass(frozen=True, eq=False)
class Task:
    """A survey with its terms and its deadline, on which a client relies.

    Attributes:
        closes: The time after which no new report is accepted, in seconds since 1970 (UTC), or
            None.
    """

    terms: Mapping[str, Any]
    survey: Survey
    closes: float | None = None

    @cached_property
    def encoded(self) -> bytes:
        """The task in canonical JSON: two tasks have equal bytes if and only if they are equal."""
        content = {
            "format": TASK_FORMAT,
            "terms": self.terms,
            "numbers": self.survey.public,
            "closes": self.closes,
        }
        text = json.dumps(
            content, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain
        )
        return text.encode()

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 hash of `encoded`, which every report carries."""
        return hashlib.sha256(self.encoded).digest()

    def is_closed(self, now: float) -> bool:
        """Return whether a time, in seconds since 1970 (UTC), is past the deadline."""
        return self.closes is not None and now >= self.closes


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")
