"""What a long-lived server of places offers, and the roles by which a client opens a session."""

from typing import Final

from veilring.nodes.party import Party
from veilring.nodes.service import Offer
from veilring.protocols.treewalk.algorithm.places import Places
from veilring.protocols.treewalk.roles import bucket_server, walk_server

RESPONSE: Final = "treewalk.response"
"""One bucket for each query, named in one message."""
WALK: Final = "treewalk.walk"
"""A walk of many steps for each query."""


def offers(places: Places, terms: bytes) -> dict[str, Offer]:
    """Return both services of a server. Anybody may use them: what it holds is public.

    Args:
        places: What it holds.
        terms: SHA-256 of all that clients must agree to.
    """

    async def walk(party: Party, _opener: str) -> None:
        await walk_server(party, places)

    async def respond(party: Party, _opener: str) -> None:
        await bucket_server(party, places)

    return {
        WALK: Offer(walk, terms, lambda _peer: True),
        RESPONSE: Offer(respond, terms, lambda _peer: True),
    }
