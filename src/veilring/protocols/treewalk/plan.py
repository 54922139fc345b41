"""The plan of a look-up: public parameters, messages, cost, and a recommendation.

A walk takes one round trip per level, and a bucket response one in total. A session of responses
begins with a set-up, in which the server sends the splits above the buckets. They are public and
equal for all clients, so a client can keep them; their cost is counted separately.

`recommend_lookup` sorts the look-ups by the probability of finding the query's own bucket.
"""

from dataclasses import asdict, dataclass
from math import exp
from typing import Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.privacy.checks import require
from veilring.privacy.selection import EPSILON_MAX
from veilring.protocols.promise import Forecast, repeated
from veilring.protocols.treewalk.algorithm.mechanisms import SPLITS_MAX, bucket_distribution
from veilring.protocols.treewalk.algorithm.tree import DIMENSIONS_MAX, POINTS_MAX, depth_of
from veilring.transport.frames import CONTENT_BYTES_MAX
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

    values: Annotated[Floats, Array("<f8", 1)]


class Bits(Message, kind="treewalk.bits"):
    """The client's private answers at a level, packed eight to a byte, in the order of `Nodes`."""

    packed: Annotated[NDArray[np.uint8], Array("|u1", 1)]


class BucketRequest(Message, kind="treewalk.bucket-request"):
    """The client's plan of a session of bucket responses, which is public."""

    splits: _Whole
    neighbours: _Whole
    queries: _Positive


class Top(Message, kind="treewalk.top"):
    """The splits above the buckets, by node number. Nodes count from 1; entry 0 is unused."""

    splits: Annotated[Floats, Array("<f8", 1)]


class Buckets(Message, kind="treewalk.buckets"):
    """The client's private answers: one bucket for each query, chosen by randomised response."""

    named: Annotated[NDArray[np.uint32], Array("<u4", 1)]


class FoundPlaces(Message, kind="treewalk.found"):
    """The points found, and the neighbours requested with them."""

    places: Annotated[NDArray[np.uint32], Array("<u4", 2)]
    """The server's numbers of the places, shape (queries, found)."""
    points: Matrix
    """The coordinates of the places, shape (queries · found, dimensions)."""


# A bucket of 32 places fits into one packet, and the right bucket nearly always contains the
# nearest place.
BUCKET_SPLITS: Final = 5
"""The default size of buckets: 2**5 places."""
# Messages and searches grow with it, and a client needs a few dozen places at most.
_NEIGHBOURS_MAX: Final = 1000
_FLOAT_BYTES: Final = 8
_PLACE_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """The public parameters of a session of look-ups.

    Attributes:
        splits: s, from 0 to `SPLITS_MAX`; a bucket has at most 2**s points.
        neighbours: B, the number of true neighbours that are returned with each point; 0 to 1000.
        queries: The number of queries in the session, at least 1; they share its rounds.
    """

    splits: int = 0
    neighbours: int = 0
    queries: int = 1

    def __post_init__(self) -> None:
        require(0 <= self.splits <= SPLITS_MAX, "splits", self.splits, f"0 to {SPLITS_MAX}")
        allowed = f"0 to {_NEIGHBOURS_MAX}"
        require(0 <= self.neighbours <= _NEIGHBOURS_MAX, "neighbours", self.neighbours, allowed)
        require(self.queries >= 1, "queries", self.queries, "at least 1")

    @property
    def found(self) -> int:
        """The number of points returned for a query; a leaf one level early counts twice."""
        return (1 << self.splits) * (1 + self.neighbours)

    def queries_max(self, dimensions: int) -> int:
        """Return the number of queries that fit the frames of one session."""
        # An answer is larger than the numbers that a server sends for a step.
        return CONTENT_BYTES_MAX // (self.found * (_FLOAT_BYTES * dimensions + _PLACE_BYTES))

    def check(
        self, depth: int, dimensions: int, *, least: int = 0, most: int | None = None
    ) -> None:
        """Check that a tree can serve walks by the plan, and that the answer fits a frame."""
        top = depth if most is None else most
        require(least <= self.splits <= top, "splits", self.splits, f"{least} to {top} here")
        fitting = self.queries_max(dimensions)
        allowed = f"1 to {fitting}, so that the answer fits a frame"
        require(self.queries <= fitting, "queries", self.queries, allowed)

    def check_response(self, depth: int, dimensions: int) -> None:
        """Check that a tree can serve responses by the plan, and that messages fit a frame."""
        least = max(0, depth - (CONTENT_BYTES_MAX // _FLOAT_BYTES).bit_length() + 1)
        self.check(depth, dimensions, least=least, most=depth - 1)


def walk_cost(plan: LookupPlan, points: int, dimensions: int) -> Forecast:
    """Forecast a session of walks: one message each way per level, and one for the result."""
    levels = depth_of(points) - plan.splits
    nodes = repeated(levels, Nodes(values=np.zeros(plan.queries)))
    bits = repeated(levels, Bits(packed=np.zeros(-(-plan.queries // 8), dtype=np.uint8)))
    total = repeated(1, _blank_found(plan, dimensions)).plus(nodes).plus(bits)
    request = WalkRequest(**asdict(plan))
    ground = Ground(points=points, dimensions=dimensions)
    return Forecast(2 * levels + 1, total, repeated(1, request).plus(repeated(1, ground)))


def response_cost(plan: LookupPlan, points: int, dimensions: int) -> Forecast:
    """Forecast a session of responses: one message each way."""
    buckets = 1 << (depth_of(points) - plan.splits)
    request = BucketRequest(**asdict(plan))
    setup = repeated(1, request).plus(repeated(1, Ground(points=points, dimensions=dimensions)))
    setup = setup.plus(repeated(1, Top(splits=np.zeros(buckets))))
    named = Buckets(named=np.zeros(plan.queries, dtype=np.uint32))
    return Forecast(2, repeated(1, named).plus(repeated(1, _blank_found(plan, dimensions))), setup)


def _blank_found(plan: LookupPlan, dimensions: int) -> FoundPlaces:
    """Return an answer of zeros; all answers of this shape have the same size."""
    places = np.zeros((plan.queries, plan.found), dtype=np.uint32)
    return FoundPlaces(places=places, points=np.zeros((plan.queries * plan.found, dimensions)))


@dataclass(frozen=True, slots=True)
class LookupOption:
    """A look-up that spends at most a given epsilon at delta 0, with its accuracy and cost.

    Attributes:
        mechanism: `response` names a bucket in one message; `walk` takes one step per level.
        splits: s; the look-up names a bucket of at most 2**s points.
        probability: The probability that this is the bucket on the query's side of all splits.
        bytes: The size of all messages, set-up included.
        setup_bytes: The size of the set-up.
    """

    mechanism: Literal["response", "walk"]
    splits: int
    probability: float
    found: int
    rounds: int
    bytes: int
    setup_bytes: int


def recommend_lookup(
    points: int,
    dimensions: int,
    epsilon: float,
    *,
    rounds: int | None = None,
    bytes: int | None = None,
) -> tuple[LookupOption, ...]:
    """Return the look-ups for one query, sorted by the probability of finding its own bucket.

    The more points a look-up returns, the higher that probability. At the extreme, a server sends
    all its points, which needs no privacy: if they fit one message, that walk without a step comes
    first. Look-ups of equal probability are sorted by their bytes.

    Args:
        epsilon: The greatest ε of a query at delta 0; above 0 and at most 40.
        rounds: The greatest number of successive messages, without set-up; unlimited by default.
        bytes: The greatest size of all messages, set-up included; unlimited by default.
    """
    for name, value, least, most in (
        ("points", points, 2, POINTS_MAX),
        ("dimensions", dimensions, 1, DIMENSIONS_MAX),
    ):
        require(least <= value <= most, name, value, f"{least} to {most}")
    if not 0 < epsilon <= EPSILON_MAX:
        raise InputError("epsilon", epsilon, f"a number above 0 and up to {EPSILON_MAX:g}")
    options = list[LookupOption]()
    for splits in range(min(depth_of(points), SPLITS_MAX) + 1):
        options += _options(LookupPlan(splits), points, dimensions, epsilon)
    fitting = [
        each
        for each in options
        if (rounds is None or each.rounds <= rounds) and (bytes is None or each.bytes <= bytes)
    ]
    return tuple(sorted(fitting, key=lambda each: (-each.probability, each.bytes, each.rounds)))


def own_probability(steps: int, epsilon: float) -> float:
    """Return the probability that a walk of some steps, which spends epsilon, never slips."""
    return (1 + exp(-epsilon / max(1, steps))) ** -steps


def _options(plan: LookupPlan, points: int, dimensions: int, epsilon: float) -> list[LookupOption]:
    """Return the walk and the response by a plan whose messages fit a frame."""
    depth, options = depth_of(points), []
    if plan.queries_max(dimensions) >= 1:
        chance = own_probability(depth - plan.splits, epsilon)
        options.append(_option("walk", plan, walk_cost(plan, points, dimensions), chance))
    try:
        plan.check_response(depth, dimensions)
    except InputError:
        return options
    chance = float(bucket_distribution(depth, plan.splits, epsilon).p)
    options.append(_option("response", plan, response_cost(plan, points, dimensions), chance))
    return options


def _option(
    mechanism: Literal["response", "walk"], plan: LookupPlan, cost: Forecast, probability: float
) -> LookupOption:
    total = cost.traffic.plus(cost.setup)
    return LookupOption(
        mechanism, plan.splits, probability, plan.found, cost.rounds, total.bytes, cost.setup.bytes
    )
