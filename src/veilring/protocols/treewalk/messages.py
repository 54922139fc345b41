"""Messages between a client and a server of points."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.transport.messages import Array, Matrix, Message

_Whole = Annotated[int, Field(ge=0)]
_Positive = Annotated[int, Field(ge=1)]


class WalkRequest(Message, kind="treewalk.request"):
    """The client's plan of a session of walks, which is public."""

    splits: _Whole
    neighbours: _Whole
    queries: _Positive


class Ground(Message, kind="treewalk.ground"):
    """The size of the server's tree."""

    points: _Positive
    dimensions: _Positive


class Nodes(Message, kind="treewalk.nodes"):
    """The splits of the nodes that the walks have reached, shape (walks,)."""

    values: Annotated[NDArray[np.float64], Array("<f8", 1)]


class Bits(Message, kind="treewalk.bits"):
    """The client's private answers at a level, packed eight to a byte, in the order of `Nodes`."""

    packed: Annotated[NDArray[np.uint8], Array("|u1", 1)]


class BucketRequest(Message, kind="treewalk.bucket-request"):
    """The client's plan of a session of bucket responses, which is public."""

    splits: _Whole
    neighbours: _Whole
    queries: _Positive
    known: bytes
    """The hash of the splits that the client already has, or empty."""


class Top(Message, kind="treewalk.top"):
    """The splits above the buckets, by node number; empty if the client already has them."""

    splits: Annotated[NDArray[np.float64], Array("<f8", 1)]


class Buckets(Message, kind="treewalk.buckets"):
    """The client's private answers: one bucket for each query, chosen by randomised response."""

    named: Annotated[NDArray[np.uint32], Array("<u4", 1)]


class FoundPlaces(Message, kind="treewalk.found"):
    """The points found, and the neighbours requested with them."""

    places: Annotated[NDArray[np.uint32], Array("<u4", 2)]
    """The server's numbers of the places, shape (queries, found)."""
    points: Matrix
    """The coordinates of the places, shape (queries · found, dimensions)."""
