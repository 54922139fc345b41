"""Plans of a look-up: the public parameters of a session, its cost, and a recommendation.

A `WalkPlan` takes one round trip per level, a `BucketPlan` or `BlurPlan` one in total. A session of
bucket responses begins with a set-up, in which the server sends the splits above the buckets. They
are public and equal for all clients, so a client can keep them; their cost is counted separately.

`recommend_lookup` sorts the look-ups by the probability of finding the query's own bucket or leaf.
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
from veilring.protocols.digests import DIGEST_BYTES
from veilring.protocols.promise import Forecast, repeated
from veilring.protocols.treewalk.algorithm.one_message import bucket_distribution
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
from veilring.transport.frames import CONTENT_BYTES_MAX

UtilityName = Literal["comparison", "distance"]
UTILITIES: Final[Mapping[UtilityName, type[Utility]]] = MappingProxyType(
    {"comparison": Comparison, "distance": Distance}
)
"""Utilities by name. The class alone, not its ε, determines what a server exposes of a node."""
# A bucket of 32 places fits into one packet, and the right bucket nearly always contains the
# nearest place.
BUCKET_SPLITS: Final = 5
"""The default size of buckets: 2**5 places."""
# Messages and searches grow with it, and a client needs a few dozen places at most.
_NEIGHBOURS_MAX: Final = 1000
_FLOAT_BYTES: Final = 8
_PLACE_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class WalkPlan:
    """The public parameters of a session of walks.

    Attributes:
        walks: The number of queries in the session; they share its rounds.
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
        """Check that a tree can serve the plan and that its messages fit a frame."""
        self.variant.check(depth)
        most = self.walks_max(depth, dimensions)
        require(self.walks <= most, "walks", self.walks, f"1 to {most} for walks of this kind")

    def walks_max(self, depth: int, dimensions: int) -> int:
        """Return the greatest number of walks whose messages fit a frame."""
        width = self.width(dimensions)
        sent = max(
            (self.variant.threads_at(at) * width for at in self.variant.levels(depth)), default=0
        )
        found = self.found(depth) * (_FLOAT_BYTES * dimensions + _PLACE_BYTES)
        return CONTENT_BYTES_MAX // max(_FLOAT_BYTES * sent, found)

    def width(self, dimensions: int) -> int:
        """Return the number of values that a server sends per thread and step."""
        return UTILITIES[self.utility].width(dimensions)

    def found(self, depth: int) -> int:
        """Return the number of points that a walk returns, neighbours included."""
        return self.variant.found(depth) * (1 + self.neighbours)

    @property
    def request(self) -> WalkRequest:
        """The client's request for this plan."""
        return WalkRequest(
            utility=self.utility,
            variant=self.variant.kind,
            splits=self.variant.splits,
            neighbours=self.neighbours,
            walks=self.walks,
        )

    @classmethod
    def requested(cls, request: WalkRequest) -> Self:
        """Return the plan of a request."""
        variant = Variant(request.variant, request.splits)
        return cls(request.utility, variant, request.neighbours, request.walks)


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """The public parameters of a session of bucket responses.

    Attributes:
        splits: s; a bucket has at most 2**s points.
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
        """The number of points returned for a query; a leaf one level early counts twice."""
        return (1 << self.splits) * (1 + self.neighbours)

    def check(self, depth: int, dimensions: int) -> None:
        """Check that a tree can serve the plan and that its messages fit a frame."""
        least = max(0, depth - (CONTENT_BYTES_MAX // _FLOAT_BYTES).bit_length() + 1)
        allowed = f"{least} to {depth - 1}, for this tree"
        require(least <= self.splits < depth, "splits", self.splits, allowed)
        _check_found(self.queries, self.found, dimensions)

    def queries_max(self, dimensions: int) -> int:
        """Return the number of queries that fit the frames of one session."""
        return _fitting(self.found, dimensions)

    def request(self, known: bytes) -> BucketRequest:
        """Return the client's request for this plan, given the splits that it has already."""
        return BucketRequest(
            splits=self.splits, neighbours=self.neighbours, queries=self.queries, known=known
        )


@dataclass(frozen=True, eq=False)
class KnownTop:
    """The top of a server's tree, which is public and may be kept.

    Attributes:
        splits: The splits by node number, shape (buckets,). Nodes count from 1; entry 0 is unused.
    """

    splits: NDArray[np.float64]

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the splits."""
        return hashlib.sha256(self.splits.astype("<f8").tobytes()).digest()


@dataclass(frozen=True, slots=True)
class BlurPlan:
    """The public parameters of a session of blurred queries.

    Attributes:
        nearest: The number of places returned for each query; more than one offsets the noise.
    """

    nearest: int = 1
    queries: int = 1

    def __post_init__(self) -> None:
        require(self.nearest >= 1, "nearest", self.nearest, "at least 1")
        require(self.queries >= 1, "queries", self.queries, "at least 1")

    def check(self, dimensions: int) -> None:
        """Check that the answer fits a frame."""
        _check_found(self.queries, self.nearest, dimensions)


def _check_neighbours(neighbours: int) -> None:
    allowed = f"0 to {_NEIGHBOURS_MAX}"
    require(0 <= neighbours <= _NEIGHBOURS_MAX, "neighbours", neighbours, allowed)


def _check_found(queries: int, found: int, dimensions: int) -> None:
    most = _fitting(found, dimensions)
    allowed = f"1 to {most}, so that the answer fits a frame"
    require(queries <= most, "queries", queries, allowed)


def _fitting(found: int, dimensions: int) -> int:
    return CONTENT_BYTES_MAX // (found * (_FLOAT_BYTES * dimensions + _PLACE_BYTES))


def walk_cost(plan: WalkPlan, points: int, dimensions: int) -> Forecast:
    """Forecast a session: one message each way per level, and one for the result.

    All threads share the round trip of a level. A basic or greedy walk has L levels, the other
    variants L - s.
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
    """Forecast a session of responses: one message each way."""
    depth = depth_of(points)
    buckets = 1 << (depth - plan.splits)
    request = plan.request(bytes(DIGEST_BYTES if is_known else 0))
    setup = repeated(1, request).plus(repeated(1, Ground(points=points, dimensions=dimensions)))
    setup = setup.plus(repeated(1, Top(splits=np.zeros(0 if is_known else buckets))))
    named = Buckets(named=np.zeros(plan.queries, dtype=np.uint32))
    answer = _blank_found(plan.queries, plan.found, dimensions)
    return Forecast(2, repeated(1, named).plus(repeated(1, answer)), setup)


def blur_cost(plan: BlurPlan, dimensions: int) -> Forecast:
    """Forecast a session of blurred queries: one message each way and no set-up."""
    asked = Blurred(points=np.zeros((plan.queries, dimensions)), nearest=plan.nearest)
    answer = _blank_found(plan.queries, plan.nearest, dimensions)
    return Forecast(2, repeated(1, asked).plus(repeated(1, answer)))


def _blank_found(queries: int, found: int, dimensions: int) -> FoundPlaces:
    """Return an answer of zeros; all answers of this shape have the same size."""
    places = np.zeros((queries, found), dtype=np.uint32)
    return FoundPlaces(places=places, points=np.zeros((queries * found, dimensions)))


@dataclass(frozen=True, slots=True)
class LookupOption:
    """A look-up that spends at most a given epsilon at delta 0, with its accuracy and cost.

    Attributes:
        mechanism: `response` names a bucket in one message; `walk` takes one step per level.
        variant: The way in which a walk splits. For a response, an `early` variant that gives the
            size of the buckets.
        epsilon_i: The ε_i of each step of a walk (`Comparison`), or the epsilon of a response. A
            walk without steps returns all points and spends nothing, whatever its ε_i.
        probability: The probability that the result contains the bucket or leaf on the query's side
            of all splits.
        rounds: The number of successive messages, without set-up.
        setup_bytes: The size of the set-up. For a response, a client may keep these splits.
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
    """Return the look-ups for one query, sorted by the probability of finding its own bucket.

    The more points a look-up returns, the higher that probability. At the extreme, a server sends
    all its points, which needs no privacy: if they fit one message, that look-up comes first.
    Look-ups of equal probability are sorted by their bytes.

    Two mechanisms are excluded: `Distance`, whose steps spend as much as those of `Comparison` and
    slip at least as often, and `Blur`, which does not give local privacy.

    Args:
        points: The number of points, at least 2.
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
    options = [*_responses(points, dimensions, epsilon), *_walks(points, dimensions, epsilon)]
    fitting = [
        each
        for each in options
        if (rounds is None or each.rounds <= rounds) and (bytes is None or each.bytes <= bytes)
    ]
    return tuple(sorted(fitting, key=lambda each: (-each.probability, each.bytes, each.rounds)))


def own_probability(variant: Variant, depth: int, slip: float) -> float:
    """Return the probability that a walk finds the leaf, or bucket, on the query's side.

    In a basic, early or parallel walk only one thread can find it, and only if that thread never
    slips. A greedy walk may slip once, since it also sends a thread down the other child.
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
        except InputError:  # the answer would not fit a frame
            continue
        options.append(
            _option(
                "response",
                Variant("early", splits),
                bucket_cost(plan, points, dimensions),
                epsilon_i=epsilon,
                probability=float(bucket_distribution(depth, splits, epsilon).p),
                found=plan.found,
            )
        )
    return options


def _walks(points: int, dimensions: int, epsilon: float) -> list[LookupOption]:
    depth, options = depth_of(points), []
    several = range(1, min(depth, WALK_SPLITS_MAX) + 1)
    variants = [BASIC, Variant("greedy"), *(Variant("early", splits) for splits in several)]
    # A parallel walk that begins at all leaves equals the early walk that ends at the root.
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
