"""The role of tests of both lookups; processes import this module, so it imports little."""

from typing import Any

from veilring.nodes.party import Party
from veilring.protocols.treewalk.algorithm.tree import Places
from veilring.protocols.treewalk.roles import bucket_client, bucket_server, walk_client, walk_server


async def lookup(party: Party, own: Any, *, by: str, **public: Any) -> Any:
    """Play the client if the party's data are queries, and the server if they are places."""
    if isinstance(own, Places):
        return await (bucket_server if by == "response" else walk_server)(party, own)
    return await (bucket_client if by == "response" else walk_client)(party, own, **public)
