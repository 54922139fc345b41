"""The two roles as one, for a cluster: who holds queries is the client."""

import numpy as np

from veilring.nodes.party import Party
from veilring.protocols.treewalk.algorithm.places import Places
from veilring.protocols.treewalk.algorithm.steps import Utility
from veilring.protocols.treewalk.plan import Plan
from veilring.protocols.treewalk.roles import walk_client, walk_server

__all__ = ("tree_walk",)


async def tree_walk(party: Party, own: object, *, plan: Plan, utility: Utility) -> object:
    """Be the client if the own data are queries, and the server if they are places."""
    if isinstance(own, Places):
        return await walk_server(party, own)
    assert isinstance(own, np.ndarray)
    return await walk_client(party, own, plan=plan, utility=utility)
