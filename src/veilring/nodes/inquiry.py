"""The inquiry after a session that takes too long: each peer is asked for its state.

The answers name the party that the others wait for; see `veilring.nodes.party`.
"""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import Field

from veilring.errors import PeerSilent, SessionTimeout
from veilring.nodes.party import ANYBODY, Standing, Wait, find_fault
from veilring.nodes.session import Session
from veilring.transport.messages import Message
from veilring.transport.roster import NAME_CHARACTERS_MAX

# A kind of message as shown in an error; it comes from a peer.
_KIND_CHARACTERS_MAX: Final = 64
_Name = Annotated[str, Field(max_length=NAME_CHARACTERS_MAX)]
_Kind = Annotated[str, Field(max_length=_KIND_CHARACTERS_MAX, pattern=r"^[a-z0-9._-]*$")]


class StandingRequest(Message, kind="session.inquiry"):
    """Asks a peer for its state in the session."""


class StandingReport(Message, kind="session.standing"):
    """Reports a party's state: the fields of `Standing`, in few lists, because frames limit them.

    Attributes:
        known: Whether it knows the session at all.
        senders: The sender of each message that the party is waiting for.
        kinds: The kind of each of these messages.
        dues: The round in which each is due, if the role declares it.
        peers: The peers of the counts.
        sent: The number of messages sent to each of them.
        received: The number of messages received from each.
    """

    known: bool
    senders: tuple[_Name, ...] = ()
    kinds: tuple[_Kind, ...] = ()
    dues: tuple[int | None, ...] = ()
    blocked: tuple[_Name, ...] = ()
    over: bool = False
    peers: tuple[_Name, ...] = ()
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()


def encode_standing(standing: Standing | None) -> StandingReport:
    """Return a party's answer to an inquiry: its state, or that the session is unknown."""
    if standing is None:
        return StandingReport(known=False)
    peers = tuple({**standing.sent, **standing.received})
    return StandingReport(
        known=True,
        senders=tuple(wait.sender for wait in standing.waits),
        kinds=tuple(wait.kind for wait in standing.waits),
        dues=tuple(wait.due for wait in standing.waits),
        blocked=standing.blocked,
        over=standing.over,
        peers=peers,
        sent=tuple(standing.sent.get(peer, 0) for peer in peers),
        received=tuple(standing.received.get(peer, 0) for peer in peers),
    )


class Inquiry:
    """Collects the answers of all peers of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left = set(session.peers)
        self._standings = {session.me: session.standing()}
        self._done = asyncio.Event()

    def take(self, sender: str, answer: StandingReport) -> None:
        """Accept an answer. Only a peer's first answer counts, and only names of parties in it."""
        if answer.known and sender in self._session.peers:
            standing = _decode_standing(sender, answer, self._session.parties)
            self._standings.setdefault(sender, standing)
        self.excuse(sender)

    def excuse(self, sender: str) -> None:
        """Record that a peer is present although it does not report its state."""
        self._left.discard(sender)
        if not self._left:
            self._done.set()

    async def all_answered(self) -> None:
        """Wait until all peers have answered."""
        await self._done.wait()

    def conclude(self, timeout: SessionTimeout, seconds: float) -> SessionTimeout:
        """Return the error of the session, completed with the findings."""
        silent = [peer for peer in self._session.peers if peer in self._left]
        if silent:
            names, have = ", ".join(silent), "has" if len(silent) == 1 else "have"
            said = f"{names} {have} not answered for {seconds:g} s: stopped, cut off or busy"
            return PeerSilent(timeout.seconds, timeout.waiting_for, names, said)
        blame = find_fault(self._standings.values(), self._session.me)
        return SessionTimeout(timeout.seconds, timeout.waiting_for, *blame)


def _decode_standing(sender: str, answer: StandingReport, parties: Iterable[str]) -> Standing:
    known = frozenset(parties)
    return Standing(
        sender,
        waits=tuple(
            Wait(*wait)
            for wait in zip(answer.senders, answer.kinds, answer.dues, strict=False)
            if wait[0] in known or wait[0] == ANYBODY
        ),
        blocked=tuple(peer for peer in answer.blocked if peer in known),
        over=answer.over,
        sent=dict(zip(answer.peers, answer.sent, strict=False)),
        received=dict(zip(answer.peers, answer.received, strict=False)),
    )
