"""The long-lived party of noisy votes and its client: it pays before it adds its share of a sum."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final

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
from veilring.privacy.budgets import Charge
from veilring.privacy.ledger import Ledger
from veilring.protocols.noisyvotes.algorithm.parameters import NoisyVotesParameters
from veilring.protocols.noisyvotes.algorithm.releases import VotesAnswer
from veilring.protocols.noisyvotes.messages import VotesBatch
from veilring.protocols.noisyvotes.roles import check_batch, private_votes
from veilring.protocols.peers import check_labels
from veilring.protocols.radius.algorithm.allocation import Allocation
from veilring.protocols.requests import ServerFailure, charging, content_key
from veilring.randomness import Streams
from veilring.transport.identity import NAME_CHARACTERS_MAX
from veilring.transport.messages import Array, Message

VOTES_ASK: Final = "noisyvotes.ask"
"""The service that a client asks of one member: to label a batch of queries."""
VOTES_JOIN: Final = "noisyvotes.private-votes"
"""The service that this member asks of the others: to join the noisy votes."""

_log = logging.getLogger("veilring.votes")

_A_NAME: Final = rf"^[A-Za-z0-9._-]{{0,{NAME_CHARACTERS_MAX}}}$"  # or none
_KEPT: Final = np.dtype("<i8")  # a label, as the ledger's file has it


class VotesLabels(Message, kind="noisyvotes.labels"):
    """The outcome of a batch, from a member to its client.

    Attributes:
        labels: Shape (queries,); empty if it was refused.
        exhausted: The name of the party whose budget does not suffice: a member, or the client
            itself at the member that it asked; empty if the batch was answered.
    """

    labels: Annotated[NDArray[np.int64], Array("<i8", 1)]
    exhausted: Annotated[str, Field(pattern=_A_NAME)]


@dataclass(frozen=True, slots=True)
class VotesMember:
    """A party of deployed noisy votes, which pays from a ledger of its own.

    It pays for a batch before it sends any of the first sum, and then others may have the total. So
    a batch is paid for, however its run ends. The member that was asked keeps the labels: the same
    batch gets them again and costs nothing.

    What ends a run follows from requests, budgets and other parties: from no row. A member that can
    neither vote nor refuse, because its disk or its memory fails, ends: see `failure`.

    Attributes:
        node: The node at which it is reached.
        rows: The party's private rows.
        parties: All members, in the order of the roster.
        parameters: The public parameters.
        ledger: The ledger in which batches are charged: to the client at the member that was asked,
            and to that member at the others; its owner closes it. A charge is on the disk within
            milliseconds, and nobody else's turn comes meanwhile, as while rows are counted.
        terms: SHA-256 of all that must be equal at parties that run together.
        limits: The time that sessions may take.

    Raises:
        InputError: If the rows are of another schema, or the parameters do not fit the number of
            parties.
    """

    node: Node
    rows: Rows
    parties: Parties
    parameters: NoisyVotesParameters
    ledger: Ledger
    terms: bytes
    limits: SessionLimits = field(default_factory=SessionLimits)
    _failure: ServerFailure = field(default_factory=ServerFailure, init=False, repr=False)

    def __post_init__(self) -> None:
        self.parameters.check_rows(self.rows)
        self.parameters.exponent(len(self.parties))

    def offers(self) -> dict[str, Offer]:
        """Return the two services: other members may have it join, and anybody may ask it."""
        joined, served = self.limits.joined, self.limits.served
        return {
            VOTES_JOIN: Offer(self._join, self.terms, lambda peer: peer in self.parties, joined),
            VOTES_ASK: Offer(self._answer, self.terms, lambda _peer: True, served),
        }

    async def failure(self) -> None:
        """Wait until this party could not vote, charge or keep labels.

        Raises:
            StoreFailed: Then. It takes part in nothing more; start again to see what the ledger
                holds.
        """
        await self._failure.wait()

    async def ask(self, queries: NDArray[np.float64], client: str = "") -> VotesLabels:
        """Label a batch together with all other members, or as it was labelled before.

        Args:
            queries: Shape (Q, features), in [0, 1].
            client: On whose behalf, as the transport authenticated it; by default this member's.

        Raises:
            InputError: If the queries do not fit.
            StoreFailed: If this party's own disk or memory failed, now or before.
            VeilringError: If the run failed. It may have been paid for.
        """
        check_batch(queries, None, self.parameters)
        me, content = self.node.name, self.terms + queries.astype("<f8").tobytes()
        key = content_key("labels", content).hex()
        with self._ending():
            kept = self.ledger.find(me, key, content)
        if kept is None:
            payer = client or me
            try:
                labels = (await self._convene(queries, payer)).labels
            except BudgetExhausted as error:
                return _refused(payer if error.budget == "analyst" else me)
            except SessionAborted as error:
                if error.reason == BudgetExhausted.__name__:
                    return _refused(error.by)
                raise
            with self._ending():
                kept = self.ledger.charge(Charge(me, key, content, labels.astype(_KEPT).tobytes()))
        return VotesLabels(labels=np.frombuffer(kept, _KEPT).astype(np.int64), exhausted="")

    async def _convene(self, queries: NDArray[np.float64], payer: str) -> VotesAnswer:
        with self._ending():
            self._require_budget(payer)
        self.node.require(self.parties)
        vote = partial(self._vote, asker=self.node.name, payer=payer, queries=queries)
        session = Streams().token("session")
        return await self.node.run(opening(vote, VOTES_JOIN, self.terms), session, self.parties)

    async def _join(self, party: Party, opener: str) -> None:
        if party.parties != self.parties:
            raise ProtocolViolation(opener, "asked for the votes of other parties")
        self.node.require(self.parties)
        with self._ending():
            self._require_budget(opener)
        await self._vote(party, asker=opener, payer=opener)

    async def _vote(
        self, party: Party, *, asker: str, payer: str, queries: NDArray[np.float64] | None = None
    ) -> VotesAnswer:
        with self._ending():
            return await private_votes(
                party,
                self.rows,
                asker=asker,
                parameters=self.parameters,
                queries=queries,
                charge=self._paying(payer),
            )

    async def _answer(self, party: Party, client: str) -> None:
        batch = await party.receive(VotesBatch, sender=client)
        try:
            check_batch(batch.queries, batch.radii if batch.radii.size else None, self.parameters)
        except InputError as error:
            party.accuse(ProtocolViolation(client, f"asked what cannot be answered: {error}"))
        answer = await self.ask(batch.queries, client)
        await party.send(client, answer)
        if not answer.exhausted:
            line = "%s had %d queries labelled for %s; a batch costs epsilon %g, once"
            asked = len(batch.queries)
            _log.info(line, self.node.name, asked, client, self.parameters.epsilon)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """End this party if something fails that is neither a refusal nor a peer's fault."""
        self._failure.check()
        try:
            with charging():
                yield
        except StoreFailed as error:
            self._failure.report(error)
            raise

    def _require_budget(self, payer: str) -> None:
        """Refuse before anything is sent, so that nobody pays for what is not answered."""
        self.ledger.check(payer, self.parameters.epsilon)

    def _paying(self, payer: str) -> Callable[[Allocation], object]:
        """Return a callback that charges the whole batch once, before its first release.

        The key is our own and new: a session's name is the asker's choice, who could use one again.
        """
        key = Streams().token("charge").hex()
        charge = Charge(payer, key, self.terms, b"", self.parameters.epsilon)
        return lambda _plan: self.ledger.charge(charge)  # which knows the key of later releases


def votes_client(
    terms: bytes, parameters: NoisyVotesParameters
) -> Callable[..., Awaitable[NDArray[np.int64]]]:
    """Return the client's role: ``await role(party, queries)`` gives the labels.

    It is played in a session with one member, which it opens. All members learn the queries and the
    labels; the client learns the labels.

    Args:
        terms: The SHA-256 of the terms that the client expects; a member with other terms refuses.
        parameters: The parameters that it expects, likewise.
    """
    return opening(partial(_ask, parameters=parameters), VOTES_ASK, terms)


async def _ask(
    party: Party, queries: NDArray[np.float64], *, parameters: NoisyVotesParameters
) -> NDArray[np.int64]:
    (member,) = party.peers
    await party.send(member, VotesBatch(queries=queries, radii=np.zeros(0)))
    answer = await party.receive(VotesLabels, sender=member)
    if answer.exhausted:
        own = answer.exhausted == party.me
        exhausted = BudgetExhausted("client" if own else "member")
        price = f"the {parameters.epsilon:.12g} epsilon that a batch costs"
        where = f" at {member}" if own else ""
        exhausted.add_note(f"{answer.exhausted} has less left{where} than {price}.")
        raise exhausted
    check_labels(answer.labels, member, len(queries), parameters.classes)
    return answer.labels


def _refused(whose: str) -> VotesLabels:
    return VotesLabels(labels=np.zeros(0, dtype=np.int64), exhausted=whose)
