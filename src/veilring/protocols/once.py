"""The member of a deployment with one result, which answers all queries from then on.

The first party of the roster convenes the session that makes the result. If the system tolerates
the loss of fewer than half of the parties, then as many may be missing, and the first connected
party convenes it. All members pay for the result before they send anything that depends on their
rows, and each stores it in its ledger before anyone outside learns of it. A client asks any member
and gets the result itself, so its queries stay local.

A member may lack the result because it was lost in transit, or the member was killed before storing
it. It first asks all connected members for the hash of theirs, and fetches the result from one of
them. So nobody pays, and no particular party is needed. The member believes a hash in two cases:

- More than the tolerated number of parties have it. One of them is honest, and has it from a
  session that all of its parties paid for, or has itself believed it by these rules.
- The member's own ledger was charged for the result. Without a charge, a single liar could present
  a result that nobody computed. After one, a liar gains nothing: in a session that was paid for,
  the party that sends last determines the total anyway.

Requiring both would lose results. After a crash of several members, few may have stored the result
that all have paid for; and if parties may be lost, a lost one has not always been charged for the
result that the others have.

If no member has the result, the session that makes it is convened for a client that can pay. Each
member reports there that it has none, or has got one from an earlier session in the meantime, and
that it can pay: its budget and the space on its disk are reserved. The session continues only if
all can. Some may have paid before for a session that failed; others may have seen its totals, so
the next session is charged separately.

A missing member could have the result of an earlier session, and two members could convene sessions
at once if they see different members connected. Neither leads to a second result, because any two
sessions have a member in common. A member takes part in one session at a time, and if any member
of a session was charged before, none is made while another one is missing.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.errors import (
    BudgetExhausted,
    InputError,
    NotReady,
    ProtocolViolation,
    SessionAborted,
    Tampered,
    VeilringError,
)
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party, broadcast_to_rest
from veilring.nodes.service import FairTurns, Offer, begun, opening
from veilring.protocols.admission import Admitted, Asked
from veilring.protocols.chunks import receive_chunks, send_chunks
from veilring.protocols.digests import DIGEST_BYTES, digest_of
from veilring.protocols.membership import Once
from veilring.protocols.peers import (
    PEERS_JOIN,
    NameOrNone,
    PeerMember,
    Till,
    exhausted_error,
    find_exhausted,
)
from veilring.protocols.seeding import SILENCE_SECONDS, Steps
from veilring.randomness import Streams
from veilring.transport.messages import Array, Message

PEERS_RESULT: Final = "peers.result"
"""The service of sending the result, for clients and for other members."""
PEERS_HELD: Final = "peers.held"
"""The service of sending the hash of the result, for other members."""

_R = TypeVar("_R")

_log = logging.getLogger("veilring.member")

_RESULT: Final = "result"


class ResultReady(Message, kind="result.ready"):
    """Announces whether the result follows, from a member to the requesting party.

    Attributes:
        exhausted: The party whose budget is insufficient: a member, or the client itself at the
            queried member; empty if the result follows.
    """

    exhausted: NameOrNone = ""


class ResultBytes(Message, kind="result.bytes"):
    """A result, shape (bytes,)."""

    data: Annotated[NDArray[np.uint8], Array("|u1", 1)]

    @classmethod
    def of(cls, kept: bytes) -> Self:
        """Return the message of a result."""
        return cls(data=np.frombuffer(kept, np.uint8))


class ResultHeld(Message, kind="result.held"):
    """Reports whether a member has the result, and in a session of all, whether it can pay.

    Attributes:
        digest: The hash of the result, or empty.
        ready: Whether the member has reserved its part of the price.
        paid: Whether the member was charged before, in a session that did not give it the result.
    """

    digest: Annotated[bytes, Field(max_length=DIGEST_BYTES)] = b""
    ready: bool = False
    paid: bool = False


class ResultStart(Message, kind="result.start"):
    """Tells all members how the session continues.

    Attributes:
        make: Whether all members make the result now; otherwise the session ends.
    """

    make: bool


@dataclass(frozen=True, slots=True)
class OnceMember:
    """A member of a deployment with one result for all queries, with its services.

    Attributes:
        content: The identity of the result: one with the same content and the same parties is never
            made again.
    """

    member: PeerMember
    once: Once
    till: Till
    content: bytes
    _asking: FairTurns = field(init=False, repr=False)
    _joining: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)
    _waiting: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_asking", FairTurns(self.node.name, at_once=1))
        kept = self._find()
        if kept is None:
            return
        try:
            self.once.read(kept)
        except InputError as error:
            raise InputError.because(
                "the ledger has the release of these terms, but it does not fit the plan of this"
                " version of veilring; serve it with the version that made it, or agree on terms"
                " with another table `protocol`, whose release is charged separately",
                field="ledger",
            ) from error

    @property
    def node(self) -> Node:
        """The node of the member."""
        return self.member.node

    @property
    def convener(self) -> str:
        """The member that convenes the session now."""
        parties = self.member.parties
        there = {self.node.name, *self.node.endpoint.connected} if self.once.spare else parties
        return next(name for name in parties if name in there)

    def offers(self) -> dict[str, Offer]:
        """Return the services for members and for clients."""
        parties, terms, limits = self.member.parties, self.member.terms, self.member.limits
        spare = self.once.spare

        def may_convene(peer: str) -> bool:
            return peer in parties if spare else peer == self.convener

        return {
            PEERS_JOIN: Offer(self._join, terms, may_convene, limits.joined, parties, spare),
            PEERS_HELD: Offer(self._tell, terms, lambda peer: peer in parties, limits.answer),
            PEERS_RESULT: Offer(self._answer, terms, lambda _peer: True, limits.served),
        }

    async def failure(self) -> None:
        """Wait until this member fails to take part, charge or store; see `PeerMember.failure`."""
        await self.member.failure()

    async def ask(self, client: str = "", session: bytes = b"") -> bytes | ResultReady:
        """Return the stored result, made now if no member has it, or a refusal for lack of budget.

        The client is by default this member; clients take turns.

        Raises:
            Busy: If there was no turn for it in time.
            NotReady: If a required party is not connected.
            PolicyRefused: If this member's own policy does not allow it.
            Tampered: If members have different results, or claim one that nobody was charged for.
            VeilringError: If the session failed. It may have been charged.
        """
        payer = client or self.node.name
        name = "" if payer in self.member.parties else payer
        peer = "" if name else payer
        asked = Asked(
            name, 0, service=PEERS_RESULT, peer=peer, session=session, request=self.content
        )
        with self.member.admitted(asked) as admitted:
            self._waiting.append(payer)
            try:
                # long enough for another client's session to make the result
                async with self._asking.turn(payer, self.member.limits.session):
                    kept = self._find()
                    answer = await self._obtain(payer) if kept is None else kept
            finally:
                self._waiting.remove(payer)
            if isinstance(answer, ResultReady):
                whose = answer.exhausted
                said = "" if whose in {payer, self.node.name} else ", as other members say"
                admitted.refuse(f"budget: that of {whose}{said}")
            else:
                admitted.answer(answer)
            return answer

    async def _obtain(self, payer: str) -> bytes | ResultReady:
        """Fetch the result from a member that has it; if none has, have it made."""
        kept = await self._fetch()
        if kept is not None:
            return kept
        refusal = self._refusal(payer)
        if refusal is not None:
            return refusal
        is_first = self.node.name == self.convener
        with self.member.admitted(self._asked()):  # before any other member is asked
            pass
        refusal = await (self._convene(payer) if is_first else self._request_making())
        if refusal is not None:
            return refusal
        kept = self._find()
        kept = await self._fetch() if kept is None else kept
        if kept is None:  # the member that has it was lost in the meantime
            others = (name for name in self.member.parties if name != self.node.name)
            raise NotReady(self.node.name, next(others))
        return kept

    def _refusal(self, payer: str) -> ResultReady | None:
        """Return the refusal of a payer that cannot pay now."""
        try:
            self.till.require(payer)
        except BudgetExhausted as error:
            return ResultReady(exhausted=find_exhausted(error, payer, self.node.name))
        return None

    async def _fetch(self) -> bytes | None:
        """Store and return the result of another member, or return none if no member has it."""
        peers = [name for name in self.member.parties if name != self.node.name]
        found = await asyncio.gather(*map(self._digest_at, peers))
        told = dict(zip(peers, found, strict=True))
        held = {peer: digest for peer, digest in told.items() if digest}
        if not held:
            return None
        digest = self._believed(held, next((peer for peer in peers if told[peer] is None), ""))
        holder = next(peer for peer in held if held[peer] == digest)
        kept = await self._run(partial(_request, size=self.once.size), PEERS_RESULT, holder)
        if isinstance(kept, ResultReady):
            raise ProtocolViolation(holder, "does not send the result that it announced")
        if digest_of(kept) != digest:
            raise ProtocolViolation(holder, "sent a result different from the one it announced")
        read_result(self.once, kept, holder)
        return self._keep(kept)

    async def _digest_at(self, peer: str) -> bytes | None:
        """Return the hash of a member's result, empty if it has none; none if it does not tell."""
        try:
            self.node.require((peer,))
            return (await self._run(_hear, PEERS_HELD, peer)).digest
        except VeilringError as error:
            _log.debug("%s does not tell whether it has the release: %s", peer, error)
            return None

    def _believed(self, held: Mapping[str, bytes], silent: str) -> bytes:
        """Return the hash to believe: see the module. A member that does not tell may be silent."""
        counts = Counter(held.values())
        believed = [each for each, number in counts.items() if number > self.once.tolerated]
        if not believed and self._has_paid:
            believed = list(counts)
        if not believed and silent:
            raise NotReady(self.node.name, silent)
        if not believed and len(counts) == 1:
            suspects = (*held, self.node.name)
            reason = "claims a release that was never made, or lost its own charge for one"
            raise Tampered(suspects, reason)
        if len(believed) != 1:
            raise Tampered(tuple(held), "keeps a different result than the others")
        return believed[0]

    async def _request_making(self) -> ResultReady | None:
        """Have the first party convene the session; return its refusal, if it refuses."""
        me, first = self.node.name, self.convener
        self.node.require((first,))
        with begun():
            answer = await self._run(partial(_request, size=self.once.size), PEERS_RESULT, first)
        if not isinstance(answer, ResultReady):
            return None
        if answer.exhausted not in self.member.parties:
            raise ProtocolViolation(first, "names a party that is not a member")
        return ResultReady(exhausted=first) if answer.exhausted == me else answer

    async def _run(self, role: Callable[..., Awaitable[_R]], service: str, peer: str) -> _R:
        """Play a role in a session with one member."""
        limits, terms = self.member.limits, self.member.terms
        seconds = limits.answer if service == PEERS_HELD else limits.joined
        pair, session = Parties((self.node.name, peer)), Streams().token("session")
        return await self.node.run(opening(role, service, terms), session, pair, seconds=seconds)

    async def _convene(self, payer: str) -> ResultReady | None:
        async with self._joining:  # a session of another convener may still end with the result
            if self._find() is not None:
                return None
            try:
                with self.member.admitted(self._asked()) as admitted:
                    lead = partial(self._lead, payer=payer, admitted=admitted)
                    return await self.member.convene(lead, payer, self.once.spare)
            except (BudgetExhausted, SessionAborted) as error:
                return ResultReady(exhausted=find_exhausted(error, payer, self.node.name))

    async def _lead(self, party: Party, payer: str, admitted: Admitted) -> ResultReady | None:
        """Make the result with all members, unless one has it, cannot pay, or is missing."""
        told = await self._hear_all(party)
        has_one = any(each.digest for each in told.values())
        missing = [peer for peer in party.peers if peer not in told]
        is_paid = self._has_paid or any(each.paid for each in told.values())
        needed = missing and (is_paid or len(missing) > self.once.spare)
        poor = next((peer for peer, each in told.items() if not each.ready), "")
        if has_one or needed or poor:
            await broadcast_to_rest(party, ResultStart(make=False))
            if needed and not has_one:
                if is_paid:
                    line = "a release was paid for; %s may have it, so none is made without it"
                    _log.warning(line, ", ".join(missing))
                raise NotReady(self.node.name, missing[0])
            return None if has_one else ResultReady(exhausted=poor)
        with self._paying(payer, admitted, party) as charge:
            await broadcast_to_rest(party, ResultStart(make=True))
            await self._make(party, party.me, charge)
        return None

    async def _hear_all(self, party: Party) -> dict[str, ResultHeld]:
        """Return the reports of all members, or of those that are not lost or silent."""

        async def hear(peer: str) -> ResultHeld:
            return await party.receive(ResultHeld, sender=peer)

        if self.once.spare:
            return await Steps(party, SILENCE_SECONDS).gather(party.peers, hear, step=1)
        return {peer: await hear(peer) for peer in party.peers}

    async def _join(self, party: Party, opener: str) -> None:
        async with self._joining:  # an earlier session may still end with the result
            kept = self._find()
            payer = next((each for each in (*self._waiting, opener) if not self._refusal(each)), "")
            if kept is not None or not payer:
                with self.member.admitted(self._asked(opener)._replace(queries=0)):
                    await party.send(opener, _held(kept))
                if (await party.receive(ResultStart, sender=opener)).make:
                    raise ProtocolViolation(opener, "began a release that we cannot take part in")
                return
            with (
                self.member.admitted(self._asked(opener)) as admitted,
                self._paying(payer, admitted, party) as charge,
            ):
                await party.send(opener, ResultHeld(ready=True, paid=self._has_paid))
                if (await party.receive(ResultStart, sender=opener)).make:
                    await self._make(party, opener, charge)
                    _log.info("%s took part in a release, which %s began", party.me, opener)

    def _asked(self, peer: str = "") -> Asked:
        """Return the request for the making of the result.

        The result belongs to all members: each decides for itself which clients get it from there.
        """
        return Asked("", 1, service=PEERS_JOIN, peer=peer, request=self.content)

    def _paying(
        self, payer: str, admitted: Admitted, party: Party
    ) -> AbstractContextManager[Callable[[object], object]]:
        count = self.member.counter(admitted, party)
        return self.till.paying(payer, self._payment, self.once.size, count)

    async def _make(self, party: Party, client: str, charge: Callable[[object], object]) -> None:
        result = await self.member.play(party, client=client, charge=charge)
        self._keep(self.once.write(result))

    @property
    def _has_paid(self) -> bool:
        """Whether this member was charged for the result, which others may then have."""
        return self.till.ledger.has_charged(self._payment)

    @property
    def _payment(self) -> bytes:
        """The request of a charge for the result, which its storage does not have."""
        return b"payment for " + self.content

    def _find(self) -> bytes | None:
        return self.till.find(self.node.name, _RESULT, self.content)

    def _keep(self, kept: bytes) -> bytes:
        return self.till.keep(self.node.name, _RESULT, self.content, kept)

    async def _tell(self, party: Party, peer: str) -> None:
        asked = Asked("", 0, service=PEERS_HELD, peer=peer, session=party.session)
        with self.member.admitted(asked):
            await party.send(peer, _held(self._find()))

    async def _answer(self, party: Party, client: str) -> None:
        answer = await self.ask(client, party.session)
        if isinstance(answer, ResultReady):
            await party.send(client, answer)
            return
        await party.send(client, ResultReady())
        await send_chunks(party, client, ResultBytes.of(answer))
        line = "%s sent its release to %s; it was paid for once, with epsilon %g"
        _log.info(line, self.node.name, client, self.till.price)


def _held(kept: bytes | None) -> ResultHeld:
    return ResultHeld(digest=b"" if kept is None else digest_of(kept))


def result_client(terms: bytes, once: Once, price: float) -> Callable[..., Awaitable[Any]]:
    """Return the client's role: ``await role(party)`` gives the result.

    It runs in a session with one member, opened by the client. The member learns of the request.

    Args:
        terms: The SHA-256 of the terms that the client expects; a member with other terms refuses.
    """
    return opening(partial(_ask, once=once, price=price), PEERS_RESULT, terms)


def read_result(once: Once, kept: bytes, sender: str) -> Any:  # noqa: ANN401  (the system's own)
    """Return a result from bytes sent by a member, which is accused of invalid ones."""
    try:
        return once.read(kept)
    except InputError as error:
        raise ProtocolViolation(sender, f"sent an invalid result: {error}") from error


async def _ask(party: Party, *, once: Once, price: float) -> Any:  # noqa: ANN401  (the system's own)
    (member,) = party.peers
    answer = await _request(party, size=once.size)
    if isinstance(answer, ResultReady):
        costs = f"the {price:.12g} epsilon that the release costs"
        raise exhausted_error(answer.exhausted, party.me, member, costs)
    return read_result(once, answer, member)


async def _request(party: Party, *, size: int) -> bytes | ResultReady:
    """Return the peer's result, which it makes if necessary, or its refusal."""
    (member,) = party.peers
    answer = await party.receive(ResultReady, sender=member)
    if answer.exhausted:
        return answer
    result = await receive_chunks(party, ResultBytes.of(bytes(size)), sender=member)
    return result.data.tobytes()


async def _hear(party: Party) -> ResultHeld:
    (member,) = party.peers
    return await party.receive(ResultHeld, sender=member)
