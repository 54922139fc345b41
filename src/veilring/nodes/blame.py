"""Finding the culprit of a stalled run: the sender of the earliest missing message.

A message of round r depends only on messages of earlier rounds. An honest party that is waiting for
a message of round r has therefore sent everything it owes up to round r. Let r be the round of the
earliest message that any party is waiting for. If its sender is waiting at all, then for a message
of round r or later, and it needs nothing more to send the missing one: it has sent it, or it is at
fault. If the counts at both ends show that it was sent, the network or either end may have lost it,
and nobody can be blamed.

The rule never blames an honest party as long as all parties report their state truthfully. A
launcher observes the states itself. A party that relies on reports of its peers knows only its own
state: it blames the sender of a message that it is itself waiting for. If a peer is waiting for the
message, both ends are suspects.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_UNORDERED: Final = (
    "the order of the missing messages is unknown, since the role does not give the round of each"
    " (`receive(..., due=ROUND)`)"
)


class Wait(NamedTuple):
    """A message that a party is waiting for."""

    sender: str
    kind: str
    due: int | None
    """The round in which its sender sends it, if the role declares it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of one party in a session: names, kinds, rounds and counts, never data.

    Attributes:
        party: The party's name.
        waits: The messages that it is waiting for.
        blocked: The peers that do not read its messages.
        over: Whether its role has ended.
        sent: The number of messages sent to each peer.
        received: The number of messages received from each peer.
        without: The peers that it continued without; `None` if its role tolerates no loss.
    """

    party: str
    waits: tuple[Wait, ...] = ()
    blocked: tuple[str, ...] = ()
    over: bool = False
    sent: Mapping[str, int] = field(default_factory=dict)
    received: Mapping[str, int] = field(default_factory=dict)
    without: tuple[str, ...] | None = None

    @property
    def is_working(self) -> bool:
        """Whether the party is neither waiting for a peer nor finished."""
        return not (self.waits or self.blocked or self.over)

    def sentences(self) -> list[str]:
        """The messages that it is waiting for, one sentence each."""
        waits = [
            f"{self.party} is waiting for {wait.kind} from {wait.sender}" for wait in self.waits
        ]
        return waits + [f"{self.party} is waiting for {peer} to read" for peer in self.blocked]


class Blame(NamedTuple):
    """The party at fault, if one can be found."""

    culprit: str
    """The name of the party; empty if nobody can be blamed, or if there are two suspects."""
    sentence: str
    """A sentence: the act of the culprit, the two suspects, or the reason why nobody is blamed."""


def find_fault(standings: Iterable[Standing], judge: str = "") -> Blame:
    """Return the party that stalls a session, if it follows from the states of all parties.

    Args:
        standings: The states of the parties of one session.
        judge: The party that judges. It has all other states from its peers, which may lie; empty
            if they are known to be true.
    """
    by_name = {standing.party: standing for standing in standings}
    waits = [(wait, standing) for standing in by_name.values() for wait in standing.waits]
    alone = len(waits) == 1  # the earliest, whatever the order of the wait
    ordered = sorted(
        (wait.due or 0, standing.party != judge, standing.party, wait.sender, wait.kind)
        for wait, standing in waits
        if wait.due is not None or alone
    )
    if not ordered or len(ordered) < len(waits):
        return _nobody(_at_work(by_name.values()) or _UNORDERED)
    _, is_hearsay, waiting, sender, kind = ordered[0]
    verdict = _judge(by_name.get(sender), by_name[waiting], sender, kind)
    if verdict.culprit and judge and is_hearsay:
        return Blame("", f"{verdict.sentence}, or the report of {waiting} is false")
    return verdict


def _judge(sender: Standing | None, waiting: Standing, name: str, kind: str) -> Blame:
    if sender is None:
        return _nobody(f"{waiting.party} is waiting for {kind} from {name}, which did not report")
    if sender.blocked:
        return _nobody(f"{name} is waiting for {', '.join(sender.blocked)} to read")
    sent, received = sender.sent.get(waiting.party, 0), waiting.received.get(name, 0)
    if sent > received:
        return _nobody(f"a message from {name} to {waiting.party} has not arrived")
    if sent < received:
        counts = f"{name} reports {sent} messages sent to {waiting.party}, which received"
        return _nobody(f"{counts} {received}")
    if sender.is_working:
        return _nobody(f"{waiting.party} is waiting for {kind} from {name}, which is computing")
    return Blame(name, f"{name} did not send {kind} to {waiting.party} when it was due")


def _at_work(standings: Iterable[Standing]) -> str:
    names = [standing.party for standing in standings if standing.is_working]
    return f"still computing: {', '.join(names)}" if names else ""


def _nobody(why: str) -> Blame:
    return Blame("", f"nobody can be blamed: {why}")
