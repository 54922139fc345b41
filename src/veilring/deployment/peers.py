"""A deployment of peers that all hold rows: its terms, its members, and the client of one of them.

It serves every system that has a `membership`: private kNN, and those of other packages. The same
member and client serve noisy votes, whose terms and ledgers `veilring.deployment.votes` has.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal, Self

import numpy as np
import tomli_w
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from veilring.config import as_scenario_errors, read_tables, read_toml
from veilring.data.schema import OUTSIDE_MAX, OutsideMax
from veilring.deployment.config import AskingConfig, FilePath, ServerConfig
from veilring.deployment.connecting import Client, Server
from veilring.deployment.schema import Schema
from veilring.errors import ScenarioError
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import Service
from veilring.protocols.peers import PeerMember, peer_client
from veilring.protocols.registry import PROTOCOL_DEFAULT, Protocol, default_system, model_naming
from veilring.protocols.system import PARTIES, Membership

_log = logging.getLogger("veilring.member")
_client_log = logging.getLogger("veilring.client")
_ClientRole = Callable[..., Awaitable[NDArray[np.int64]]]


class PeerTerms(Schema):
    """The terms of peers that all hold rows.

    Attributes:
        protocol: The system and its parameters, as in a scenario.
    """

    protocol: Protocol = Field(default_factory=default_system)

    @classmethod
    @override
    def load(cls, path: Path, parties: int | None = None) -> Self:
        return read_toml(path, model_naming(cls, read_tables(path))).checked(parties)

    @override
    def checked(self, parties: int | None = None) -> Self:
        super().checked(parties)
        self.membership(PARTIES if parties is None else parties)
        return self

    @override
    def to_toml(self) -> str:
        tables = self.model_dump(mode="json", exclude_defaults=True)
        if self.protocol.name != PROTOCOL_DEFAULT:
            tables["protocol"] = {"name": self.protocol.name, **tables.get("protocol", {})}
        return tomli_w.dumps(tables)

    def membership(self, parties: int, *, count: str = "roster") -> Membership:
        """Return how one of so many parties takes part.

        Args:
            parties: The number of parties.
            count: The key that an error names, if there are too few or too many.

        Raises:
            ScenarioError: If parameters do not go together, or the system needs other roles.
        """
        system = self.protocol
        if system.promise(parties=parties).epsilon is not None:
            allowed = "a system without an ε, or the roles of its own that pay from a ledger"
            raise ScenarioError("protocol.name", system.name, allowed)
        keys = {name: f"protocol.{key}" for name, key in system.aliases.items()}
        with as_scenario_errors({**keys, "parties": count}, "protocol"):
            membership = system.membership(self.facts(parties))
        if membership is None:
            allowed = "a system among peers that all hold rows, for the roles member and client"
            raise ScenarioError("protocol.name", system.name, allowed)
        return membership


class MemberConfig(ServerConfig):
    """A party that holds rows and answers queries together with all others.

    Attributes:
        role: `member`, or `ring-member` as it was called when only rings had members.
        rows: The CSV file with this party's own rows; the label is its last column.
        outside_max: The share of a column's values that may lie outside of its public range. With
            more the party does not start.
    """

    role: Literal["member", "ring-member"] = Field(description="member or ring-member")
    rows: FilePath
    outside_max: OutsideMax = OUTSIDE_MAX


class ClientConfig(AskingConfig):
    """A client that has queries labelled.

    Attributes:
        role: `client`.
        ask: The member that it asks, which sees the queries; in most systems all members do.
        outside_max: The share of a column's values in a file of queries that may lie outside of its
            public range. With more the client does not ask.
    """

    role: Literal["client"] = Field(description="client")
    outside_max: OutsideMax = OUTSIDE_MAX


async def serve_member(
    config: MemberConfig, *, on_ready: Callable[[PeerMember], None] | None = None
) -> None:
    """Be a member among peers until cancelled.

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
    terms = PeerTerms.load(Path(config.terms), len(parties))
    rows = terms.read_rows(Path(config.rows), config.outside_max, _log)
    membership, facts = terms.membership(len(parties)), terms.facts(len(parties))
    await serve_peers(
        server,
        terms.keys,
        lambda node: PeerMember(
            node, rows, parties, membership, facts, terms.digest, config.limits
        ),
        on_ready,
    )


async def serve_peers(
    server: Server,
    keys: Mapping[str, str],
    take_part: Callable[[Node], PeerMember],
    on_ready: Callable[[PeerMember], None] | None,
) -> None:
    """Serve what a member offers until it is cancelled or fails.

    Args:
        server: The place where it is reached.
        keys: What its peers have to agree with, key by key.
        take_part: Makes the member, once there is a node.
        on_ready: Called once all members are connected.
    """
    async with server.meet(keys) as met:
        member = take_part(met.node)
        async with Service(met.node, member.offers()):
            await met.all_here()
            _log.info("%s is ready", met.node.name)
            if on_ready is not None:
                on_ready(member)
            await met.stay(member.failure())


async def ask_member(config: ClientConfig, queries: Path) -> dict[str, list[str]]:
    """Have the rows of a CSV file labelled by a party and its peers.

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
        VeilringError: If they could not answer.
    """
    client = Client(config)
    terms, size, role = _agreed(Path(config.terms), len(client.roster.parties))
    features = terms.read_queries(queries, config.outside_max, _client_log)
    labels = np.zeros(len(features), dtype=np.int64)
    async with client.connect(terms.keys) as connection:
        for first in range(0, len(features), size):
            batch = slice(first, first + size)
            labels[batch] = await connection.run(role, features[batch])
    return {"label": [terms.classes[label] for label in labels]}


def _agreed(path: Path, parties: int) -> tuple[Schema, int, _ClientRole]:
    """Return the terms, how many queries are asked at once, and what the client plays."""
    if "votes" in read_tables(path):
        from veilring.deployment.votes import VotesTerms  # noqa: PLC0415  (one system of many)

        votes = VotesTerms.load(path, parties)
        role = peer_client(votes.digest, len(votes.classes), votes.parameters.epsilon)
        return votes, votes.batch, role
    terms = PeerTerms.load(path, parties)
    size = terms.membership(parties).batch_max
    return terms, size, peer_client(terms.digest, len(terms.classes))
