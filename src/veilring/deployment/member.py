"""`veilring serve`: one member of a ring, for as long as it is wanted."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from veilring.deployment.config import MemberConfig, load_credentials
from veilring.deployment.connecting import require_party
from veilring.deployment.terms import load_terms
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import Service
from veilring.protocols.ring.member import RingMember
from veilring.randomness import Streams
from veilring.transport.tls import TlsEndpoint

__all__ = ("PEERS_SECONDS", "serve")

# The parties of a deployment are started by different people on different machines: a member waits
# a day for the others before it gives up and says who is missing.
PEERS_SECONDS: Final = 86_400.0

_log = logging.getLogger("veilring.member")


async def serve(
    config: MemberConfig, *, on_ready: Callable[[RingMember], None] | None = None
) -> None:
    """Be a member of a ring until cancelled.

    All files are read and checked first; then the member waits for the others, and answers. A
    member that was lost is dialled again, and takes part again in what is asked after that.

    A cancelled member leaves in order, also while it waits: it says goodbye, and the sessions that
    are open end at all parties.

    Args:
        config: Which files to read, and where to listen.
        on_ready: Called once all members are connected.

    Raises:
        ScenarioError: If a file does not fit.
        HandshakeError: If a member is missing after `PEERS_SECONDS`, or will never fit.
    """
    identity, roster = load_credentials(config)
    terms = load_terms(Path(config.terms), len(roster.parties))
    rows = terms.read_rows(Path(config.rows))
    require_party(roster, "identity", identity.name)
    _log.info("%s waits for all of %s", identity.name, ", ".join(roster.parties))
    endpoint = await TlsEndpoint.start(
        identity, roster, listen_host=config.listen, timeout=PEERS_SECONDS
    )
    async with Node(endpoint, Streams()) as node:
        parties = Parties(roster.parties)
        member = RingMember(node, rows, parties, terms.parameters, terms.digest)
        async with Service(node, member.offers()):
            _log.info("%s is ready", node.name)
            if on_ready is not None:
                on_ready(member)
            await asyncio.Event().wait()
