"""What crosses the wire in a tree walk."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.transport.messages import Array, Matrix, Message

__all__ = ("Bits", "Found", "Ground", "Nodes", "Request")

_Whole = Annotated[int, Field(ge=0)]
_Positive = Annotated[int, Field(ge=1)]


class Request(Message, kind="treewalk.request"):
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


class Found(Message, kind="treewalk.found"):
    """The points at which the threads have arrived, and the neighbours that were asked for."""

    places: Annotated[NDArray[np.uint32], Array("<u4", 2)]
    """Their numbers with the server, shape (walks, found)."""
    points: Matrix
    """Their coordinates, shape (walks · found, dimensions)."""
