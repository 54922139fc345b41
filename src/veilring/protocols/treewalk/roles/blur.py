"""One blurred point in one message: geo-indistinguishability, which is no local privacy."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.nodes.party import Party
from veilring.protocols.treewalk.algorithm.places import Places
from veilring.protocols.treewalk.algorithm.rivals import Blur, blur
from veilring.protocols.treewalk.messages import Blurred
from veilring.protocols.treewalk.one_message import BlurPlan
from veilring.protocols.treewalk.roles.found import (
    Nearest,
    check_finite,
    check_queries_of,
    choose,
    found_message,
)
from veilring.protocols.treewalk.roles.keeper import Keeper

# What the server has shown before the queries: the same for all.
_NOTHING: Final = np.zeros((1, 0))


async def blur_client(
    party: Party,
    queries: NDArray[np.float64],
    *,
    plan: BlurPlan,
    by: Blur,
    keeper: Keeper | None = None,
) -> Nearest:
    """Find near points of a server by asking for what is nearest to a blurred query.

    Takes one round trip. The server sees about where each query is.

    Args:
        party: This participant; its one peer is the server.
        queries: Shape (plan.queries, dimensions); secret.
        plan: What both agree on.
        by: The noise: two queries at distance s are told apart by at most e**by.loss(s).
        keeper: Pays for the queries and remembers where they were moved to, if given. It has a
            radius, since blur does not hide which of two far places a query is near.

    Returns:
        The nearest to the query itself of what was found.

    Raises:
        InputError: If the queries or the keeper do not fit; nothing was sent then.
        BudgetExhausted: If the keeper cannot pay; nothing was sent then.
        ProtocolViolation: If the server sent what no honest server sends.
    """
    (server,) = party.peers
    check_queries_of(queries, plan.queries)
    moved = blur(queries, by, party.rng)
    if keeper is not None:
        keeper.pay(by.loss(keeper.radius), plan.nearest)
        said = keeper.settle(0, _NOTHING, moved.astype("<f8").view("<u4"))
        moved = said.astype("<u4").view("<f8").astype(np.float64)
    party.round(1)
    await party.send(server, Blurred(points=moved, nearest=plan.nearest))
    return await choose(party, server, queries, plan.nearest)


async def blur_server(party: Party, places: Places) -> NDArray[np.float64]:
    """Serve one session of blurred queries.

    Args:
        party: This participant; its one peer is the client.
        places: What it holds.

    Returns:
        All that it saw of the queries: the blurred ones.

    Raises:
        InputError: If the client asked for more than there is, or in other dimensions.
        ProtocolViolation: If it sent what no honest client sends.
    """
    (client,) = party.peers
    asked = await party.receive(Blurred, sender=client)
    check_finite(client, asked.points)
    plan = BlurPlan(asked.nearest, len(asked.points))
    plan.check(places.tree.dimensions)
    found = places.nearest(asked.points, plan.nearest)
    party.round(2)
    await party.send(client, found_message(places.tree, found))
    return asked.points
