"""The long-lived ring member and its client: what `veilring serve` and `veilring ask` play."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray

from veilring.data.table import Rows
from veilring.errors import ProtocolViolation
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party
from veilring.nodes.service import Offer, opening
from veilring.nodes.session import SessionLimits
from veilring.protocols.ring.messages import Queries
from veilring.protocols.ring.roles import KNNAnswer, KNNParameters, private_knn
from veilring.randomness import Streams
from veilring.transport.messages import Array, Message

RING_ASK: Final = "ring.ask"
"""The service that a client asks of one member: to label a batch of queries."""
RING_JOIN: Final = "ring.private-knn"
"""The service that this member asks of the others: to join the private kNN."""

_log = logging.getLogger("veilring.member")


class RingLabels(Message, kind="ring.labels"):
    """The labels of a batch of queries, shape (queries,), from a member to its client."""

    labels: Annotated[NDArray[np.int64], Array("<i8", 1)]


@dataclass(frozen=True, slots=True)
class RingMember:
    """A party of a deployed ring, and the services that it offers.

    Attributes:
        node: The node at which it is reached.
        rows: The party's private rows.
        parties: All members of the ring, in the order of the roster.
        parameters: The public parameters.
        terms: The SHA-256 of all that must be equal at parties that run together.
        limits: The time that sessions may take.

    Raises:
        InputError: If the rows are of another schema.
    """

    node: Node
    rows: Rows
    parties: Parties
    parameters: KNNParameters
    terms: bytes
    limits: SessionLimits = field(default_factory=SessionLimits)

    def __post_init__(self) -> None:
        self.parameters.check_rows(self.rows)
        self.parameters.sum.check(len(self.parties))

    def offers(self) -> dict[str, Offer]:
        """Return the two services: other members may have it join, and anybody may ask it."""
        joined, served = self.limits.joined, self.limits.served
        return {
            RING_JOIN: Offer(self._join, self.terms, lambda peer: peer in self.parties, joined),
            RING_ASK: Offer(self._answer, self.terms, lambda _peer: True, served),
        }

    async def _join(self, party: Party, opener: str) -> None:
        if party.parties != self.parties:
            raise ProtocolViolation(opener, "asked for a ring of other parties")
        self.node.require(self.parties)
        await private_knn(party, self.rows, asker=opener, parameters=self.parameters)

    async def _answer(self, party: Party, client: str) -> None:
        queries = (await party.receive(Queries, sender=client)).features
        answer = await self.ask(queries)
        await party.send(client, RingLabels(labels=answer.labels))
        _log.info("%s had %d queries labelled for %s", self.node.name, len(queries), client)

    async def ask(self, queries: NDArray[np.float64]) -> KNNAnswer:
        """Label a batch of queries together with all other members.

        Raises:
            InputError: If the queries do not fit.
            NotReady: If a party is not connected.
            VeilringError: If the run failed.
        """
        self.parameters.check_queries(queries)
        self.node.require(self.parties)
        return await self.node.run(
            opening(private_knn, RING_JOIN, self.terms),
            Streams().token("session"),
            self.parties,
            self.rows,
            asker=self.node.name,
            parameters=self.parameters,
            queries=queries,
        )


def ring_client(
    terms: bytes, parameters: KNNParameters
) -> Callable[..., Awaitable[NDArray[np.int64]]]:
    """Return the client's role: ``await role(party, queries)`` gives the labels.

    It is played in a session with one member of the ring, which it opens. The member learns the
    queries, and so do all others; the client learns the labels.

    Args:
        terms: The SHA-256 of the terms that the client expects; a member with other terms refuses.
        parameters: The parameters that it expects, likewise.
    """
    return opening(partial(_ask, parameters=parameters), RING_ASK, terms)


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
    party: Party, queries: NDArray[np.float64], *, parameters: KNNParameters
) -> NDArray[np.int64]:
    (member,) = party.peers
    await party.send(member, Queries(features=queries))
    labels = (await party.receive(RingLabels, sender=member)).labels
    check_labels(labels, member, len(queries), parameters.classes)
    return labels
