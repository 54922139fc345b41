"""Both roles of each mechanism in one for a cluster: a party with queries is the client."""

import numpy as np

from veilring.nodes.party import Party
from veilring.protocols.treewalk.algorithm.one_message import Blur
from veilring.protocols.treewalk.algorithm.tree import Places
from veilring.protocols.treewalk.algorithm.walks import Utility
from veilring.protocols.treewalk.plan import BlurPlan, BucketPlan, KnownTop, WalkPlan
from veilring.protocols.treewalk.roles import (
    blur_client,
    blur_server,
    bucket_client,
    bucket_server,
    walk_client,
    walk_server,
)


async def tree_walk(party: Party, own: object, *, plan: WalkPlan, utility: Utility) -> object:
    """Play the client if the party's data are queries, and the server if they are places."""
    if isinstance(own, Places):
        return await walk_server(party, own)
    assert isinstance(own, np.ndarray)
    return await walk_client(party, own, plan=plan, utility=utility)


async def responded(
    party: Party, own: object, *, plan: BucketPlan, epsilon: float, known: KnownTop | None = None
) -> object:
    """Play the client of bucket responses, or their server."""
    if isinstance(own, Places):
        return await bucket_server(party, own)
    assert isinstance(own, np.ndarray)
    return await bucket_client(party, own, plan=plan, epsilon=epsilon, known=known)


async def blurred(party: Party, own: object, *, plan: BlurPlan, by: Blur) -> object:
    """Play the client of blurred queries, or their server."""
    if isinstance(own, Places):
        return await blur_server(party, own)
    assert isinstance(own, np.ndarray)
    return await blur_client(party, own, plan=plan, by=by)
