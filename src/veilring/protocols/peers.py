"""The long-lived member among peers that all hold rows, and its client, of any system of peers.

A client asks one member. That member convenes a session among all members, in which they play the
role that the system's `Membership` names, and answers the client with the labels. Where labels
spend some of an ε, each member pays from a `Till` of its own before it sends what tells of rows.
Where one result answers all queries, the member is `veilring.protocols.once.OnceMember`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Annotated, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.data.table import Rows
from veilring.errors import (
    BudgetExhausted,
    InputError,
    ProtocolViolation,
    SessionAborted,
    StoreFailed,
)
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party
from veilring.nodes.service import Offer, opening
from veilring.nodes.session import SessionLimits
from veilring.privacy.budgets import ANSWER_BYTES_MAX, Charge
from veilring.privacy.ledger import Ledger
from veilring.protocols.batches import check_queries, check_rows
from veilring.protocols.requests import ServerFailure, charging, content_key
from veilring.protocols.system import Facts, Membership
from veilring.randomness import Streams
from veilring.transport.frames import FRAME_BYTES_MAX
from veilring.transport.identity import NAME_CHARACTERS_MAX
from veilring.transport.messages import Array, Matrix, Message

PEERS_ASK: Final = "peers.ask"
"""The service that a client asks of one member: to label a batch of queries."""
PEERS_JOIN: Final = "peers.join"
"""The service that this member asks of the others: to play the system's role."""

_R = TypeVar("_R")

_log = logging.getLogger("veilring.member")

_ENVELOPE_BYTES: Final = 256  # session, kind and round: under 100
PIECE_BYTES: Final = min(FRAME_BYTES_MAX - _ENVELOPE_BYTES, ANSWER_BYTES_MAX)
"""Of what is kept or sent: a piece fits a frame, and an entry of a ledger."""
NameOrNone = Annotated[str, Field(pattern=rf"^[A-Za-z0-9._-]{{0,{NAME_CHARACTERS_MAX}}}$")]
"""The name of a party or client, or nothing."""
_LABELS: Final = "labels"
_LABEL: Final = np.dtype("<i8")  # as the ledger's file has it


class PeerQueries(Message, kind="peers.queries"):
    """A batch of queries, shape (queries, features), from a client to a member."""

    features: Matrix


class PeerLabels(Message, kind="peers.labels"):
    """The outcome of a batch, from a member to its client.

    Attributes:
        labels: Shape (queries,); empty if it was refused.
        exhausted: The name of the party whose budget does not suffice: a member, or the client
            itself at the member that it asked; empty if the batch was answered.
    """

    labels: Annotated[NDArray[np.int64], Array("<i8", 1)]
    exhausted: NameOrNone = ""


@dataclass(frozen=True, slots=True)
class Till:
    """Where a member pays for batches, and keeps the labels of those that it was asked for.

    It pays for a batch before it sends anything that tells of its rows, and then others may have
    the result. So a batch is paid for, however its run ends. The same batch, asked of the same
    member, gets the same labels again and costs nothing. Where one result answers all queries, that
    result is what is paid for and kept.

    What ends a run follows from requests, budgets and other parties: from no row. A member that can
    neither take part nor refuse, because its disk or its memory fails, ends: see `failure`.

    Attributes:
        ledger: The ledger in which batches are charged: to the client at the member that was asked,
            and to that member at the others; its owner closes it. A charge is on the disk within
            milliseconds, and nobody else's turn comes meanwhile.
        price: The ε of a batch, or of the result.
        terms: The SHA-256 of all that must be equal at parties that run together.
        failure: Why the member ended, once it has.
    """

    ledger: Ledger
    price: float
    terms: bytes
    failure: ServerFailure = field(default_factory=ServerFailure, init=False, repr=False)

    def require(self, payer: str) -> None:
        """Refuse before anything is sent, so that nobody pays for what is not answered.

        Raises:
            BudgetExhausted: If the payer's budget or the total does not suffice.
            StoreFailed: If the ledger fails, now or before.
        """
        with self.ending():
            self.ledger.check(payer, self.price)

    def charge(self, payer: str) -> Callable[[object], object]:
        """Return a callback that charges the whole price once, before the first release.

        The key is our own and new: the client chooses the session's name, and could reuse one.
        """
        key = Streams().token("charge").hex()
        charge = Charge(payer, key, self.terms, b"", self.price)
        return lambda _release: self.ledger.charge(charge)  # which knows the key of later releases

    def find(self, member: str, kind: str, content: bytes) -> bytes | None:
        """Return what was kept of this content, if something was.

        Args:
            member: The party's own name.
            kind: What is kept.
            content: All that it answers.
        """
        found = list[bytes]()
        with self.ending():
            for key in _piece_keys(kind, content):
                piece = self.ledger.find(member, key, content)
                if piece is None:
                    break
                found.append(piece)
        return b"".join(found) if found else None

    def keep(self, member: str, kind: str, content: bytes, answer: bytes) -> bytes:
        """Keep an answer, all of it or nothing; return the one that was kept first."""
        pieces, kept = pieces_of(answer), list[bytes]()
        with self.ending():
            for outcome in self.ledger.charge_many(
                Charge(member, key, content, piece)
                for key, piece in zip(_piece_keys(kind, content), pieces, strict=False)
            ):
                if isinstance(outcome, Exception):
                    raise outcome
                kept.append(outcome)
        return b"".join(kept)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """End this member if something fails that is neither a refusal nor a peer's fault.

        Raises:
            StoreFailed: Then.
        """
        self.failure.check()
        try:
            with charging():
                yield
        except StoreFailed as error:
            self.failure.report(error)
            raise


def pieces_of(kept: bytes) -> list[bytes]:
    """Return bytes in pieces that can be kept and sent, at least one."""
    return [kept[start : start + PIECE_BYTES] for start in range(0, len(kept) or 1, PIECE_BYTES)]


def _piece_keys(kind: str, content: bytes) -> Iterator[str]:
    """Yield the key of each piece of what is kept of a content: an entry's size has a limit."""
    key = content_key(kind, content).hex()
    yield key
    for number in count(1):
        yield f"{key}.{number}"


@dataclass(frozen=True, slots=True)
class PeerMember:
    """A party of a deployment of peers, and the services that it offers.

    Attributes:
        node: The node at which it is reached.
        rows: The party's private rows.
        parties: All members, in the order of the roster.
        membership: How they take part.
        facts: What is public of the data.
        terms: The SHA-256 of all that must be equal at parties that run together.
        limits: The time that sessions may take.
        till: Where it pays, if labels cost something. The role is given ``charge``, a callback to
            call before it sends what tells of rows.

    Raises:
        InputError: If the rows are of another schema.
    """

    node: Node
    rows: Rows
    parties: Parties
    membership: Membership
    facts: Facts
    terms: bytes
    limits: SessionLimits = field(default_factory=SessionLimits)
    till: Till | None = None
    _kept: object = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_rows(self.rows, self.facts.features, self.facts.classes)
        object.__setattr__(self, "_kept", self.membership.keep(self.rows))

    def offers(self) -> dict[str, Offer]:
        """Return the two services: other members may have it join, and anybody may ask it."""
        joined, served = self.limits.joined, self.limits.served
        return {
            PEERS_JOIN: Offer(self._join, self.terms, lambda peer: peer in self.parties, joined),
            PEERS_ASK: Offer(self._answer, self.terms, lambda _peer: True, served),
        }

    async def failure(self) -> None:
        """Wait until this member could not take part, charge or keep labels; without a till, ever.

        Raises:
            StoreFailed: Then. It takes part in nothing more; start again to see what the ledger
                holds.
        """
        await (asyncio.Event() if self.till is None else self.till.failure).wait()

    async def ask(self, queries: NDArray[np.float64], client: str = "") -> PeerLabels:
        """Label a batch together with all other members, or as it was labelled before.

        Args:
            queries: Shape (queries, features), in [0, 1].
            client: On whose behalf, as the transport authenticated it; by default this member's.

        Raises:
            InputError: If the queries do not fit.
            NotReady: If a party is not connected.
            StoreFailed: If this party's own disk or memory failed, now or before.
            VeilringError: If the run failed. It may have been paid for.
        """
        self._check(queries)
        me, payer = self.node.name, client or self.node.name
        if self.till is None:
            return PeerLabels(labels=await self._label(queries, payer))
        content = self.terms + queries.astype("<f8").tobytes()
        kept = self.till.find(me, _LABELS, content)
        if kept is None:
            try:
                self.till.require(payer)
                labels = await self._label(queries, payer)
            except (BudgetExhausted, SessionAborted) as error:
                refused = find_exhausted(error, payer, me)
                return PeerLabels(labels=np.zeros(0, dtype=np.int64), exhausted=refused)
            kept = self.till.keep(me, _LABELS, content, labels.astype(_LABEL).tobytes())
        return PeerLabels(labels=np.frombuffer(kept, _LABEL).astype(np.int64))

    async def _label(self, queries: NDArray[np.float64], payer: str) -> NDArray[np.int64]:
        play = partial(self.play, client=self.node.name, payer=payer, queries=queries)
        return self.membership.labels(await self.convene(play))

    async def convene(self, role: Callable[[Party], Awaitable[_R]]) -> _R:
        """Play a role in a session of all members, which the others join.

        Raises:
            NotReady: If one of them is not connected.
            VeilringError: If the session failed.
        """
        self.node.require(self.parties)
        session = Streams().token("session")
        return await self.node.run(opening(role, PEERS_JOIN, self.terms), session, self.parties)

    def check_joined(self, party: Party, opener: str) -> None:
        """Refuse to join a session of other parties, or one for which a party is missing.

        Raises:
            ProtocolViolation: If its opener asked for other parties.
            NotReady: If a member is not connected.
        """
        if party.parties != self.parties:
            raise ProtocolViolation(opener, "asked for a session of other parties")
        self.node.require(self.parties)

    async def _join(self, party: Party, opener: str) -> None:
        self.check_joined(party, opener)
        if self.till is not None:
            self.till.require(opener)
        await self.play(party, client=opener, payer=opener)

    async def play(
        self, party: Party, *, client: str, payer: str, queries: NDArray[np.float64] | None = None
    ) -> Any:  # noqa: ANN401  (the role's result)
        """Play the system's role, and pay for it where it costs something.

        Args:
            party: This participant.
            client: The member that opened the session.
            payer: The client or member to whose account it is charged.
            queries: Those of the client, if there are any.

        Returns:
            What the role returns.
        """
        own = {} if queries is None else {"queries": queries}
        play = partial(
            self.membership.role, party, self._kept, client=client, **own, **self.membership.public
        )
        if self.till is None:
            return await play()
        with self.till.ending():
            return await play(charge=self.till.charge(payer))

    async def _answer(self, party: Party, client: str) -> None:
        queries = (await party.receive(PeerQueries, sender=client)).features
        try:
            self._check(queries)
        except InputError as error:
            party.accuse(ProtocolViolation(client, f"asked what cannot be answered: {error}"))
        answer = await self.ask(queries, client)
        await party.send(client, answer)
        if not answer.exhausted:
            price = "" if self.till is None else f" for epsilon {self.till.price:g}, paid once"
            line = "%s had %d queries labelled for %s%s"
            _log.info(line, self.node.name, len(queries), client, price)

    def _check(self, queries: NDArray[np.float64]) -> None:
        check_queries(queries, self.facts.features, self.membership.batch_max)
        if self.membership.check is not None:
            self.membership.check(queries)


def find_exhausted(error: BudgetExhausted | SessionAborted, payer: str, me: str) -> str:
    """Return whose budget does not suffice, by the error that ended a session.

    Args:
        error: What ended it.
        payer: The client or member that was to be charged here.
        me: This member.

    Raises:
        SessionAborted: The error itself, if it has nothing to do with budgets.
    """
    if isinstance(error, BudgetExhausted):
        return payer if error.budget == "analyst" else me
    if error.reason != BudgetExhausted.__name__:
        raise error
    return error.by


def exhausted_error(whose: str, me: str, member: str, price: str) -> BudgetExhausted:
    """Return what a client raises if a budget does not suffice.

    Args:
        whose: The name of the party that cannot pay, as the member said.
        me: The client.
        member: The member that it asked.
        price: What it would have cost, in words.
    """
    own = whose == me
    exhausted = BudgetExhausted("client" if own else "member")
    where = f" at {member}" if own else ""
    exhausted.add_note(f"{whose} has less left{where} than {price}.")
    return exhausted


def peer_client(
    terms: bytes, classes: int, price: float = 0.0
) -> Callable[..., Awaitable[NDArray[np.int64]]]:
    """Return the client's role: ``await role(party, queries)`` gives the labels.

    It is played in a session with one member, which it opens. The member learns the queries, and
    the others what the system says; the client learns the labels.

    Args:
        terms: The SHA-256 of the terms that the client expects; a member with other terms refuses.
        classes: The number of classes.
        price: The ε that a batch costs by these terms; 0 if it costs nothing.
    """
    return opening(partial(_ask, classes=classes, price=price), PEERS_ASK, terms)


def check_labels(labels: NDArray[np.int64], member: str, queries: int, classes: int) -> None:
    """Refuse labels from a member that are no answer to a batch.

    Raises:
        ProtocolViolation: If there are more or fewer than queries, or one is of no class.
    """
    if labels.shape != (queries,):
        raise ProtocolViolation(member, f"sent {len(labels)} labels for {queries} queries")
    if not ((labels >= 0) & (labels < classes)).all():
        raise ProtocolViolation(member, "sent a label outside of the public classes")


async def _ask(
    party: Party, queries: NDArray[np.float64], *, classes: int, price: float
) -> NDArray[np.int64]:
    (member,) = party.peers
    await party.send(member, PeerQueries(features=queries))
    answer = await party.receive(PeerLabels, sender=member)
    if answer.exhausted and price:
        costs = f"the {price:.12g} epsilon that a batch costs"
        raise exhausted_error(answer.exhausted, party.me, member, costs)
    check_labels(answer.labels, member, len(queries), classes)
    return answer.labels
