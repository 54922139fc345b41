"""The two roles of a tree walk: a client that hides its queries, and a server of public points."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.protocols.treewalk.algorithm.places import Places, nearest_found
from veilring.protocols.treewalk.algorithm.steps import Utility, answer_bits
from veilring.protocols.treewalk.algorithm.tree import POINTS_MAX
from veilring.protocols.treewalk.algorithm.walks import Variant, begin, leaves_below, proceed
from veilring.protocols.treewalk.messages import Bits, Found, Ground, Nodes, Request
from veilring.protocols.treewalk.plan import UTILITIES, Plan

__all__ = ("Nearest", "walk_client", "walk_server")


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """What a client learns about a batch of queries.

    Attributes:
        places: The server's numbers of the nearest point found for each query, shape (walks,).
        distances: How far they are, shape (walks,).
        found: The numbers of all points found, shape (walks, found).
    """

    places: NDArray[np.int64]
    distances: NDArray[np.float64]
    found: NDArray[np.int64]


async def walk_client(
    party: Party,
    queries: NDArray[np.float64],
    *,
    plan: Plan,
    utility: Utility,
) -> Nearest:
    """Find near points of a server without telling it the queries.

    Takes two rounds a level and one for the result. The server sees bits, as many for any query.

    Args:
        party: This participant; its one peer is the server.
        queries: Shape (plan.walks, dimensions); secret.
        plan: What both agree on.
        utility: What the steps spend, of the kind that the plan names.

    Returns:
        The nearest of what was found.

    Raises:
        InputError: If the queries or the utility do not fit; no bit was sent then.
        ProtocolViolation: If the server sent what no honest server sends.
    """
    (server,) = party.peers
    if not isinstance(utility, UTILITIES[plan.utility]):
        raise InputError("utility", type(utility).__name__, f"{plan.utility}, as in the plan")
    if queries.ndim != 2 or len(queries) != plan.walks or not np.isfinite(queries).all():  # noqa: PLR2004 (a table has two axes)
        allowed = f"finite numbers of shape ({plan.walks}, dimensions)"
        raise InputError("queries", f"of shape {queries.shape}", allowed)
    await party.send(server, _request(plan))
    depth = await _depth_of(party, server, plan, queries)
    for turn, level in enumerate(plan.variant.levels(depth)):
        threads = plan.variant.threads_at(level)
        exposed = (await party.receive(Nodes, sender=server)).values
        asked = np.repeat(queries, threads, axis=0)
        _check_finite(server, exposed, (len(asked), plan.width(queries.shape[1])))
        bits = answer_bits(utility.judge(exposed, asked, level), party.rng)
        party.round(2 * turn + 2)
        await party.send(server, Bits(packed=np.packbits(bits)))
    return await _choose(party, server, queries, plan.found(depth))


def _request(plan: Plan) -> Request:
    return Request(
        utility=plan.utility,
        variant=plan.variant.kind,
        splits=plan.variant.splits,
        neighbours=plan.neighbours,
        walks=plan.walks,
    )


async def _depth_of(party: Party, server: str, plan: Plan, queries: NDArray[np.float64]) -> int:
    ground = await party.receive(Ground, sender=server)
    if ground.points > POINTS_MAX:
        raise ProtocolViolation(server, f"claims to have {ground.points} points")
    if ground.dimensions != queries.shape[1]:
        allowed = f"shape ({plan.walks}, {ground.dimensions}), as the server's points"
        raise InputError("queries", f"of shape {queries.shape}", allowed)
    depth = (ground.points - 1).bit_length()
    plan.check(depth, ground.dimensions)
    return depth


def _check_finite(server: str, values: NDArray[np.float64], shape: tuple[int, int]) -> None:
    if values.shape != shape:
        raise ProtocolViolation(server, f"sent nodes of shape {values.shape}, not {shape}")
    if not np.isfinite(values).all():
        raise ProtocolViolation(server, "sent a node that is not finite")


async def _choose(party: Party, server: str, queries: NDArray[np.float64], found: int) -> Nearest:
    """Take what was found and choose from it: post-processing, of which the server sees nothing."""
    message = await party.receive(Found, sender=server)
    if message.places.shape != (len(queries), found):
        raise ProtocolViolation(server, f"sent places of shape {message.places.shape}")
    _check_finite(server, message.points, (len(queries) * found, queries.shape[1]))
    places = message.places.astype(np.int64)
    nearest, distances = nearest_found(queries, message.points.reshape(len(queries), found, -1))
    return Nearest(places[np.arange(len(queries)), nearest], distances, places)


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
    plan = _plan(await party.receive(Request, sender=client))
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
    numbers = tree.order[found].astype(np.uint32)
    await party.send(client, Found(places=numbers, points=tree.points[found.ravel()]))
    return np.hstack(seen)


def _plan(request: Request) -> Plan:
    variant = Variant(request.variant, request.splits)
    return Plan(request.utility, variant, request.neighbours, request.walks)


def _unpack(client: str, message: Bits, steps: int) -> NDArray[np.bool_]:
    packed = message.packed
    if len(packed) != -(-steps // 8):
        raise ProtocolViolation(client, f"sent {len(packed)} bytes of bits for {steps} steps")
    bits = np.unpackbits(packed)
    if bits[steps:].any():
        raise ProtocolViolation(client, "sent bits beyond the last step")
    return bits[:steps].astype(np.bool_)
