"""The member of a deployment with one result, which answers all queries from then on.

The first party of the roster convenes the session that makes the result, so that no two sessions
make one concurrently. All members pay for it before they send anything that depends on their rows,
and each stores it in its ledger before anyone outside learns of it. A client asks any member and
gets the result itself, so its queries stay local.

A member that lacks the result, because it was lost in transit or the member was killed before
storing it, asks the first party. That party asks all others whether they have it, in the same
session that would make it: if one has, it is fetched and nobody pays. So the result is never made
again as long as one member has it. If none has, some may have paid for a session that failed;
others may have seen its totals, so the next session is charged separately.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final

from pydantic import Field

from veilring.errors import (
    BudgetExhausted,
    InputError,
    ProtocolViolation,
    SessionAborted,
    Tampered,
)
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party, broadcast
from veilring.nodes.service import Offer, opening
from veilring.protocols.digests import DIGEST_BYTES, digest_of
from veilring.protocols.membership import Once
from veilring.protocols.peers import (
    PEERS_JOIN,
    PIECE_BYTES,
    NameOrNone,
    PeerMember,
    Till,
    exhausted_error,
    find_exhausted,
    pieces_of,
)
from veilring.randomness import Streams
from veilring.transport.messages import Message

PEERS_RESULT: Final = "peers.result"
"""The service of sending the result, for clients of any member and for members of the first one."""

_log = logging.getLogger("veilring.member")

_RESULT: Final = "result"


class ResultReady(Message, kind="result.ready"):
    """Announces whether the result follows, from a member to the requesting party.

    Attributes:
        exhausted: The party whose budget is insufficient: a member, or the client itself at the
            queried member; empty if the result follows.
    """

    exhausted: NameOrNone = ""


class NextPiece(Message, kind="result.next"):
    """Requests the next piece of a result, so that at most one is in flight."""


class ResultPiece(Message, kind="result.piece"):
    """A piece of a result."""

    data: Annotated[bytes, Field(max_length=PIECE_BYTES)]


class ResultHeld(Message, kind="result.held"):
    """Reports to the first party whether a member has the result.

    Attributes:
        digest: The hash of the result, or empty.
    """

    digest: Annotated[bytes, Field(max_length=DIGEST_BYTES)]


class ResultHolder(Message, kind="result.holder"):
    """Tells all members how the session continues.

    Attributes:
        name: The member that sends the result to the first party; empty if all members make it
            together.
    """

    name: NameOrNone


@dataclass(frozen=True, slots=True)
class OnceMember:
    """A member of a deployment with one result for all queries, with its services.

    Attributes:
        member: The underlying member, which needs a till.
        once: How to store the result.
        till: The till, which also stores the result.
        content: The identity of the result: one with the same content and the same parties is never
            made again.

    Raises:
        InputError: If the ledger has a result of this content made with other parameters.
    """

    member: PeerMember
    once: Once
    till: Till
    content: bytes
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)
    _joining: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)
    _waiting: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
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
        """The member that convenes all sessions."""
        return self.member.parties[0]

    def offers(self) -> dict[str, Offer]:
        """Return the services for the first party and for clients."""
        terms, limits = self.member.terms, self.member.limits
        return {
            PEERS_JOIN: Offer(
                self._join,
                terms,
                lambda peer: peer == self.convener,
                limits.joined,
                self.member.parties,
            ),
            PEERS_RESULT: Offer(self._answer, terms, lambda _peer: True, limits.served),
        }

    async def failure(self) -> None:
        """Wait until this member fails to take part, charge or store a result.

        Raises:
            StoreFailed: If it fails. See `PeerMember.failure`.
        """
        await self.member.failure()

    async def ask(self, client: str = "") -> bytes | ResultReady:
        """Return the result, making it now if no member has it yet.

        Args:
            client: The client, as authenticated by the transport; by default this member's own.

        Returns:
            The stored result, or the refusal that names the party that cannot pay.

        Raises:
            NotReady: If a required party is not connected.
            StoreFailed: If this party's own disk or memory failed, now or before.
            VeilringError: If the session failed. It may have been charged.
        """
        payer = client or self.node.name
        self._waiting.append(payer)
        try:
            async with self._asking:
                kept = self._find()
                if kept is not None:
                    return kept
                if self.node.name == self.convener:
                    return await self._convene(payer)
                return await self._fetch(payer)
        finally:
            self._waiting.remove(payer)

    async def _convene(self, payer: str) -> bytes | ResultReady:
        try:
            return await self.member.convene(partial(self._lead, payer=payer), payer)
        except (BudgetExhausted, SessionAborted) as error:
            return ResultReady(exhausted=find_exhausted(error, payer, self.node.name))

    async def _lead(self, party: Party, payer: str) -> bytes:
        """Fetch the result from a member that has it; if none has, make it with all members."""
        held = dict[str, bytes]()
        for peer in party.peers:
            said = await party.receive(ResultHeld, sender=peer)
            if said.digest:
                held[peer] = said.digest
        if len(set(held.values())) > 1:
            raise Tampered(tuple(held), "keeps a different result than the others")
        holder = next(iter(held), "")
        if not holder:
            self.till.require(payer)
        await broadcast(party, ResultHolder(name=holder))
        if not holder:
            return await self._make(party, client=party.me, payer=payer)
        kept = await _receive(party, holder, self.once.size)
        if digest_of(kept) != held[holder]:
            raise ProtocolViolation(holder, "sent a result different from the one it announced")
        return self._take(kept, holder)

    async def _join(self, party: Party, opener: str) -> None:
        self.node.require(self.member.parties)
        async with self._joining:  # an earlier session may still end with the result
            kept = self._find()
            digest = b"" if kept is None else digest_of(kept)
            await party.send(opener, ResultHeld(digest=digest))
            holder = (await party.receive(ResultHolder, sender=opener)).name
            if holder == party.me and kept is not None:
                await _send(party, opener, kept)
            elif not holder and kept is None:
                payer = next(iter(self._waiting), opener)  # it is made for this client's request
                self.till.require(payer)
                await self._make(party, client=opener, payer=payer)
            elif holder in {"", party.me}:
                raise ProtocolViolation(opener, "ignored which parties have the result")

    async def _make(self, party: Party, *, client: str, payer: str) -> bytes:
        result = await self.member.play(party, client=client, payer=payer)
        return self._keep(self.once.write(result))

    async def _fetch(self, payer: str) -> bytes | ResultReady:
        """Have the first party send the result, which it makes with all if necessary."""
        me, first = self.node.name, self.convener
        self.node.require((first,))
        role = opening(partial(_request, size=self.once.size), PEERS_RESULT, self.member.terms)
        session, seconds = Streams().token("session"), self.member.limits.joined
        answer = await self.node.run(role, session, Parties((me, first)), seconds=seconds)
        if isinstance(answer, bytes):
            return self._take(answer, first)
        try:
            self.till.require(payer)
        except BudgetExhausted as error:
            return ResultReady(exhausted=find_exhausted(error, payer, me))
        return ResultReady(exhausted=first) if answer.exhausted == me else answer

    def _take(self, kept: bytes, sender: str) -> bytes:
        """Store a result sent by another member, after validating it."""
        read_result(self.once, kept, sender)
        first = self._keep(kept)
        if first != kept:
            raise ProtocolViolation(sender, "sent a result different from the one kept here")
        return first

    def _find(self) -> bytes | None:
        return self.till.find(self.node.name, _RESULT, self.content)

    def _keep(self, kept: bytes) -> bytes:
        return self.till.keep(self.node.name, _RESULT, self.content, kept)

    async def _answer(self, party: Party, client: str) -> None:
        answer = await self.ask(client)
        if isinstance(answer, ResultReady):
            await party.send(client, answer)
            return
        await party.send(client, ResultReady())
        await _send(party, client, answer)
        line = "%s sent its release to %s; it was paid for once, with epsilon %g"
        _log.info(line, self.node.name, client, self.till.price)


def result_client(terms: bytes, once: Once, price: float) -> Callable[..., Awaitable[Any]]:
    """Return the client's role: ``await role(party)`` gives the result.

    It runs in a session with one member, opened by the client. The member learns of the request.

    Args:
        terms: The SHA-256 of the terms that the client expects; a member with other terms refuses.
        once: How to read the result.
        price: The ε of making the result under these terms.
    """
    return opening(partial(_ask, once=once, price=price), PEERS_RESULT, terms)


def read_result(once: Once, kept: bytes, sender: str) -> Any:  # noqa: ANN401  (the system's own)
    """Return a result from bytes sent by a member.

    Raises:
        ProtocolViolation: If they are invalid.
    """
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
    return answer if answer.exhausted else await _receive(party, member, size)


async def _send(party: Party, peer: str, kept: bytes) -> None:
    for piece in pieces_of(kept):
        await party.receive(NextPiece, sender=peer)
        await party.send(peer, ResultPiece(data=piece))


async def _receive(party: Party, sender: str, size: int) -> bytes:
    """Return the given number of bytes from a peer.

    Raises:
        ProtocolViolation: If the pieces have other sizes.
    """
    found = list[bytes]()
    for expected in pieces_of(bytes(size)):
        await party.send(sender, NextPiece())
        piece = (await party.receive(ResultPiece, sender=sender)).data
        if len(piece) != len(expected):
            raise ProtocolViolation(sender, "sent a result of the wrong length")
        found.append(piece)
    return b"".join(found)
