"""What to use: the ways to ask, by how often each finds the query's own bucket or leaf."""

from dataclasses import dataclass
from math import exp
from typing import Literal

from veilring.errors import InputError
from veilring.privacy.response import EPSILON_MAX
from veilring.protocols.forecast import Forecast
from veilring.protocols.treewalk.algorithm.rivals import bucket_law
from veilring.protocols.treewalk.algorithm.tree import DIMENSIONS_MAX, POINTS_MAX, depth_of
from veilring.protocols.treewalk.algorithm.walks import BASIC, SPLITS_MAX, Variant
from veilring.protocols.treewalk.one_message import BucketPlan, bucket_cost
from veilring.protocols.treewalk.plan import Plan, walk_cost


@dataclass(frozen=True, slots=True)
class Option:
    """One way to ask a query, which spends at most the given epsilon at delta 0.

    Attributes:
        mechanism: `response` names a bucket in one message; `walk` takes a step a level.
        variant: How a walk splits; of a response, the size of its buckets, as of an `early` walk.
        epsilon_i: Of each step of a walk (`Comparison`); of a response, its epsilon. A walk without
            a step, which takes all points, spends nothing whatever it is.
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


def recommend(
    points: int,
    dimensions: int,
    epsilon: float,
    *,
    rounds: int | None = None,
    bytes: int | None = None,  # noqa: A002  (what it is; the built-in is not needed here)
) -> tuple[Option, ...]:
    """Return the ways to ask one query, the one that finds its own bucket most often first.

    What finds more points finds the own bucket more often, up to sending all of them, which needs
    no privacy at all: where they fit one message that wins. Ways that find it equally often come in
    the order of their bytes.

    Distances are left out. A step by distance spends as much as a comparison, and slips at least
    as often. So is blur: it gives no local privacy.

    Args:
        points: N, at least 2.
        dimensions: Of a point.
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
        if not least <= value <= most:
            raise InputError(name, value, f"{least} to {most}")
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
        slip: Of each step.
    """
    steps = len(variant.levels(depth))
    never = (1 - slip) ** steps
    if variant.kind != "greedy":
        return never
    return never + steps * slip * (1 - slip) ** (steps - 1)


def _responses(points: int, dimensions: int, epsilon: float) -> list[Option]:
    depth, options = depth_of(points), []
    for splits in range(min(depth, SPLITS_MAX + 1)):
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


def _walks(points: int, dimensions: int, epsilon: float) -> list[Option]:
    depth, options = depth_of(points), []
    several = range(1, min(depth, SPLITS_MAX) + 1)
    variants = [BASIC, Variant("greedy"), *(Variant("early", splits) for splits in several)]
    # One that begins in parallel at all leaves is the early walk that ends at the root.
    below = (Variant("parallel", splits) for splits in several if splits < depth)
    for variant in (*variants, *below):
        plan, steps = Plan(variant=variant), variant.compositions(depth)
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
) -> Option:
    total = cost.traffic.plus(cost.setup)
    return Option(
        mechanism,
        variant,
        epsilon_i,
        probability,
        found,
        cost.rounds,
        total.bytes,
        cost.setup.bytes,
    )
