"""Both roles of each mechanism in one for a cluster: a party with queries is the client."""

import numpy as np

from veilring.nodes.party import Party
from veilring.protocols.treewalk.algorithm.mechanisms import Comparison
from veilring.protocols.treewalk.algorithm.tree import Places
from veilring.protocols.treewalk.plan import KnownTop, LookupPlan
from veilring.protocols.treewalk.roles import bucket_client, bucket_server, walk_client, walk_server


async def tree_walk(party: Party, own: object, *, plan: LookupPlan, steps: Comparison) -> object:
    """Play the client if the party's data are queries, and the server if they are places."""
    if isinstance(own, Places):
        return await walk_server(party, own)
    assert isinstance(own, np.ndarray)
    return await walk_client(party, own, plan=plan, steps=steps)


async def responded(
    party: Party, own: object, *, plan: LookupPlan, epsilon: float, known: KnownTop | None = None
) -> object:
    """Play the client of bucket responses, or their server."""
    if isinstance(own, Places):
        return await bucket_server(party, own)
    assert isinstance(own, np.ndarray)
    return await bucket_client(party, own, plan=plan, epsilon=epsilon, known=known)
