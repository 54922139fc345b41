"""The long-lived member of a deployment in which all parties hold rows, and its client.

A client asks one member. That member convenes a session of all members, in which they play the role
of the system's `Membership`, and sends the labels to the client. If labels spend a part of an ε,
each member charges its own `Till` before it sends anything that depends on rows. If one result
answers all queries, the member is `veilring.protocols.once.OnceMember`.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from sqlite3 import Connection
from typing import Annotated, Any, Final, TypeVar

import numpy as np
from pydantic import Field

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, check_rows
from veilring.errors import (
    BudgetExhausted,
    InputError,
    ProtocolViolation,
    SessionAborted,
    StoreFailed,
)
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party, broadcast
from veilring.nodes.service import SESSION, FairTurns, Offer, begun, opening
from veilring.nodes.session import SessionLimits
from veilring.privacy.budgets import ANSWER_BYTES_MAX, Charge
from veilring.privacy.ledger import Ledger
from veilring.protocols.admission import Admission, Admitted, Asked, Count, admit_all, pack_labels
from veilring.protocols.batches import check_queries
from veilring.protocols.membership import Membership
from veilring.protocols.promise import Facts
from veilring.protocols.requests import ServerFailure, charging, content_key
from veilring.randomness import Streams
from veilring.transport.frames import CONTENT_BYTES_MAX
from veilring.transport.messages import Array, Matrix, Message
from veilring.transport.roster import NAME_CHARACTERS_MAX

PEERS_ASK: Final = "peers.ask"
"""The service for clients: labelling a batch of queries."""
PEERS_JOIN: Final = "peers.join"
"""The service for other members: playing the system's role."""

_R = TypeVar("_R")

_log = logging.getLogger("veilring.member")

PIECE_BYTES: Final = min(CONTENT_BYTES_MAX, ANSWER_BYTES_MAX)
"""The maximum size of a stored or sent piece, which fits a frame and an entry of a ledger."""
NameOrNone = Annotated[str, Field(pattern=rf"^[A-Za-z0-9._-]{{0,{NAME_CHARACTERS_MAX}}}$")]
"""The name of a party or client, or nothing."""
_LABELS: Final = "labels"
_REQUEST_DUE: Final = -4  # before any system's own set-up
_LABEL: Final = np.dtype("<i8")  # the limit of the ledger's file


class PeerQueries(Message, kind="peers.queries"):
    """A batch of queries, shape (queries, features), from a client to a member."""

    features: Matrix


class PeerRequest(Message, kind="peers.request"):
    """Announces a batch to the other members, before any of them takes part.

    Attributes:
        client: The client for which the batch is asked, as its member has authenticated it.
        queries: The number of its queries.
    """

    client: Annotated[NameOrNone, Field(min_length=1)]
    queries: Annotated[int, Field(ge=1)]


class PeerLabels(Message, kind="peers.labels"):
    """The result of a batch, from a member to its client.

    Attributes:
        labels: Shape (queries,); empty if it was refused.
        exhausted: The party whose budget is insufficient: a member, or the client itself at the
            queried member; empty if the batch was answered.
    """

    labels: Annotated[Ints, Array("<i8", 1)]
    exhausted: NameOrNone = ""


@dataclass(frozen=True, slots=True)
class Till:
    """The charging of batches at one member, with the stored labels of those that it was asked for.

    A batch is charged before anything that depends on rows is sent, because others may have the
    result from then on. A batch is therefore charged even if its run fails. Repeating a batch at
    the same member returns the same labels and costs nothing. If one result answers all queries,
    that result is charged and stored instead.

    All errors that end a run follow from requests, budgets and other parties, never from a row. A
    member that can neither take part nor refuse, because its disk or its memory fails, ends: see
    `failure`.

    Attributes:
        ledger: The ledger to charge: at the queried member the client's account, at the others that
            of the queried member. Its owner closes it. A charge is on disk within milliseconds, and
            blocks all others meanwhile.
        terms: The SHA-256 of all terms that must be equal for parties of one session.
        delta: The δ of a batch, or of the result that answers all queries.
        failure: The reason why the member ended, if it did.
    """

    ledger: Ledger
    price: float
    terms: bytes
    delta: float = 0.0
    failure: ServerFailure = field(default_factory=ServerFailure, init=False, repr=False)

    def require(self, payer: str) -> None:
        """Refuse a request before anything is sent, so that nobody pays for an unanswered one."""
        with self.ending():
            self.ledger.check(payer, self.price)

    @contextmanager
    def paying(
        self, payer: str, request: bytes = b"", size: int = 0, count: Count | None = None
    ) -> Iterator[Callable[[object], object]]:
        """Yield a callback that charges the whole price once, before the first release.

        Until the block is left, the payer's budget and space on the disk are reserved. So a party
        that cannot pay, or cannot store a charge, finds out before it agrees to take part, and the
        others pay nothing.

        The key is our own and new: the client chooses the session's name, and could reuse one.

        Args:
            request: What is paid for; by default any batch under these terms.
            size: The size of the answer to store afterwards, in bytes.
            count: Called in the transaction of the charge.
        """
        key = Streams().token("charge").hex()
        charge = Charge(payer, key, request or self.terms, b"", self.price, delta=self.delta)
        with self.ending(), self.ledger.reserving(charge, size):
            yield lambda _release: self.ledger.charge(
                charge, count
            )  # which knows it at later releases

    def make_room(self, size: int = 0) -> None:
        """Make sure that the disk has space for a charge and an answer of that many bytes."""
        with self.ending():
            self.ledger.make_room(size)

    def find(self, member: str, kind: str, content: bytes) -> bytes | None:
        """Return the stored answer for this content, if there is one."""
        found = list[bytes]()
        with self.ending():
            for key in _piece_keys(kind, content):
                piece = self.ledger.find(member, key, content)
                if piece is None:
                    break
                found.append(piece)
        return b"".join(found) if found else None

    def keep(
        self,
        member: str,
        kind: str,
        content: bytes,
        answer: bytes,
        beside: Callable[[Connection], object] | None = None,
    ) -> bytes:
        """Store an answer, completely or not at all; return the one that was stored first.

        Args:
            beside: Called in the same transaction if the answer is stored now.
        """
        pieces, kept = pieces_of(answer), list[bytes]()
        with self.ending():
            keys = zip(_piece_keys(kind, content), pieces, strict=False)
            charges = [Charge(member, key, content, piece) for key, piece in keys]
            for outcome in self.ledger.charge_many(charges, beside):
                if isinstance(outcome, Exception):
                    raise outcome
                kept.append(outcome)
        return b"".join(kept)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """End this member on any error that is neither a refusal nor a peer's fault."""
        self.failure.check()
        try:
            with charging():
                yield
        except StoreFailed as error:
            self.failure.report(error)
            raise


def pieces_of(kept: bytes) -> list[bytes]:
    """Return bytes in pieces that can be stored and sent, at least one."""
    return [kept[start : start + PIECE_BYTES] for start in range(0, len(kept) or 1, PIECE_BYTES)]


def _piece_keys(kind: str, content: bytes) -> Iterator[str]:
    """Yield the keys of the pieces of a stored answer, because the size of an entry is limited."""
    key = content_key(kind, content).hex()
    yield key
    for number in count(1):
        yield f"{key}.{number}"


@dataclass(frozen=True, slots=True)
class PeerMember:
    """A party of a deployment in which all parties hold rows, with its services.

    Attributes:
        rows: The rows of a schema; none if `kept` is made from others.
        parties: All members, in the order of the roster.
        terms: The SHA-256 of all terms that must be equal for parties of one session.
        till: The till, if labels cost budget. The role is given ``charge``, a callback to call
            before it sends anything that depends on rows.
        kept: The value passed to the role in each batch; by default the result of
            `Membership.keep`.
        admission: The member's own decision on each request.
    """

    node: Node
    rows: Rows | None
    parties: Parties
    membership: Membership
    facts: Facts
    terms: bytes
    limits: SessionLimits = field(default_factory=SessionLimits)
    till: Till | None = None
    kept: object = field(default=None, repr=False)
    admission: Admission = field(default=admit_all, repr=False)
    _failure: ServerFailure = field(default_factory=ServerFailure, init=False, repr=False)
    _turns: FairTurns = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_turns", FairTurns(self.node.name))
        if self.rows is not None:
            check_rows(self.rows, self.facts.features, self.facts.classes)
        if self.kept is None:
            object.__setattr__(self, "kept", self.membership.keep(self.rows))

    def offers(self) -> dict[str, Offer]:
        """Return the services for other members and for clients."""
        joined, served = self.limits.joined, self.limits.served
        return {
            PEERS_JOIN: Offer(
                self._join, self.terms, self.parties.__contains__, joined, self.parties
            ),
            PEERS_ASK: Offer(self._answer, self.terms, lambda _peer: True, served),
        }

    async def failure(self) -> None:
        """Wait until the ledger or the memory fails, which ends this member; otherwise forever."""
        await (self._failure if self.till is None else self.till.failure).wait()

    @contextmanager
    def admitted(self, asked: Asked) -> Iterator[Admitted]:
        """Admit a request. This member ends if its disk fails meanwhile."""
        failure = self._failure if self.till is None else self.till.failure
        failure.check()
        try:
            with self.admission(asked) as admitted:
                yield admitted
        except StoreFailed as error:
            failure.report(error)
            raise

    def counter(self, admitted: Admitted, party: Party) -> Count:
        """Return the function that counts a request of a session."""
        connected = self.node.endpoint.connected
        peers = [peer for peer in party.peers if peer in connected]
        return partial(admitted.count, session=party.session, peers=peers)

    async def ask(self, queries: Floats, client: str = "", session: bytes = b"") -> PeerLabels:
        """Label a batch together with all other members, or return its stored labels.

        Args:
            queries: Shape (queries, features), in [0, 1].
            client: The client, as authenticated by the transport; by default this member's own.
            session: The name of its session.

        Raises:
            Busy: If there was no turn for it in time.
            NotReady: If a party is not connected.
            PolicyRefused: If this party's own policy does not allow it.
            StoreFailed: If this party's own disk or memory failed, now or before.
            VeilringError: If the run failed. It may have been charged.
        """
        self._check(queries)
        me, payer = self.node.name, client or self.node.name
        content = self.terms + queries.astype("<f8").tobytes()
        kept = None if self.till is None else self.till.find(me, _LABELS, content)
        new = len(queries) if kept is None else 0
        asked = Asked(payer, new, service=PEERS_ASK, session=session, request=content)
        with self.admitted(asked) as admitted:
            if kept is None:
                try:
                    if self.till is not None:
                        self.till.require(payer)
                    labels = await self._label(queries, asked, admitted)
                except (BudgetExhausted, SessionAborted) as error:
                    if self.till is None:
                        raise
                    refused = find_exhausted(error, payer, me)
                    admitted.refuse(f"budget: that of {refused}")
                    return PeerLabels(labels=np.zeros(0, dtype=np.int64), exhausted=refused)
                kept = pack_labels(labels)
                if self.till is not None:
                    enter = partial(admitted.answer, kept)
                    kept = self.till.keep(me, _LABELS, content, kept, enter)
            admitted.answer(kept)
        return PeerLabels(labels=np.frombuffer(kept, _LABEL).astype(np.int64))

    async def _label(self, queries: Floats, asked: Asked, admitted: Admitted) -> Ints:
        play = partial(self._lead, asked=asked, admitted=admitted, queries=queries)
        return self.membership.labels(await self.convene(play, asked.client))

    async def _lead(
        self, party: Party, *, asked: Asked, admitted: Admitted, queries: Floats
    ) -> Any:  # noqa: ANN401  (the role's result)
        await broadcast(party, PeerRequest(client=asked.client, queries=asked.queries))
        count = self.counter(admitted, party)
        pay = partial(self._pay, client=party.me, payer=asked.client, count=count)
        return await pay(party, queries=queries)

    async def convene(
        self, role: Callable[[Party], Awaitable[_R]], payer: str, spare: int = 0
    ) -> _R:
        """Play a role in a session of all members, which the others join.

        Args:
            payer: The client or member for which it is played. They take turns.
            spare: The number of members that may be missing, if the role tolerates that.
        """
        tolerant = spare > 0
        async with self._turns.turn(payer, self.limits.waiting):
            self.node.require(self.parties, spare)
            opened = opening(role, PEERS_JOIN, self.terms, tolerant=tolerant)
            session = Streams().token("session")
            SESSION.set(session.hex())  # which the logs of all members have
            with begun():
                return await self.node.run(opened, session, self.parties, tolerant=tolerant)

    async def _join(self, party: Party, opener: str) -> None:
        request = await party.receive(PeerRequest, sender=opener, due=_REQUEST_DUE)
        if request.queries > self.membership.batch_max:
            party.accuse(ProtocolViolation(opener, "announced more queries than a batch may have"))
        asked = Asked(
            request.client, request.queries, service=PEERS_JOIN, peer=opener, session=party.session
        )
        with self.admitted(asked) as admitted:
            announced = request.queries if self.membership.announced else None
            count = self.counter(admitted, party)
            pay = partial(self._pay, client=opener, payer=opener, count=count)
            await pay(party, announced=announced)
        line = "%s took part in a batch of %d queries of %s, which asked %s"
        _log.info(line, party.me, request.queries, request.client, opener)

    async def _pay(
        self,
        party: Party,
        *,
        client: str,
        payer: str,
        count: Count,
        queries: Floats | None = None,
        announced: int | None = None,
    ) -> Any:  # noqa: ANN401  (the role's result)
        """Play the system's role, and charge the payer's account for it if it costs budget."""
        play = partial(self.play, party, client=client, queries=queries, announced=announced)
        if self.till is None:
            count(None)
            return await play()
        size = 0 if queries is None else len(queries) * _LABEL.itemsize
        with self.till.paying(payer, size=size, count=count) as charge:
            return await play(charge=charge)

    async def play(
        self,
        party: Party,
        *,
        client: str,
        queries: Floats | None = None,
        announced: int | None = None,
        charge: Callable[[object], object] | None = None,
    ) -> Any:  # noqa: ANN401  (the role's result)
        """Play the system's role, and return its result; `charge` is that of `Till.paying`."""
        given = {"queries": queries, "announced": announced, "charge": charge}
        own = {name: value for name, value in given.items() if value is not None}
        public = self.membership.public
        return await self.membership.role(party, self.kept, client=client, **own, **public)

    async def _answer(self, party: Party, client: str) -> None:
        queries = (await party.receive(PeerQueries, sender=client)).features
        try:
            self._check(queries)
        except InputError as error:
            party.accuse(ProtocolViolation(client, f"sent an invalid request: {error}"))
        answer = await self.ask(queries, client, party.session)
        await party.send(client, answer)
        if not answer.exhausted:
            price = "" if self.till is None else f" for epsilon {self.till.price:g}, paid once"
            line = "%s had %d queries labelled for %s%s"
            _log.info(line, self.node.name, len(queries), client, price)

    def _check(self, queries: Floats) -> None:
        check_queries(queries, self.facts.features, self.membership.batch_max)
        if self.membership.check is not None:
            self.membership.check(queries)


def find_exhausted(error: BudgetExhausted | SessionAborted, payer: str, me: str) -> str:
    """Return the party whose budget is insufficient; raise other errors that ended a session."""
    if isinstance(error, BudgetExhausted):
        return payer if error.budget == "analyst" else me
    if error.reason != BudgetExhausted.__name__:
        raise error
    return error.by


def exhausted_error(whose: str, me: str, member: str, price: str) -> BudgetExhausted:
    """Return the error of a client for an insufficient budget."""
    own = whose == me
    exhausted = BudgetExhausted("client" if own else "member")
    where = f" at {member}" if own else ""
    exhausted.add_note(f"{whose} has less left{where} than {price}.")
    return exhausted


def peer_client(terms: bytes, classes: int, price: float = 0.0) -> Callable[..., Awaitable[Ints]]:
    """Return the client's role: ``await role(party, queries)`` gives the labels.

    It runs in a session with one member, opened by the client. The member learns the queries, and
    the others as much as the system defines; the client learns the labels.

    Args:
        terms: The SHA-256 of the terms that the client expects; a member with other terms refuses.
        price: The ε of a batch under these terms; 0 if it costs nothing.
    """
    return opening(partial(_ask, classes=classes, price=price), PEERS_ASK, terms)


def check_labels(labels: Ints, member: str, queries: int, classes: int) -> None:
    """Refuse labels from a member that do not answer a batch, or that are no classes."""
    if labels.shape != (queries,):
        raise ProtocolViolation(member, f"sent {len(labels)} labels for {queries} queries")
    if not ((labels >= 0) & (labels < classes)).all():
        raise ProtocolViolation(member, "sent a label outside of the public classes")


async def _ask(party: Party, queries: Floats, *, classes: int, price: float) -> Ints:
    (member,) = party.peers
    await party.send(member, PeerQueries(features=queries))
    answer = await party.receive(PeerLabels, sender=member)
    if answer.exhausted and price:
        costs = f"the {price:.12g} epsilon that a batch costs"
        raise exhausted_error(answer.exhausted, party.me, member, costs)
    check_labels(answer.labels, member, len(queries), classes)
    return answer.labels
