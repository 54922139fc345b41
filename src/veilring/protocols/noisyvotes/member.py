"""The long-lived party of noisy votes and its client: it pays before it adds its share of a sum."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.errors import BudgetExhausted, InputError, ProtocolViolation, SessionAborted
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party
from veilring.nodes.service import Offer, convening
from veilring.privacy.ledger import Charge, Ledger
from veilring.protocols.noisyvotes.algorithm import NoisyVotes, NoisyVotesParameters
from veilring.protocols.noisyvotes.messages import Batch
from veilring.protocols.noisyvotes.roles import check_batch, private_votes
from veilring.protocols.radius.algorithm import Allocation
from veilring.protocols.requests import content_key
from veilring.protocols.rows import Rows
from veilring.randomness import Streams
from veilring.transport.identity import NAME_CHARACTERS_MAX
from veilring.transport.messages import Array, Message

__all__ = ("ASK", "JOIN", "VotesLabels", "VotesMember", "ask_votes")

ASK: Final = "noisyvotes.ask"
"""What a client asks of one member: the labels of a batch of queries."""
JOIN: Final = "noisyvotes.private-votes"
"""What that member asks of the others: to join the noisy votes."""

_A_NAME: Final = rf"^[A-Za-z0-9._-]{{0,{NAME_CHARACTERS_MAX}}}$"  # or none
_KEPT: Final = np.dtype("<i8")  # a label, as the ledger's file has it


class VotesLabels(Message, kind="noisyvotes.labels"):
    """What became of a batch, from a member to its client.

    Attributes:
        labels: Shape (queries,); empty if it was refused.
        exhausted: Whose budget does not suffice; empty if it was answered.
    """

    labels: Annotated[NDArray[np.int64], Array("<i8", 1)]
    exhausted: Annotated[str, Field(pattern=_A_NAME)]


@dataclass(frozen=True, slots=True)
class VotesMember:
    """What a party of deployed noisy votes offers, under the budget of its own ledger.

    It pays for a batch before it sends any of the first sum, and then others may have the total. So
    a batch is paid for, however its run ends. The member that was asked keeps the labels: the same
    batch gets them again and costs nothing.

    Attributes:
        node: Where it is reached.
        rows: Its private rows.
        parties: All members, in the order of the roster.
        parameters: Public.
        ledger: Where batches are charged, each to the member that was asked; whoever opened it
            closes it. A charge is on the disk within milliseconds, and nobody else's turn comes
            meanwhile, as while rows are counted.
        terms: SHA-256 of all that must be equal at parties that run together.

    Raises:
        InputError: If the rows are of another schema, or the parameters are not for so many
            parties.
    """

    node: Node
    rows: Rows
    parties: Parties
    parameters: NoisyVotesParameters
    ledger: Ledger
    terms: bytes

    def __post_init__(self) -> None:
        self.parameters.check_rows(self.rows)
        self.parameters.exponent(len(self.parties))

    def offers(self) -> dict[str, Offer]:
        """Return the two services: other members may have it join, and anybody may ask it."""
        return {
            JOIN: Offer(self._join, self.terms, lambda peer: peer in self.parties),
            ASK: Offer(self._answer, self.terms, lambda _peer: True),
        }

    async def ask(self, queries: NDArray[np.float64]) -> VotesLabels:
        """Label a batch together with all other members, or as it was labelled before.

        Args:
            queries: Shape (Q, features), in [0, 1].

        Raises:
            InputError: If the queries do not fit.
            VeilringError: If the run failed. It may have been paid for.
        """
        check_batch(queries, None, self.parameters)
        me, content = self.node.name, self.terms + queries.astype("<f8").tobytes()
        key = content_key("labels", content).hex()
        kept = self.ledger.find(me, key, content)
        if kept is None:
            try:
                labels = (await self._convene(queries)).labels
            except BudgetExhausted:
                return _refused(me)
            except SessionAborted as error:
                if error.reason == BudgetExhausted.__name__:
                    return _refused(error.by)
                raise
            kept = self.ledger.charge(Charge(me, key, content, labels.astype(_KEPT).tobytes()))
        return VotesLabels(labels=np.frombuffer(kept, _KEPT).astype(np.int64), exhausted="")

    async def _convene(self, queries: NDArray[np.float64]) -> NoisyVotes:
        self._require_budget(self.node.name)
        return await self.node.run(
            convening(private_votes, JOIN, self.terms),
            Streams().token("session"),
            self.parties,
            self.rows,
            asker=self.node.name,
            parameters=self.parameters,
            queries=queries,
            charge=self._paying(self.node.name),
        )

    async def _join(self, party: Party, opener: str) -> None:
        if party.parties != self.parties:
            raise ProtocolViolation(opener, "asked for the votes of other parties")
        self._require_budget(opener)
        await private_votes(
            party, self.rows, asker=opener, parameters=self.parameters, charge=self._paying(opener)
        )

    async def _answer(self, party: Party, client: str) -> None:
        batch = await party.receive(Batch, sender=client)
        try:
            check_batch(batch.queries, batch.radii if batch.radii.size else None, self.parameters)
        except InputError as error:
            party.accuse(ProtocolViolation(client, f"asked what cannot be answered: {error}"))
        await party.send(client, await self.ask(batch.queries))

    def _require_budget(self, asker: str) -> None:
        """Refuse before anything is sent, so that nobody pays for what is not answered."""
        self.ledger.check(asker, self.parameters.epsilon)

    def _paying(self, asker: str) -> Callable[[Allocation], object]:
        """Return what pays for the whole batch before its first release, and once.

        The key is our own and new: a session's name is the asker's choice, who could use one again.
        """
        key = Streams().token("charge").hex()
        charge = Charge(asker, key, self.terms, b"", self.parameters.epsilon)
        return lambda _plan: self.ledger.charge(charge)  # which knows the key of later releases


def ask_votes(
    terms: bytes, parameters: NoisyVotesParameters
) -> Callable[..., Awaitable[NDArray[np.int64]]]:
    """Return the client's role: ``await role(party, queries)`` gives the labels.

    It is played in a session with one member, which it opens. All members learn the queries and the
    labels; the client learns the labels.

    Args:
        terms: SHA-256 of what the client believes is run; a member that has others refuses.
        parameters: What it believes, likewise.
    """
    return convening(partial(_ask, parameters=parameters), ASK, terms)


async def _ask(
    party: Party, queries: NDArray[np.float64], *, parameters: NoisyVotesParameters
) -> NDArray[np.int64]:
    (member,) = party.peers
    await party.send(member, Batch(queries=queries, radii=np.zeros(0)))
    answer = await party.receive(VotesLabels, sender=member)
    if answer.exhausted:
        exhausted = BudgetExhausted("member")
        price = f"the {parameters.epsilon:.12g} epsilon that a batch costs"
        exhausted.add_note(f"{answer.exhausted} has less left than {price}.")
        raise exhausted
    labels = answer.labels
    if labels.shape != queries.shape[:1]:
        raise ProtocolViolation(member, f"sent {len(labels)} labels for {len(queries)} queries")
    if labels.size and not 0 <= labels.min() <= labels.max() < parameters.classes:
        raise ProtocolViolation(member, "sent a class that there is not")
    return labels


def _refused(member: str) -> VotesLabels:
    return VotesLabels(labels=np.zeros(0, dtype=np.int64), exhausted=member)
