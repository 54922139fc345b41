"""One bucket in one message: the client knows the top of the tree and names a bucket privately."""

import numpy as np
from numpy.typing import NDArray

from veilring.errors import ProtocolViolation
from veilring.nodes.party import Party
from veilring.protocols.treewalk.algorithm.places import Places
from veilring.protocols.treewalk.algorithm.rivals import bucket_law, points_of, respond
from veilring.protocols.treewalk.messages import BucketRequest, Buckets, Ground, Top
from veilring.protocols.treewalk.one_message import BucketPlan, KnownTop
from veilring.protocols.treewalk.roles.found import (
    Nearest,
    check_ground,
    check_numbers,
    check_queries_of,
    choose,
    found_message,
)
from veilring.protocols.treewalk.roles.keeper import Keeper


async def bucket_client(
    party: Party,
    queries: NDArray[np.float64],
    *,
    plan: BucketPlan,
    epsilon: float,
    known: KnownTop | None = None,
    keeper: Keeper | None = None,
) -> tuple[Nearest, KnownTop]:
    """Find near points of a server by naming one bucket of its tree for each query.

    Takes one round trip, after a set-up in which the server publishes the splits above its buckets.
    It sees one number for each query.

    Args:
        party: This participant; its one peer is the server.
        queries: Shape (plan.queries, dimensions); secret.
        plan: What both agree on.
        epsilon: What a response spends; above 0 and at most 40.
        known: The splits from an earlier session: they are not sent again if they still hold.
        keeper: Pays for the responses and remembers them, if given.

    Returns:
        The nearest of what was found, and the splits, for next time.

    Raises:
        InputError: If the queries or epsilon do not fit; nothing private was sent then.
        BudgetExhausted: If the keeper cannot pay; nothing private was sent then.
        ProtocolViolation: If the server sent what no honest server sends.
    """
    (server,) = party.peers
    check_queries_of(queries, plan.queries)
    await party.send(server, plan.request(known.digest if known else b""))
    ground = await party.receive(Ground, sender=server)
    depth = check_ground(server, ground, queries)
    plan.check(depth, ground.dimensions)
    law = bucket_law(depth, plan.splits, epsilon)
    splits = (await party.receive(Top, sender=server)).splits
    if known is not None and not len(splits):
        splits = known.splits
    check_numbers(server, splits, (law.domain,))
    named = respond(splits, queries, law, party.rng).astype(np.uint32)
    if keeper is not None:
        keeper.pay(law.epsilon, plan.found)
        named = keeper.settle(0, splits[None], named[:, None])[:, 0]
    party.round(1)
    await party.send(server, Buckets(named=named))
    return await choose(party, server, queries, plan.found), KnownTop(splits)


async def bucket_server(party: Party, places: Places) -> NDArray[np.int64]:
    """Serve one session of responses.

    Args:
        party: This participant; its one peer is the client.
        places: What it holds.

    Returns:
        All that it saw of the queries: the bucket that was named for each, shape (queries,).

    Raises:
        InputError: If the client asked for buckets that this tree does not have.
        ProtocolViolation: If it sent what no honest client sends.
    """
    (client,) = party.peers
    tree = places.tree
    request = await party.receive(BucketRequest, sender=client)
    plan = BucketPlan(request.splits, request.neighbours, request.queries)
    plan.check(tree.depth, tree.dimensions)
    places.check_neighbours(plan.neighbours)
    await party.send(client, Ground(points=len(tree), dimensions=tree.dimensions))
    top = KnownTop(tree.splits[: 1 << (tree.depth - plan.splits)])
    is_known = request.known == top.digest
    await party.send(client, Top(splits=top.splits[:0] if is_known else top.splits))
    named = (await party.receive(Buckets, sender=client)).named.astype(np.int64)
    if named.shape != (plan.queries,) or named.max() >= len(top.splits):
        raise ProtocolViolation(client, "named buckets that there are not, or too few or many")
    found = places.with_neighbours(points_of(tree, plan.splits, named), plan.neighbours)
    party.round(2)
    await party.send(client, found_message(tree, found))
    return named
