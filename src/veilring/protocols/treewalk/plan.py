"""Plans: all that client and server agree on before a session, what it costs, and which to choose.

`WalkPlan` takes a step a level. `BucketPlan` and `BlurPlan` take one message each way. A session of
bucket responses begins with the splits above the buckets. They are public and the same for all, so
that a client keeps them; the cost of that set-up is counted apart.

`recommend_lookup` lists the ways to ask by how often each finds the query's own bucket or leaf.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import exp
from types import MappingProxyType
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.checks import require
from veilring.privacy.tables import EPSILON_MAX
from veilring.protocols.forecast import Forecast, repeated
from veilring.protocols.treewalk.algorithm.one_message import bucket_law
from veilring.protocols.treewalk.algorithm.tree import DIMENSIONS_MAX, POINTS_MAX, depth_of
from veilring.protocols.treewalk.algorithm.walks import (
    BASIC,
    WALK_SPLITS_MAX,
    Comparison,
    Distance,
    Utility,
    Variant,
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
from veilring.transport.frames import FRAME_BYTES_MAX

UtilityName = Literal["comparison", "distance"]
UTILITIES: Final[Mapping[UtilityName, type[Utility]]] = MappingProxyType(
    {"comparison": Comparison, "distance": Distance}
)
"""What a server has to expose for each of them is the same whatever their privacy."""
# 32 places: nearly always the nearest one is among them if the bucket is the right one, and they
# fit into one packet.
BUCKET_SPLITS: Final = 5
"""The default size of buckets: 2**5 places."""
# What is sent and searched grows with it, and a client looks at a few dozen places at most.
_NEIGHBOURS_MAX: Final = 1000
_FLOAT_BYTES: Final = 8
_PLACE_BYTES: Final = 4
_ENVELOPE_BYTES: Final = 256  # the session, the kind and the headers of arrays
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class WalkPlan:
    """What kind of walks a client takes, and how many at once. Nothing of it is private.

    Attributes:
        utility: What makes a child useful: see `Comparison` and `Distance`.
        variant: How a walk splits into threads.
        neighbours: B, how many true neighbours of each point that was found are returned with it.
        walks: The number of queries that are asked together: they share the rounds.

    Raises:
        InputError: If a number is not allowed.
    """

    utility: UtilityName = "comparison"
    variant: Variant = BASIC
    neighbours: int = 0
    walks: int = 1

    def __post_init__(self) -> None:
        require(self.utility in UTILITIES, "utility", self.utility, " or ".join(UTILITIES))
        _check_neighbours(self.neighbours)
        require(self.walks >= 1, "walks", self.walks, "at least 1")

    def check(self, depth: int, dimensions: int) -> None:
        """Refuse a plan that a tree cannot serve, or whose messages would not fit a frame.

        Raises:
            InputError: If so.
        """
        self.variant.check(depth)
        most = self.walks_max(depth, dimensions)
        require(self.walks <= most, "walks", self.walks, f"1 to {most} of this kind at once")

    def walks_max(self, depth: int, dimensions: int) -> int:
        """Return how many walks fit the frames of one session."""
        width = self.width(dimensions)
        sent = max(
            (self.variant.threads_at(at) * width for at in self.variant.levels(depth)), default=0
        )
        found = self.found(depth) * (_FLOAT_BYTES * dimensions + _PLACE_BYTES)
        return (FRAME_BYTES_MAX - _ENVELOPE_BYTES) // max(_FLOAT_BYTES * sent, found)

    def width(self, dimensions: int) -> int:
        """Return how many numbers a thread is sent for a step."""
        return UTILITIES[self.utility].width(dimensions)

    def found(self, depth: int) -> int:
        """Return how many points a walk returns, neighbours included."""
        return self.variant.found(depth) * (1 + self.neighbours)

    @property
    def request(self) -> WalkRequest:
        """What a client sends of it."""
        return WalkRequest(
            utility=self.utility,
            variant=self.variant.kind,
            splits=self.variant.splits,
            neighbours=self.neighbours,
            walks=self.walks,
        )

    @classmethod
    def requested(cls, request: WalkRequest) -> Self:
        """Return the plan of a request.

        Raises:
            InputError: If a number is not allowed.
        """
        variant = Variant(request.variant, request.splits)
        return cls(request.utility, variant, request.neighbours, request.walks)


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """How large buckets are, and how many are named at once. Nothing of it is private.

    Attributes:
        splits: s; a bucket has at most 2**s points.
        neighbours: B, how many true neighbours of each point are returned with it.
        queries: The number of queries that are asked together.

    Raises:
        InputError: If a number is not allowed.
    """

    splits: int
    neighbours: int = 0
    queries: int = 1

    def __post_init__(self) -> None:
        allowed = f"0 to {WALK_SPLITS_MAX}"
        require(0 <= self.splits <= WALK_SPLITS_MAX, "splits", self.splits, allowed)
        _check_neighbours(self.neighbours)
        require(self.queries >= 1, "queries", self.queries, "at least 1")

    @property
    def found(self) -> int:
        """How many points come back for a query; one whose leaf stands early counts twice."""
        return (1 << self.splits) * (1 + self.neighbours)

    def check(self, depth: int, dimensions: int) -> None:
        """Refuse a plan that a tree cannot serve, or whose messages would not fit a frame.

        Raises:
            InputError: If so.
        """
        room = FRAME_BYTES_MAX - _ENVELOPE_BYTES
        least = max(0, depth - (room // _FLOAT_BYTES).bit_length() + 1)
        allowed = f"{least} to {depth - 1}, for this tree"
        require(least <= self.splits < depth, "splits", self.splits, allowed)
        _check_found(self.queries, self.found, dimensions)

    def queries_max(self, dimensions: int) -> int:
        """Return how many queries fit the frames of one session."""
        return _fitting(self.found, dimensions)

    def request(self, known: bytes) -> BucketRequest:
        """Return what a client sends of it, and of the splits that it knows already."""
        return BucketRequest(
            splits=self.splits, neighbours=self.neighbours, queries=self.queries, known=known
        )


@dataclass(frozen=True, eq=False)
class KnownTop:
    """The top of a server's tree, which is public and may be kept.

    Attributes:
        splits: By node from the root, shape (buckets,); the first stands for nothing.
    """

    splits: NDArray[np.float64]

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the splits."""
        return hashlib.sha256(self.splits.astype("<f8").tobytes()).digest()


@dataclass(frozen=True, slots=True)
class BlurPlan:
    """How many places a client wants for each blurred query, and how many of these it asks at once.

    Attributes:
        nearest: How many places; more than one makes up for the noise.
        queries: How many queries.

    Raises:
        InputError: If a number is not allowed.
    """

    nearest: int = 1
    queries: int = 1

    def __post_init__(self) -> None:
        require(self.nearest >= 1, "nearest", self.nearest, "at least 1")
        require(self.queries >= 1, "queries", self.queries, "at least 1")

    def check(self, dimensions: int) -> None:
        """Refuse a plan whose answer would not fit a frame.

        Raises:
            InputError: If so.
        """
        _check_found(self.queries, self.nearest, dimensions)


def _check_neighbours(neighbours: int) -> None:
    allowed = f"0 to {_NEIGHBOURS_MAX}"
    require(0 <= neighbours <= _NEIGHBOURS_MAX, "neighbours", neighbours, allowed)


def _check_found(queries: int, found: int, dimensions: int) -> None:
    most = _fitting(found, dimensions)
    allowed = f"1 to {most}, or the answer would not fit a frame"
    require(queries <= most, "queries", queries, allowed)


def _fitting(found: int, dimensions: int) -> int:
    return (FRAME_BYTES_MAX - _ENVELOPE_BYTES) // (
        found * (_FLOAT_BYTES * dimensions + _PLACE_BYTES)
    )


def walk_cost(plan: WalkPlan, points: int, dimensions: int) -> Forecast:
    """Forecast a session: two messages a level, one there and one back, and one for the result.

    A level is a round trip for all threads together: L for a basic and a greedy walk, and L - s
    for the others.

    Args:
        plan: What is walked.
        points: The number of points.
        dimensions: The number of coordinates of a point.
    """
    depth = depth_of(points)
    total = repeated(1, _blank_found(plan.walks, plan.found(depth), dimensions))
    for level in plan.variant.levels(depth):
        steps = plan.walks * plan.variant.threads_at(level)
        nodes = Nodes(values=np.zeros((steps, plan.width(dimensions))))
        bits = Bits(packed=np.zeros(-(-steps // 8), dtype=np.uint8))
        total = total.plus(repeated(1, nodes)).plus(repeated(1, bits))
    ground = Ground(points=points, dimensions=dimensions)
    setup = repeated(1, plan.request).plus(repeated(1, ground))
    return Forecast(2 * len(plan.variant.levels(depth)) + 1, total, setup)


def bucket_cost(
    plan: BucketPlan, points: int, dimensions: int, *, is_known: bool = False
) -> Forecast:
    """Forecast a session of responses: one message there and one back.

    Args:
        plan: What is asked.
        points: The number of points.
        dimensions: The number of coordinates of a point.
        is_known: Whether the client has the splits from before.
    """
    depth = depth_of(points)
    buckets = 1 << (depth - plan.splits)
    request = plan.request(bytes(_DIGEST_BYTES if is_known else 0))
    setup = repeated(1, request).plus(repeated(1, Ground(points=points, dimensions=dimensions)))
    setup = setup.plus(repeated(1, Top(splits=np.zeros(0 if is_known else buckets))))
    named = Buckets(named=np.zeros(plan.queries, dtype=np.uint32))
    answer = _blank_found(plan.queries, plan.found, dimensions)
    return Forecast(2, repeated(1, named).plus(repeated(1, answer)), setup)


def blur_cost(plan: BlurPlan, dimensions: int) -> Forecast:
    """Forecast a session of blurred queries: one message there and one back, and no set-up.

    Args:
        plan: What is asked.
        dimensions: The number of coordinates of a point.
    """
    asked = Blurred(points=np.zeros((plan.queries, dimensions)), nearest=plan.nearest)
    answer = _blank_found(plan.queries, plan.nearest, dimensions)
    return Forecast(2, repeated(1, asked).plus(repeated(1, answer)))


def _blank_found(queries: int, found: int, dimensions: int) -> FoundPlaces:
    """Return an answer of zeros, which is as large as any answer of this shape."""
    places = np.zeros((queries, found), dtype=np.uint32)
    return FoundPlaces(places=places, points=np.zeros((queries * found, dimensions)))


@dataclass(frozen=True, slots=True)
class LookupOption:
    """One way to ask a query, which spends at most the given epsilon at delta 0.

    Attributes:
        mechanism: `response` names a bucket in one message; `walk` takes a step a level.
        variant: How a walk splits; of a response, the size of its buckets, as of an `early` walk.
        epsilon_i: The ε_i of each step of a walk (`Comparison`); of a response, its epsilon. A walk
            without a step, which takes all points, spends nothing whatever it is.
        probability: That the bucket or leaf on the query's side of all splits is among what is
            found.
        found: How many points come back.
        rounds: Messages one after the other, without set-up.
        bytes: All messages, set-up included.
        setup_bytes: How many of these are set-up; of a response, splits that a client may keep.
    """

    mechanism: Literal["response", "walk"]
    variant: Variant
    epsilon_i: float
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
    """Return the ways to ask one query, the one that finds its own bucket most often first.

    What finds more points finds the own bucket more often, up to sending all of them, which needs
    no privacy at all: where they fit one message that wins. Ways that find it equally often come in
    the order of their bytes.

    Distances are left out. A step by distance spends as much as a comparison, and slips at least
    as often. So is blur: it gives no local privacy.

    Args:
        points: The number of points, at least 2.
        dimensions: The number of coordinates of a point.
        epsilon: What a query may spend at delta 0; above 0 and at most 40.
        rounds: How many messages there may be one after the other, without set-up; any if left out.
        bytes: How many bytes they may have, set-up included; any if left out.

    Raises:
        InputError: If a number is out of range.
    """
    for name, value, least, most in (
        ("points", points, 2, POINTS_MAX),
        ("dimensions", dimensions, 1, DIMENSIONS_MAX),
    ):
        require(least <= value <= most, name, value, f"{least} to {most}")
    if not 0 < epsilon <= EPSILON_MAX:
        raise InputError("epsilon", epsilon, f"a number above 0 and up to {EPSILON_MAX:g}")
    options = [*_responses(points, dimensions, epsilon), *_walks(points, dimensions, epsilon)]
    fitting = [
        each
        for each in options
        if (rounds is None or each.rounds <= rounds) and (bytes is None or each.bytes <= bytes)
    ]
    return tuple(sorted(fitting, key=lambda each: (-each.probability, each.bytes, each.rounds)))


def own_probability(variant: Variant, depth: int, slip: float) -> float:
    """Return how often a walk finds the leaf, or bucket, on the query's side of all splits.

    One thread can find it: of a basic or an early walk, and of the parallel ones that above it, if
    it never slips. A greedy walk may slip once, since it sends a thread down the other child.

    Args:
        variant: How the walk splits.
        depth: L.
        slip: The probability that a step names the other child.
    """
    steps = len(variant.levels(depth))
    never = (1 - slip) ** steps
    if variant.kind != "greedy":
        return never
    return never + steps * slip * (1 - slip) ** (steps - 1)


def _responses(points: int, dimensions: int, epsilon: float) -> list[LookupOption]:
    depth, options = depth_of(points), []
    for splits in range(min(depth, WALK_SPLITS_MAX + 1)):
        plan = BucketPlan(splits)
        try:
            plan.check(depth, dimensions)
        except InputError:  # it would not fit a frame
            continue
        options.append(
            _option(
                "response",
                Variant("early", splits),
                bucket_cost(plan, points, dimensions),
                epsilon_i=epsilon,
                probability=float(bucket_law(depth, splits, epsilon).p),
                found=plan.found,
            )
        )
    return options


def _walks(points: int, dimensions: int, epsilon: float) -> list[LookupOption]:
    depth, options = depth_of(points), []
    several = range(1, min(depth, WALK_SPLITS_MAX) + 1)
    variants = [BASIC, Variant("greedy"), *(Variant("early", splits) for splits in several)]
    # One that begins in parallel at all leaves is the early walk that ends at the root.
    below = (Variant("parallel", splits) for splits in several if splits < depth)
    for variant in (*variants, *below):
        plan, steps = WalkPlan(variant=variant), variant.compositions(depth)
        if plan.walks_max(depth, dimensions) < 1:
            continue
        each = epsilon / max(1, steps)
        # A comparison spends half of its epsilon.
        options.append(
            _option(
                "walk",
                variant,
                walk_cost(plan, points, dimensions),
                epsilon_i=2 * each,
                probability=own_probability(variant, depth, 1 / (1 + exp(each))),
                found=plan.found(depth),
            )
        )
    return options


def _option(
    mechanism: Literal["response", "walk"],
    variant: Variant,
    cost: Forecast,
    *,
    epsilon_i: float,
    probability: float,
    found: int,
) -> LookupOption:
    total = cost.traffic.plus(cost.setup)
    return LookupOption(
        mechanism,
        variant,
        epsilon_i,
        probability,
        found,
        cost.rounds,
        total.bytes,
        cost.setup.bytes,
    )
