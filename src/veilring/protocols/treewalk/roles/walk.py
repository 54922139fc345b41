"""The walk of many steps: a client that hides its queries, and a server of public points."""

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.protocols.treewalk.algorithm.places import Places
from veilring.protocols.treewalk.algorithm.spending import spending
from veilring.protocols.treewalk.algorithm.steps import Utility, answer_bits
from veilring.protocols.treewalk.algorithm.walks import begin, leaves_below, proceed
from veilring.protocols.treewalk.messages import Bits, Ground, Nodes, Request
from veilring.protocols.treewalk.plan import UTILITIES, Plan
from veilring.protocols.treewalk.roles.found import (
    Nearest,
    check_ground,
    check_numbers,
    check_queries_of,
    choose,
    found_message,
)
from veilring.protocols.treewalk.roles.keeper import Keeper


async def walk_client(
    party: Party,
    queries: NDArray[np.float64],
    *,
    plan: Plan,
    utility: Utility,
    keeper: Keeper | None = None,
) -> Nearest:
    """Find near points of a server without telling it the queries.

    Takes two rounds a level and one for the result. The server sees bits, as many for any query.

    Args:
        party: This participant; its one peer is the server.
        queries: Shape (plan.walks, dimensions); secret.
        plan: What both agree on.
        utility: What the steps spend, of the kind that the plan names.
        keeper: Pays for the walks and remembers their bits, if given.

    Returns:
        The nearest of what was found.

    Raises:
        InputError: If the queries or the utility do not fit; no bit was sent then.
        BudgetExhausted: If the keeper cannot pay; no bit was sent then.
        ProtocolViolation: If the server sent what no honest server sends.
    """
    (server,) = party.peers
    if not isinstance(utility, UTILITIES[plan.utility]):
        raise InputError("utility", type(utility).__name__, f"{plan.utility}, as in the plan")
    check_queries_of(queries, plan.walks)
    await party.send(server, plan.request)
    depth = await _depth_of(party, server, plan, queries)
    if keeper is not None:
        spent = spending(utility, plan.variant, depth, 0.0)
        keeper.pay(spent.loss(keeper.radius), plan.found(depth))
    for turn, level in enumerate(plan.variant.levels(depth)):
        threads = plan.variant.threads_at(level)
        exposed = (await party.receive(Nodes, sender=server)).values
        asked = np.repeat(queries, threads, axis=0)
        check_numbers(server, exposed, (len(asked), plan.width(queries.shape[1])))
        bits = answer_bits(utility.judge(exposed, asked, level), party.rng)
        if keeper is not None:
            shown, said = exposed.reshape(plan.walks, -1), bits.reshape(plan.walks, -1)
            bits = keeper.settle(turn, shown, said.astype(np.uint32)).ravel().astype(np.bool_)
        party.round(2 * turn + 2)
        await party.send(server, Bits(packed=np.packbits(bits)))
    return await choose(party, server, queries, plan.found(depth))


async def _depth_of(party: Party, server: str, plan: Plan, queries: NDArray[np.float64]) -> int:
    ground = await party.receive(Ground, sender=server)
    depth = check_ground(server, ground, queries)
    plan.check(depth, ground.dimensions)
    return depth


async def walk_server(party: Party, places: Places) -> NDArray[np.bool_]:
    """Serve one session of walks.

    Args:
        party: This participant; its one peer is the client.
        places: What it holds.

    Returns:
        All that it saw of the queries: the bits, shape (walks, compositions).

    Raises:
        InputError: If the client asked for walks that this tree cannot serve.
        ProtocolViolation: If it sent what no honest client sends.
    """
    (client,) = party.peers
    tree = places.tree
    plan = Plan.requested(await party.receive(Request, sender=client))
    plan.check(tree.depth, tree.dimensions)
    places.check_neighbours(plan.neighbours)
    await party.send(client, Ground(points=len(tree), dimensions=tree.dimensions))
    exposing = UTILITIES[plan.utility]
    nodes, seen = begin(plan.variant, plan.walks), [np.zeros((plan.walks, 0), dtype=np.bool_)]
    for turn, level in enumerate(plan.variant.levels(tree.depth)):
        party.round(2 * turn + 1)
        await party.send(client, Nodes(values=exposing.expose(tree, level, nodes.ravel())))
        message = await party.receive(Bits, sender=client)
        bits = _unpack(client, message, nodes.size).reshape(plan.walks, -1)
        seen.append(bits)
        nodes = proceed(plan.variant, nodes, bits)
    found = places.with_neighbours(leaves_below(tree, plan.variant, nodes), plan.neighbours)
    party.round(2 * len(plan.variant.levels(tree.depth)) + 1)
    await party.send(client, found_message(tree, found))
    return np.hstack(seen)


def _unpack(client: str, message: Bits, steps: int) -> NDArray[np.bool_]:
    packed = message.packed
    if len(packed) != -(-steps // 8):
        raise ProtocolViolation(client, f"sent {len(packed)} bytes of bits for {steps} steps")
    bits = np.unpackbits(packed)
    if bits[steps:].any():
        raise ProtocolViolation(client, "sent bits beyond the last step")
    return bits[:steps].astype(np.bool_)
