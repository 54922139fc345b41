"""The hierarchy of errors. Each error names the party at fault and what to do.

Every error is built from plain fields and builds its own message, so it can be pickled between
processes, matched by its fields, and shown to a person as one paragraph.

==========================  ==============================================================
at fault                    errors
==========================  ==============================================================
the caller's                `InputError`, `ScenarioError`, `ClusterError`, `BudgetExhausted`,
                            `AskedBefore`, `SimulationError`, `MissingExtra`
a peer's                    `ProtocolViolation`, `FrameError`, `HandshakeError`
one of several peers'       `Tampered`
nobody's                    `Busy`
the network's, or a crash   `PeerLost`, `PeerGivenUp`, `TooManyLost`, `PeerSilent`,
                            `SessionTimeout`, `NotReady`, `EndpointClosed`, `AddressTaken`
the disk's or a database's  `StoreFailed`
another party's choice      `PolicyRefused`
another party's abort       `SessionAborted`, `RunFailed`, `SweepFailed`
the protocol's own          `Deadlock`, `EndlessStep`, `UnforeseenCost`, or a peer's:
                            `TooFarAhead`
a mistake in the program    `InternalError`
==========================  ==============================================================

A `PrivacyLeakWarning` is not an error: everything worked, but with less protection than requested.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Self

from typing_extensions import override


class VeilringError(Exception):
    """The base class of all errors that veilring raises deliberately.

    A subclass with fields is a dataclass, and builds its message in `__str__`.
    """

    __match_args__: ClassVar[tuple[str, ...]]  # a dataclass has its positional fields there

    @property
    def kind(self) -> str:
        """The word that an abort has for it: the name of the class."""
        return type(self).__name__

    def __post_init__(self) -> None:
        """Pass the fields to `Exception`, which makes the error picklable."""
        super().__init__(*[getattr(self, name) for name in self.__match_args__])


class PrivacyLeakWarning(UserWarning):
    """Shown if an estimator reveals more than its ε covers: through ranges, a seed, or a δ."""


class RoundsDiffer(UserWarning):
    """Shown if a role declares other rounds than its messages take."""


class TransportError(VeilringError):
    """The base class of network errors."""


# A value that takes more than two lines of a terminal hides what is wrong with it.
SHOWN_CHARACTERS_MAX: Final = 200
# A sentence may contain such a value, and a list of names; it ends with what to do.
SENTENCE_CHARACTERS_MAX: Final = 2_000


def _shown(value: object) -> str:
    """Return a value as text, quoted if it is one, and cut if it is long."""
    text = str(value)
    cut = text[:SHOWN_CHARACTERS_MAX]
    shown = repr(cut) if isinstance(value, str) else cut
    return shown if len(text) == len(cut) else f"{shown}… ({len(text):,} characters)"


def _without_middle(sentence: str) -> str:
    """Return a sentence; of one that is too long, only its beginning and its end."""
    if len(sentence) <= SENTENCE_CHARACTERS_MAX:
        return sentence
    kept = SENTENCE_CHARACTERS_MAX // 2
    return f"{sentence[:kept]}… ({len(sentence):,} characters) …{sentence[-kept:]}"


class InputError(VeilringError, ValueError):
    """Raised if the caller passes a value that is not allowed.

    The three arguments describe a value out of range: "k is 0; allowed: a whole number of at least
    1". For all other mistakes, `because` takes a full sentence.

    Attributes:
        field: The name of the argument or key; empty if the mistake is not in one field.
        value: The value as text; empty if a sentence is given. Never a secret: give its shape or
            type instead.
        allowed: The allowed values; empty if a sentence is given.
        shown: The value as shown in the message, where a text is quoted and a long value is cut.
        message: The sentence passed to `because`, or an empty string.
        others: Further mistakes after this one.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field, self.value, self.allowed = field, str(value), allowed
        self.shown = _shown(value)
        self.message = ""
        self.others: tuple[InputError, ...] = ()
        super().__init__(field, self.value, allowed)

    @classmethod
    def because(cls, message: str, *, field: str = "") -> Self:
        """Return an error with a sentence: what is wrong, where, and what to do.

        Args:
            message: The sentence, without a full stop. It must make sense without the field. The
                middle of a very long one is left out.
            field: The name of the argument or key concerned.
        """
        error = cls(field, "", "")
        error.message = _without_middle(message)
        return error

    @classmethod
    def of(cls, error: "InputError", field: str) -> Self:
        """Return the same error for another field, such as the key of a file.

        The result does not include the other error's `others`.

        Args:
            field: The name of the argument or key.
        """
        renamed = cls(field, error.value, error.allowed)
        renamed.message, renamed.shown = error.message, error.shown
        return renamed

    def with_others(self, others: "Iterable[InputError]") -> Self:
        """Return this error with further mistakes after it."""
        first = self.of(self, self.field)
        first.others = tuple(others)
        return first

    @property
    def sentence(self) -> str:
        """The error's own message, without the others."""
        return self.message or f"{self.field} is {self.shown}; allowed: {self.allowed}"

    def __str__(self) -> str:
        return "\n".join(each.sentence for each in (self, *self.others))


class ScenarioError(InputError):
    """Raised if a scenario or configuration file has mistakes; `field` is the dotted key.

    The key precedes a sentence passed to `because`: "network.graph: the graph is not connected".
    """

    @property
    @override
    def sentence(self) -> str:
        own = super().sentence
        return f"{self.field}: {own}" if self.message and self.field else own


@dataclass(eq=False, repr=False)
class MissingExtra(VeilringError, ImportError):
    """Raised if a feature needs a package that is not installed."""

    package: str
    """The import name of the package."""
    extra: str
    """The extra of veilring that installs it."""

    def __str__(self) -> str:
        return (
            f"{self.package} is not installed; run `pip install '.[{self.extra}]'` in a clone of "
            "veilring"
        )


class ClusterError(VeilringError):
    """Raised if a cluster cannot be started or used as requested."""


@dataclass(eq=False, repr=False)
class BudgetExhausted(VeilringError):
    """Raised if an answer would exceed a privacy budget; nothing was charged.

    Attributes:
        budget: `"total"`, `"analyst"`, `"client"` (the client's own budget at the queried party),
            `"member"` (a party that must take part in every answer, named in a note) or `"record"`.
            The budget of a record is secret, and so is its exhaustion: this error is for the owner
            only, and a server never sends it.
        asked: The price of the answer; none for a record, a member or a client.
        left: The remaining budget; none for a record, a member or a client.
        unit: The unit of both.
    """

    budget: str
    asked: float | None = None
    left: float | None = None
    unit: str = ""

    def __str__(self) -> str:
        if self.asked is None:
            return f"the privacy budget of a {self.budget} is exhausted"
        missing = f"{self.asked:.12g} {self.unit} requested, {self.left:.12g} left"
        return f"the privacy budget ({self.budget}) is exhausted: {missing}"


@dataclass(eq=False, repr=False)
class AskedBefore(VeilringError):
    """Raised if queries are repeated with other parties, or after a failed check.

    The difference of two totals reveals rows, and a party that falsifies a total again and again
    learns from the checks of others. Nothing that depends on rows was sent.
    """

    queries: int
    """The number of queries asked before."""
    differing: tuple[str, ...]
    """The parties that took part in only one of the two sessions; none if the queries are from a
    batch with a failed check."""

    def __str__(self) -> str:
        many = "one query was" if self.queries == 1 else f"{self.queries:,} queries were"
        if not self.differing:
            return (
                f"{many} already asked in a batch that failed a check, and the party that caused"
                " this could learn more from a repetition; ask different queries, or set"
                " protocol.again = true to accept this leak"
            )
        return (
            f"{many} already asked of a different set of parties, and comparing the totals would"
            f" reveal the rows of {listed(self.differing)}; ask the same parties, ask different"
            " queries, or set protocol.again = true to accept this leak"
        )


@dataclass(eq=False, repr=False)
class PolicyRefused(VeilringError):
    """Raised if a party's own policy does not allow a request. Nothing was sent or charged for it.

    The party's log names the rule and its value; other parties learn only its subject.

    Attributes:
        party: The party whose policy it is.
        about: The subject of the rule: `who`, `what`, `when` or `amount`.
        rule: The exact reason, for the party's own log.
    """

    party: str
    about: str
    rule: str

    @property
    @override
    def kind(self) -> str:
        return f"{type(self).__name__}.{self.about}"

    def __str__(self) -> str:
        return f"the policy of {self.party} refuses it: {self.rule}"


class SimulationError(VeilringError):
    """Raised if simulated code uses the real world (sockets, threads), or never waits."""


# the names of a ring of a thousand parties, or the messages that they wait for, would fill a screen
_SHOWN_AT_ONCE: Final = 8


def listed(parties: tuple[str, ...]) -> str:
    """Return the names of parties, or only the first ones if there are many."""
    return ", ".join((*parties[:_SHOWN_AT_ONCE], *("…",) * (len(parties) > _SHOWN_AT_ONCE)))


class FrameError(TransportError):
    """Raised if bytes are not a valid frame or message, or are too large."""


@dataclass(eq=False, repr=False)
class HandshakeError(TransportError):
    """Raised if either side refuses a connection before any message passed."""

    peer: str
    """The peer's roster name if known, otherwise its network address."""
    reason: str

    def __str__(self) -> str:
        return f"no connection with {self.peer}: {self.reason}"


@dataclass(eq=False, repr=False)
class ProtocolViolation(VeilringError):
    """Raised if a peer sends something that an honest party never sends."""

    culprit: str
    """The authenticated roster name of the peer."""
    reason: str
    """The violation, as a statement about the peer."""

    def __str__(self) -> str:
        return f"{self.culprit} broke the protocol: {self.reason}"


class TooFarAhead(ProtocolViolation):
    """Raised if a peer sent more messages than may wait until the role receives them.

    The peer floods the session, or the role lets an honest peer send without an answer.
    """

    @override
    def __str__(self) -> str:
        return f"{self.culprit} {self.reason}"


@dataclass(eq=False, repr=False)
class Tampered(VeilringError):
    """Raised if one of several peers broke the protocol, but the party cannot know which."""

    suspects: tuple[str, ...]
    """At least two parties, one of which is the culprit; all others are innocent."""
    reason: str
    """The violation, as a statement about the culprit."""

    def __str__(self) -> str:
        among = listed(self.suspects)
        return f"one of {len(self.suspects)} ({among}) broke the protocol: {self.reason}"


class StoreFailed(VeilringError):
    """Raised if a database cannot be reached, or did not store data durably."""


class InternalError(VeilringError):
    """Raised if a party had an unexpected error; its own log has the details."""


@dataclass(eq=False, repr=False)
class NotReady(VeilringError):
    """Raised if a party is asked for something that it can only do once others are connected."""

    party: str
    culprit: str
    """The first party that it is waiting for."""

    def __str__(self) -> str:
        return f"{self.party} is not ready: it is waiting for {self.culprit}"


@dataclass(eq=False, repr=False)
class Busy(VeilringError):
    """Raised if a request waited too long for its turn among the requests of all clients.

    Nothing was sent to other parties or charged for it.
    """

    party: str
    seconds: float
    """The time that the request waited."""

    def __str__(self) -> str:
        return (
            f"{self.party} is busy: the request waited {self.seconds:g} s for its turn among those"
            " of all clients; ask again later, or ask another party"
        )


class EndpointClosed(TransportError):
    """Raised if an endpoint is used after its own side closed it."""


@dataclass(eq=False, repr=False)
class AddressTaken(TransportError):
    """Raised if another process is listening at the address; that may be temporary."""

    host: str
    port: int

    def __str__(self) -> str:
        where = f"{self.host}:{self.port}"
        return f"another process is listening at {where}; stop it or change the port in the roster"


@dataclass(eq=False, repr=False)
class PeerLost(TransportError):
    """Raised if a peer is gone: its process died, its network failed, or it said goodbye."""

    peer: str
    orderly: bool = field(default=False, kw_only=True)
    """Whether the peer said goodbye. In either case it will not return to this session."""

    def __str__(self) -> str:
        how = "left" if self.orderly else "was lost: its connection broke without a goodbye"
        return f"{self.peer} {how}"


class PeerGivenUp(PeerLost):
    """Raised if a party that tolerates losses stops waiting for a silent peer."""

    def __str__(self) -> str:
        return f"{self.peer} was given up: its message did not arrive in time"


@dataclass(eq=False, repr=False)
class TooManyLost(PeerLost):
    """Raised if a sum lost more parties than it tolerates; no total was revealed."""

    peer: str = field(init=False)
    lost: tuple[str, ...]
    """The names of the lost parties; `peer` is the first of them."""
    left: int
    """The number of parties left."""
    needed: int
    """The number of parties that the sum needs."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.peer = self.lost[0] if self.lost else ""

    @property
    def culprit(self) -> str:
        """The lost party; empty if there are several, because then this party may be cut off."""
        return self.lost[0] if len(self.lost) == 1 else ""

    def __str__(self) -> str:
        missing = listed(self.lost) or "some"
        return (
            f"too few parties are left: {self.left} of the {self.needed} that the sum needs (lost:"
            f" {missing}); no total was revealed: start again without them, or tolerate more losses"
        )


@dataclass(eq=False, repr=False)
class SessionTimeout(VeilringError):
    """Raised if a session exceeded its time limit.

    Attributes:
        seconds: The limit.
        waiting_for: Sentences that describe which party was waiting for which message.
        culprit: The party at fault; empty if nobody can be blamed, if one of two parties lies, or
            if there was no inquiry.
        verdict: A sentence: what the culprit did, which two parties are suspected, or why nobody
            can be blamed; empty if there was no inquiry.
    """

    seconds: float
    waiting_for: str
    culprit: str = ""
    verdict: str = ""

    def __str__(self) -> str:
        late = f"not finished after {self.seconds:g} s: {self.waiting_for}"
        return f"{self.verdict}; {late}" if self.verdict else late


class PeerSilent(SessionTimeout):
    """Raised if a session exceeded its limit and a peer did not even report its state.

    The peer is connected, but its process is stopped, its network is cut, or it is computing.
    """


# The reasons of an abort, explained to a person who can read no other log than their own: those
# that mean the same of the party that is blamed as of a party that blames nobody, then the others.
_EITHER: Final = {
    "AskedBefore": "{who} already answered these queries with a different set of parties, and"
    " comparing the totals would reveal the rows of some of them; the log of {who} names them",
    "BudgetExhausted": "a privacy budget at {who} is insufficient",
    "EarlyFramesDropped": "{who} had no room for messages that arrived before it joined; ask again",
    "InputError": "{who} could not use a value; its log has the details",
    "InternalError": "{who} had an error that is not its peers' fault; its log has the details",
    "OtherTerms": "the terms of {who} differ; compare the files of the terms",
    "PolicyRefused.amount": "the policy of {who} limits how much may be asked at once or in some"
    " time; ask for less or later",
    "PolicyRefused.what": "the policy of {who} does not allow what was asked under these terms",
    "PolicyRefused.when": "the policy of {who} allows requests only at other hours",
    "PolicyRefused.who": "the policy of {who} does not let this client ask",
    "StoreFailed": "{who} cannot use its disk or database; its operator must fix this",
    "WrongParties": "{who} plays this role with other parties; compare the rosters",
}
_BLAMELESS: Final = {
    "Busy": "it has too many other requests at the moment; ask again later, or ask another party",
    "NotOffered": "{by} does not offer this service to the party that asked",
    "PeerLost": "{by} lost the connection with another party",
    "TooManyLost": "{by} lost more parties than the sum tolerates, or was cut off from them",
    "ProtocolViolation": "{by} received something that no honest party sends; its log has the"
    " details",
    "SessionTimeout": "it did not finish in time, and nobody can be blamed; the log of {by} shows"
    " which party was waiting for which",
    "Tampered": "one of several parties broke the protocol; the log of the party that noticed it"
    " names them",
    "TooFarAhead": "{by} received messages faster than its role reads them; its log has the limit",
    "TooManySessions": "{by} has as many sessions open for one peer as it allows; ask again once"
    " some have ended",
}
_BLAMED: Final = {
    "NotOffered": "{who} does not offer this service to {by}",
    "PeerGivenUp": "{who} did not send its message in time",
    "PeerLost": "{who} has left, or the connection with it broke",
    "PeerSilent": "{who} is connected but does not answer: it is stopped, cut off or busy",
    "ProtocolViolation": "{who} sent something that no honest party sends; the log of {by} has"
    " the details",
    "SessionTimeout": "{who} did not send its message in time",
    "TooFarAhead": "{who} sent messages faster than the role of {by} reads them; the log of {by}"
    " has the limit",
    "TooManyLost": "fewer parties are left than the sum needs; {who} was lost",
}


@dataclass(eq=False, repr=False)
class SessionAborted(VeilringError):
    """Raised if another party ended the session.

    Attributes:
        by: The party that ended it.
        reason: The class name of the error that caused the abort, or the name of a refusal.
        culprit: The party that it blames, or an empty string.
    """

    by: str
    reason: str
    culprit: str = ""

    def __str__(self) -> str:
        if self.reason == "NotReady":
            return f"{self.by} is not ready: it is waiting for {self.culprit or 'other parties'}"
        stopped = f"{self.reason}: {self.culprit or self.by} is shutting down"
        if self.reason == "PeerStopped":
            return f"{stopped}, or its user cancelled the session"
        if self.reason == "Stopping":
            return f"{stopped}; ask again once it is back"
        blame = f", blaming {self.culprit}" if self.culprit else ""
        ended = f"{self.by} aborted the session ({self.reason}{blame})"
        known = _EITHER | (_BLAMED if self.culprit else _BLAMELESS)
        means = known.get(self.reason, "").format(by=self.by, who=self.culprit or self.by)
        return f"{ended}: {means}" if means else ended


@dataclass(eq=False, repr=False)
class Deadlock(VeilringError):
    """Raised in the simulation if every party is waiting for a message that will never come.

    A cluster's run raises it as the root of its `RunFailed`.
    """

    waits: tuple[str, ...]
    """The messages that parties are waiting for, one sentence each."""

    def __str__(self) -> str:
        more = len(self.waits) - _SHOWN_AT_ONCE
        waits = (*self.waits[:_SHOWN_AT_ONCE], *([f"{more:,} more"] if more > 0 else ()))
        return f"every party is waiting and no message is in flight: {'; '.join(waits)}"


@dataclass(eq=False, repr=False)
class EndlessStep(VeilringError):
    """Raised if a role computes for too long without an `await`, so that no other party runs."""

    party: str
    place: str
    """The task and the file, line and function at which its step was ended."""
    limit: str
    """The limit that the step exceeded, in words."""

    def __str__(self) -> str:
        return (
            f"one step of {self.party} took longer than {self.limit}: it was ended in {self.place};"
            " let the loop there end or `await`, or raise the limit"
        )


@dataclass(eq=False, repr=False)
class RunFailed(VeilringError):
    """Raised by a cluster if a run failed at any party: there is no partial result.

    Attributes:
        errors: The errors, by the names of the parties that failed.
        culprit: The party at fault after a timeout; empty if nobody can be blamed.
        verdict: A sentence: what the culprit did, or why nobody can be blamed; empty if the errors
            themselves explain the failure.
    """

    errors: Mapping[str, BaseException]
    culprit: str = ""
    verdict: str = ""

    @property
    def root(self) -> BaseException:
        """The error nearest to the cause, which does not merely report another party's error."""
        return min(self.errors.values(), key=_echoes)

    def __str__(self) -> str:
        party = next(name for name, error in self.errors.items() if error is self.root)
        others = len(self.errors) - 1
        parties = "party" if others == 1 else "parties"
        also = f" ({others} more {parties} failed with it)" if others else ""
        foreign = "" if isinstance(self.root, VeilringError) else f"{type(self.root).__name__}: "
        found = self.with_verdict(str(self.root)) or f"{party}: {foreign}{self.root}"
        return f"{found}{also}"

    def with_verdict(self, root: str) -> str:
        """Return the verdict beside the description of the root, or an empty string without one."""
        order = (self.verdict, root) if self.culprit else (root, self.verdict)
        return "; ".join(order) if self.verdict else ""


def _echoes(error: BaseException) -> int:
    """Return the distance of an error from its cause: a timeout or an abort by others echoes it."""
    is_late = isinstance(error, SessionTimeout | TooManyLost)
    return 2 if isinstance(error, SessionAborted) else int(is_late)


@dataclass(eq=False, repr=False)
class WorldWentWrong(VeilringError):
    """Raised if an invariant was violated in a world with faults."""

    wrong: tuple[str, ...]
    """The violations, one sentence each."""

    def __str__(self) -> str:
        return f"an invariant was violated: {'; '.join(self.wrong)}"


@dataclass(eq=False, repr=False)
class SweepFailed(VeilringError):
    """Raised if cells of a sweep failed. All others are kept, and are not run again."""

    failures: Mapping[str, str]
    """The reason of each failure, by the name of the cell."""
    kept: int
    """The number of finished cells."""
    total: int
    """The number of cells."""
    journal: str
    """The file with the finished cells."""

    def __str__(self) -> str:
        name, reason = next(iter(self.failures.items()))
        others = len(self.failures) - 1
        also = f" ({others} more failed)" if others else ""
        kept = f"{self.kept} of {self.total} cells are kept in {self.journal}"
        return f"{name}: {reason}{also}. {kept}; run the same command again for the others"


@dataclass(eq=False, repr=False)
class UnforeseenCost(VeilringError):
    """Raised if the cost of a run differs from its closed form: one of the two is wrong."""

    forecast: object
    """The closed form."""
    found: object
    """The measured cost, in the same form."""

    def __str__(self) -> str:
        return f"a run cost {self.found}, but its closed form is {self.forecast}"
