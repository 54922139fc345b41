"""One run: the job of each party, its outcome, and the combined result."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from inspect import Parameter, Signature, signature
from typing import Any, Final, Generic, NamedTuple, TypeVar

from typing_extensions import override

from veilring.errors import (
    Deadlock,
    EndpointClosed,
    InputError,
    PeerLost,
    RunFailed,
    SessionAborted,
    SessionTimeout,
    VeilringError,
)
from veilring.nodes.adversary import Adversary
from veilring.nodes.journal import (
    Channel,
    Cost,
    Mark,
    Meter,
    Trace,
    TracedMessage,
    View,
    join_traces,
    join_transcripts,
    total_cost,
    transcript_hash,
)
from veilring.nodes.party import Blame, Parties, Standing, find_fault
from veilring.nodes.session import SESSION_SECONDS

_R = TypeVar("_R")


_NOTHING: Final[Mapping[str, Any]] = {}
# An exploration plays a few roles, each thousands of times.
_ROLES_MAX: Final = 16


class Job(NamedTuple):
    """The part of one party in a run."""

    role: Callable[..., Awaitable[Any]]
    session: bytes
    parties: Parties
    given: tuple[object, ...] = ()
    """The arguments after the party: the party's private input, if there is one."""
    public: Mapping[str, object] = _NOTHING
    watched: bool = False
    measured: bool = True
    """Whether to count the party's messages and to hash its channels."""
    seconds: float | None = SESSION_SECONDS
    trace: Trace | None = None
    adversary: Adversary | None = None

    @override
    def __repr__(self) -> str:
        return object.__repr__(self)  # without the private input


_NO_CHANNELS: Final[Mapping[Channel, str]] = {}


class Outcome(NamedTuple):
    """The outcome of a job at one party."""

    party: str
    """The name of the party."""
    result: Any = None
    """The value that the role returned, if it succeeded."""
    error: BaseException | None = None
    """The error that ended the role, if it failed."""
    meter: Meter | None = None
    """The count of the messages that the party sent and received."""
    channels: Mapping[Channel, str] = _NO_CHANNELS
    """The hashes of the party's channels; those of an adversary are ignored."""
    view: View | None = None
    """The view of the party, if it was watched."""
    trace: Trace | None = None
    """The messages that passed its channels, if the run was traced."""
    ended: float | None = None
    """The end of the role, in seconds on the clock of the event loop."""
    standing: Standing | None = None
    """The state of the party when its session ended."""


@dataclass(frozen=True, slots=True)
class Run(Generic[_R]):
    """The result of one run of a protocol, merged from the outcomes of all parties.

    Attributes:
        results: The value that each party's role returned.
        channels: The SHA-256 of all messages of each channel, by (sender, receiver), from its
            honest ends.
        seconds: The time from the first party's start to the last one's end, on the cluster's
            clock.
        lost: The parties without which the others continued, in a role that tolerates losses. They
            have no results, and their channels do not count as transcript.
    """

    results: dict[str, _R]
    cost: Cost
    channels: dict[tuple[str, str], str]
    views: dict[str, View]
    seconds: float
    traces: tuple[Trace, ...] = ()
    lost: tuple[str, ...] = ()

    @property
    def trace(self) -> tuple[TracedMessage, ...]:
        """The traced messages in order of time, if the run was traced."""
        return tuple(join_traces(self.traces))

    @property
    def transcript(self) -> str:
        """One hash over all channels: equal transcripts mean equal runs."""
        return transcript_hash(self.channels)

    @property
    def result(self) -> _R:
        """The first party's result, which is the result if all parties learn the same."""
        return next(iter(self.results.values()))


def check_arguments(
    role: Callable[..., Awaitable[Any]],
    *calls: Iterable[str],
    given: int = 1,
    by: Callable[..., Any],
) -> None:
    """Refuse public arguments that a role does not take, before any party starts.

    Args:
        calls: The names of the public arguments of each call.
        given: The number of arguments after the party: 1 with a private input, otherwise 0.
        by: The function that takes the public arguments: see `refuse_options`.

    Raises:
        InputError: If an argument does not fit; it names the role and the argument.
    """
    try:
        hash(role)
    except TypeError:
        check = _check.__wrapped__
    else:
        check = _check
    check(role, tuple(map(tuple, calls)), given, by)


@lru_cache(_ROLES_MAX)
def _check(
    role: Callable[..., Awaitable[Any]],
    calls: tuple[tuple[str, ...], ...],
    given: int,
    by: Callable[..., Any],
) -> None:
    taken = refuse_options(role, by)
    if taken is None:
        return
    try:
        for names in calls:
            taken.bind(*[None] * (1 + given), **dict.fromkeys(names))
    except TypeError as error:
        name, own = _name(role), ", own" * given
        raise InputError.because(
            f"{name} cannot be called as {name}(party{own}, **public): {error}", field="public"
        ) from None


def refuse_options(role: Callable[..., Awaitable[Any]], by: Callable[..., Any]) -> Signature | None:
    """Refuse a role with a public argument that a function would take as its own option.

    Returns:
        The signature of the role, if it has one.

    Args:
        by: The function that takes the public arguments as keywords among its options.

    Raises:
        InputError: If there is such an argument; it names the role and the argument.
    """
    try:
        taken = _signature(role) if isinstance(role, Hashable) else signature(role)
    except (TypeError, ValueError):  # written in C
        return None
    every = list(taken.parameters.values())
    options = _options(by)
    keywords = [each for each in every if each.kind is Parameter.KEYWORD_ONLY]
    for argument in (*every[2:], *keywords):
        if argument.name in options:
            raise InputError.because(
                f"{argument.name} is both a public argument of {_name(role)} and an option of"
                f" {by.__qualname__}; rename the argument of the role",
                field=argument.name,
            )
    return taken


def _name(role: Callable[..., Awaitable[Any]]) -> str:
    return str(getattr(role, "__name__", type(role).__name__))


@lru_cache(_ROLES_MAX)
def _signature(role: Callable[..., Awaitable[Any]]) -> Signature:
    return signature(role)


@cache
def _options(function: Callable[..., Any]) -> frozenset[str]:
    every = signature(function).parameters.values()
    named = frozenset(each.name for each in every if each.kind is not Parameter.VAR_KEYWORD)
    return named - {"own"}  # both mean the private input


def join_outcomes(outcomes: Sequence[Outcome], seconds: float) -> Run[Any]:
    """Return the run merged from all outcomes.

    Raises:
        RunFailed: If one of them is an error, unless all parties with a result may continue without
            its party.
    """
    lost = _lost_parties(outcomes)
    left = [outcome for outcome in outcomes if outcome.party not in lost]
    errors = {outcome.party: outcome.error for outcome in left if outcome.error is not None}
    if errors:
        failed = RunFailed(errors, *_verdict(errors.values(), outcomes))
        raise failed from failed.root
    return Run(
        results={outcome.party: outcome.result for outcome in left},
        cost=total_cost(
            (outcome.meter for outcome in outcomes if outcome.meter is not None),
            is_concurrent=any(each.standing.is_concurrent for each in outcomes if each.standing),
        ),
        channels=join_transcripts(_channels_left(outcome, lost) for outcome in left),
        views={outcome.party: outcome.view for outcome in outcomes if outcome.view is not None},
        seconds=seconds,
        traces=tuple(outcome.trace for outcome in outcomes if outcome.trace is not None),
        lost=lost,
    )


def _lost_parties(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return the parties that crashed, or were given up, in a run that continues without them."""
    stood = [outcome.standing for outcome in outcomes if outcome.error is None]
    without = [standing.without for standing in stood if standing is not None]
    missed = [names for names in without if names is not None]
    if not missed or len(missed) < len(stood):
        return ()
    given_up = frozenset(name for names in missed for name in names)
    return tuple(outcome.party for outcome in outcomes if _is_loss(outcome, given_up))


def _is_loss(outcome: Outcome, given_up: Collection[str]) -> bool:
    """Return whether a party crashed, or was given up and failed for lack of the others."""
    match outcome.error:
        case EndpointClosed() | PeerLost(peer=outcome.party):
            return True
        case PeerLost() | SessionAborted():
            return outcome.party in given_up
    return False


def _channels_left(outcome: Outcome, lost: Collection[str]) -> dict[Channel, str]:
    """Return the hashes of the channels whose ends both stayed to the end."""
    without = outcome.standing.without if outcome.standing is not None else None
    gone = {*lost, *(without or ())}
    ignores = outcome.standing is not None and outcome.standing.leaves_unread
    return {
        ends: digest
        for ends, digest in outcome.channels.items()
        if gone.isdisjoint(ends) and not (ignores and ends[1] == outcome.party)
    }


def _verdict(errors: Iterable[BaseException], outcomes: Sequence[Outcome]) -> Blame | tuple[()]:
    """Find the culprit of a run that could not end; other errors explain themselves."""
    if not all(isinstance(error, Deadlock | SessionTimeout | SessionAborted) for error in errors):
        return ()
    return find_fault(each.standing for each in outcomes if each.standing is not None)


def mark_failure(outcome: Outcome, since: float) -> Mark:
    """Return a mark of the error that ended a role, and its time."""
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
    waits = outcome.standing.waits if outcome.standing is not None else ()
    awaited = tuple(wait.said for wait in waits)
    return Mark(now - since, outcome.party, what, waits=awaited)


def forget_frames(error: BaseException | None) -> None:
    """Drop the frames of an error that nobody will trace.

    They contain the session, which contains the error: only garbage collection ends such a cycle.
    """
    while error is not None:
        error.__traceback__, error = None, error.__context__


def blamed_party(error: BaseException) -> str:
    """Return the party that an error blames, or an empty string if it blames nobody itself."""
    if isinstance(error, RunFailed) and not error.verdict:
        return blamed_party(error.root)
    culprit = getattr(error, "culprit", getattr(error, "peer", ""))
    return culprit if isinstance(culprit, str) else ""


def describe_failure(error: BaseException) -> str:
    """Describe an error; give only the name of an error that is not veilring's own.

    The text of a foreign error may contain private data: its reader must own these, so it is never
    written down.
    """
    if isinstance(error, RunFailed):
        if error.verdict:
            return error.with_verdict(describe_failure(error.root))
        party = next(name for name, met in error.errors.items() if met is error.root)
        return f"{party}: {describe_failure(error.root)}"
    return str(error) if isinstance(error, VeilringError) else type(error).__name__


class Failure(NamedTuple):
    """The error that ended a failed run."""

    error: str
    """The name of the error."""
    message: str
    parties: dict[str, str]
    """The errors of the parties that failed, by name."""
    notes: tuple[str, ...] = ()
    """Hints for repeating the run."""
    culprit: str = ""
    """The party at fault; empty if nobody is named."""

    @classmethod
    def of(cls, error: VeilringError) -> "Failure":
        """Return the fields of an error that are stored in a folder."""
        errors = error.errors if isinstance(error, RunFailed) else {}
        parties = {party: describe_failure(met) for party, met in errors.items()}
        notes = tuple(getattr(error, "__notes__", ()))
        return cls(
            type(error).__name__, describe_failure(error), parties, notes, blamed_party(error)
        )
