"""The one tree of errors: each says whose fault it was and what to do about it.

Every error is built from plain fields and makes its own message, so that it can be pickled from one
process to another, matched by its fields, and shown to a person as one paragraph.

==========================  ==============================================================
whose fault                 errors
==========================  ==============================================================
the caller's                `InputError`, `ScenarioError`, `ClusterError`, `BudgetExhausted`,
                            `AskedBefore`, `SimulationError`, `MissingExtra`
a peer's                    `ProtocolViolation`, `FrameError`, `HandshakeError`
one of several peers'       `Tampered`
the network's, or a crash   `PeerLost`, `PeerGivenUp`, `TooManyLost`, `PeerSilent`,
                            `SessionTimeout`, `NotReady`, `EndpointClosed`, `AddressTaken`
the disk's or a database's  `StoreFailed`
somebody else's abort       `SessionAborted`, `RunFailed`, `SweepFailed`
the protocol's own          `Deadlock`, `UnforeseenCost`
a mistake in the program    `InternalError`
==========================  ==============================================================

Nothing has failed where a `PrivacyLeakWarning` is shown: less is protected than was asked for.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, Self

from typing_extensions import override


class VeilringError(Exception):
    """The root of all errors that veilring raises on purpose.

    Subclasses pass their fields to `Exception.__init__`, which is what makes them picklable, and
    build their message in `__str__`.
    """


class PrivacyLeakWarning(UserWarning):
    """Shown where an estimator reveals more than its ε says: by its ranges, a seed, or a δ."""


class TransportError(VeilringError):
    """The base of what can go wrong on the wire."""


class InputError(VeilringError, ValueError):
    """Raised when the caller gave a value that is not allowed.

    The three arguments are for a value out of range: "k is 0; allowed: a whole number of at least
    1". Whatever else is wrong is said in a sentence of its own, by `because`.

    Attributes:
        field: The name of the argument or key; empty if there is none.
        value: What was given, as text; empty if a sentence says it. Never a secret: give its shape
            or its type instead.
        allowed: What would have been accepted; empty if a sentence says it.
        shown: The value as the message shows it: a text is quoted.
        message: The sentence that `because` was given, or an empty string.
        others: The mistakes after the first, which is this error's own.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field, self.value, self.allowed = field, str(value), allowed
        self.shown = repr(value) if isinstance(value, str) else self.value
        self.message = ""
        self.others: tuple[InputError, ...] = ()
        super().__init__(field, self.value, allowed)

    @classmethod
    def because(cls, message: str, *, field: str = "") -> Self:
        """Return an error that says in a sentence what is wrong, where, and what to do.

        Args:
            message: The sentence, without a full stop. It makes sense without the field.
            field: The name of the argument or key that it is about.
        """
        error = cls(field, "", "")
        error.message = message
        return error

    @classmethod
    def of(cls, error: "InputError", field: str) -> Self:
        """Return an error that says the same of another field, such as the key of a file.

        It has none of the other's `others`.

        Args:
            error: The other error.
            field: The name of the argument or key.
        """
        renamed = cls(field, error.value, error.allowed)
        renamed.message, renamed.shown = error.message, error.shown
        return renamed

    def with_others(self, others: "Iterable[InputError]") -> Self:
        """Return this error with those after it."""
        first = self.of(self, self.field)
        first.others = tuple(others)
        return first

    @property
    def sentence(self) -> str:
        """What the error says of its own field, without the others."""
        return self.message or f"{self.field} is {self.shown}; allowed: {self.allowed}"

    def __str__(self) -> str:
        return "\n".join(each.sentence for each in (self, *self.others))


class ScenarioError(InputError):
    """Raised when a scenario or configuration file holds mistakes; `field` is the dotted key.

    A sentence that `because` was given follows the key: "network.graph: the graph is not
    connected".
    """

    @property
    @override
    def sentence(self) -> str:
        own = super().sentence
        return f"{self.field}: {own}" if self.message and self.field else own


class MissingExtra(VeilringError, ImportError):
    """Raised when what was asked for needs a package that is not installed.

    Attributes:
        package: The package, by the name under which it is imported.
        extra: The extra of veilring that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(package, extra)

    def __str__(self) -> str:
        return f"{self.package} is not installed; run `pip install 'veilring[{self.extra}]'`"


class ClusterError(VeilringError):
    """Raised when a cluster cannot be started or used in the way that was asked."""


class BudgetExhausted(VeilringError):
    """Raised when an answer would cost more than a privacy budget has left; nothing was charged.

    Attributes:
        budget: `"total"`, `"analyst"`, `"client"` (one's own at the party that was asked),
            `"member"` (of a party without which there is no answer; a note says which) or
            `"record"`. That of a record is secret, and so is that it
            is exhausted: this one is for the owner's eyes, and a server never sends it.
        asked: What the answer would have cost; none for a record, a member or a client.
        left: What is left; likewise.
        unit: What both are counted in.
    """

    def __init__(
        self, budget: str, asked: float | None = None, left: float | None = None, unit: str = ""
    ) -> None:
        self.budget, self.asked, self.left, self.unit = budget, asked, left, unit
        super().__init__(budget, asked, left, unit)

    def __str__(self) -> str:
        if self.asked is None:
            return f"the privacy budget of a {self.budget} is exhausted"
        missing = f"{self.asked:.12g} {self.unit} asked, {self.left:.12g} left"
        return f"the privacy budget ({self.budget}) is exhausted: {missing}"


class AskedBefore(VeilringError):
    """Raised when queries are asked again with other parties: two totals would differ by rows.

    Nothing was sent that depends on rows.

    Attributes:
        queries: How many of them were asked before.
        differing: The parties that take part in one of the two askings alone.
    """

    def __init__(self, queries: int, differing: tuple[str, ...]) -> None:
        self.queries, self.differing = queries, differing
        super().__init__(queries, differing)

    def __str__(self) -> str:
        many = "one of the queries was" if self.queries == 1 else f"{self.queries:,} queries were"
        return (
            f"{many} asked before with other parties, and the totals would differ by the rows of"
            f" {_listed(self.differing)}; ask the same parties again, ask something else, or set"
            " protocol.again = true if that difference may be known"
        )


class SimulationError(VeilringError):
    """Raised when code under the simulated clock reaches for the real world (sockets, threads)."""


# A ring of a thousand would fill a screen with names.
_SUSPECTS_SHOWN: Final = 8


def _listed(parties: tuple[str, ...]) -> str:
    """Return the names of parties, the first of them if there are many."""
    return ", ".join((*parties[:_SUSPECTS_SHOWN], *("…",) * (len(parties) > _SUSPECTS_SHOWN)))


class FrameError(TransportError):
    """Raised when bytes are not a frame or message that we understand, or are too large."""


class HandshakeError(TransportError):
    """Raised when a connection was refused, by us or by the other side, before any message passed.

    Attributes:
        peer: The roster name if known, else the network address.
        reason: What was wrong, for a person.
    """

    def __init__(self, peer: str, reason: str) -> None:
        self.peer, self.reason = peer, reason
        super().__init__(peer, reason)

    def __str__(self) -> str:
        return f"no connection with {self.peer}: {self.reason}"


class ProtocolViolation(VeilringError):
    """Raised when a peer sent what an honest party never sends.

    Attributes:
        culprit: The authenticated roster name of the peer.
        reason: What it did.
    """

    def __init__(self, culprit: str, reason: str) -> None:
        self.culprit, self.reason = culprit, reason
        super().__init__(culprit, reason)

    def __str__(self) -> str:
        return f"{self.culprit} broke the protocol: {self.reason}"


class Tampered(VeilringError):
    """Raised when one of several peers broke the protocol, and the party cannot know which.

    Attributes:
        suspects: Those among whom the culprit is, at least two; the others had no part in it.
        reason: What one of them did.
    """

    def __init__(self, suspects: tuple[str, ...], reason: str) -> None:
        self.suspects, self.reason = suspects, reason
        super().__init__(suspects, reason)

    def __str__(self) -> str:
        among = _listed(self.suspects)
        return f"one of {len(self.suspects)} ({among}) broke the protocol: {self.reason}"


class StoreFailed(VeilringError):
    """Raised when a database cannot be reached or did not take what had to be durable."""


class InternalError(VeilringError):
    """Raised when a party met an error that nobody foresaw; its own log says more."""


class NotReady(VeilringError):
    """Raised when a party is asked for what it cannot do before others are connected.

    Attributes:
        party: Who is asked.
        culprit: The first of the parties that it waits for.
    """

    def __init__(self, party: str, culprit: str) -> None:
        self.party, self.culprit = party, culprit
        super().__init__(party, culprit)

    def __str__(self) -> str:
        return f"{self.party} is not ready: it waits for {self.culprit}"


class EndpointClosed(TransportError):
    """Raised when an endpoint is used after its own side closed it."""


class AddressTaken(TransportError):
    """Raised when another process listens where this one was to; it may be gone in a moment.

    Attributes:
        host: The address.
        port: The TCP port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        super().__init__(host, port)

    def __str__(self) -> str:
        where = f"{self.host}:{self.port}"
        return f"another process listens at {where}; stop it or change the port in the roster"


class PeerLost(TransportError):
    """Raised when a peer is gone: its process died, its network broke, or it said goodbye.

    Attributes:
        peer: The roster name of the peer.
        orderly: Whether it said goodbye. It will not come back to this session either way.
    """

    def __init__(self, peer: str, *, orderly: bool = False) -> None:
        self.peer, self.orderly = peer, orderly
        super().__init__(peer)

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), orderly=self.orderly), (self.peer,)

    def __str__(self) -> str:
        how = "left" if self.orderly else "was lost: its connection broke without a goodbye"
        return f"{self.peer} {how}"


class PeerGivenUp(PeerLost):
    """Raised when a party that tolerates losses no longer waits for a peer, which was silent."""

    def __str__(self) -> str:
        return f"{self.peer} was given up: it did not send what was due in time"


class TooManyLost(PeerLost):
    """Raised when a sum that survives lost parties has lost more of them; no total was told.

    Attributes:
        lost: The names of those that are lost; `peer` is the first of them.
        left: The number of parties left.
        needed: The number of parties that the sum needs.
    """

    def __init__(self, lost: tuple[str, ...], left: int, needed: int) -> None:
        self.lost, self.left, self.needed = lost, left, needed
        super().__init__(lost[0] if lost else "")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.lost, self.left, self.needed)

    def __str__(self) -> str:
        missing = _listed(self.lost) or "some"
        return (
            f"too few parties are left: {self.left} of the {self.needed} that the sum needs (lost:"
            f" {missing}); no total was told: start again without them, or tolerate more losses"
        )


class SessionTimeout(VeilringError):
    """Raised when a session took longer than its limit.

    Attributes:
        seconds: The limit.
        waiting_for: Who waited for what when time was up, in sentences.
        culprit: The party at fault; empty if nobody can be blamed, one of two parties lies, or
            nobody has asked.
        verdict: What it did, which two parties are suspected of what, or why nobody can be blamed,
            in a sentence; empty if nobody has asked.
    """

    def __init__(
        self, seconds: float, waiting_for: str, culprit: str = "", verdict: str = ""
    ) -> None:
        self.seconds, self.waiting_for = seconds, waiting_for
        self.culprit, self.verdict = culprit, verdict
        super().__init__(seconds, waiting_for, culprit, verdict)

    def __str__(self) -> str:
        late = f"not finished after {self.seconds:g} s: {self.waiting_for}"
        return f"{self.verdict}; {late}" if self.verdict else late


class PeerSilent(SessionTimeout):
    """Raised when a session took too long and a peer does not even say where it stands.

    The peer is connected; its process was stopped, its network is cut, or it computes for long.
    """


# What the reason of an abort means to a person who has no other log than their own.
_MEANS: Final = {
    "SessionTimeout": "it was not finished in time, and nobody can be blamed; the log of {by} says"
    " who waited for whom",
    "EarlyFramesDropped": "{by} had no room for messages that came before it joined; ask again",
    "AskedBefore": "{by} was asked the same before with other parties, and what differs now would"
    " show the rows of some; its log says of whom",
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
    """Say how far an error is from its cause: time was up, or other parties have ended it all."""
    is_late = isinstance(error, SessionTimeout | TooManyLost)
    return 2 if isinstance(error, SessionAborted) else int(is_late)


class WorldWentWrong(VeilringError):
    """Raised when what must never happen did, in a world with faults.

    Attributes:
        wrong: What happened, one sentence each.
    """

    def __init__(self, wrong: tuple[str, ...]) -> None:
        self.wrong = wrong
        super().__init__(wrong)

    def __str__(self) -> str:
        return f"what must never happen did: {'; '.join(self.wrong)}"


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
