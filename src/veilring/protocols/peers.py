"""The long-lived member among peers that all hold rows, and its client, of any system of peers.

A client asks one member. That member convenes a session among all members, in which they play the
role that the system's `Membership` names, and answers the client with the labels.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from veilring.data.table import Rows
from veilring.errors import ProtocolViolation
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party
from veilring.nodes.service import Offer, opening
from veilring.nodes.session import SessionLimits
from veilring.protocols.batches import check_queries, check_rows
from veilring.protocols.system import Facts, Membership
from veilring.randomness import Streams
from veilring.transport.messages import Array, Matrix, Message

PEERS_ASK: Final = "peers.ask"
"""The service that a client asks of one member: to label a batch of queries."""
PEERS_JOIN: Final = "peers.join"
"""The service that this member asks of the others: to play the system's role."""

_log = logging.getLogger("veilring.member")


class PeerQueries(Message, kind="peers.queries"):
    """A batch of queries, shape (queries, features), from a client to a member."""

    features: Matrix


class PeerLabels(Message, kind="peers.labels"):
    """The labels of a batch of queries, shape (queries,), from a member to its client."""

    labels: Annotated[NDArray[np.int64], Array("<i8", 1)]


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
    _kept: object = field(init=False)

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

    async def _join(self, party: Party, opener: str) -> None:
        if party.parties != self.parties:
            raise ProtocolViolation(opener, "asked for a session of other parties")
        self.node.require(self.parties)
        await self.membership.role(party, self._kept, asker=opener, **self.membership.public)

    async def _answer(self, party: Party, client: str) -> None:
        queries = (await party.receive(PeerQueries, sender=client)).features
        labels = self.membership.labels(await self.ask(queries))
        await party.send(client, PeerLabels(labels=labels))
        _log.info("%s had %d queries labelled for %s", self.node.name, len(queries), client)

    async def ask(self, queries: NDArray[np.float64]) -> Any:  # noqa: ANN401  (the role's result)
        """Label a batch of queries together with all other members.

        Returns:
            The result of the role; the membership's `labels` finds the labels in it.

        Raises:
            InputError: If the queries do not fit.
            NotReady: If a party is not connected.
            VeilringError: If the run failed.
        """
        check_queries(queries, self.facts.features, self.membership.batch_max)
        self.node.require(self.parties)
        return await self.node.run(
            opening(self.membership.role, PEERS_JOIN, self.terms),
            Streams().token("session"),
            self.parties,
            self._kept,
            asker=self.node.name,
            queries=queries,
            **self.membership.public,
        )


def peer_client(terms: bytes, classes: int) -> Callable[..., Awaitable[NDArray[np.int64]]]:
    """Return the client's role: ``await role(party, queries)`` gives the labels.

    It is played in a session with one member, which it opens. The member learns the queries, and
    the others what the system says; the client learns the labels.

    Args:
        terms: The SHA-256 of the terms that the client expects; a member with other terms refuses.
        classes: The number of classes.
    """
    return opening(partial(_ask, classes=classes), PEERS_ASK, terms)


def check_labels(labels: NDArray[np.int64], member: str, queries: int, classes: int) -> None:
    """Refuse labels from a member that are no answer to a batch.

    Raises:
        ProtocolViolation: If there are more or fewer than queries, or one is of no class.
    """
    if labels.shape != (queries,):
        raise ProtocolViolation(member, f"sent {len(labels)} labels for {queries} queries")
    if not ((labels >= 0) & (labels < classes)).all():
        raise ProtocolViolation(member, "sent a label outside of the public classes")


async def _ask(party: Party, queries: NDArray[np.float64], *, classes: int) -> NDArray[np.int64]:
    (member,) = party.peers
    await party.send(member, PeerQueries(features=queries))
    labels = (await party.receive(PeerLabels, sender=member)).labels
    check_labels(labels, member, len(queries), classes)
    return labels
