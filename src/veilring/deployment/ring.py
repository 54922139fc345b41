"""The deployed ring: its terms, its members, and the client that has queries labelled."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from veilring.config import as_scenario_errors, has_table
from veilring.deployment.config import AskingConfig, FilePath, ServerConfig
from veilring.deployment.connecting import Client, Server
from veilring.deployment.schema import OUTSIDE_MAX, OutsideMax, Schema
from veilring.nodes.party import Parties
from veilring.nodes.service import Service
from veilring.protocols.ring import KNNParameters
from veilring.protocols.ring.member import RingMember, ring_client
from veilring.protocols.ring.system import KNN_KEYS, PrivateKNN

_log = logging.getLogger("veilring.member")
_client_log = logging.getLogger("veilring.client")
_ClientRole = Callable[..., Awaitable[NDArray[np.int64]]]


class RingTerms(Schema):
    """The terms of a ring.

    Attributes:
        protocol: The protocol's parameters, as in a scenario.
    """

    protocol: PrivateKNN = PrivateKNN()

    @cached_property
    def parameters(self) -> KNNParameters:
        """The protocol's public parameters."""
        return self.protocol.bind(self.width, len(self.classes))

    @override
    def checked(self, parties: int | None = None) -> Self:
        super().checked(parties)
        with as_scenario_errors({**KNN_KEYS, "parties": "roster"}, "protocol"):
            parameters = self.parameters
            if parties is not None:
                parameters.sum.check(parties)
        return self


class RingMemberConfig(ServerConfig):
    """A member of a ring that answers queries together with all others.

    Attributes:
        role: `ring-member`.
        rows: The CSV file with this party's own rows; the label is its last column.
        outside_max: The share of a column's values that may lie outside of its public range. With
            more the party does not start.
    """

    role: Literal["ring-member"] = Field(description="ring-member")
    rows: FilePath
    outside_max: OutsideMax = OUTSIDE_MAX


class ClientConfig(AskingConfig):
    """A client that has queries labelled.

    Attributes:
        role: `client`.
        ask: The member that it asks; all members see the queries.
        outside_max: The share of a column's values in a file of queries that may lie outside of its
            public range. With more the client does not ask.
    """

    role: Literal["client"] = Field(description="client")
    outside_max: OutsideMax = OUTSIDE_MAX


async def serve_ring(
    config: RingMemberConfig, *, on_ready: Callable[[RingMember], None] | None = None
) -> None:
    """Be a member of a ring until cancelled.

    All files are read and checked first; then the member waits for the others, and answers. Until
    all are there it refuses requests, and names the parties it waits for. A member that was lost is
    dialled again, and takes part again in what is asked after that.

    A cancelled member leaves in order, also while it waits: it says goodbye, and the sessions that
    are open end at all parties.

    Args:
        config: Which files to read, and where to listen.
        on_ready: Called once all members are connected.

    Raises:
        ScenarioError: If a file does not fit.
        HandshakeError: If a member is missing after a day.
    """
    server = Server(config, _log)
    parties = Parties(server.roster.parties)
    terms = RingTerms.load(Path(config.terms), len(server.roster.parties))
    rows = terms.read_own_rows(Path(config.rows), config.outside_max, _log)
    async with server.meet(terms.keys) as met:
        member = RingMember(met.node, rows, parties, terms.parameters, terms.digest, config.limits)
        async with Service(met.node, member.offers()):
            await met.all_here()
            _log.info("%s is ready", met.node.name)
            if on_ready is not None:
                on_ready(member)
            await met.stay(asyncio.Event().wait())


async def ask_ring(config: ClientConfig, queries: Path) -> dict[str, list[str]]:
    """Have the rows of a CSV file labelled by the ring.

    A batch costs as many messages as one query; it has as many as the terms and a message allow.
    Where votes are noisy, each batch costs its epsilon, or nothing if the member that is asked has
    its labels.

    Args:
        config: The client's configuration.
        queries: The file; it has the columns of the terms.

    Returns:
        The class of each row, by name, in order: the column `label`.

    Raises:
        ScenarioError: If a file does not fit.
        HandshakeError: If the member cannot be reached.
        BudgetExhausted: If a member's budget does not suffice.
        VeilringError: If the ring could not answer.
    """
    client = Client(config)
    terms, size, role = _agreed(Path(config.terms), len(client.roster.parties))
    features = terms.read_own_queries(queries, config.outside_max, _client_log)
    labels = np.zeros(len(features), dtype=np.int64)
    async with client.connect(terms.keys) as connection:
        for first in range(0, len(features), size):
            batch = slice(first, first + size)
            labels[batch] = await connection.run(role, features[batch])
    return {"label": [terms.classes[label] for label in labels]}


def _agreed(path: Path, parties: int) -> tuple[Schema, int, _ClientRole]:
    """Return the terms, how many queries are asked at once, and what the client plays."""
    if has_table(path, "votes"):
        from veilring.deployment.votes import VotesTerms  # noqa: PLC0415  (not of a ring)
        from veilring.protocols.noisyvotes.member import votes_client  # noqa: PLC0415  (as above)

        votes = VotesTerms.load(path, parties)
        return votes, votes.batch, votes_client(votes.digest, votes.parameters)
    terms = RingTerms.load(path, parties)
    size = min(terms.protocol.batch, terms.parameters.queries_max)
    return terms, size, ring_client(terms.digest, terms.parameters)
