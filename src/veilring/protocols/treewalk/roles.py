"""The roles over a `Party`: a client that hides its queries, and a server of public points.

Each mechanism has a pair of roles: walks of many steps, and bucket responses. `offers` lists the
services of a long-running server. A `Keeper` pays for a client's messages before they are sent.
"""

from dataclasses import asdict, dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import is_table
from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.nodes.service import Offer
from veilring.protocols.treewalk.algorithm.mechanisms import (
    Comparison,
    answer_bits,
    bucket_distribution,
    bucket_points,
    respond,
    walk_loss,
)
from veilring.protocols.treewalk.algorithm.tree import POINTS_MAX, Places, depth_of, nearest_found
from veilring.protocols.treewalk.plan import (
    Bits,
    BucketRequest,
    Buckets,
    FoundPlaces,
    Ground,
    LookupPlan,
    Nodes,
    Top,
    WalkRequest,
)

BUCKET_SERVICE: Final = "treewalk.response"
"""The service of bucket responses: one message names a bucket for each query."""
WALK_SERVICE: Final = "treewalk.walk"
"""The service of walks, with many steps for each query."""


class Keeper(Protocol):
    """An account that charges each query once and replays its replies after a crash.

    A client calls it before it sends the first private bit, and before each message with private
    bits. Calls return once their effect is durable.
    """

    def pay(self, epsilon: float, found: int) -> None:
        """Pay for each query that has not been paid for.

        Args:
            epsilon: The ε of one query at delta 0.

        Raises:
            BudgetExhausted: If the budget does not suffice. The client must then send nothing.
        """

    def settle(self, turn: int, shown: Floats, said: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the replies to send: those recorded for this turn, otherwise `said`.

        Args:
            turn: The index of the message in the session, from 0.
            shown: The server's values for each query since the last turn, shape (queries, shown);
                or (1, shown) if they are equal for all queries.
            said: The reply drawn for each query, shape (queries, said).

        Raises:
            ProtocolViolation: If the server's values differ from the recorded ones: with equal
                coins for two questions, the noise would cancel out.
        """


@dataclass(frozen=True, slots=True, eq=False)
class NearestPlaces:
    """The result of a batch of queries at the client.

    Attributes:
        places: The server's number of the nearest point found for each query, shape (queries,).
        distances: The distances of these points, shape (queries,).
        found: The numbers of all points found, shape (queries, found).
        points: The coordinates of all points found, shape (queries, found, dimensions).
    """

    places: Ints
    distances: Floats
    found: Ints
    points: Floats


async def walk_client(
    party: Party,
    queries: Floats,
    *,
    plan: LookupPlan,
    steps: Comparison,
    keeper: Keeper | None = None,
) -> NearestPlaces:
    """Find near points of a server by private walks down its tree.

    A walk takes two rounds per level and one for the result. The server sees bits, the same number
    for every query.

    Args:
        keeper: Pays for the walks and remembers their bits; none by default.

    Raises:
        BudgetExhausted: If the keeper cannot pay; no bit has been sent.
    """
    (server,) = party.peers
    _check_queries(queries, plan.queries)
    await party.send(server, WalkRequest(**asdict(plan)))
    ground = await _receive_ground(party, server, queries)
    depth = depth_of(ground.points)
    plan.check(depth, ground.dimensions)
    if keeper is not None:
        keeper.pay(walk_loss(steps, depth - plan.splits), plan.found)
    for level in range(depth - plan.splits):
        exposed = (await party.receive(Nodes, sender=server)).values
        _check_numbers(server, exposed, (plan.queries,))
        bits = answer_bits(steps.judge(exposed, queries, level), party.rng)
        if keeper is not None:
            said = keeper.settle(level, exposed[:, None], bits[:, None].astype(np.uint32))
            bits = said[:, 0].astype(np.bool_)
        party.round(2 * level + 2)
        await party.send(server, Bits(packed=np.packbits(bits)))
    return await _receive_nearest(party, server, queries, plan.found, ground.points)


async def walk_server(party: Party, places: Places) -> Bools:
    """Serve one session of walks.

    Returns:
        The server's view of the queries: the bits, shape (queries, levels).
    """
    (client,) = party.peers
    tree = places.tree
    request = await party.receive(WalkRequest, sender=client)
    plan = LookupPlan(request.splits, request.neighbours, request.queries)
    plan.check(tree.depth, tree.dimensions)
    places.check_neighbours(plan.neighbours)
    await party.send(client, Ground(points=len(tree), dimensions=tree.dimensions))
    levels = tree.depth - plan.splits
    nodes, seen = np.ones(plan.queries, dtype=np.int64), [np.zeros((plan.queries, 0), np.bool_)]
    for level in range(levels):
        party.round(2 * level + 1)
        await party.send(client, Nodes(values=tree.splits[nodes]))
        bits = _unpack(client, await party.receive(Bits, sender=client), plan.queries)
        nodes = 2 * nodes + bits
        seen.append(bits[:, None])
    party.round(2 * levels + 1)
    await party.send(client, _found_message(places, plan, nodes - (1 << levels)))
    return np.hstack(seen)


async def bucket_client(
    party: Party, queries: Floats, *, plan: LookupPlan, epsilon: float, keeper: Keeper | None = None
) -> NearestPlaces:
    """Find near points of a server by naming one bucket of its tree for each query.

    The session takes one round trip, after a set-up in which the server publishes the splits above
    its buckets. The server sees one bucket number for each query.

    Args:
        keeper: Pays for the responses and remembers them; none by default.

    Returns:
        The places found with the nearest of them.

    Raises:
        BudgetExhausted: If the keeper cannot pay; nothing private has been sent.
    """
    (server,) = party.peers
    _check_queries(queries, plan.queries)
    request = BucketRequest(**asdict(plan))
    await party.send(server, request)
    ground = await _receive_ground(party, server, queries)
    depth = depth_of(ground.points)
    plan.check_response(depth, ground.dimensions)
    distribution = bucket_distribution(depth, plan.splits, epsilon)
    splits = (await party.receive(Top, sender=server)).splits
    _check_numbers(server, splits, (distribution.domain,))
    named = respond(splits, queries, distribution, party.rng).astype(np.uint32)
    if keeper is not None:
        keeper.pay(distribution.epsilon, plan.found)
        named = keeper.settle(0, splits[None], named[:, None])[:, 0]
    party.round(1)
    await party.send(server, Buckets(named=named))
    return await _receive_nearest(party, server, queries, plan.found, ground.points)


async def bucket_server(party: Party, places: Places) -> Ints:
    """Serve one session of responses.

    Returns:
        The server's view of the queries: the bucket named for each, shape (queries,).
    """
    (client,) = party.peers
    tree = places.tree
    request = await party.receive(BucketRequest, sender=client)
    plan = LookupPlan(request.splits, request.neighbours, request.queries)
    plan.check_response(tree.depth, tree.dimensions)
    places.check_neighbours(plan.neighbours)
    await party.send(client, Ground(points=len(tree), dimensions=tree.dimensions))
    splits = tree.splits[: 1 << (tree.depth - plan.splits)]
    await party.send(client, Top(splits=splits))
    named = (await party.receive(Buckets, sender=client)).named.astype(np.int64)
    if named.shape != (plan.queries,) or named.max() >= len(splits):
        raise ProtocolViolation(client, "named non-existing buckets, or too few or too many")
    party.round(2)
    await party.send(client, _found_message(places, plan, named))
    return named


def offers(places: Places, terms: bytes) -> dict[str, Offer]:
    """Return the two services of a server. They are open to everyone, since the points are public.

    Args:
        terms: The SHA-256 of the terms that clients must agree to.
    """

    async def serve_walks(party: Party, _opener: str) -> None:
        await walk_server(party, places)

    async def serve_buckets(party: Party, _opener: str) -> None:
        await bucket_server(party, places)

    return {
        WALK_SERVICE: Offer(serve_walks, terms, lambda _peer: True),
        BUCKET_SERVICE: Offer(serve_buckets, terms, lambda _peer: True),
    }


async def _receive_ground(party: Party, server: str, queries: Floats) -> Ground:
    """Receive the size of the server's tree, and check the queries against it."""
    ground = await party.receive(Ground, sender=server)
    if ground.points > POINTS_MAX:
        raise ProtocolViolation(server, f"announced {ground.points} points")
    if ground.dimensions != queries.shape[1]:
        raise InputError.because(
            f"queries has the shape {queries.shape}; it must be ({len(queries)}, "
            f"{ground.dimensions}), to match the server's points",
            field="queries",
        )
    return ground


def _unpack(client: str, message: Bits, steps: int) -> Bools:
    packed = message.packed
    if len(packed) != -(-steps // 8):
        raise ProtocolViolation(client, f"sent {len(packed)} bytes of bits for {steps} steps")
    bits = np.unpackbits(packed)
    if bits[steps:].any():
        raise ProtocolViolation(client, "sent bits beyond the last step")
    return bits[:steps].astype(np.bool_)


def _check_queries(queries: Floats, count: int) -> None:
    """Check the shape of a batch and that it is finite; the error names no value."""
    if not is_table(queries) or len(queries) != count or not np.isfinite(queries).all():
        raise InputError.because(
            f"queries has the shape {queries.shape}; it must contain finite numbers and have the "
            f"shape ({count}, dimensions)",
            field="queries",
        )


def _check_numbers(sender: str, values: Floats, shape: tuple[int, ...]) -> None:
    """Check that numbers have the expected shape and are finite."""
    if values.shape != shape:
        raise ProtocolViolation(sender, f"sent numbers of shape {values.shape}, not {shape}")
    if not np.isfinite(values).all():
        raise ProtocolViolation(sender, "sent a number that is not finite")


async def _receive_nearest(
    party: Party, server: str, queries: Floats, found: int, places_max: int
) -> NearestPlaces:
    """Receive the places and find the nearest, which is post-processing at the client.

    Args:
        places_max: The greatest possible number of places; all place numbers are below it.
    """
    message = await party.receive(FoundPlaces, sender=server)
    if message.places.shape != (len(queries), found):
        raise ProtocolViolation(server, f"sent places of shape {message.places.shape}")
    _check_numbers(server, message.points, (len(queries) * found, queries.shape[1]))
    _check_places(server, message, places_max)
    places = message.places.astype(np.int64)
    points = message.points.reshape(len(queries), found, -1)
    nearest, distances = nearest_found(queries, points)
    return NearestPlaces(places[np.arange(len(queries)), nearest], distances, places, points)


def _check_places(server: str, message: FoundPlaces, places_max: int) -> None:
    """Refuse numbers that no tree of this size has, and one number for two different points."""
    numbers = message.places.ravel()
    if numbers.max() >= places_max:
        raise ProtocolViolation(
            server, f"sent place number {numbers.max()}; the numbers must be below {places_max}"
        )
    _, first, same = np.unique(numbers, return_index=True, return_inverse=True)
    if not np.array_equal(message.points[first[same]], message.points):
        raise ProtocolViolation(server, "sent two points for one place")


def _found_message(places: Places, plan: LookupPlan, buckets: Ints) -> FoundPlaces:
    """Return the server's answer: the points of the buckets, shape (queries,)."""
    tree = places.tree
    found = places.with_neighbours(bucket_points(tree, plan.splits, buckets), plan.neighbours)
    numbers = tree.order[found].astype(np.uint32)
    return FoundPlaces(places=numbers, points=tree.points[found.ravel()])
