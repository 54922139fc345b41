"""What came of a run, joined from what came of it at each party."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from veilring.errors import (
    EndpointClosed,
    PeerLost,
    RunFailed,
    SessionAborted,
    SessionTimeout,
    VeilringError,
)
from veilring.measure import (
    Cost,
    Mark,
    Trace,
    TracedMessage,
    View,
    join_traces,
    join_transcripts,
    total_cost,
    transcript_hash,
)
from veilring.nodes.blame import Verdict, find_fault
from veilring.nodes.play import Outcome

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Run(Generic[R]):
    """What came of one run of a protocol.

    Attributes:
        results: What each party's role returned.
        cost: Messages, bytes and rounds.
        channels: SHA-256 of what passed each channel, by (sender, receiver), as its honest ends
            have it.
        views: All that each watched party saw.
        seconds: From the first party's start to the last one's end, on the cluster's clock.
        traces: What each party recorded, if the run was traced.
    """

    results: dict[str, R]
    cost: Cost
    channels: dict[tuple[str, str], str]
    views: dict[str, View]
    seconds: float
    traces: tuple[Trace, ...] = ()

    @property
    def trace(self) -> tuple[TracedMessage, ...]:
        """Which messages passed when, in order of time, if the run was traced."""
        return tuple(join_traces(self.traces))

    @property
    def transcript(self) -> str:
        """One hash over all channels: equal transcripts mean equal runs."""
        return transcript_hash(self.channels)

    @property
    def result(self) -> R:
        """The first party's result: where all parties learn the same, the result."""
        return next(iter(self.results.values()))


def join_outcomes(outcomes: Sequence[Outcome], seconds: float) -> Run[Any]:
    """Return the run that all outcomes make together.

    Raises:
        RunFailed: If one of them is an error.
    """
    errors = {outcome.party: outcome.error for outcome in outcomes if outcome.error is not None}
    if errors:
        failed = RunFailed(errors, *_verdict(errors.values(), outcomes))
        raise failed from failed.root
    return Run(
        results={outcome.party: outcome.result for outcome in outcomes},
        cost=total_cost(outcome.meter for outcome in outcomes if outcome.meter is not None),
        channels=join_transcripts(outcome.channels for outcome in outcomes),
        views={outcome.party: outcome.view for outcome in outcomes if outcome.view is not None},
        seconds=seconds,
        traces=tuple(outcome.trace for outcome in outcomes if outcome.trace is not None),
    )


def _verdict(errors: Iterable[BaseException], outcomes: Sequence[Outcome]) -> Verdict | tuple[()]:
    """Judge a run whose time was up; other errors say themselves what happened."""
    if not all(isinstance(error, SessionTimeout | SessionAborted) for error in errors):
        return ()
    return find_fault(each.standing for each in outcomes if each.standing is not None)


def mark_failure(outcome: Outcome, since: float) -> Mark:
    """Return what ended a role, and when.

    Args:
        outcome: An error's.
        since: The instant that the mark's time counts from, on the clock of the event loop.
    """
    match outcome.error:
        case PeerLost(peer=outcome.party):
            what = "lost: it crashed"
        case EndpointClosed():
            what = "lost: it was shut down"
        case VeilringError() as error:
            what = f"stopped: {error}"
        case error:
            what = f"failed: {type(error).__name__}"
    now = asyncio.get_running_loop().time() if outcome.ended is None else outcome.ended
    return Mark(now - since, outcome.party, what)


def blamed(error: BaseException) -> str:
    """Return the party that an error blames, or an empty string if it blames nobody by itself."""
    if isinstance(error, RunFailed) and not error.verdict:
        return blamed(error.root)
    culprit = getattr(error, "culprit", "") or getattr(error, "peer", "")
    return culprit if isinstance(culprit, str) else ""


def say_failure(error: BaseException) -> str:
    """Say what went wrong; of an error that is not veilring's own, only its name.

    Its text is for whoever holds the party's data, not for what is written down: it may hold some.
    """
    if isinstance(error, RunFailed):
        if error.verdict:
            return f"{error.verdict}; {say_failure(error.root)}"
        party = next(name for name, met in error.errors.items() if met is error.root)
        return f"{party}: {say_failure(error.root)}"
    return str(error) if isinstance(error, VeilringError) else type(error).__name__
