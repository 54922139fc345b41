"""A plan of walks: all that client and server agree on before the first step, and its cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, Self

import numpy as np

from veilring.errors import InputError
from veilring.protocols.forecast import Forecast, repeated
from veilring.protocols.treewalk.algorithm.steps import Comparison, Distance, Utility
from veilring.protocols.treewalk.algorithm.tree import depth_of
from veilring.protocols.treewalk.algorithm.walks import BASIC, Variant
from veilring.protocols.treewalk.messages import Bits, Found, Ground, Nodes, Request
from veilring.transport.frames import FRAME_BYTES_MAX

UtilityName = Literal["comparison", "distance"]

UTILITIES: Final[Mapping[UtilityName, type[Utility]]] = MappingProxyType(
    {"comparison": Comparison, "distance": Distance}
)
"""What a server has to expose for each of them is the same whatever their privacy."""

# What is sent and searched grows with it, and a client looks at a few dozen places at most.
NEIGHBOURS_MAX: Final = 1000
FLOAT_BYTES: Final = 8
PLACE_BYTES: Final = 4
ENVELOPE_BYTES: Final = 256  # the session, the kind and the headers of arrays


@dataclass(frozen=True, slots=True)
class Plan:
    """What kind of walks a client takes, and how many at once. Nothing of it is private.

    Attributes:
        utility: What makes a child useful: see `Comparison` and `Distance`.
        variant: How a walk splits into threads.
        neighbours: B, how many true neighbours of each point that was found are returned with it.
        walks: How many queries are asked together: they share the rounds.

    Raises:
        InputError: If a number is not allowed.
    """

    utility: UtilityName = "comparison"
    variant: Variant = BASIC
    neighbours: int = 0
    walks: int = 1

    def __post_init__(self) -> None:
        if self.utility not in UTILITIES:
            raise InputError("utility", self.utility, " or ".join(UTILITIES))
        if not 0 <= self.neighbours <= NEIGHBOURS_MAX:
            raise InputError("neighbours", self.neighbours, f"0 to {NEIGHBOURS_MAX}")
        if self.walks < 1:
            raise InputError("walks", self.walks, "at least 1")

    def check(self, depth: int, dimensions: int) -> None:
        """Refuse a plan that a tree cannot serve, or whose messages would not fit a frame.

        Raises:
            InputError: If so.
        """
        self.variant.check(depth)
        if self.walks > self.walks_max(depth, dimensions):
            allowed = f"1 to {self.walks_max(depth, dimensions)} of this kind at once"
            raise InputError("walks", self.walks, allowed)

    def walks_max(self, depth: int, dimensions: int) -> int:
        """Return how many walks fit the frames of one session."""
        width = self.width(dimensions)
        sent = max(
            (self.variant.threads_at(at) * width for at in self.variant.levels(depth)), default=0
        )
        found = self.found(depth) * (FLOAT_BYTES * dimensions + PLACE_BYTES)
        return (FRAME_BYTES_MAX - ENVELOPE_BYTES) // max(FLOAT_BYTES * sent, found)

    def width(self, dimensions: int) -> int:
        """Return how many numbers a thread is sent for a step."""
        return UTILITIES[self.utility].width(dimensions)

    def found(self, depth: int) -> int:
        """Return how many points a walk returns, neighbours included."""
        return self.variant.found(depth) * (1 + self.neighbours)

    @property
    def request(self) -> Request:
        """What a client sends of it."""
        return Request(
            utility=self.utility,
            variant=self.variant.kind,
            splits=self.variant.splits,
            neighbours=self.neighbours,
            walks=self.walks,
        )

    @classmethod
    def requested(cls, request: Request) -> Self:
        """Return the plan of a request.

        Raises:
            InputError: If a number is not allowed.
        """
        variant = Variant(request.variant, request.splits)
        return cls(request.utility, variant, request.neighbours, request.walks)


def walk_cost(plan: Plan, points: int, dimensions: int) -> Forecast:
    """Forecast a session: two messages a level, one there and one back, and one for the result.

    A level is a round trip for all threads together: L for a basic and a greedy walk, and L - s
    for the others.

    Args:
        plan: What is walked.
        points: N.
        dimensions: Of a point.
    """
    depth = depth_of(points)
    total = repeated(1, blank_found(plan.walks, plan.found(depth), dimensions))
    for level in plan.variant.levels(depth):
        steps = plan.walks * plan.variant.threads_at(level)
        nodes = Nodes(values=np.zeros((steps, plan.width(dimensions))))
        bits = Bits(packed=np.zeros(-(-steps // 8), dtype=np.uint8))
        total = total.plus(repeated(1, nodes)).plus(repeated(1, bits))
    ground = Ground(points=points, dimensions=dimensions)
    setup = repeated(1, plan.request).plus(repeated(1, ground))
    return Forecast(2 * len(plan.variant.levels(depth)) + 1, total, setup)


def blank_found(queries: int, found: int, dimensions: int) -> Found:
    """Return an answer to so many queries with so many points each: as large as any."""
    places = np.zeros((queries, found), dtype=np.uint32)
    return Found(places=places, points=np.zeros((queries * found, dimensions)))
