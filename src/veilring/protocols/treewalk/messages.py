"""What crosses the wire between a client and a server of points."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.transport.messages import Array, Matrix, Message

_Whole = Annotated[int, Field(ge=0)]
_Positive = Annotated[int, Field(ge=1)]


class WalkRequest(Message, kind="treewalk.request"):
    """What kind of walks the client will take, and how many at once: nothing private."""

    utility: Literal["comparison", "distance"]
    variant: Literal["basic", "parallel", "early", "greedy"]
    splits: _Whole
    neighbours: _Whole
    walks: _Positive


class Ground(Message, kind="treewalk.ground"):
    """The size of the server's tree."""

    points: _Positive
    dimensions: _Positive


class Nodes(Message, kind="treewalk.nodes"):
    """What the client has to know of the nodes where its threads stand.

    Shape (walks · threads, width of the utility), the threads of one walk together.
    """

    values: Matrix


class Bits(Message, kind="treewalk.bits"):
    """The client's private answers at a level, eight to a byte, in the same order."""

    packed: Annotated[NDArray[np.uint8], Array("|u1", 1)]


class BucketRequest(Message, kind="treewalk.bucket-request"):
    """How large the buckets are that the client will name, and how many at once."""

    splits: _Whole
    neighbours: _Whole
    queries: _Positive
    known: bytes
    """The hash of the splits that the client has already, or nothing."""


class Top(Message, kind="treewalk.top"):
    """The splits of the tree above its buckets, by node from the root; none if they are known."""

    splits: Annotated[NDArray[np.float64], Array("<f8", 1)]


class Buckets(Message, kind="treewalk.buckets"):
    """The client's private answers: one bucket for each query, its own or another."""

    named: Annotated[NDArray[np.uint32], Array("<u4", 1)]


class Blurred(Message, kind="treewalk.blurred"):
    """The client's queries, moved by noise, shape (queries, dimensions)."""

    points: Matrix
    nearest: _Positive
    """How many places it wants for each."""


class FoundPlaces(Message, kind="treewalk.found"):
    """The points that were found, and the neighbours that were asked for."""

    places: Annotated[NDArray[np.uint32], Array("<u4", 2)]
    """Their numbers with the server, shape (queries, found)."""
    points: Matrix
    """Their coordinates, shape (queries · found, dimensions)."""
