"""What ends because a part of it failed: a session, a run, a sweep, or all who wait."""

from collections.abc import Mapping
from typing import Final

from veilring.errors.root import VeilringError
from veilring.errors.surroundings import SessionTimeout

__all__ = ("Deadlock", "RunFailed", "SessionAborted", "SweepFailed", "UnforeseenCost")


# What the reason of an abort means to a person who has no other log than their own.
_MEANS: Final = {
    "SessionTimeout": "it was not finished in time, and nobody can be blamed; the log of {by} says"
    " who waited for whom",
    "EarlyFramesDropped": "{by} had no room for messages that came before it joined; ask again",
    "StoreFailed": "{by} cannot use its disk or database; its operator has to act",
    "InternalError": "{by} met an error that is not the fault of its peers; its log says more",
}
_BLAMED: Final = {
    "SessionTimeout": "{culprit} did not send what was due in time",
    "PeerSilent": "{culprit} is connected and does not answer: stopped, cut off or busy",
    "StoreFailed": "{culprit} cannot use its disk or database; its operator has to act",
    "InternalError": "{culprit} met an error that is not the fault of its peers; its log says more",
}


class SessionAborted(VeilringError):
    """Raised when another party ended the session.

    Attributes:
        by: Who ended it.
        reason: The name of the error that it met.
        culprit: Whom it blames, or an empty string.
    """

    def __init__(self, by: str, reason: str, culprit: str = "") -> None:
        self.by, self.reason, self.culprit = by, reason, culprit
        super().__init__(by, reason, culprit)

    def __str__(self) -> str:
        if self.reason == "NotReady":
            return f"{self.by} is not ready: it waits for {self.culprit or 'other parties'}"
        blame = f", blaming {self.culprit}" if self.culprit else ""
        ended = f"{self.by} aborted the session ({self.reason}{blame})"
        means = (_BLAMED if self.culprit else _MEANS).get(self.reason)
        return f"{ended}: {means.format(by=self.by, culprit=self.culprit)}" if means else ended


class Deadlock(VeilringError):
    """Raised on the simulated clock when every actor waits for a message that will never come.

    Attributes:
        waits: One sentence an actor: who waits for what from whom.
        culprit: The party at fault; empty if nobody can be blamed.
        verdict: What it did, or why nobody can be blamed, in a sentence; empty if nobody judged.
    """

    def __init__(self, waits: tuple[str, ...], culprit: str = "", verdict: str = "") -> None:
        self.waits, self.culprit, self.verdict = waits, culprit, verdict
        super().__init__(waits, culprit, verdict)

    def __str__(self) -> str:
        waits = "every actor waits and nothing is under way: " + "; ".join(self.waits)
        return f"{self.verdict}; {waits}" if self.verdict else waits


class RunFailed(VeilringError):
    """Raised by a cluster when a run failed at any party: there is no partial result.

    Attributes:
        errors: What each party that failed met, by its name.
        culprit: The party at fault if time was up; empty if nobody can be blamed.
        verdict: What it did, or why nobody can be blamed, in a sentence; empty if the errors
            themselves say what happened.
    """

    def __init__(
        self, errors: Mapping[str, BaseException], culprit: str = "", verdict: str = ""
    ) -> None:
        self.errors, self.culprit, self.verdict = dict(errors), culprit, verdict
        super().__init__(self.errors, culprit, verdict)

    @property
    def root(self) -> BaseException:
        """The error nearest to the cause: one that is not merely the echo of another party's."""
        return min(self.errors.values(), key=_echoes)

    def __str__(self) -> str:
        party = next(name for name, error in self.errors.items() if error is self.root)
        others = len(self.errors) - 1
        also = f" ({others} more parties failed with it)" if others else ""
        said = f"{self.verdict}; {self.root}" if self.verdict else f"{party}: {self.root}"
        return f"{said}{also}"


def _echoes(error: BaseException) -> int:
    """Say how far an error is from its cause: time was up, or another party has ended it all."""
    return 2 if isinstance(error, SessionAborted) else int(isinstance(error, SessionTimeout))


class SweepFailed(VeilringError):
    """Raised when cells of a sweep failed. All others are kept, and are not run again.

    Attributes:
        failures: Why each cell failed that did, by its name.
        kept: How many cells are finished.
        total: Of how many.
        journal: The file that they are kept in.
    """

    def __init__(self, failures: Mapping[str, str], kept: int, total: int, journal: str) -> None:
        self.failures, self.kept, self.total = dict(failures), kept, total
        self.journal = journal
        super().__init__(self.failures, kept, total, journal)

    def __str__(self) -> str:
        name, reason = next(iter(self.failures.items()))
        others = len(self.failures) - 1
        also = f" ({others} more failed)" if others else ""
        kept = f"{self.kept} of {self.total} cells are kept in {self.journal}"
        return f"{name}: {reason}{also}. {kept}; the same command runs the others"


class UnforeseenCost(VeilringError):
    """Raised when a run cost anything else than its closed form says: one of the two is wrong.

    Attributes:
        forecast: What the closed form says.
        found: What was measured, in the same form.
    """

    def __init__(self, forecast: object, found: object) -> None:
        self.forecast, self.found = forecast, found
        super().__init__(forecast, found)

    def __str__(self) -> str:
        return f"a run cost {self.found}, and its closed form says {self.forecast}"
