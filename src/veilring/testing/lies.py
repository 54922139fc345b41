"""Audits of malicious parties: each generic manipulation of each message, and its outcome.

An audit first plays an honest run and records the messages of each party. Then it repeats the run
for each party, each of its messages and each way to manipulate that message, and for each adversary
that acts in the whole run. The table shows how each run ended.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import (
    Deadlock,
    InputError,
    RunFailed,
    SessionAborted,
    SessionTimeout,
    VeilringError,
)
from veilring.nodes.adversary import (
    Adversary,
    Alter,
    Delay,
    Drop,
    Forger,
    Lines,
    Reorder,
    Repeat,
    Replay,
)
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import Seen
from veilring.nodes.party import by_party, find_fault
from veilring.nodes.run import Outcome, blamed_party, check_arguments
from veilring.nodes.runtimes import Simulated
from veilring.randomness import Streams
from veilring.simulation.loop import complete
from veilring.testing.exploring.subjects import Invariant, RoleSubject, SystemSubject, equal_results
from veilring.testing.exploring.worlds import (
    EXPLORED_SECONDS,
    Played,
    Subject,
    results_by_party,
    simulate_explored,
)
from veilring.transport.messages import Message

_DELAY_SECONDS: Final = EXPLORED_SECONDS / 2  # a delay that is late, but within the time limit
_CELL: Final = 24


class Verdict(StrEnum):
    """The outcome at the honest parties of a run with one malicious party."""

    CULPRIT = "named culprit"
    SUSPECTS = "named suspects"
    UNCHANGED = "result unchanged"
    UNNOTICED = "wrong result unnoticed"
    HANG = "timeout, nobody named"
    """The run reaches its time limit, and no party can be blamed."""
    UNNAMED = "nobody named"
    """The run ends in an error that names no party and is not a timeout."""
    MISNAMED = "honest party named"


class Lie(NamedTuple):
    """A lie and its outcome."""

    adversary: str
    party: str
    """The malicious party."""
    message: str
    """The kind of the message that is manipulated; empty if the adversary acts in the whole run."""
    to: str
    place: int
    """The index of that message among all messages that the party sends; -1 without one."""
    verdict: Verdict
    said: str
    """The error of an honest party, or the mistake in its result."""

    def __str__(self) -> str:
        about = f" of message {self.place} ({self.message} to {self.to})" if self.message else ""
        said = f": {self.said}" if self.said else ""
        return f"{self.adversary} by {self.party}{about} → {self.verdict}{said}"


@dataclass(frozen=True, slots=True)
class Lies:
    """The table of an audit."""

    rows: tuple[Lie, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def count(self, verdict: Verdict) -> int:
        """Return the number of lies that had this outcome."""
        return sum(lie.verdict is verdict for lie in self.rows)

    def of(self, *verdicts: Verdict) -> Self:
        """Return the part of the table with these outcomes."""
        return replace(self, rows=tuple(lie for lie in self.rows if lie.verdict in verdicts))

    def about(self, kind: str) -> Self:
        """Return the part of the table with manipulations of messages of one kind."""
        return replace(self, rows=tuple(lie for lie in self.rows if lie.message == kind))

    def assert_none(self, *verdicts: Verdict) -> None:
        """Fail if any lie has one of these outcomes."""
        found = self.of(*verdicts).rows
        told = "\n".join(map(str, found[:10]))
        more = f"\nand {len(found) - 10} more" if len(found) > 10 else ""  # noqa: PLR2004  (as above)
        assert not found, f"{len(found)} of {len(self)} lies:\n{told}{more}"  # noqa: S101  (an assertion helper must assert)

    def __str__(self) -> str:
        cells = Counter((lie.adversary, lie.verdict) for lie in self.rows)
        used = [verdict for verdict in Verdict if self.count(verdict)]
        head = "".join(f"{verdict:>{_CELL}}" for verdict in used)
        lines = [
            f"{name:<{_CELL}}" + "".join(f"{cells[name, verdict]:>{_CELL}}" for verdict in used)
            for name in dict.fromkeys(lie.adversary for lie in self.rows)
        ]
        return "\n".join([" " * _CELL + head, *lines])


def audit_lies(
    role: Callable[..., Awaitable[Any]],
    inputs: Mapping[str, object] | Sequence[object],
    *,
    invariant: Invariant | None = None,
    adversaries: Mapping[str, Adversary] | None = None,
    seed: int = 0,
    **public: Any,
) -> Lies:
    """Have each party manipulate each of its messages in each generic way.

    Args:
        role: The role, as `Cluster.run` takes it.
        inputs: Each party's private input, by its name; a sequence belongs to `party-0`, `party-1`,
            ….
        invariant: A function that raises an `AssertionError` unless results are right, given all
            inputs and the results of the honest parties. By default, results must equal those of an
            honest run.
        adversaries: Further adversaries by name; each acts in the whole run, at each position.
        seed: The seed of all randomness, which is the same in all runs.
        **public: Public arguments of the role, as `Cluster.run` takes them.

    Raises:
        InputError: If an honest run fails or has a wrong result, or the role does not take the
            public arguments.
    """
    check_arguments(role, public, by=audit_lies)
    given = by_party(inputs)
    subject = RoleSubject(role, given, invariant, public)
    return audit_subject(subject, adversaries=adversaries or {}, seed=seed)


def audit_system(subject: SystemSubject, *, seed: int = 0) -> Lies:
    """Audit a system whose parties label the queries of a scenario, with its own adversaries.

    An adversary of the system takes part with its default parameters, or not at all if it has none.
    """
    own: dict[str, Adversary] = {}
    for name, made in subject.scenario.protocol.adversaries().items():
        try:
            own[name] = made()
        except TypeError:  # it needs parameters
            continue
    return audit_subject(replace(subject, sums_share=0.0), adversaries=own, seed=seed)


def audit_subject(subject: Subject, *, adversaries: Mapping[str, Adversary], seed: int = 0) -> Lies:
    """Audit a subject of exploration, as `audit_lies` does."""
    honest = _play(subject, {}, seed)
    wrong = [*honest.wrong, *(str(done.error) for done in honest.outcomes if done.error)]
    if wrong:
        raise InputError.because(f"an honest run goes wrong: {'; '.join(wrong)}", field="role")
    if isinstance(subject, RoleSubject) and subject.invariant is None:
        subject = replace(subject, invariant=partial(_same, results_by_party(honest.outcomes)))
    sent, others = _sent(honest), _sent(_play(subject, {}, seed + 1))
    rows: list[Lie] = []
    for party in subject.parties:
        for name, liar, place in _lies(sent[party], others[party]):
            about = sent[party][place].message.kind, sent[party][place].sender, place
            rows.append(Lie(name, party, *about, *_lied(subject, party, liar, seed)))
        for name, liar in adversaries.items():
            rows.append(Lie(name, party, "", "", -1, *_lied(subject, party, liar, seed)))
    return Lies(tuple(rows))


def _lied(subject: Subject, party: str, liar: Adversary, seed: int) -> tuple[Verdict, str]:
    return _judge(_play(subject, {party: liar}, seed), party)


def _same(
    honest: Mapping[str, object], _inputs: Mapping[str, object], results: Mapping[str, object]
) -> None:
    for party, found in results.items():
        equal = equal_results(found, honest[party])
        assert equal, f"{party} has another result than without the lie"  # noqa: S101  (an invariant must assert)


def _play(subject: Subject, adversaries: Mapping[str, Adversary], seed: int) -> Played:
    """Play one run with the views of all parties; a deadlock is each party's error."""

    async def main() -> Played:
        runtime = Simulated()
        async with Cluster(subject.parties, runtime=runtime, own=subject.own(), seed=seed) as c:
            return await subject.play(
                c,
                subject.parties,
                partial(Streams(seed).generator, "run"),
                seconds=EXPLORED_SECONDS,
                adversaries=adversaries,
                watch=subject.parties,
            )

    return complete(main, simulate_explored)


def _sent(played: Played) -> dict[str, Sequence[Seen]]:
    """Return the messages of each party, with receivers in place of senders."""
    return {done.party: () if done.view is None else done.view.sent for done in played.outcomes}


@dataclass
class _About(Adversary):
    """Applies another adversary to one message, or to several consecutive ones to the same peer."""

    liar: Adversary
    place: int
    messages: float = 1
    _sent: int = field(default=0, init=False)
    _to: str = field(default="", init=False)

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        self.liar.party, self.liar.arguments = self.party, self.arguments
        place, self._sent = self._sent, self._sent + 1
        if place == self.place:
            self._to = to
        if place < self.place or to != self._to or self.messages < 1:
            return [(to, message)]
        self.messages -= 1
        return await self.liar.sending(to, message)


def _lies(sent: Sequence[Seen], others: Sequence[Seen]) -> Iterator[tuple[str, Adversary, int]]:
    """Yield each generic manipulation of each message, with its name."""
    peers = tuple(dict.fromkeys(seen.sender for seen in sent))
    for place, seen in enumerate(sent):
        for name, liar, messages in _ways(seen, others[place : place + 1], peers):
            yield name, _About(liar, place, messages), place


def _ways(
    seen: Seen, other: Sequence[Seen], peers: Sequence[str]
) -> Iterator[tuple[str, Adversary, float]]:
    yield "drop", Drop(), 1
    yield "drop it and all that follow", Drop(), float("inf")
    yield "delay", Delay(_DELAY_SECONDS), 1
    yield "repeat", Repeat(), 1
    yield "reorder", Reorder(), 2
    if other and other[0].message.kind == seen.message.kind:
        yield "replay", Replay(other), 1
    for victim in (peer for peer in peers if peer != seen.sender):
        yield "forge", Forger(victim), 1
        break
    for name, value in zip(seen.message.names, seen.message.fields(), strict=True):
        for way, change in (("alter", _altered), ("lengthen", _lengthened)):
            if change(value) is not None:
                yield f"{way} {name}", Alter(partial(_changed, name, change)), 1


def _changed(name: str, change: Callable[[object], object], message: Message) -> Message:
    """Return a message with one field changed; its receiver judges whether it fits."""
    return message.model_copy(update={name: change(getattr(message, name))})


def _altered(value: object) -> object:
    """Return a different value of the same shape; None if no such value exists."""
    changed: object = None
    match value:
        case bool():
            changed = not value
        case int():
            changed = value + 1
        case float():
            changed = 0.5 * value + 0.25
        case bytes() if value:
            changed = bytes([value[0] ^ 1]) + value[1:]
        case str():
            changed = f"{value}x"
        case np.ndarray() if value.size:
            changed = _altered_array(value)
        case tuple() if value and (first := _altered(value[0])) is not None:
            changed = (first, *value[1:])
    return changed


def _altered_array(array: NDArray[Any]) -> NDArray[Any]:
    changed = array.copy()
    first = changed.reshape(-1)[:1]
    first[...] = 0.5 * first + 0.25 if array.dtype.kind == "f" else first + array.dtype.type(1)
    return changed


def _lengthened(value: object) -> object:
    """Return a longer value; None for a value without a length."""
    match value:
        case bytes():
            return value + b"\0"
        case np.ndarray() if value.size:
            return np.concatenate([value, value[:1]])
        case tuple() if value:
            return (*value, value[-1])
    return None


def _judge(played: Played, liar: str) -> tuple[Verdict, str]:
    honest = [outcome for outcome in played.outcomes if outcome.party != liar]
    errors = {outcome.party: outcome.error for outcome in honest if outcome.error is not None}
    if not errors:
        wrong = "; ".join(played.wrong)
        return (Verdict.UNNOTICED, wrong) if wrong else (Verdict.UNCHANGED, "")
    root = RunFailed(errors).root
    alike = [error for error in errors.values() if type(error) is type(root)]
    named = {name for error in alike if (name := blamed_party(error))}
    suspects = {name for error in alike for name in getattr(error, "suspects", ())}
    said = str(root) if isinstance(root, VeilringError) else repr(root)
    if isinstance(root, SessionAborted) and root.by == liar and named - {liar}:
        return Verdict.SUSPECTS, said  # the liar accuses another party; the error names both
    if named:
        return (Verdict.MISNAMED if named - {liar} else Verdict.CULPRIT), said
    if liar in suspects:
        return Verdict.SUSPECTS, said
    if not isinstance(root, Deadlock | SessionTimeout | SessionAborted):
        return Verdict.UNNAMED, said
    return _judge_late(played.outcomes, liar, said)


def _judge_late(outcomes: Sequence[Outcome], liar: str, said: str) -> tuple[Verdict, str]:
    """Judge a run that could not end, as its launcher does, from where all parties stand."""
    fault = find_fault(done.standing for done in outcomes if done.standing is not None)
    if not fault.culprit:
        return Verdict.HANG, said
    return (Verdict.CULPRIT if fault.culprit == liar else Verdict.MISNAMED), fault.sentence
