"""How parties of a deployment meet: one listens and answers, another connects to it and asks."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from logging import Logger
from types import MappingProxyType
from typing import Final

from veilring.errors import ScenarioError, SessionAborted
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import Offer, Service
from veilring.randomness import Streams
from veilring.transport.identity import Identity
from veilring.transport.roster import Roster
from veilring.transport.tls import TlsEndpoint

__all__ = ("CONNECT_SECONDS", "PEERS_SECONDS", "answering", "connected", "meeting", "require_party")

# Somebody sits and waits for the answer.
CONNECT_SECONDS: Final = 10.0

# The parties of a deployment are started by different people on different machines: a member waits
# a day for the others before it gives up and says who is missing.
PEERS_SECONDS: Final = 86_400.0

# By the reason of a refusal; it is shown below the error. The first is for one who refused us, the
# second for one who refused whom we asked.
_HINTS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "OtherTerms": (
            "Its file of terms says something else than yours.",
            "{culprit}'s terms say something else than {by}'s.",
        ),
        "NotOffered": (
            "It does not do this, or not for you: its configuration says for whom.",
            "{culprit} does not do this, or not for {by}.",
        ),
    }
)


def require_party(roster: Roster, key: str, name: str) -> None:
    """Refuse a name that is no party's: clients cannot be asked, and do not serve.

    Args:
        roster: Who takes part.
        key: Where the name stands in the configuration.
        name: Whose.

    Raises:
        ScenarioError: It lists the parties.
    """
    if name not in roster.parties:
        raise ScenarioError(key, name, f"a party: {', '.join(roster.parties)}")


@asynccontextmanager
async def answering(
    identity: Identity,
    roster: Roster,
    listen: str,
    offers: Mapping[str, Offer],
    log: Logger,
    *,
    kept: str = "",
) -> AsyncIterator[None]:
    """Listen, and answer whoever asks for an offer, until the context is left.

    Args:
        identity: Who listens.
        roster: Who may connect.
        listen: The address to listen at.
        offers: What is offered, by name.
        log: Where it says that it is ready.
        kept: What its files hold, to be said with that.

    Raises:
        AddressTaken: If another process has the address.
    """
    endpoint = await TlsEndpoint.start(identity, roster, listen_host=listen, connect_to=())
    async with Node(endpoint, Streams()) as node, Service(node, offers):
        with _saying_when_it_leaves(node.name, log):
            log.info("%s is ready%s", node.name, kept and f": {kept}")
            yield


@asynccontextmanager
async def meeting(
    identity: Identity, roster: Roster, listen: str, log: Logger
) -> AsyncIterator[Node]:
    """Wait for all other parties, and yield a node that is connected with them.

    Args:
        identity: Who waits: a party.
        roster: Who takes part.
        listen: The address to listen at.
        log: Where it says for whom it waits.

    Raises:
        ScenarioError: If it is no party.
        AddressTaken: If another process has the address.
        HandshakeError: If a party is missing after `PEERS_SECONDS`, or will never fit.
    """
    require_party(roster, "identity", identity.name)
    log.info("%s waits for all of %s", identity.name, ", ".join(roster.parties))
    with _saying_when_it_leaves(identity.name, log):
        endpoint = await TlsEndpoint.start(
            identity, roster, listen_host=listen, timeout=PEERS_SECONDS
        )
    async with Node(endpoint, Streams()) as node:
        with _saying_when_it_leaves(identity.name, log):
            yield node


@contextmanager
def _saying_when_it_leaves(name: str, log: Logger) -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        log.info("%s is leaving", name)
        raise


@asynccontextmanager
async def connected(
    identity: Identity, roster: Roster, server: str
) -> AsyncIterator[tuple[Node, Parties]]:
    """Yield a node that is connected with one party, and the pair of both for its sessions.

    Raises:
        HandshakeError: If the party cannot be reached within `CONNECT_SECONDS`.
        SessionAborted: If it refused what was asked of it, with a note that says why.
    """
    endpoint = await TlsEndpoint.start(
        identity, roster, connect_to=(server,), timeout=CONNECT_SECONDS
    )
    async with Node(endpoint, Streams()) as node:
        try:
            yield node, Parties((identity.name, server))
        except SessionAborted as error:
            if error.reason in _HINTS:
                direct, passed_on = _HINTS[error.reason]
                hint = passed_on if error.culprit else direct
                error.add_note(hint.format(culprit=error.culprit, by=error.by))
            raise
