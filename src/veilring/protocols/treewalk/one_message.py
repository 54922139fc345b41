"""Plans of what takes one message each way, and their costs: bucket responses and blurred queries.

A session of responses begins with the splits above the buckets. They are public and the same for
all, so that a client keeps them; what that set-up costs is counted apart.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.forecast import Forecast, repeated
from veilring.protocols.treewalk.algorithm.tree import depth_of
from veilring.protocols.treewalk.algorithm.walks import SPLITS_MAX
from veilring.protocols.treewalk.messages import (
    Blurred,
    BucketRequest,
    Buckets,
    Ground,
    Top,
)
from veilring.protocols.treewalk.plan import (
    ENVELOPE_BYTES,
    FLOAT_BYTES,
    NEIGHBOURS_MAX,
    PLACE_BYTES,
    blank_found,
)
from veilring.transport.frames import FRAME_BYTES_MAX

# 32 places: nearly always the nearest one is among them if the bucket is the right one, and they
# fit into one packet.
BUCKET_SPLITS: Final = 5
"""How large buckets are where nothing else is said: `BucketPlan.splits`."""

_DIGEST_BYTES: Final = 32


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
class BucketPlan:
    """How large buckets are, and how many are named at once. Nothing of it is private.

    Attributes:
        splits: s; a bucket has at most 2**s points.
        neighbours: B, how many true neighbours of each point are returned with it.
        queries: How many are asked together.

    Raises:
        InputError: If a number is not allowed.
    """

    splits: int
    neighbours: int = 0
    queries: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.splits <= SPLITS_MAX:
            raise InputError("splits", self.splits, f"0 to {SPLITS_MAX}")
        if not 0 <= self.neighbours <= NEIGHBOURS_MAX:
            raise InputError("neighbours", self.neighbours, f"0 to {NEIGHBOURS_MAX}")
        if self.queries < 1:
            raise InputError("queries", self.queries, "at least 1")

    @property
    def found(self) -> int:
        """How many points come back for a query; one whose leaf stands early counts twice."""
        return (1 << self.splits) * (1 + self.neighbours)

    def check(self, depth: int, dimensions: int) -> None:
        """Refuse a plan that a tree cannot serve, or whose messages would not fit a frame.

        Raises:
            InputError: If so.
        """
        room = FRAME_BYTES_MAX - ENVELOPE_BYTES
        least = max(0, depth - (room // FLOAT_BYTES).bit_length() + 1)
        if not least <= self.splits < depth:
            raise InputError("splits", self.splits, f"{least} to {depth - 1}, for this tree")
        _check_found(self.queries, self.found, dimensions)

    def queries_max(self, dimensions: int) -> int:
        """Return how many queries fit the frames of one session."""
        return _fitting(self.found, dimensions)

    def request(self, known: bytes) -> BucketRequest:
        """Return what a client sends of it, and of the splits that it knows already."""
        return BucketRequest(
            splits=self.splits, neighbours=self.neighbours, queries=self.queries, known=known
        )


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
        for name in ("nearest", "queries"):
            if getattr(self, name) < 1:
                raise InputError(name, getattr(self, name), "at least 1")

    def check(self, dimensions: int) -> None:
        """Refuse a plan whose answer would not fit a frame.

        Raises:
            InputError: If so.
        """
        _check_found(self.queries, self.nearest, dimensions)


def _check_found(queries: int, found: int, dimensions: int) -> None:
    most = _fitting(found, dimensions)
    if queries > most:
        raise InputError("queries", queries, f"1 to {most}, or the answer would not fit a frame")


def _fitting(found: int, dimensions: int) -> int:
    return (FRAME_BYTES_MAX - ENVELOPE_BYTES) // (found * (FLOAT_BYTES * dimensions + PLACE_BYTES))


def bucket_cost(
    plan: BucketPlan, points: int, dimensions: int, *, is_known: bool = False
) -> Forecast:
    """Forecast a session of responses: one message there and one back.

    Args:
        plan: What is asked.
        points: N.
        dimensions: Of a point.
        is_known: Whether the client has the splits from before.
    """
    depth = depth_of(points)
    buckets = 1 << (depth - plan.splits)
    request = plan.request(bytes(_DIGEST_BYTES if is_known else 0))
    setup = repeated(1, request).plus(repeated(1, Ground(points=points, dimensions=dimensions)))
    setup = setup.plus(repeated(1, Top(splits=np.zeros(0 if is_known else buckets))))
    named = Buckets(named=np.zeros(plan.queries, dtype=np.uint32))
    answer = blank_found(plan.queries, plan.found, dimensions)
    return Forecast(2, repeated(1, named).plus(repeated(1, answer)), setup)


def blur_cost(plan: BlurPlan, dimensions: int) -> Forecast:
    """Forecast a session of blurred queries: one message there and one back, and no set-up.

    Args:
        plan: What is asked.
        dimensions: Of a point.
    """
    asked = Blurred(points=np.zeros((plan.queries, dimensions)), nearest=plan.nearest)
    answer = blank_found(plan.queries, plan.nearest, dimensions)
    return Forecast(2, repeated(1, asked).plus(repeated(1, answer)))
