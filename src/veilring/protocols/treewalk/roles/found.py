"""What the roles of all mechanisms share: what was found, and how a client takes and judges it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.protocols.treewalk.algorithm.places import nearest_found
from veilring.protocols.treewalk.algorithm.tree import POINTS_MAX, Tree, depth_of
from veilring.protocols.treewalk.messages import Found, Ground


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
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


def check_queries_of(queries: NDArray[np.float64], count: int) -> None:
    """Refuse what is no batch of so many queries; the error names no value.

    Raises:
        InputError: If so.
    """
    if queries.ndim != 2 or len(queries) != count or not np.isfinite(queries).all():  # noqa: PLR2004 (a table has two axes)
        allowed = f"finite numbers of shape ({count}, dimensions)"
        raise InputError("queries", f"of shape {queries.shape}", allowed)


def check_ground(server: str, ground: Ground, queries: NDArray[np.float64]) -> int:
    """Return the depth of the server's tree, once it may be one.

    Raises:
        InputError: If the queries have other dimensions than its points.
        ProtocolViolation: If no tree has so many points.
    """
    if ground.points > POINTS_MAX:
        raise ProtocolViolation(server, f"claims to have {ground.points} points")
    if ground.dimensions != queries.shape[1]:
        allowed = f"shape ({len(queries)}, {ground.dimensions}), as the server's points"
        raise InputError("queries", f"of shape {queries.shape}", allowed)
    return depth_of(ground.points)


def check_numbers(sender: str, values: NDArray[np.float64], shape: tuple[int, ...]) -> None:
    """Refuse numbers that have another shape, or are not finite.

    Raises:
        ProtocolViolation: If so.
    """
    if values.shape != shape:
        raise ProtocolViolation(sender, f"sent numbers of shape {values.shape}, not {shape}")
    check_finite(sender, values)


def check_finite(sender: str, values: NDArray[np.float64]) -> None:
    """Refuse numbers that are not finite.

    Raises:
        ProtocolViolation: If so.
    """
    if not np.isfinite(values).all():
        raise ProtocolViolation(sender, "sent a number that is not finite")


async def choose(party: Party, server: str, queries: NDArray[np.float64], found: int) -> Nearest:
    """Take what was found and choose from it: post-processing, of which the server sees nothing.

    Raises:
        ProtocolViolation: If the server sent something else.
    """
    message = await party.receive(Found, sender=server)
    if message.places.shape != (len(queries), found):
        raise ProtocolViolation(server, f"sent places of shape {message.places.shape}")
    check_numbers(server, message.points, (len(queries) * found, queries.shape[1]))
    places = message.places.astype(np.int64)
    points = message.points.reshape(len(queries), found, -1)
    nearest, distances = nearest_found(queries, points)
    return Nearest(places[np.arange(len(queries)), nearest], distances, places, points)


def found_message(tree: Tree, found: NDArray[np.int32]) -> Found:
    """Return the server's answer: the points at these positions, shape (queries, found)."""
    numbers = tree.order[found].astype(np.uint32)
    return Found(places=numbers, points=tree.points[found.ravel()])
