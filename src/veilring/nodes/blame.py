"""Finding the culprit of a run that stands still: the sender of the earliest missing message.

A message of round r depends only on messages of rounds before r. So an honest party that waits for
a message of round r has sent all that it owes of round r and before. Let the earliest message that
anybody waits for be of round r. If its sender waits at all, then for a message of round r or later,
and needs nothing more to send it: it has sent it, or it is at fault. If the counts at both ends
show that it was sent, the network or either end may have lost it, and nobody can be blamed.

The rule convicts nobody honest as long as all parties say truly where they stand. A launcher sees
that for itself. A party that judges by what its peers say knows only its own place: it convicts the
sender of a message that it misses itself. If a peer misses the message, it suspects both ends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Wait(NamedTuple):
    """A message that a party waits for."""

    sender: str
    kind: str
    due: int | None
    """The round in which its sender sends it, if the role declares it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of one party in a session: names, kinds, rounds and counts, and never data.

    Attributes:
        party: The party's name.
        waits: Which messages it waits for.
        blocked: The peers that do not read what it has to send.
        over: Whether its role has ended.
        sent: The number of messages sent to each peer.
        received: The number of messages received from each peer.
        without: The peers that it went on without; `None` if its role tolerates no loss.
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
        """Whether it neither waits for a peer nor has come to the end."""
        return not (self.waits or self.blocked or self.over)

    def sentences(self) -> list[str]:
        """Describe what it waits for, one sentence each."""
        waits = [f"{self.party} waits for {wait.kind} from {wait.sender}" for wait in self.waits]
        return waits + [f"{self.party} waits for {peer} to read" for peer in self.blocked]


class Blame(NamedTuple):
    """The party at fault, if one can be found."""

    culprit: str
    """Its name; empty if nobody can be blamed, or one of two parties lies."""
    sentence: str
    """What it did, which two parties are suspected of what, or why nobody can be blamed."""


def find_fault(standings: Iterable[Standing], judge: str = "") -> Blame:
    """Name the party that keeps a session from going on, if that follows from where all stand.

    Args:
        standings: The standings of the parties of one session.
        judge: The party that judges, and has all standings but its own from its peers, which may
            lie; empty if they are known to be true.
    """
    by_name = {standing.party: standing for standing in standings}
    waits = [(wait, standing) for standing in by_name.values() for wait in standing.waits]
    alone = len(waits) == 1  # the earliest in any order
    ordered = sorted(
        (wait.due or 0, standing.party != judge, standing.party, wait.sender, wait.kind)
        for wait, standing in waits
        if wait.due is not None or alone
    )
    if not ordered or len(ordered) < len(waits):
        return _nobody(_at_work(by_name.values()) or "no order of the missing messages is known")
    _, is_hearsay, waiting, sender, kind = ordered[0]
    verdict = _judge(by_name.get(sender), by_name[waiting], sender, kind)
    if verdict.culprit and judge and is_hearsay:
        return Blame("", f"{verdict.sentence}, or {waiting} says so falsely")
    return verdict


def _judge(sender: Standing | None, waiting: Standing, name: str, kind: str) -> Blame:
    if sender is None:
        return _nobody(f"{waiting.party} waits for {kind} from {name}, of which nothing is known")
    if sender.blocked:
        return _nobody(f"{name} waits for {', '.join(sender.blocked)} to read")
    sent, received = sender.sent.get(waiting.party, 0), waiting.received.get(name, 0)
    if sent > received:
        return _nobody(f"a message from {name} to {waiting.party} has not arrived")
    if sent < received:
        counts = f"{name} says that it sent {sent} messages to {waiting.party}, which received"
        return _nobody(f"{counts} {received}")
    if sender.is_working:
        return _nobody(f"{waiting.party} waits for {kind} from {name}, which is at its own work")
    return Blame(name, f"{name} did not send {kind} to {waiting.party} when it was due")


def _at_work(standings: Iterable[Standing]) -> str:
    names = [standing.party for standing in standings if standing.is_working]
    return f"at their own work: {', '.join(names)}" if names else ""


def _nobody(why: str) -> Blame:
    return Blame("", f"nobody can be blamed: {why}")
