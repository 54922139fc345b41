"""`veilring serve`: one member of a ring, for as long as it is wanted."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from veilring.deployment.config import MemberConfig, load_credentials
from veilring.deployment.connecting import meeting
from veilring.deployment.terms import load_terms
from veilring.nodes.party import Parties
from veilring.nodes.service import Service
from veilring.protocols.ring.member import RingMember

_log = logging.getLogger("veilring.member")


async def serve(
    config: MemberConfig, *, on_ready: Callable[[RingMember], None] | None = None
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
    identity, roster = load_credentials(config)
    terms = load_terms(Path(config.terms), len(roster.parties))
    rows = terms.read_own_rows(Path(config.rows), config.outside_max, _log)
    async with meeting(identity, roster, config.listen, _log, config.limits, terms.keys) as met:
        parties = Parties(roster.parties)
        member = RingMember(met.node, rows, parties, terms.parameters, terms.digest, config.limits)
        async with Service(met.node, member.offers()):
            await met.all_here()
            _log.info("%s is ready", met.node.name)
            if on_ready is not None:
                on_ready(member)
            await met.stay(asyncio.Event().wait())
