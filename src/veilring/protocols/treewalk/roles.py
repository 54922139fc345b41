"""The roles over a `Party`: a client that hides its queries, and a server of public points.

There is a pair for each mechanism: walks of many steps, bucket responses, and blurred queries
(geo-indistinguishability, which is no local privacy). `offers` is what a long-lived server offers.
A `Keeper` pays for what a client says, before it says it.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from veilring.data.table import is_table
from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.nodes.service import Offer
from veilring.protocols.treewalk.algorithm.one_message import (
    Blur,
    blur,
    bucket_law,
    bucket_points,
    respond,
)
from veilring.protocols.treewalk.algorithm.tree import (
    POINTS_MAX,
    Places,
    Tree,
    depth_of,
    nearest_found,
)
from veilring.protocols.treewalk.algorithm.walks import (
    Utility,
    advance_threads,
    answer_bits,
    leaves_below,
    spending,
    start_threads,
)
from veilring.protocols.treewalk.messages import (
    Bits,
    Blurred,
    BucketRequest,
    Buckets,
    FoundPlaces,
    Ground,
    Nodes,
    Top,
    WalkRequest,
)
from veilring.protocols.treewalk.plan import UTILITIES, BlurPlan, BucketPlan, KnownTop, WalkPlan

BUCKET_SERVICE: Final = "treewalk.response"
"""One bucket for each query, named in one message."""
WALK_SERVICE: Final = "treewalk.walk"
"""A walk of many steps for each query."""
# What the server has shown before the queries: the same for all.
_NOTHING: Final = np.zeros((1, 0))


class Keeper(Protocol):
    """Pays once for each query of a batch, and has the client say the same again after a crash.

    A client calls it before the first private bit leaves, and before each message with such bits.
    Calls return when what they did is durable.
    """

    @property
    def radius(self) -> float:
        """How far apart two queries are at most of which one may not be told from the other.

        A client pays the loss between two such queries. Infinite for any two.
        """
        ...

    def pay(self, epsilon: float, found: int) -> None:
        """Pay for each query, unless that was done before.

        Args:
            epsilon: What one query spends at delta 0, within the radius.
            found: How many places will be found for it.

        Raises:
            BudgetExhausted: If the budget does not suffice. Nothing may be sent then.
            InputError: If the answer is too large to be remembered, or epsilon is not finite.
        """

    def settle(
        self, turn: int, shown: NDArray[np.float64], said: NDArray[np.uint32]
    ) -> NDArray[np.uint32]:
        """Return what is to be said: what was said before in this place, or else `said`.

        Args:
            turn: Which message of the session, from 0.
            shown: What the server has shown for each query since the last turn, shape (queries,
                shown); or (1, shown) if it has shown the same for all.
            said: What was drawn for each query, shape (queries, said).

        Raises:
            ProtocolViolation: If the server shows something else than it did before: the same coins
                over other questions would cancel out.
        """


@dataclass(frozen=True, slots=True, eq=False)
class NearestPlaces:
    """What a client learns about a batch of queries.

    Attributes:
        places: The server's numbers of the nearest point found for each query, shape (queries,).
        distances: How far they are, shape (queries,).
        found: The numbers of all points found, shape (queries, found).
        points: Where these are, shape (queries, found, dimensions).
    """

    places: NDArray[np.int64]
    distances: NDArray[np.float64]
    found: NDArray[np.int64]
    points: NDArray[np.float64]


async def walk_client(
    party: Party,
    queries: NDArray[np.float64],
    *,
    plan: WalkPlan,
    utility: Utility,
    keeper: Keeper | None = None,
) -> NearestPlaces:
    """Find near points of a server without telling it the queries.

    Takes two rounds a level and one for the result. The server sees bits, as many for any query.

    Args:
        party: This participant; its one peer is the server.
        queries: Shape (plan.walks, dimensions); secret.
        plan: What both agree on.
        utility: What the steps spend, of the kind that the plan names.
        keeper: Pays for the walks and remembers their bits; none by default.

    Returns:
        The nearest of the places that were found.

    Raises:
        InputError: If the queries or the utility do not fit; no bit was sent then.
        BudgetExhausted: If the keeper cannot pay; no bit was sent then.
        ProtocolViolation: If the server sent what no honest server sends.
    """
    (server,) = party.peers
    if not isinstance(utility, UTILITIES[plan.utility]):
        raise InputError("utility", type(utility).__name__, f"{plan.utility}, as in the plan")
    _check_queries(queries, plan.walks)
    await party.send(server, plan.request)
    ground = await _receive_ground(party, server, plan, queries)
    depth = depth_of(ground.points)
    if keeper is not None:
        spent = spending(utility, plan.variant, depth, 0.0)
        keeper.pay(spent.loss(keeper.radius), plan.found(depth))
    for turn, level in enumerate(plan.variant.levels(depth)):
        threads = plan.variant.threads_at(level)
        exposed = (await party.receive(Nodes, sender=server)).values
        asked = np.repeat(queries, threads, axis=0)
        _check_numbers(server, exposed, (len(asked), plan.width(queries.shape[1])))
        bits = answer_bits(utility.judge(exposed, asked, level), party.rng)
        if keeper is not None:
            shown, said = exposed.reshape(plan.walks, -1), bits.reshape(plan.walks, -1)
            bits = keeper.settle(turn, shown, said.astype(np.uint32)).ravel().astype(np.bool_)
        party.round(2 * turn + 2)
        await party.send(server, Bits(packed=np.packbits(bits)))
    return await _receive_nearest(party, server, queries, plan.found(depth), ground.points)


async def walk_server(party: Party, places: Places) -> NDArray[np.bool_]:
    """Serve one session of walks.

    Args:
        party: This participant; its one peer is the client.
        places: What the server holds.

    Returns:
        All that the server saw of the queries: the bits, shape (walks, compositions).

    Raises:
        InputError: If the client asked for walks that this tree cannot serve.
        ProtocolViolation: If it sent what no honest client sends.
    """
    (client,) = party.peers
    tree = places.tree
    plan = WalkPlan.requested(await party.receive(WalkRequest, sender=client))
    plan.check(tree.depth, tree.dimensions)
    places.check_neighbours(plan.neighbours)
    await party.send(client, Ground(points=len(tree), dimensions=tree.dimensions))
    exposing = UTILITIES[plan.utility]
    nodes, seen = (
        start_threads(plan.variant, plan.walks),
        [np.zeros((plan.walks, 0), dtype=np.bool_)],
    )
    for turn, level in enumerate(plan.variant.levels(tree.depth)):
        party.round(2 * turn + 1)
        await party.send(client, Nodes(values=exposing.expose(tree, level, nodes.ravel())))
        message = await party.receive(Bits, sender=client)
        bits = _unpack(client, message, nodes.size).reshape(plan.walks, -1)
        seen.append(bits)
        nodes = advance_threads(plan.variant, nodes, bits)
    found = places.with_neighbours(leaves_below(tree, plan.variant, nodes), plan.neighbours)
    party.round(2 * len(plan.variant.levels(tree.depth)) + 1)
    await party.send(client, _found_message(tree, found))
    return np.hstack(seen)


async def bucket_client(
    party: Party,
    queries: NDArray[np.float64],
    *,
    plan: BucketPlan,
    epsilon: float,
    known: KnownTop | None = None,
    keeper: Keeper | None = None,
) -> tuple[NearestPlaces, KnownTop]:
    """Find near points of a server by naming one bucket of its tree for each query.

    Takes one round trip, after a set-up in which the server publishes the splits above its buckets.
    It sees one number for each query.

    Args:
        party: This participant; its one peer is the server.
        queries: Shape (plan.queries, dimensions); secret.
        plan: What both agree on.
        epsilon: What a response spends; above 0 and at most 40.
        known: The splits from an earlier session: they are not sent again if they still hold.
        keeper: Pays for the responses and remembers them; none by default.

    Returns:
        The nearest of the places that were found, and the splits, for next time.

    Raises:
        InputError: If the queries or epsilon do not fit; nothing private was sent then.
        BudgetExhausted: If the keeper cannot pay; nothing private was sent then.
        ProtocolViolation: If the server sent what no honest server sends.
    """
    (server,) = party.peers
    _check_queries(queries, plan.queries)
    await party.send(server, plan.request(known.digest if known else b""))
    ground = await _receive_ground(party, server, plan, queries)
    law = bucket_law(depth_of(ground.points), plan.splits, epsilon)
    splits = (await party.receive(Top, sender=server)).splits
    if known is not None and not len(splits):
        splits = known.splits
    _check_numbers(server, splits, (law.domain,))
    named = respond(splits, queries, law, party.rng).astype(np.uint32)
    if keeper is not None:
        keeper.pay(law.epsilon, plan.found)
        named = keeper.settle(0, splits[None], named[:, None])[:, 0]
    party.round(1)
    await party.send(server, Buckets(named=named))
    nearest = await _receive_nearest(party, server, queries, plan.found, ground.points)
    return nearest, KnownTop(splits)


async def bucket_server(party: Party, places: Places) -> NDArray[np.int64]:
    """Serve one session of responses.

    Args:
        party: This participant; its one peer is the client.
        places: What the server holds.

    Returns:
        All that the server saw of the queries: the bucket named for each, shape (queries,).

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
        raise ProtocolViolation(client, "named non-existing buckets, or too few or too many")
    found = places.with_neighbours(bucket_points(tree, plan.splits, named), plan.neighbours)
    party.round(2)
    await party.send(client, _found_message(tree, found))
    return named


async def blur_client(
    party: Party,
    queries: NDArray[np.float64],
    *,
    plan: BlurPlan,
    by: Blur,
    keeper: Keeper | None = None,
) -> NearestPlaces:
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
        The places that were found, and which is nearest to the query itself.

    Raises:
        InputError: If the queries or the keeper do not fit; nothing was sent then.
        BudgetExhausted: If the keeper cannot pay; nothing was sent then.
        ProtocolViolation: If the server sent what no honest server sends.
    """
    (server,) = party.peers
    _check_queries(queries, plan.queries)
    moved = blur(queries, by, party.rng)
    if keeper is not None:
        keeper.pay(by.loss(keeper.radius), plan.nearest)
        said = keeper.settle(0, _NOTHING, moved.astype("<f8").view("<u4"))
        moved = said.astype("<u4").view("<f8").astype(np.float64)
    party.round(1)
    await party.send(server, Blurred(points=moved, nearest=plan.nearest))
    # How many points there are is not said before a blurred query, so that any number may be one.
    return await _receive_nearest(party, server, queries, plan.nearest, POINTS_MAX)


async def blur_server(party: Party, places: Places) -> NDArray[np.float64]:
    """Serve one session of blurred queries.

    Args:
        party: This participant; its one peer is the client.
        places: What the server holds.

    Returns:
        All that the server saw of the queries: the blurred ones.

    Raises:
        InputError: If the client asked for more than there is, or in other dimensions.
        ProtocolViolation: If it sent what no honest client sends.
    """
    (client,) = party.peers
    asked = await party.receive(Blurred, sender=client)
    _check_finite(client, asked.points)
    plan = BlurPlan(asked.nearest, len(asked.points))
    plan.check(places.tree.dimensions)
    found = places.nearest(asked.points, plan.nearest)
    party.round(2)
    await party.send(client, _found_message(places.tree, found))
    return asked.points


def offers(places: Places, terms: bytes) -> dict[str, Offer]:
    """Return both services of a server. Anybody may use them: what it holds is public.

    Args:
        places: What the server holds.
        terms: SHA-256 of all that clients must agree to.
    """

    async def serve_walks(party: Party, _opener: str) -> None:
        await walk_server(party, places)

    async def serve_buckets(party: Party, _opener: str) -> None:
        await bucket_server(party, places)

    return {
        WALK_SERVICE: Offer(serve_walks, terms, lambda _peer: True),
        BUCKET_SERVICE: Offer(serve_buckets, terms, lambda _peer: True),
    }


async def _receive_ground(
    party: Party, server: str, plan: WalkPlan | BucketPlan, queries: NDArray[np.float64]
) -> Ground:
    """Receive and return the size of the server's tree, if the plan fits the tree."""
    ground = await party.receive(Ground, sender=server)
    if ground.points > POINTS_MAX:
        raise ProtocolViolation(server, f"announced {ground.points} points")
    if ground.dimensions != queries.shape[1]:
        raise InputError.because(
            f"queries has the shape {queries.shape}; it must be ({len(queries)}, "
            f"{ground.dimensions}), as the server's points have",
            field="queries",
        )
    plan.check(depth_of(ground.points), ground.dimensions)
    return ground


def _unpack(client: str, message: Bits, steps: int) -> NDArray[np.bool_]:
    packed = message.packed
    if len(packed) != -(-steps // 8):
        raise ProtocolViolation(client, f"sent {len(packed)} bytes of bits for {steps} steps")
    bits = np.unpackbits(packed)
    if bits[steps:].any():
        raise ProtocolViolation(client, "sent bits beyond the last step")
    return bits[:steps].astype(np.bool_)


def _check_queries(queries: NDArray[np.float64], count: int) -> None:
    """Refuse what is no batch of the given number of queries; the error names no value."""
    if not is_table(queries) or len(queries) != count or not np.isfinite(queries).all():
        raise InputError.because(
            f"queries has the shape {queries.shape}; it must be finite numbers of the shape "
            f"({count}, dimensions)",
            field="queries",
        )


def _check_numbers(sender: str, values: NDArray[np.float64], shape: tuple[int, ...]) -> None:
    """Refuse numbers that have another shape, or are not finite."""
    if values.shape != shape:
        raise ProtocolViolation(sender, f"sent numbers of shape {values.shape}, not {shape}")
    _check_finite(sender, values)


def _check_finite(sender: str, values: NDArray[np.float64]) -> None:
    if not np.isfinite(values).all():
        raise ProtocolViolation(sender, "sent a number that is not finite")


async def _receive_nearest(
    party: Party, server: str, queries: NDArray[np.float64], found: int, places_max: int
) -> NearestPlaces:
    """Receive the places and choose from them: post-processing that the server does not see.

    Args:
        party: This participant.
        server: Its peer.
        queries: Shape (queries, dimensions); secret.
        found: The number of places that are due for each query.
        places_max: The number of places that the server may have: their numbers are below it.
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
    """Refuse places that no tree of this size has, and one place at two points."""
    numbers = message.places.ravel()
    if numbers.max() >= places_max:
        raise ProtocolViolation(
            server, f"sent the place {numbers.max()}, and its numbers are below {places_max}"
        )
    _, first, same = np.unique(numbers, return_index=True, return_inverse=True)
    if not np.array_equal(message.points[first[same]], message.points):
        raise ProtocolViolation(server, "sent two points for one place")


def _found_message(tree: Tree, found: NDArray[np.int32]) -> FoundPlaces:
    """Return the server's answer: the points at these positions, shape (queries, found)."""
    numbers = tree.order[found].astype(np.uint32)
    return FoundPlaces(places=numbers, points=tree.points[found.ravel()])
